"""Say again in a log what it lost of jobs and spend, and the ledger knows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TypedDict, overload

import structlog

from spotline.application.cloud_actuator.agreed_mark import (
    AgreedMark,
    ChargesToCome,
    HeldOfJobs,
    ReadOfLog,
    is_all_told,
    mark_of,
)
from spotline.application.cloud_actuator.charging import charged_by, resumed_behind
from spotline.application.cloud_actuator.ports import Ledger
from spotline.application.cloud_actuator.retelling import (
    TAKES,
    LogOfJobs,
    Retold,
    lost_jobs,
    retold,
    unknown_jobs,
)
from spotline.application.incarnations import FIRST, LogRemembered
from spotline.contracts.batch import unpacked
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import subjects_with
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.runtime.log_settling import LastingLog, settled_log

_log = structlog.get_logger(__name__)

ACTUATOR = "cloud_actuator"
"""The place of the service that charges."""
_OPENS = (SlotOpened, IncarnationBegun)


class LogNow(TypedDict):
    """By what a log is told from another."""

    created: str
    incarnation: int


async def tell_again(
    stream: LastingLog, ledger: Ledger, remembered: LogRemembered
) -> Sequence[Retold]:
    """Say again what a log lacks that lost entries; idempotent.

    What was seen to be there once is not read again, as long as log and ledger are those.

    A log that does not know a job which the ledger admitted has lost entries: it goes on as another
    incarnation. Jobs that were admitted before the ledger held submissions cannot be said again:
    they are named.
    """
    held = await _held_in(ledger)
    if held.is_empty or await _is_all_told(stream, ledger, held):
        return ()
    read = await _read(stream)
    coming = await _coming(stream)
    missing = _missing(held.without(coming), read.log)
    if not missing.retold and not missing.unknown and not any(map(coming.covers, held.costs)):
        await _note(stream, ledger, mark_of(held, read, **await _log_now(stream), before=None))
    if stream.incarnation == FIRST:
        if not missing.lost:
            return ()
        reason = lost_jobs_detail(missing.lost)
        await settled_log(stream, replace(remembered, restored=reason))
    for job_id in missing.unknown:
        _log.error("job_lost", job_id=job_id, reason="the ledger does not hold its submission")
    for told in missing.retold:
        envelope = envelope_for(
            told.event,
            event_id=told.event_id,
            source=told.source,
            causation_id="",
            correlation_id=told.correlation_id,
        )
        await stream.publish([envelope])
        if isinstance(told.event, JobSubmitted):
            _log.warning("job_submitted_again", job_id=told.event.job.job_id)
    return missing.retold


def lost_jobs_detail(job_ids: Sequence[str]) -> str:
    """Say that a log lacks jobs, in a line."""
    return f"the ledger admitted {len(job_ids)} jobs that the log does not know"


class Missing:
    """What a log lacks: `retold` can be said again, `lost` are the jobs of it, `unknown` cannot."""

    def __init__(
        self, retold: Sequence[Retold], lost: Sequence[str], unknown: Sequence[str]
    ) -> None:
        self.retold = retold
        self.lost = lost
        self.unknown = unknown


async def missing_in(stream: LastingLog, ledger: Ledger) -> Missing:
    """Compare all of a log with a ledger; changes neither."""
    return _missing(await _held_in(ledger), (await _read(stream)).log)


def _missing(held: HeldOfJobs, log: LogOfJobs) -> Missing:
    return Missing(
        retold=tuple(retold(held.records, held.costs, log)),
        lost=lost_jobs(held.records, log),
        unknown=unknown_jobs(held.admitted, held.records, log),
    )


async def _held_in(ledger: Ledger) -> HeldOfJobs:
    return HeldOfJobs(
        records=await ledger.job_records(),
        costs=[charge.cost for charge in await ledger.charges_since(0)],
        admitted=await ledger.admitted_ids(),
    )


async def _is_all_told(stream: LastingLog, ledger: Ledger, held: HeldOfJobs) -> bool:
    """Whether the log lacks nothing, by what came since the two were last seen to agree."""
    mark = await ledger.agreed()
    if mark is None or mark.incarnation != stream.incarnation:
        return False
    now = await _log_now(stream)
    if mark.created != now["created"]:
        return False
    read = await _read(stream, mark)
    if read is None or not is_all_told(mark, held, read.log):
        return False
    await _note(stream, ledger, mark_of(held, read, **now, before=mark))
    return True


async def _coming(stream: LastingLog) -> ChargesToCome:
    """The charges that the actuator may be about to say itself.

    What it has not acknowledged it takes again, and says what it answered then, under the same ids:
    said by others as well, a charge would count twice. Where it comes to another incarnation of the
    log, it takes all of it again.
    """
    facts = await stream.facts([ACTUATOR])
    place = facts.places.get(ACTUATOR)
    is_from_here = place is not None and place.incarnation >= stream.incarnation
    first_seq = place.floor_seq + 1 if place is not None and is_from_here else 1
    held: set[int] = set()
    copied: set[int] = set()
    before: SlotOpened | None = None
    resumed_slot = -1
    async for seq, event in _events(stream, _OPENS, 1, facts.last_seq):
        if isinstance(event, IncarnationBegun):
            resumed_slot = resumed_behind(before, resumed_slot, event)
        elif isinstance(event, SlotOpened) and (before is None or event.slot > before.slot):
            if seq >= first_seq:
                held |= set(charged_by(before, resumed_slot, event))
            before, resumed_slot = event, -1
    async for _, event in _events(stream, (SlotDecided,), first_seq, facts.last_seq):
        if isinstance(event, SlotDecided):
            copied.add(event.slot)
            # Behind its last slot a market opens none that would charge it.
            if before is not None and before.last and event.slot == before.slot:
                held.add(event.slot)
    return ChargesToCome(held=frozenset(held), copied=frozenset(copied))


async def _events(
    stream: LastingLog, kinds: Sequence[type[Event]], first_seq: int, last_seq: int
) -> AsyncIterator[tuple[int, Event]]:
    """The events of entries that hold some of these kinds, with the entry's seq."""
    async for entry in stream.read(subjects_with(kinds), first_seq=first_seq, last_seq=last_seq):
        try:
            events = [event_of(event) for event in unpacked(entry)]
        except ContractError:
            continue  # those who consume it have said so
        for event in events:
            yield entry.seq, event


async def _note(stream: LastingLog, ledger: Ledger, mark: AgreedMark | None) -> None:
    if mark is not None and mark != await ledger.agreed():
        await ledger.note_agreed(mark)


async def _log_now(stream: LastingLog) -> LogNow:
    return LogNow(created=(await stream.seen()).created, incarnation=stream.incarnation)


@overload
async def _read(stream: LastingLog) -> ReadOfLog: ...


@overload
async def _read(stream: LastingLog, mark: AgreedMark) -> ReadOfLog | None: ...


async def _read(stream: LastingLog, mark: AgreedMark | None = None) -> ReadOfLog | None:
    """Read a log, from a mark on where there is one; None where it has not the entry of the mark."""
    read = ReadOfLog()
    last_seq = await stream.last_seq()
    first_seq = 1 if mark is None else mark.seq
    is_there = mark is None
    async for entry in stream.read(subjects_with(TAKES), first_seq=first_seq, last_seq=last_seq):
        if not is_there and mark is not None:
            if (entry.seq, entry.stored_ns) != (mark.seq, mark.stored_ns):
                return None
            is_there = True
            continue
        try:
            events = [(event_of(event), event.envelope().event_id) for event in unpacked(entry)]
        except ContractError:
            continue  # those who consume it have said so
        read.fold(entry, events)
    return read if is_there else None
