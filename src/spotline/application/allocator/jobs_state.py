"""Jobs and where they stand, folded from the log: what the allocator and the read model answer from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from spotline.application.allocation.measuring import Measuring
from spotline.application.allocation.tasks import at_rates
from spotline.application.allocator.gang import Gangs
from spotline.application.allocator.messages import JobState, JobStatus
from spotline.application.allocator.updates import changeable
from spotline.application.board.fold import BoardState
from spotline.application.market_view import MarketFold, MarketStatus, MarketView, WorkNeeded
from spotline.application.operations.fold import OperationsState
from spotline.application.operations.spending import SpendingState
from spotline.application.outlook.following import Following
from spotline.domain.changed import changed
from spotline.domain.events.allocation import AllocationDecided, ShadowPricesUpdated
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobProgressReported,
    JobRetryScheduled,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.units import NS_PER_S, PPM


@dataclass(slots=True, kw_only=True)
class JobsState:
    """All jobs by id, and the recent market. `applied` counts the events folded in.

    A status shows the job as it was updated, at the rates, overheads and saves that are believed
    now; `stated` keeps such jobs as they were submitted. `open_jobs` counts those of every tenant that
    are not over. `recorded` are the
    jobs that the ledger holds, `unrecorded` those it still is to hold: jobs of before 0.3.0 are in
    neither. `work` says whether market time is needed, `gangs` on what the programs run that
    Spotline starts, `board` what people are told, `operations` what those are who run Spotline, `spending` what is
    used of limits on money. `following` is what the selector knows, None
    where nobody asks what is expected.
    """

    recent: MarketFold = field(default_factory=MarketFold)
    statuses: dict[str, JobStatus] = field(default_factory=dict)
    stated: dict[str, Job] = field(default_factory=dict)
    open_jobs: dict[str, int] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    unrecorded: set[str] = field(default_factory=set)
    work: WorkNeeded = field(default_factory=WorkNeeded)
    gangs: Gangs = field(default_factory=Gangs)
    measuring: Measuring = field(default_factory=Measuring)
    board: BoardState = field(default_factory=BoardState)
    operations: OperationsState = field(default_factory=OperationsState)
    spending: SpendingState = field(default_factory=SpendingState)
    following: Following | None = None
    applied: int = 0

    @property
    def now_ns(self) -> int:
        """Market time: when the latest slot opened, before that when the first one will."""
        return self.recent.now_ns

    def tenant_of(self, job_id: str) -> str | None:
        """Whose a job is, None where it is not known."""
        status = self.statuses.get(job_id)
        return None if status is None else status.job.tenant

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

    def held_in_pools(self) -> dict[str, int]:
        """Instances that jobs were last granted, by quota pool."""
        pools = {offer.offering_id: offer.quota_pool for offer in self.recent.offerings}
        held: dict[str, int] = {}
        for status in self.statuses.values():
            for lot in status.lots:
                pool = pools.get(lot.offering_id, "")
                held[pool] = held.get(pool, 0) + lot.spot + lot.on_demand
        return held

    def market_status(self) -> MarketStatus:
        """Whether market time goes on."""
        opened = self.recent.opened
        return self.recent.status(needed=self.work.needs(-1 if opened is None else opened.slot))

    def fold(self, event: Event) -> None:
        """Apply an event; nothing else changes it."""
        self.applied += 1
        opened = self.recent.opened
        self.work.fold(event, -1 if opened is None else opened.slot)
        self.gangs.fold(event, self.recent)
        measured = self.measuring.fold(event)
        if measured is not None:
            job_id = measured.stated.job_id
            believed = self.statuses[job_id]
            self.stated.setdefault(job_id, believed.job)
            self.statuses[job_id] = replace(believed, job=measured.corrected(believed.job))
        match event:
            case MarketOpened() | SlotOpened() | ForecastIssued() | ShadowPricesUpdated():
                self.recent.fold(event)
            case JobSubmitted():
                self._submit(event)
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
                status = self.statuses.get(event.job_id)
                if status is not None:
                    if isinstance(event, JobCancelled):
                        self.cancelled.add(event.job_id)
                    elif isinstance(event, (ThroughputReestimated, JobUpdated)):
                        self.stated.setdefault(event.job_id, status.job)
                    after = _after(status, event, self.recent)
                    self.statuses[event.job_id] = after
                    if after.state.over and not status.state.over:
                        self._count_open(status.job.tenant, -1)
            case AdmissionRecorded():
                self.recorded.add(event.job_id)
                self.unrecorded.discard(event.job_id)
            case _:
                pass
        try:
            self.board.fold(event, self.recent)
        except Exception as error:  # noqa: BLE001 - only looked at: counted and shown, not parked
            self.board.leave_out(event, error)
        self.operations.fold(event)
        self.spending.fold(event)
        if self.following is not None:
            self.following.fold(event)

    def _submit(self, event: JobSubmitted) -> None:
        job = event.job
        if job.job_id in self.statuses:
            return
        if self.recorded:
            self.unrecorded.add(job.job_id)
        self.statuses[job.job_id] = JobStatus(
            job=job,
            state=JobState.PENDING,
            submitted_ns=event.ts_event_ns,
            mode=self.recent.mode,
        )
        self._count_open(job.tenant, 1)

    def _count_open(self, tenant: str, more: int) -> None:
        left = self.open_jobs.get(tenant, 0) + more
        if left:
            self.open_jobs[tenant] = left
        else:
            del self.open_jobs[tenant]


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
            return changed(
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
            state = JobState.FINISHING if awaits else JobState.RUNNING
            said = state, event.progress_ppm, event.cost_micro_usd
            if said == (status.state, status.progress_ppm, status.cost_micro_usd):
                return status
            return changed(
                status,
                state=state,
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
    after = replace(status.job, **changeable(job))
    deadline_slot = status.deadline_slot
    if status.state is not JobState.PENDING and market.opened is not None:
        opened = market.opened
        ahead_ns = job.deadline.at_ns - opened.ts_event_ns
        deadline_slot = opened.slot + ahead_ns // (market.slot_s * NS_PER_S) - 1
    return replace(status, job=after, deadline_slot=deadline_slot)
