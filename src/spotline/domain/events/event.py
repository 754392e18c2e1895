"""Everything that is ever recorded.

*Observations* come from outside (quotes, jobs, capacity); *decisions* are ours. Times are
nanoseconds since the epoch, money micro-USD, probabilities parts per million. A slot is counted
on the grid announced by `MarketOpened`.
"""

from __future__ import annotations

from spotline.domain.events.allocation import AllocationAnswered, AllocationDecided
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.forecast import ForecastIssued, ForecastOverdue
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.law import MarketLawLearned, ValueTableReady, ValueTableRequested
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobAdvanced,
    JobCancelled,
    JobClosed,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.events.market import MarketOpened, QuoteObserved, SlotOpened
from spotline.domain.events.placement import (
    LinkObserved,
    PipelineProvisioningCommanded,
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
    RegionObserved,
)
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued

Event = (
    MarketOpened
    | QuoteObserved
    | SlotOpened
    | ForecastOverdue
    | JobSubmitted
    | JobCancelled
    | JobProgressReported
    | AllocationAnswered
    | LaunchRefused
    | InterruptionNoticed
    | CapacityLost
    | CapacityReported
    | CostAccrued
    | ForecastIssued
    | JobAdmitted
    | AllocationDecided
    | ProvisioningCommanded
    | SlotDecided
    | JobAdvanced
    | JobClosed
    | PolicyWeightsUpdated
    | MarketLawLearned
    | ValueTableRequested
    | ValueTableReady
    | RunMeasured
    | ThroughputReestimated
    | RegionObserved
    | LinkObserved
    | PipelineSubmitted
    | PipelineReleased
    | PlacementDecided
    | PlacementEnded
    | PipelineProvisioningCommanded
    | MarketStatisticsIssued
    | PlatformStatisticsIssued
)
