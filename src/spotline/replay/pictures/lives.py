"""What a log says of each job's life over time: what it held, what happened to it, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import digest
from spotline.domain.events import capacity, lifecycle, training
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.registry import BASELINES, FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.units import NS_PER_S, cost_micro_usd
from spotline.replay.parkings import parked_by
from spotline.replay.parts import WatchedSelector
from spotline.replay.recorded import RecordedEvent, readable_events
from spotline.replay.selector_run import padded

Course = tuple[tuple[int, int], ...]
"""Moments, ns since the epoch, and a value that holds from then on."""

# No other policy would have changed how these end.
_CUT = (JobOutcome.CANCELLED, JobOutcome.FAILED)


class MarkKind(Enum):
    """What is marked in a job's life; the value is what it is called."""

    NOTICED = "interrupted, with notice"
    LOST = "interrupted, without"
    WITHDRAWN = "notice withdrawn"
    REFUSED = "launch refused"
    MOVED = "moved"
    SAFETY_NET = "safety net"
    LIMITED = "held back by its budget"
    SAVED = "checkpoint saved"
    NOT_SAVED = "checkpoint failed"
    EXITED = "program failed"
    SILENT = "agent silent"
    CHANGED = "changed by its owner"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMark:
    """Something that happened to a job, and to how many of its instances (0: not of instances)."""

    at_ns: int
    kind: MarkKind
    instances: int = 0
    slot: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnJob:
    """One job over time; moments are ns since the epoch, market time, money micro-USD.

    `held` has what the cloud said that it holds from a moment on; `progress` is in parts per
    million. `otherwise` is what it would have spent under baselines, by name, on the spot that the
    others left for it; `compared` says that it covers the whole job. `end_ns` is the end of its
    last slot, or of the last that the log has.
    """

    job: Job
    policy_id: str
    offering_id: str
    begin_ns: int
    end_ns: int
    outcome: JobOutcome | None
    held: tuple[tuple[int, tuple[Lot, ...]], ...]
    marks: tuple[JobMark, ...]
    progress: Course
    spent: Course
    otherwise: Mapping[str, Course]
    compared: bool

    @property
    def ran(self) -> bool:
        """Whether it ever came to its first slot."""
        return bool(self.progress)

    @property
    def spent_micro_usd(self) -> int:
        """All that it has cost."""
        return self.spent[-1][1] if self.spent else 0

    def count(self, *kinds: MarkKind) -> int:
        """How often something of these kinds happened."""
        return sum(mark.kind in kinds for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRun:
    """All jobs of a log by their start, its offerings, and its slots by number."""

    jobs: tuple[DrawnJob, ...]
    offerings: tuple[Offering, ...]
    slots: Mapping[int, SlotOpened]

    def quotes(self, offering_id: str) -> dict[int, Quote]:
        """What an offering was quoted at, by slot."""
        return {
            number: found.quote
            for number, opened in self.slots.items()
            for found in opened.quotes
            if found.quote.offering_id == offering_id
        }

    def chosen(self, name: str) -> DrawnJob:
        """The job of this id, the only one whose id begins so, or the only one of this name.

        Raises
        ------
        ContractError
            There is none, or there are several.
        """
        found = [each for each in self.jobs if each.job.job_id == name]
        found = found or [each for each in self.jobs if each.job.name == name]
        found = found or [each for each in self.jobs if name and each.job.job_id.startswith(name)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(each.job.job_id for each in found[:5])
            raise ContractError("JOB", f"expected one job, found {len(found)} of {name!r}: {ids}")
        known = ", ".join(each.job.name or each.job.job_id for each in self.jobs[:5])
        more = f" and {len(self.jobs) - 5} more" if len(self.jobs) > 5 else ""
        raise ContractError("JOB", f"expected a job of the log ({known}{more}), found {name!r}")


def drawn_run(entries: Iterable[StoredEntry], options: SelectorOptions) -> DrawnRun:
    """Read a log with the selector's options that it was recorded with.

    Raises
    ------
    ContractError
        No slot was ever opened in it, or no job submitted.
    """
    events = readable_events(entries)
    facts = _Facts()
    for recorded in events:
        facts.note(recorded.event)
    if facts.opened is None or not facts.slots:
        raise ContractError("log", "expected a log with a market, found no slot that was opened")
    if not facts.jobs:
        raise ContractError("log", "expected a log with jobs, found none that was submitted")
    watched = WatchedSelector(SelectHandler(options, digest=digest))
    state = watched.initial()
    _fold(events, watched, state)
    jobs = [_drawn(job_id, facts, watched, state) for job_id in facts.jobs]
    jobs.sort(key=lambda each: (each.begin_ns, each.job.job_id))
    return DrawnRun(jobs=tuple(jobs), offerings=facts.opened.offerings, slots=facts.slots)


# --- what is told of jobs ---------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Told:
    """What a log says of one job, in its order."""

    job: Job
    admitted: lifecycle.JobAdmitted | None = None
    closed: lifecycle.JobClosed | None = None
    advances: list[lifecycle.JobAdvanced] = field(default_factory=list)
    held: list[tuple[int, tuple[Lot, ...]]] = field(default_factory=list)
    marks: list[JobMark] = field(default_factory=list)
    noticed: set[str] = field(default_factory=set)
    interrupted_slots: list[tuple[int, int]] = field(default_factory=list)
    reason: DecisionReason | None = None

    def hold(self, at_ns: int, lots: tuple[Lot, ...]) -> None:
        if lots != (self.held[-1][1] if self.held else ()):
            self.held.append((at_ns, lots))

    def mark(self, at_ns: int, kind: MarkKind, instances: int = 0, slot: int = -1) -> None:
        self.marks.append(JobMark(at_ns=at_ns, kind=kind, instances=instances, slot=slot))


class _Facts:
    """Folds the events of a log."""

    def __init__(self) -> None:
        self.opened: MarketOpened | None = None
        self.slots: dict[int, SlotOpened] = {}
        self.jobs: dict[str, _Told] = {}

    def at_ns(self, slot: int, offset_s: int = 0) -> int:
        """A moment inside a slot, on the market's grid where the slot is not in the log."""
        opened = self.slots.get(slot)
        if opened is not None:
            return opened.ts_event_ns + offset_s * NS_PER_S
        market = self.opened
        if market is None:
            return 0
        return market.first_slot_start_ns + (slot * market.slot_s + offset_s) * NS_PER_S

    def end_ns(self, slot: int) -> int:
        """When a slot ends."""
        return self.at_ns(slot, 0 if self.opened is None else self.opened.slot_s)

    def note(self, event: Event) -> None:
        match event:
            case MarketOpened():
                self.opened = event
            case SlotOpened():
                self.slots.setdefault(event.slot, event)
            case lifecycle.JobSubmitted():
                self.jobs.setdefault(event.job.job_id, _Told(job=event.job))
            case capacity.CapacityReported():
                self._note_report(event)
            case _:
                told = self.jobs.get(getattr(event, "job_id", ""))
                if told is not None:
                    self._note_life(told, event)
                    self._note_capacity(told, event)
                    self._note_training(told, event)

    def _note_report(self, event: capacity.CapacityReported) -> None:
        at_ns = self.at_ns(event.slot, event.offset_s)
        held = {holding.job_id: holding.lots for holding in event.holdings}
        for job_id, told in self.jobs.items():
            told.hold(at_ns, held.get(job_id, ()))

    def _note_life(self, told: _Told, event: Event) -> None:
        match event:
            case lifecycle.JobAdmitted():
                told.admitted = event
            case lifecycle.JobAdvanced():
                told.advances.append(event)
            case lifecycle.JobClosed():
                told.closed = event
            case lifecycle.JobUpdated():
                told.job = event.job
                told.mark(event.ts_event_ns, MarkKind.CHANGED)
            case AllocationDecided():
                self._note_decision(told, event)
            case _:
                pass

    def _note_decision(self, told: _Told, event: AllocationDecided) -> None:
        at_ns = self.at_ns(event.slot, event.offset_s)
        if event.move is not None:
            told.mark(at_ns, MarkKind.MOVED)
        if event.reason is DecisionReason.INTERRUPTED:
            told.interrupted_slots.append((event.slot, at_ns))
        elif event.reason is not told.reason:
            if event.reason is DecisionReason.SAFETY_NET:
                told.mark(at_ns, MarkKind.SAFETY_NET)
            elif event.reason is DecisionReason.BUDGET:
                told.mark(at_ns, MarkKind.LIMITED)
        told.reason = event.reason

    def _note_capacity(self, told: _Told, event: Event) -> None:
        match event:
            case capacity.InterruptionNoticed():
                new = set(event.instance_ids) - told.noticed
                told.noticed |= new
                kind = MarkKind.NOTICED
            case capacity.CapacityLost():
                # Of what was announced, the loss is no second interruption.
                new = set(event.instance_ids) - told.noticed
                kind = MarkKind.LOST
            case capacity.InterruptionWithdrawn():
                new = set(event.instance_ids) & told.noticed
                told.noticed -= new
                kind = MarkKind.WITHDRAWN
            case capacity.LaunchRefused():
                refused = event.requested - event.granted
                told.mark(self.at_ns(event.slot), MarkKind.REFUSED, refused, event.slot)
                return
            case _:
                return
        if new:
            told.mark(self.at_ns(event.slot, event.offset_s), kind, len(new), event.slot)

    def _note_training(self, told: _Told, event: Event) -> None:
        match event:
            case training.CheckpointCommitted():
                told.mark(event.ts_event_ns, MarkKind.SAVED)
            case training.CheckpointFailed():
                told.mark(event.ts_event_ns, MarkKind.NOT_SAVED)
            case training.JobSilent():
                told.mark(event.ts_event_ns, MarkKind.SILENT)
            case lifecycle.JobExited() if event.exit_code:
                told.mark(event.ts_event_ns, MarkKind.EXITED)
            case _:
                pass


def _fold(events: list[RecordedEvent], watched: WatchedSelector, state: SelectorState) -> None:
    """Apply to the selector what it was told and, right behind each input, what it decided."""
    spec = watched.spec
    decided: dict[str, list[RecordedEvent]] = {}
    inputs = []
    for recorded in events:
        if type(recorded.event) in spec.decides:
            if recorded.envelope.source == spec.service:
                decided.setdefault(recorded.envelope.causation_id, []).append(recorded)
        elif type(recorded.event) in spec.consumes:
            inputs.append(recorded)
    parked = parked_by(spec.service, events)
    for recorded in inputs:
        envelope = recorded.envelope
        if envelope.event_id in parked or not envelope.is_for(spec.service):
            continue
        watched.evolve(state, recorded.event)
        outputs = decided.get(recorded.envelope.event_id, [])
        for output in sorted(outputs, key=lambda other: other.envelope.index):
            watched.evolve(state, output.event)


# --- a job ------------------------------------------------------------------------------------


def _drawn(job_id: str, facts: _Facts, watched: WatchedSelector, state: SelectorState) -> DrawnJob:
    told = facts.jobs[job_id]
    run = state.runs.get(job_id)
    closed = told.closed
    first = told.admitted.slot if told.admitted else None
    begin_ns = told.job.start_ns if first is None else facts.at_ns(first)
    last = closed.slot if closed else max(facts.slots)
    end_ns = max(begin_ns, facts.end_ns(last))
    if told.held and told.held[-1][1]:
        told.hold(end_ns, ())
    ends = [(facts.end_ns(each.slot), each) for each in told.advances]
    otherwise: dict[str, Course] = {}
    compared = False
    if run is not None and run.program is not None and first is not None:
        ended = closed is not None and closed.outcome not in _CUT
        otherwise = _otherwise(run, run.program, watched.offered_to(state, job_id), facts, ended)
        compared = ended and bool(otherwise)
    return DrawnJob(
        job=told.job,
        policy_id=closed.policy_id if closed else run.policy_id if run else "",
        offering_id=run.offering_id if run else "",
        begin_ns=begin_ns,
        end_ns=end_ns,
        outcome=closed.outcome if closed else None,
        held=tuple(told.held),
        marks=_marks(told),
        progress=((begin_ns, 0), *((at, each.progress_ppm) for at, each in ends)) if ends else (),
        spent=((begin_ns, 0), *((at, each.cost_micro_usd) for at, each in ends)) if ends else (),
        otherwise=otherwise,
        compared=compared,
    )


def _marks(told: _Told) -> tuple[JobMark, ...]:
    """What happened; an interruption that only the decision speaks of came without notice."""
    kinds = (MarkKind.NOTICED, MarkKind.LOST)
    known = {mark.slot for mark in told.marks if mark.kind in kinds}
    silent = [
        JobMark(at_ns=at_ns, kind=MarkKind.LOST, slot=slot)
        for slot, at_ns in dict(told.interrupted_slots).items()
        if slot not in known
    ]
    return tuple(sorted([*told.marks, *silent], key=lambda mark: (mark.at_ns, mark.kind.value)))


def _otherwise(
    run: JobRun,
    program: JobProgram,
    offered: tuple[SlotRecord, ...],
    facts: _Facts,
    ended: bool,
) -> dict[str, Course]:
    """What the baselines would have spent, until now or until they were done.

    Nothing is said of a job that ran at several rates or reported its own progress: how fast it
    would have been otherwise is not known.
    """
    if not offered or run.mixed or run.reported_quanta is not None:
        return {}
    records = padded(program, offered) if ended else offered
    fallback = policy_named(FALLBACK_POLICY_ID)
    courses: dict[str, Course] = {}
    for policy in BASELINES:
        result = replay_policy(program, records, policy, fallback)
        spent = 0
        course = [(facts.at_ns(run.first_slot), 0)]
        for place, (record, held) in enumerate(zip(records, result.holdings, strict=False)):
            spent += cost_micro_usd(record.spot_price, held.spot, program.slot_s)
            spent += cost_micro_usd(record.on_demand_price, held.on_demand, program.slot_s)
            course.append((facts.end_ns(run.first_slot + place), spent))
        courses[policy.policy_id] = tuple(course)
    return courses
