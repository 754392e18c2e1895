"""The allocator's read model: jobs and where they stand, the market they would run on.

What platforms say over RPC becomes observations, made by the service's shell; everything it answers
is folded from the log. A submission is checked here before it is recorded. The one thing that it
does by itself is to build the value tables that the selector asks for, away from any decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from spotline.application.admission import (
    Accepted,
    Refused,
    check_job,
    refuse_other_id,
    refuse_stated_value,
    submitted_again,
)
from spotline.application.allocation.allocate import at_rates, program_of
from spotline.application.allocation.measuring import Measuring
from spotline.application.allocation.value_tables import terms_of
from spotline.application.allocator.gang import Gangs
from spotline.application.allocator.messages import JobState, JobStatus
from spotline.application.allocator.statements import stated_again
from spotline.application.allocator.updates import changeable
from spotline.application.board.fold import BoardState
from spotline.application.market_view import MarketFold, MarketStatus, MarketView, WorkNeeded
from spotline.application.outlook.following import FOLLOWED, Following
from spotline.application.selector.state import SelectorOptions
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InstancesEnded,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobExited,
    JobProgressReported,
    JobQuoted,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.placement import PipelineSubmitted, PlacementDecided, PlacementEnded
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    GenerationFormed,
    JobHeard,
    JobSilent,
    JobStalled,
    JobStallEnded,
    NoticeAcknowledged,
    TrainingRestarted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.solvers.value_table import table_of
from spotline.domain.units import NS_PER_S, PPM

SPEC = Spec(
    service="allocator",
    consumes=(
        MarketOpened,
        SlotOpened,
        ForecastIssued,
        JobSubmitted,
        JobCancelled,
        JobAdmitted,
        AllocationDecided,
        JobAdvanced,
        JobRetryScheduled,
        JobClosed,
        JobProgressReported,
        JobUpdated,
        AdmissionRecorded,
        PipelineSubmitted,
        PlacementDecided,
        PlacementEnded,
        ThroughputReestimated,
        ValueTableRequested,
        JobExited,
        *(CapacityReported, CapacityLost, InstancesEnded),
        *(InterruptionNoticed, InterruptionWithdrawn),
        *(AgentJoined, GenerationFormed, TrainingRestarted, JobSilent, JobHeard),
        *(CheckpointCommitted, CheckpointFailed, NoticeAcknowledged, JobStalled, JobStallEnded),
        # What people are told of jobs beside that.
        *(CostAccrued, LaunchRefused, JobQuoted),
        # What the selector knows beside that: outlooks are worked out from it.
        *(kind for kind in FOLLOWED if kind is not LaunchRefused),
    ),
    produces=(
        *(JobSubmitted, JobUpdated, JobCancelled, JobProgressReported, JobExited, JobQuoted),
        *(AgentJoined, GenerationFormed, TrainingRestarted, JobSilent, JobHeard),
        *(CheckpointCommitted, CheckpointFailed, NoticeAcknowledged, JobStalled, JobStallEnded),
        ValueTableReady,
    ),
    decides=(ValueTableReady,),
)

# --- state ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class JobsState:
    """All jobs by id, and the recent market. `applied` counts the events folded in.

    A status shows the job as it was updated, at the rates, overheads and saves that are believed
    now; `stated` keeps such jobs as they were submitted. `recorded` are the
    jobs that the ledger holds, `unrecorded` those it still is to hold: jobs of before 0.3.0 are in
    neither. `work` says whether market time is needed, `gangs` on what the programs run that
    Spotline starts, `board` what people are told. `following` is what the selector knows, None
    where nobody asks what is expected.
    """

    recent: MarketFold = field(default_factory=MarketFold)
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    stated: dict[str, Job] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    unrecorded: set[str] = field(default_factory=set)
    work: WorkNeeded = field(default_factory=WorkNeeded)
    gangs: Gangs = field(default_factory=Gangs)
    measuring: Measuring = field(default_factory=Measuring)
    board: BoardState = field(default_factory=BoardState)
    following: Following | None = None
    applied: int = 0

    @property
    def now_ns(self) -> int:
        """Market time: when the latest slot opened, before that when the first one will."""
        return self.recent.now_ns

    def submitted(self, job_id: str) -> Job | None:
        """A job as its platform submitted it, None where there is none."""
        status = self.statuses.get(job_id)
        return None if status is None else self.stated.get(job_id, status.job)

    def owners(self, job_id: str) -> Job | None:
        """A job as its owner wants it now, with the rates that were stated; None without one."""
        submitted, status = self.submitted(job_id), self.statuses.get(job_id)
        if submitted is None or status is None:
            return None
        return replace(submitted, **changeable(status.job))

    def market(self) -> MarketView | None:
        """The market as it stands, None before it opened."""
        return self.recent.view()

    def market_status(self) -> MarketStatus:
        """Whether market time goes on."""
        opened = self.recent.opened
        return self.recent.status(needed=self.work.needs(-1 if opened is None else opened.slot))


class JobsHandler:
    """Folds the log into the read model.

    With the options of the `selector` that decides, it follows what that knows, too.
    """

    spec = SPEC

    def __init__(self, selector: SelectorOptions | None = None) -> None:
        self._selector = selector

    def initial(self) -> JobsState:
        """No market, no jobs."""
        selector = self._selector
        return JobsState(following=None if selector is None else Following(selector))

    def decide(self, state: JobsState, event: Event, ctx: Context) -> Outcome:
        """Build the table that is asked for."""
        if not isinstance(event, ValueTableRequested):
            return NOTHING
        status = state.statuses.get(event.job_id)
        spec = event.table
        if status is None:
            return NOTHING
        try:
            program = program_of(
                status.job,
                spec.offering_id,
                spec.instance_type,
                spec.slot_s,
                spec.first_slot_start_ns,
                state.measuring.lead_s(status.job, state.recent.notice_lead_s(spec.offering_id)),
            )
            terms = terms_of(spec, program, event.named.law)
        except ValueError:
            # A request that contradicts itself, which our selector does not make: the job goes on
            # without a table, and its decisions say so.
            return NOTHING
        table = table_of(terms)
        ready = ValueTableReady(
            job_id=event.job_id,
            tenant=event.tenant,
            slot=event.slot,
            table_id=spec.table_id,
            size_bytes=table.size_bytes,
        )
        return Outcome(events=(ready,))

    def due(self, state: JobsState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()

    def evolve(self, state: JobsState, event: Event) -> None:
        """Apply `event` to `state`."""
        state.applied += 1
        opened = state.recent.opened
        state.work.fold(event, -1 if opened is None else opened.slot)
        state.gangs.fold(event, state.recent)
        measured = state.measuring.fold(event)
        if measured is not None:
            job_id = measured.stated.job_id
            believed = state.statuses[job_id]
            state.stated.setdefault(job_id, believed.job)
            state.statuses[job_id] = replace(believed, job=measured.corrected(believed.job))
        match event:
            case MarketOpened() | SlotOpened() | ForecastIssued():
                state.recent.fold(event)
            case JobSubmitted():
                if state.recorded and event.job.job_id not in state.statuses:
                    state.unrecorded.add(event.job.job_id)
                state.statuses.setdefault(
                    event.job.job_id,
                    JobStatus(
                        job=event.job, state=JobState.PENDING, submitted_ns=event.ts_event_ns
                    ),
                )
            case (
                JobCancelled()
                | JobProgressReported()
                | JobUpdated()
                | JobAdmitted()
                | AllocationDecided()
                | JobAdvanced()
                | JobRetryScheduled()
                | JobClosed()
                | ThroughputReestimated()
            ):
                status = state.statuses.get(event.job_id)
                if status is not None:
                    if isinstance(event, JobCancelled):
                        state.cancelled.add(event.job_id)
                    elif isinstance(event, (ThroughputReestimated, JobUpdated)):
                        state.stated.setdefault(event.job_id, status.job)
                    state.statuses[event.job_id] = _after(status, event, state.recent)
            case AdmissionRecorded():
                state.recorded.add(event.job_id)
                state.unrecorded.discard(event.job_id)
            case _:
                pass
        state.board.fold(event, state.recent)
        if state.following is not None:
            state.following.fold(event)


def _after(status: JobStatus, event: Event, market: MarketFold) -> JobStatus:
    """Where a job stands after an event of its own."""
    match event:
        case JobAdmitted():
            return replace(
                status,
                state=JobState.RUNNING,
                policy_id=event.policy_id,
                offering_id=event.offering_id,
                deadline_slot=event.deadline_slot,
                last_slot=event.slot,
            )
        case AllocationDecided():
            return replace(
                status,
                offering_id=event.lots[0].offering_id if event.lots else status.offering_id,
                lots=event.lots,
                last_slot=event.slot,
                last_reason=event.reason,
                last_explanation=event.explanation,
            )
        case JobAdvanced():
            # Only the selector says that a job is over: done work alone is not the end of each.
            awaits = status.job.awaits_exit and event.progress_ppm >= PPM
            return replace(
                status,
                state=JobState.FINISHING if awaits else JobState.RUNNING,
                progress_ppm=event.progress_ppm,
                cost_micro_usd=event.cost_micro_usd,
            )
        case JobRetryScheduled():
            return replace(status, lots=())
        case JobUpdated() if not status.state.over:
            return _changed(status, event.job, market)
        case JobProgressReported():
            # The greatest report counts, and never more than all of the work.
            whole = status.job.work.amount
            done_ppm = PPM if event.done >= whole else int(event.done * PPM / whole)
            if event.generation:
                # Where it stands is for the selector to say: work done may have fallen.
                return status
            return replace(status, progress_ppm=max(status.progress_ppm, done_ppm))
        case ThroughputReestimated() if not status.state.over:
            return replace(status, job=at_rates(status.job, event.throughputs))
        case JobClosed():
            return replace(
                status,
                state=JobState.from_outcome(event.outcome),
                lots=(),
                last_slot=event.slot,
                progress_ppm=event.progress_ppm,
                cost_micro_usd=event.cost_micro_usd,
                value_micro_usd=event.value_micro_usd,
            )
        case _:
            return status


def _changed(status: JobStatus, job: Job, market: MarketFold) -> JobStatus:
    """A job as its owner has changed it; what is believed of it otherwise stays."""
    changed = replace(status.job, **changeable(job))
    deadline_slot = status.deadline_slot
    if status.state is not JobState.PENDING and market.opened is not None:
        opened = market.opened
        ahead_ns = job.deadline.at_ns - opened.ts_event_ns
        deadline_slot = opened.slot + ahead_ns // (market.slot_s * NS_PER_S) - 1
    return replace(status, job=changed, deadline_slot=deadline_slot)


# --- admission --------------------------------------------------------------------------------


def check_submission(state: JobsState, job: Job) -> Accepted | Refused:
    """Say whether `job` can be recorded as it is.

    Raises
    ------
    ValueError
        No market is open: there is nothing to check against.
    """
    other = refuse_other_id(job, "job.job_id")
    if other is not None:
        return other
    known = state.submitted(job.job_id)
    if known is not None:
        asked = stated_again(known, job)
        names = [stated.name for stated in fields(Job)]
        differs = [name for name in names if getattr(known, name) != getattr(asked, name)]
        return submitted_again(job, differs, "job.client_request_id")
    market = state.market()
    if market is None:
        raise ValueError("no market is open yet")
    refused = check_job(market, job) or refuse_stated_value(job, "job")
    return refused or Accepted(job_id=job.job_id, already_submitted=False)
