"""Folds where jobs and market stand from the log, for people: the same value as the allocator's.

It decides nothing and asks for nothing, so that it may be behind, or gone, without anybody noticing
but its readers.
"""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.board.fold import BOARD_EVENTS
from spotline.application.operations.fold import OPERATIONS_EVENTS
from spotline.application.spec import NOTHING, Context, Outcome, Spec, Timer
from spotline.application.tenancy import check_tenant
from spotline.domain.events.agreement import OrphanReapRequested
from spotline.domain.events.allocation import AllocationAnswered, ShadowPricesUpdated
from spotline.domain.events.capacity import (
    CapacitySignalled,
    InstancesEnded,
    OfferingProbed,
    ProbeCommanded,
    ProvisioningCommanded,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.freeze import BuyingExcepted
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.lifecycle import AdmissionRecorded, JobUpdated
from spotline.domain.events.limits import LimitReached, LimitSet, QuoteQuarantined
from spotline.domain.events.parking import EntryParked
from spotline.domain.events.placement import (
    PipelineProvisioningCommanded,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
)
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.training import AgentJoined

PAGE_EVENTS: tuple[type[Event], ...] = (
    *(ForecastIssued, ForecastOverdue, MarketLawLearned, PolicyWeightsUpdated),
    *(AllocationAnswered, ProvisioningCommanded, PipelineProvisioningCommanded),
    *(CapacitySignalled, InstancesEnded, AdmissionRecorded),
    *(ProbeCommanded, OfferingProbed),
    *(LimitReached, LimitSet, BuyingExcepted, QuoteQuarantined, OrphanReapRequested),
)
"""What pages are folded from beside what the views are: why things are as they are."""

SPEC = Spec(
    service="read_model",
    consumes=(
        *BOARD_EVENTS,
        *(JobUpdated, ThroughputReestimated),
        *(kind for kind in OPERATIONS_EVENTS if kind not in BOARD_EVENTS),
        # Told as happenings.
        AgentJoined,
        # What spot is worth beside its price.
        ShadowPricesUpdated,
        # Whether market time goes on.
        *(PipelineSubmitted, PlacementDecided, PlacementEnded),
        *PAGE_EVENTS,
    ),
    produces=(EntryParked,),
)


class ReadModelHandler:
    """Folds the log, and that is all."""

    spec = SPEC

    def initial(self) -> JobsState:
        """No market, no jobs."""
        return JobsState()

    def decide(self, state: JobsState, event: Event, ctx: Context) -> Outcome:
        """Nothing follows."""
        return NOTHING

    def due(self, state: JobsState) -> Sequence[Timer]:
        """Wait for nothing."""
        return ()

    def check(self, state: JobsState, event: Event) -> None:
        """Refuse another tenant's word of a job; see `Checks`."""
        check_tenant(event, state.tenant_of)

    def evolve(self, state: JobsState, event: Event) -> None:
        """Apply `event` to `state`."""
        state.fold(event)
