"""What a recorded run really brought, against what one would have done otherwise.

The selector's own fold is run over the log, so every job's counterfactuals see what that job was
left by the others. Nothing is decided again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import digest
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import (
    JobAdvanced,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.ledger.sunk import reservations_used
from spotline.domain.policies.registry import BASELINES, FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import Clairvoyant, clairvoyant_optimum, replay_policy
from spotline.domain.selection.learner import Learner
from spotline.domain.selection.regret import SelectionRegret
from spotline.domain.units import usd_from_micro_usd
from spotline.replay.handlers import selector_options
from spotline.replay.parkings import parked_by
from spotline.replay.parts import WatchedSelector
from spotline.replay.recorded import RecordedEvent, readable_events
from spotline.replay.selector_run import padded
from spotline.replay.summary import (
    SPOTLINE,
    JobLife,
    PolicySummary,
    life_of,
    optimum_of,
    regret_as_json,
    summarise,
    summarise_clairvoyant,
)

ON_DEMAND = "on_demand_only"
MSU = "msu"


class LeftOut(Enum):
    """Why no other policy can be replayed on what a job was left; each is said of the job, as `it`."""

    NOT_OVER = "it was not over when the log ended"
    CANCELLED = "it was cancelled"
    FAILED = "its program failed"
    NEVER_STARTED = "it never started"
    REPORTED = "its own reports say how fast it ran"
    UPDATED = "its owner changed it while it ran"
    OTHER_RATES = "it moved to where it runs at other rates"
    NOTHING_OFFERED = "nothing was offered to it"

    @property
    def can_run_again(self) -> bool:
        """Whether the job can be run again from its beginning under another rule."""
        return self in (LeftOut.REPORTED, LeftOut.OTHER_RATES, LeftOut.NOTHING_OFFERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job: how it ended, and how it would have fared otherwise.

    `outcome` is None while it runs. `otherwise` holds the baselines by name, `clairvoyant` the
    best there was; both are empty where `left_out` says why no other policy can be replayed on what
    the job was left. A job that moved, at equal rates, is compared on the offers of its home of each
    slot. `spot_offered` is the spot that others left for it, slot by slot from its first. `job` is as
    it was submitted, `reestimates` are what its `reports` showed.
    """

    job: Job
    policy_id: str
    offering_id: str
    first_slot: int
    deadline_slot: int
    outcome: JobOutcome | None
    life: JobLife
    otherwise: Mapping[str, JobLife] = field(default_factory=dict)
    clairvoyant: Clairvoyant | None = None
    spot_offered: tuple[int, ...] = ()
    reestimates: tuple[ThroughputReestimated, ...] = ()
    reports: int = 0
    left_out: LeftOut | None = None

    @property
    def name(self) -> str:
        """What people call it: its name, or its id."""
        return self.job.name or self.job.job_id

    @property
    def compared(self) -> bool:
        """Whether the job counts in the comparison with what else could have been done."""
        return self.clairvoyant is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """A run: its jobs by start, the summaries over the compared ones, what was learned.

    `policies` holds `spotline` (what really happened) and the baselines; it and `clairvoyant` are
    empty when no job has ended. `weights` are in parts per billion, heaviest first, `learner` is
    all that was learned, `regret` what that cost, `idle_commitment_micro_usd` the sunk cost of reservations
    that nobody used. The rest is for drawing: every slot, and each job's course.
    """

    jobs: tuple[JobReport, ...]
    policies: Mapping[str, PolicySummary]
    clairvoyant: PolicySummary | None
    rounds: int
    weights: tuple[tuple[str, int], ...]
    slots: tuple[SlotOpened, ...]
    advances: Mapping[str, tuple[JobAdvanced, ...]]
    decisions: Mapping[str, tuple[AllocationDecided, ...]]
    learner: Learner
    idle_commitment_micro_usd: int = 0

    @property
    def regret(self) -> SelectionRegret | None:
        """Against the best fixed policy; None before the first job has ended."""
        return self.learner.regret()

    @property
    def spent_by_job(self) -> dict[str, int]:
        """What every job cost by the decisions, micro-USD."""
        return {job.job.job_id: job.life.cost_micro_usd for job in self.jobs}

    @property
    def completed(self) -> int:
        """Jobs that finished, on time or late."""
        done = (JobOutcome.COMPLETED, JobOutcome.COMPLETED_LATE)
        return sum(job.outcome in done for job in self.jobs)

    @property
    def missed_deadlines(self) -> int:
        """Hard deadlines that were not met."""
        return sum(
            job.outcome in (JobOutcome.MISSED_DEADLINE, JobOutcome.COMPLETED_LATE)
            for job in self.jobs
            if job.job.deadline.kind is DeadlineKind.HARD
        )

    @property
    def saving_percent(self) -> float | None:
        """What was saved of the on-demand cost, over jobs on time; None where there is none.

        Net of what was paid for commitments that were left unused: spot beside an idle reservation
        saves nothing of it.
        """
        on_time = [job for job in self.jobs if job.compared and job.life.on_time]
        paid = sum(job.life.cost_micro_usd for job in on_time) + self.idle_commitment_micro_usd
        on_demand = sum(job.otherwise[ON_DEMAND].cost_micro_usd for job in on_time)
        return 100.0 * (1.0 - paid / on_demand) if on_demand else None

    def as_json(self) -> dict[str, object]:
        """The report's numbers; the caller adds `events`, `wall_s` and `log`."""
        ours = self.policies.get(SPOTLINE)
        return {
            "jobs": len(self.jobs),
            "completed": self.completed,
            "missed_deadlines": self.missed_deadlines,
            "mean_cost_usd": ours.mean_cost_usd if ours else None,
            "on_demand_cost_usd": self._mean_cost_usd(ON_DEMAND),
            "msu_cost_usd": self._mean_cost_usd(MSU),
            "saving_percent": self.saving_percent,
            "percent_of_clairvoyant": ours.percent_of_clairvoyant if ours else None,
            "policies": {name: summary.as_json() for name, summary in self.policies.items()},
            "clairvoyant": self.clairvoyant.as_json() if self.clairvoyant else None,
            "weights": {name: weight / 1e9 for name, weight in self.weights[:20]},
            "regret": regret_as_json(self.regret),
        }

    def _mean_cost_usd(self, name: str) -> float | None:
        return self.policies[name].mean_cost_usd if name in self.policies else None


def report_of(log: EventLogReader) -> RunReport:
    """Report on a recorded log.

    Raises
    ------
    UnreadableLog
        It cannot be read to its end.
    ContractError
        No job was ever submitted in it.
    """
    return report_run(log, selector_options(log.manifest.settings))


def report_run(entries: Iterable[StoredEntry], options: SelectorOptions) -> RunReport:
    """Report on a log, with the selector's options it was recorded with.

    Raises
    ------
    ContractError
        No job was ever submitted in it.
    """
    events = readable_events(entries)
    committed = reservations_used(found.event for found in events)
    watched = WatchedSelector(SelectHandler(options, digest=digest))
    state = watched.initial()
    course = _fold(events, watched, state)
    if not state.runs:
        raise ContractError("log", "no job was ever submitted in it")
    runs = sorted(state.runs.values(), key=lambda run: (run.job.start_ns, run.job.job_id))
    jobs = tuple(_job_report(run.job.job_id, watched, state, course) for run in runs)
    policies, clairvoyant = _summaries(jobs)
    return RunReport(
        jobs=jobs,
        policies=policies,
        clairvoyant=clairvoyant,
        rounds=course.weights.round if course.weights else 0,
        weights=_heaviest(course.weights),
        slots=tuple(course.slots),
        advances={job_id: tuple(advances) for job_id, advances in course.advances.items()},
        decisions={job_id: tuple(decisions) for job_id, decisions in course.decisions.items()},
        learner=state.learner,
        idle_commitment_micro_usd=sum(use.idle_micro_usd for use in committed),
    )


def configured_as_json(report: RunReport) -> list[dict[str, object]]:
    """One row per job that was completed from a draft: what was filled in, and how it went."""
    rows: list[dict[str, object]] = []
    for job in report.jobs:
        configuration = job.job.configuration
        if configuration is None:
            continue
        last = job.reestimates[-1] if job.reestimates else None
        rows.append(
            {
                "job_id": job.job.job_id,
                "name": job.job.name,
                "outcome": job.outcome.value if job.outcome else "running",
                "on_time": job.life.on_time,
                "cost_usd": usd_from_micro_usd(job.life.cost_micro_usd),
                "value_usd": usd_from_micro_usd(job.life.value_micro_usd),
                "parameters": {
                    origin.parameter: {
                        name: getattr(origin, name) for name in ("value", "said_by", "low", "high")
                    }
                    for origin in configuration.origins
                },
                "reestimates": len(job.reestimates),
                "reports": job.reports,
                "reports_until_last_reestimate": last.reports if last else 0,
                "factor_of_submitted": last.factor_ppm / 1e6 if last else None,
                "half_width": last.half_width_ppm / 1e6 if last else None,
            }
        )
    return rows


def learned_in(log: EventLogReader) -> Learner:
    """Fold a log to what its selector had learned in the end.

    Raises
    ------
    UnreadableLog
        It cannot be read to its end.
    """
    watched = WatchedSelector(SelectHandler(selector_options(log.manifest.settings), digest=digest))
    state = watched.initial()
    _fold(readable_events(log), watched, state)
    return state.learner


@dataclass(slots=True)
class _Course:
    slots: list[SlotOpened] = field(default_factory=list)
    advances: dict[str, list[JobAdvanced]] = field(default_factory=dict)
    decisions: dict[str, list[AllocationDecided]] = field(default_factory=dict)
    submitted: dict[str, Job] = field(default_factory=dict)
    reestimates: dict[str, list[ThroughputReestimated]] = field(default_factory=dict)
    reports: Counter[str] = field(default_factory=Counter)
    updated: set[str] = field(default_factory=set)
    weights: PolicyWeightsUpdated | None = None

    def note(self, event: Event) -> None:
        match event:
            case SlotOpened():
                self.slots.append(event)
            case JobSubmitted():
                self.submitted.setdefault(event.job.job_id, event.job)
            case ThroughputReestimated():
                self.reestimates.setdefault(event.job_id, []).append(event)
            case JobProgressReported():
                self.reports[event.job_id] += 1
            case JobUpdated():
                self.updated.add(event.job_id)
            case JobAdvanced():
                self.advances.setdefault(event.job_id, []).append(event)
            case AllocationDecided():
                self.decisions.setdefault(event.job_id, []).append(event)
            case PolicyWeightsUpdated():
                self.weights = event
            case _:
                pass


def _fold(events: list[RecordedEvent], watched: WatchedSelector, state: SelectorState) -> _Course:
    """Apply each input, and the decisions recorded for it right after it."""
    spec = watched.spec
    outputs: dict[str, list[RecordedEvent]] = {}
    inputs = []
    for recorded in events:
        if type(recorded.event) in spec.decides:
            if recorded.envelope.source == spec.service:
                outputs.setdefault(recorded.envelope.causation_id, []).append(recorded)
        elif type(recorded.event) in spec.consumes:
            inputs.append(recorded)
    course = _Course()
    parked = parked_by(spec.service, events)
    for recorded in inputs:
        envelope = recorded.envelope
        if envelope.event_id in parked or not envelope.is_for(spec.service):
            continue
        following = outputs.get(recorded.envelope.event_id, [])
        for applied in (recorded, *sorted(following, key=lambda other: other.envelope.index)):
            watched.evolve(state, applied.event)
            course.note(applied.event)
    return course


def _job_report(
    job_id: str, watched: WatchedSelector, state: SelectorState, course: _Course
) -> JobReport:
    run = state.runs[job_id]
    closed = watched.closed.get(job_id)
    otherwise: dict[str, JobLife] = {}
    clairvoyant = None
    deadline_slot = -1
    offered = watched.offered_to(state, job_id)
    left_out = _left_out(run, closed, updated=job_id in course.updated)
    if run.program is not None:
        program = run.program
        deadline_slot = run.first_slot + program.deadline_slots
        records = padded(program, offered)
        if left_out is None and not records:
            left_out = LeftOut.NOTHING_OFFERED
        if left_out is None:
            fallback = policy_named(FALLBACK_POLICY_ID)
            for policy in BASELINES:
                result = replay_policy(program, records, policy, fallback)
                otherwise[policy.policy_id] = life_of(run.job, policy.policy_id, result)
            clairvoyant = clairvoyant_optimum(program, records)
    return JobReport(
        job=course.submitted.get(job_id, run.job),
        policy_id=run.policy_id,
        offering_id=run.offering_id,
        first_slot=run.first_slot,
        deadline_slot=deadline_slot,
        outcome=closed.outcome if closed else None,
        life=_life(run, closed),
        otherwise=otherwise,
        clairvoyant=clairvoyant,
        spot_offered=tuple(record.spot_available for record in offered),
        reestimates=tuple(course.reestimates.get(job_id, ())),
        reports=course.reports[job_id],
        left_out=left_out,
    )


def _left_out(run: JobRun, closed: JobClosed | None, *, updated: bool) -> LeftOut | None:
    """Why no other policy can be replayed for a job, None where it can."""
    if closed is None:
        return LeftOut.NOT_OVER
    # No other policy would have changed how these end.
    if closed.outcome is JobOutcome.CANCELLED:
        return LeftOut.CANCELLED
    if closed.outcome is JobOutcome.FAILED:
        return LeftOut.FAILED
    if run.program is None:
        return LeftOut.NEVER_STARTED
    if run.reported_quanta is not None:
        return LeftOut.REPORTED
    if run.mixed:
        return LeftOut.UPDATED if updated else LeftOut.OTHER_RATES
    return None


def _life(run: JobRun, closed: JobClosed | None) -> JobLife:
    return JobLife(
        job_id=run.job.job_id,
        policy_id=run.policy_id,
        cost_micro_usd=closed.cost_micro_usd if closed else run.spent_micro_usd,
        value_micro_usd=closed.value_micro_usd if closed else 0,
        most_value_micro_usd=run.job.value_micro_usd,
        on_time=closed is not None and closed.outcome is JobOutcome.COMPLETED,
        moves=run.moves,
    )


def _summaries(
    jobs: tuple[JobReport, ...],
) -> tuple[dict[str, PolicySummary], PolicySummary | None]:
    compared = [job for job in jobs if job.compared]
    if not compared:
        return {}, None
    optima = [job.clairvoyant for job in compared if job.clairvoyant is not None]
    best = optimum_of(optima)
    policies = {SPOTLINE: summarise([job.life for job in compared], best)}
    for policy in BASELINES:
        lives = [job.otherwise[policy.policy_id] for job in compared]
        policies[policy.policy_id] = summarise(lives, best)
    return policies, summarise_clairvoyant([job.job for job in compared], optima)


def _heaviest(weights: PolicyWeightsUpdated | None) -> tuple[tuple[str, int], ...]:
    if weights is None:
        return ()
    ordered = sorted(weights.weights, key=lambda entry: (-entry.weight_ppb, entry.policy_id))
    return tuple((entry.policy_id, entry.weight_ppb) for entry in ordered)
