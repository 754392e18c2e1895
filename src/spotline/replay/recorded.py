"""A recorded run as what it observed: the market slot by slot, and the jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.publishers import why_forged
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobCancelled, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import INFERRED, OBSERVED, UNKNOWN, IntArray, Market
from spotline.domain.market.offering import Count, Offering, Provenance, Quote
from spotline.domain.modes import Mode
from spotline.domain.units import NS_PER_S

_PROVENANCE = {
    Provenance.OBSERVED: OBSERVED,
    Provenance.INFERRED: INFERRED,
    Provenance.UNKNOWN: UNKNOWN,
}
_ABSENT = Count(instances=0, provenance=Provenance.INFERRED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEvent:
    """An event of a log, with what surrounded it."""

    event: Event
    envelope: Envelope
    seq: int
    stored_ns: int


class ReadableLog:
    """Decodes a log as its services did: what cannot be read and what came twice is passed over."""

    def __init__(self) -> None:
        self._ids: set[str] = set()

    def events_of(self, entry: StoredEntry) -> Iterator[RecordedEvent]:
        """The events of the next entry."""
        for stored in _events_of(entry):
            if is_dead_letter(stored):
                continue
            try:
                envelope, event = stored.envelope(), event_of(stored)
            except ContractError:
                continue
            if envelope.event_id not in self._ids:
                self._ids.add(envelope.event_id)
                yield RecordedEvent(
                    event=event, envelope=envelope, seq=stored.seq, stored_ns=stored.stored_ns
                )


def readable_events(entries: Iterable[StoredEntry]) -> list[RecordedEvent]:
    """Decode a whole log; see `ReadableLog`."""
    return list(chain.from_iterable(map(ReadableLog().events_of, entries)))


def _events_of(entry: StoredEntry) -> tuple[StoredEntry, ...]:
    try:
        return unpacked(entry)
    except ContractError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a run was told: `jobs` by start, without those withdrawn, and in which mode it was."""

    market: Market
    jobs: tuple[Job, ...]
    mode: Mode = Mode.LIVE


def observations_of(entries: Iterable[StoredEntry]) -> Observations:
    """Rebuild the market and the jobs of a log; what is forged was nobody's.

    Quotes of slots that were not opened are held; an offering first quoted later on has its first
    price and no capacity until then.

    Raises
    ------
    ContractError
        The log holds no market.
    """
    opened: MarketOpened | None = None
    slots: dict[int, SlotOpened] = {}
    jobs: dict[str, Job] = {}
    for recorded in readable_events(entries):
        if why_forged(recorded.event, recorded.envelope) is not None:
            continue
        match recorded.event:
            case MarketOpened():
                opened = recorded.event
            case SlotOpened():
                slots.setdefault(recorded.event.slot, recorded.event)
            case JobSubmitted():
                jobs.setdefault(recorded.event.job.job_id, recorded.event.job)
            case JobCancelled():
                jobs.pop(recorded.event.job_id, None)
            case _:
                pass
    if opened is None or not slots:
        raise ContractError("log", "holds no market: no slot was ever opened in it")
    return Observations(
        market=_market(opened, slots),
        jobs=tuple(sorted(jobs.values(), key=lambda job: (job.start_ns, job.job_id))),
        mode=opened.runs_in,
    )


def market_seen(opened: MarketOpened, slots: Iterable[SlotOpened]) -> Market:
    """The market that slots showed, at the prices that everybody pays; as `observations_of`.

    Disks are in no price: offerings say what they have.

    Raises
    ------
    ContractError
        There is no slot, or no quote in any.
    """
    listed: dict[int, SlotOpened] = {}
    for each in slots:
        quotes = tuple(quoted.as_listed for quoted in each.quotes)
        listed.setdefault(each.slot, replace(each, quotes=quotes))
    if not listed:
        raise ContractError("log", "holds no market: no slot was ever opened in it")
    return _market(opened, listed)


def market_of_log(entries: Iterable[StoredEntry]) -> Market:
    """The market that a log's slots showed, as `market_seen`."""
    opened: MarketOpened | None = None
    slots: list[SlotOpened] = []
    for recorded in readable_events(entries):
        if why_forged(recorded.event, recorded.envelope) is not None:
            continue
        if isinstance(recorded.event, MarketOpened):
            opened = recorded.event
        elif isinstance(recorded.event, SlotOpened):
            slots.append(recorded.event)
    if opened is None:
        raise ContractError("log", "holds no market: none was ever opened in it")
    return market_seen(opened, slots)


def _market(opened: MarketOpened, slots: dict[int, SlotOpened]) -> Market:
    first, last = min(slots), max(slots)
    start_ns = slots[first].ts_event_ns
    columns = [_course(offering, slots) for offering in opened.offerings]
    quoted = [
        (offering, course)
        for offering, course in zip(opened.offerings, columns, strict=True)
        if course
    ]
    if not quoted:
        raise ContractError("log", "holds no quote of any offering of its market")

    def table(read: str) -> IntArray:
        rows = [[_number(quote, read) for quote in course] for _, course in quoted]
        return np.ascontiguousarray(np.array(rows, dtype=np.int64).T)

    starts_ns = start_ns + np.arange(last - first + 1, dtype=np.int64) * (opened.slot_s * NS_PER_S)
    return Market(
        offerings=tuple(offering for offering, _ in quoted),
        slot_s=opened.slot_s,
        start_ns=start_ns,
        spot_price_micro_usd=table("spot_price_micro_usd"),
        on_demand_price_micro_usd=table("on_demand_price_micro_usd"),
        spot_available=table("spot_available"),
        spot_provenance=table("spot_provenance"),
        on_demand_available=table("on_demand_available"),
        on_demand_provenance=table("on_demand_provenance"),
        quoted_ns=np.minimum(table("ts_event_ns"), starts_ns[:, None]),
        source=f"log of {opened.source}",
    )


def _course(offering: Offering, slots: dict[int, SlotOpened]) -> list[Quote]:
    """The offering's quote in every slot from the first to the last; empty if it never had one."""
    known: dict[int, Quote] = {}
    for slot, opened in slots.items():
        for slot_quote in opened.quotes:
            is_said = not slot_quote.unquoted
            if is_said and slot_quote.quote.offering_id == offering.offering_id:
                known[slot] = slot_quote.quote
    if not known:
        return []
    held = replace(known[min(known)], spot_available=_ABSENT, on_demand_available=_ABSENT)
    course = []
    for slot in range(min(slots), max(slots) + 1):
        held = known.get(slot, held)
        course.append(held)
    return course


def _number(quote: Quote, read: str) -> int:
    if read.endswith("_provenance"):
        count: Count = getattr(quote, read.replace("_provenance", "_available"))
        return _PROVENANCE[count.provenance]
    value = getattr(quote, read)
    return value.instances if isinstance(value, Count) else int(value)
