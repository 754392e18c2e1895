"""Everything that is ever recorded.

*Observations* come from outside (quotes, jobs, capacity); *decisions* are ours. Times are
nanoseconds since the epoch, money micro-USD, probabilities parts per million. A slot is counted
on the grid announced by `MarketOpened`.
"""

from __future__ import annotations

from spotline.domain.events import (
    agreement,
    allocation,
    capacity,
    forecast,
    freeze,
    knowledge,
    law,
    lifecycle,
    limits,
    market,
    modes,
    parking,
    placement,
    selection,
    statistics,
    training,
)

Event = (
    market.MarketOpened
    | market.QuoteObserved
    | market.SlotOpened
    | forecast.ForecastOverdue
    | lifecycle.JobSubmitted
    | lifecycle.JobCancelled
    | lifecycle.JobProgressReported
    | allocation.AllocationAnswered
    | lifecycle.JobUpdated
    | lifecycle.JobExited
    | lifecycle.JobRetryScheduled
    | lifecycle.AdmissionRecorded
    | capacity.LaunchRefused
    | capacity.CapacitySignalled
    | capacity.InterruptionNoticed
    | capacity.CapacityLost
    | capacity.CapacityReported
    | capacity.CostAccrued
    | capacity.ProbeCommanded
    | capacity.OfferingProbed
    | forecast.ForecastIssued
    | lifecycle.JobAdmitted
    | allocation.AllocationDecided
    | allocation.ShadowPricesUpdated
    | capacity.ProvisioningCommanded
    | capacity.SlotDecided
    | lifecycle.JobAdvanced
    | lifecycle.JobClosed
    | selection.PolicyWeightsUpdated
    | law.MarketLawLearned
    | law.ValueTableRequested
    | law.ValueTableReady
    | knowledge.RunMeasured
    | knowledge.ThroughputReestimated
    | placement.RegionObserved
    | placement.LinkObserved
    | placement.PipelineSubmitted
    | placement.PipelineReleased
    | placement.PlacementDecided
    | placement.PlacementEnded
    | placement.PipelineProvisioningCommanded
    | statistics.MarketStatisticsIssued
    | statistics.PlatformStatisticsIssued
    | capacity.InterruptionWithdrawn
    | training.AgentJoined
    | training.GenerationFormed
    | training.TrainingRestarted
    | training.CheckpointCommitted
    | training.CheckpointFailed
    | training.NoticeAcknowledged
    | training.JobSilent
    | training.JobHeard
    | training.JobStalled
    | training.JobStallEnded
    | capacity.InstancesEnded
    | lifecycle.JobQuoted
    | parking.EntryParked
    | parking.ParkedEntryRetried
    | parking.ParkedEntryDropped
    | freeze.BuyingFrozen
    | freeze.BuyingUnfrozen
    | freeze.BuyingExcepted
    | limits.QuoteQuarantined
    | limits.LimitReached
    | limits.LimitSet
    | agreement.AgreementChecked
    | agreement.IncarnationBegun
    | agreement.OrphanFound
    | agreement.OrphanSettled
    | agreement.OrphanReapRequested
    | modes.AccountModeSet
)
