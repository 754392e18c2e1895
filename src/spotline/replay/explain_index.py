"""Where in a log the decisions are, and what they came of: one pass, little of it decoded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spotline.application.explaining.messages import DecisionQuery
from spotline.application.explaining.ports import LogBeginsLate, UnknownDecision
from spotline.application.explaining.trail import LogMark
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of, is_dead_letter
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.law import MarketLawLearned, ValueTableRequested
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.training import CheckpointCommitted

_DECISION = KINDS[AllocationDecided]
_ANSWER = KINDS[AllocationAnswered]
_SLOT = KINDS[SlotOpened]
_LAW = KINDS[MarketLawLearned]
_SUBMITTED = KINDS[JobSubmitted]
_REPORT = KINDS[CapacityReported]
_OF_JOBS = frozenset(
    KINDS[kind]
    for kind in (JobAdmitted, JobProgressReported, CheckpointCommitted, ValueTableRequested)
)
_KINDS = frozenset({_DECISION, _ANSWER, _SLOT, _LAW, _SUBMITTED, _REPORT, *_OF_JOBS})
_NEAREST = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDecision:
    """A recorded decision: where it is, the id of the event that it follows from, and its call's.

    `asked_id` is the event on which the allocator was asked, empty where it was not.
    """

    job_id: str
    slot: int
    revision: int
    mark: LogMark
    cause_id: str
    asked_id: str = ""


@dataclass(slots=True)
class DecisionIndex:
    """What was found in the log up to `last_seq`; feed it entries in order.

    `names` are those of the jobs by id.
    """

    last_seq: int = 0
    names: dict[str, str] = field(default_factory=dict)
    _decisions: dict[str, list[FoundDecision]] = field(default_factory=dict)
    _slots: dict[int, LogMark] = field(default_factory=dict)
    _laws: dict[str, LogMark] = field(default_factory=dict)
    _answers: dict[str, str] = field(default_factory=dict)
    _reports: list[LogMark] = field(default_factory=list)
    _of_jobs: dict[tuple[str, str], list[LogMark]] = field(default_factory=dict)

    def take_all(self, entries: Iterable[StoredEntry]) -> None:
        """Take in what follows.

        Raises
        ------
        LogBeginsLate
            Entries are gone from before this one.
        """
        for entry in entries:
            if entry.seq <= self.last_seq:
                continue
            if entry.seq != self.last_seq + 1:
                raise LogBeginsLate(entry.seq)
            self.last_seq = entry.seq
            try:
                events = unpacked(entry, _KINDS)
            except ContractError:
                continue
            for stored in events:
                self._take(stored)

    def find(self, query: DecisionQuery) -> FoundDecision:
        """The decision that is asked for.

        Raises
        ------
        UnknownDecision
            There is none; the message names the nearest.
        """
        made = self._decisions.get(query.job_id, [])
        if query.job_id not in self.names:
            raise UnknownDecision(
                f"job_id: expected a job of the log, found {query.job_id!r}", job_known=False
            )
        if not made:
            raise UnknownDecision(
                "job_id: expected a job for which something was decided, found one that waits",
                job_known=True,
            )
        slot = made[-1].slot if query.slot is None else query.slot
        inside = [found for found in made if found.slot == slot]
        if not inside:
            slots = sorted({found.slot for found in made})
            raise UnknownDecision(
                f"slot: expected one in which something was decided for the job, the nearest are "
                f"{_nearest(slots, slot)}; found {slot}",
                job_known=True,
            )
        if query.revision is None:
            return inside[-1]
        for found in inside:
            if found.revision == query.revision:
                return found
        revisions = ", ".join(str(found.revision) for found in inside)
        raise UnknownDecision(
            f"revision: expected one of slot {slot} in which something was decided for the job "
            f"({revisions}), found {query.revision}",
            job_known=True,
        )

    def decisions(self) -> list[FoundDecision]:
        """Every decision, in the order of the log."""
        every = [found for made in self._decisions.values() for found in made]
        return sorted(every, key=lambda found: (found.mark.seq, found.job_id))

    def slot_range(self, slot: int) -> tuple[int, int]:
        """First and last seq of what a slot brought: until the next but one opens."""
        first = self._slots[slot].seq
        following = sorted(number for number in self._slots if number > slot)
        last = self._slots[following[1]].seq - 1 if len(following) > 1 else self.last_seq
        return first, last

    def latest(self, event_type: type[object], job_id: str, before_seq: int) -> LogMark | None:
        """The last such event of a job before a place in the log."""
        kinds = {known: kind for known, kind in KINDS.items() if known is event_type}
        marks = self._of_jobs.get((kinds[event_type], job_id), [])  # type: ignore[index]
        return _last_before(marks, before_seq)

    def report_before(self, seq: int) -> LogMark | None:
        """The last capacity report before a place in the log."""
        return _last_before(self._reports, seq)

    @property
    def laws(self) -> Mapping[str, LogMark]:
        """Where each law was learned, by its id."""
        return self._laws

    def _take(self, stored: StoredEntry) -> None:
        if is_dead_letter(stored):
            return
        try:
            envelope = stored.envelope()
            if envelope.kind in _KINDS:
                self._note(stored, envelope)
        except ContractError:
            # What cannot be read was passed over by all who follow the log.
            return

    def _note(self, stored: StoredEntry, envelope: Envelope) -> None:
        kind = envelope.kind
        mark = LogMark(seq=stored.seq, event_id=envelope.event_id, ts_event_ns=envelope.ts_event_ns)
        if kind in _OF_JOBS:
            job_id = envelope.job_id or stored.subject.rpartition(".")[2]
            self._of_jobs.setdefault((kind, job_id), []).append(mark)
        elif kind == _ANSWER:
            self._answers.setdefault(envelope.event_id, envelope.causation_id)
        elif kind == _REPORT:
            self._reports.append(mark)
        else:
            self._decode(stored, envelope, mark)

    def _decode(self, stored: StoredEntry, envelope: Envelope, mark: LogMark) -> None:
        event = event_of(stored)
        match event:
            case AllocationDecided():
                made = self._decisions.setdefault(event.job_id, [])
                if made and made[-1].mark.event_id == mark.event_id:
                    return  # stored twice
                made.append(
                    FoundDecision(
                        job_id=event.job_id,
                        slot=event.slot,
                        revision=event.revision,
                        mark=mark,
                        cause_id=envelope.causation_id,
                        asked_id=self._answers.get(envelope.causation_id, ""),
                    )
                )
            case SlotOpened():
                self._slots.setdefault(event.slot, mark)
            case MarketLawLearned():
                # A law has no time of its own: it is as old as its slot.
                slot = self._slots.get(event.slot, mark)
                timed = LogMark(seq=mark.seq, event_id=mark.event_id, ts_event_ns=slot.ts_event_ns)
                self._laws.setdefault(event.named.law_id, timed)
            case JobSubmitted():
                self.names.setdefault(event.job.job_id, event.job.name)
            case _:
                pass


def _last_before(marks: list[LogMark], seq: int) -> LogMark | None:
    place = bisect_left(marks, seq, key=lambda mark: mark.seq)
    return marks[place - 1] if place else None


def _nearest(slots: list[int], slot: int) -> str:
    near = sorted(sorted(slots, key=lambda known: (abs(known - slot), known))[:_NEAREST])
    return ", ".join(map(str, near))
