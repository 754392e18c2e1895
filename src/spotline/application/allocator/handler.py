"""The allocator's read model: jobs and where they stand, the market they would run on.

What platforms say over RPC becomes observations, made by the service's shell; everything it answers
is folded from the log. A submission is checked here before it is recorded. The one thing that it
does by itself is to build the value tables that the selector asks for, away from any decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial

from spotline.application.admission import (
    Accepted,
    Refused,
    check_job,
    refuse_other_id,
    refuse_stated_value,
    submitted_again,
)
from spotline.application.allocation.tasks import program_of
from spotline.application.allocation.value_tables import terms_of
from spotline.application.allocator.jobs_state import JobsState as JobsState
from spotline.application.allocator.statements import stated_again, unattended_again
from spotline.application.operations.fold import OPERATIONS_EVENTS
from spotline.application.outlook.following import FOLLOWED, Following
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.application.tenancy import check_tenant
from spotline.domain.events.agreement import OrphanReapRequested
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
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
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
from spotline.domain.events.limits import LimitReached, LimitSet
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.events.modes import AccountModeSet
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped, ParkedEntryRetried
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
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms

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
        *(CostAccrued, LaunchRefused, JobQuoted, LimitReached, LimitSet, BuyingExcepted),
        # What those are told who run Spotline.
        *OPERATIONS_EVENTS,
        # What the selector knows beside that: outlooks are worked out from it.
        *(kind for kind in FOLLOWED if kind not in (LaunchRefused, LimitReached)),
    ),
    produces=(
        *(JobSubmitted, JobUpdated, JobCancelled, JobProgressReported, JobExited, JobQuoted),
        *(AgentJoined, GenerationFormed, TrainingRestarted, JobSilent, JobHeard),
        *(CheckpointCommitted, CheckpointFailed, NoticeAcknowledged, JobStalled, JobStallEnded),
        ValueTableReady,
        # What those want who run Spotline.
        *(EntryParked, ParkedEntryRetried, ParkedEntryDropped),
        *(BuyingFrozen, BuyingUnfrozen, OrphanReapRequested, AccountModeSet, LimitSet),
    ),
    decides=(ValueTableReady,),
)


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
        terms = self._terms(state, event)
        if terms is None:
            return NOTHING
        ready = ValueTableReady(
            job_id=event.job_id,
            tenant=event.tenant,
            slot=event.slot,
            table_id=event.table.table_id,
            size_bytes=table_of(terms).size_bytes,
        )
        return Outcome(events=(ready,))

    def ahead(self, state: JobsState, event: Event) -> Callable[[], object] | None:
        """A table that is asked for takes a tenth of a second to build: nobody need wait for it."""
        if not isinstance(event, ValueTableRequested):
            return None
        terms = self._terms(state, event)
        return None if terms is None else partial(table_of, terms)

    @staticmethod
    def _terms(state: JobsState, event: ValueTableRequested) -> TableTerms | None:
        """What a table is made of, None where it is of no job, or of another than its name says."""
        status = state.statuses.get(event.job_id)
        spec = event.table
        if status is None:
            return None
        try:
            program = program_of(
                status.job,
                spec.offering_id,
                spec.instance_type,
                spec.slot_s,
                spec.first_slot_start_ns,
                state.measuring.lead_s(status.job, state.recent.notice_lead_s(spec.offering_id)),
            )
            return terms_of(spec, program, event.named.law)
        except ValueError:
            # A request that contradicts itself, which our selector does not make: the job goes on
            # without a table, and its decisions say so.
            return None

    def due(self, state: JobsState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()

    def check(self, state: JobsState, event: Event) -> None:
        """Refuse another tenant's word of a job; see `Checks`."""
        check_tenant(event, state.tenant_of)

    def evolve(self, state: JobsState, event: Event) -> None:
        """Apply `event` to `state`."""
        state.fold(event)


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
        if state.recent.mode.on_paper:
            asked = unattended_again(known, asked)
        names = [stated.name for stated in fields(Job)]
        differs = [name for name in names if getattr(known, name) != getattr(asked, name)]
        return submitted_again(job, differs, "job.client_request_id")
    market = state.market()
    if market is None:
        raise ValueError("no market is open yet")
    refused = check_job(market, job) or refuse_stated_value(job, "job")
    return refused or Accepted(job_id=job.job_id, already_submitted=False)
