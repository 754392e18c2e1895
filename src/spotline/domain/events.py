"""Everything that is ever recorded, as frozen values.

*Observations* come from outside (quotes, jobs, capacity); *decisions* are ours. Times are
nanoseconds since the epoch, money micro-USD, probabilities parts per million. A slot is counted
on the grid announced by `MarketOpened`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.law import MarketLaw
from spotline.domain.market.offering import CapacityType, Offering, Quote
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.pipeline import Placement
from spotline.domain.placement.submission import Pipeline
from spotline.domain.selection.regret import SelectionRegret
from spotline.domain.statistics.figures import MarketFigures, PlatformFigures, PolicyFigures
from spotline.domain.units import PPM

# --- values inside events ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """Instances of one offering; an allocation is a tuple of lots."""

    offering_id: str
    spot: int = 0
    on_demand: int = 0

    def __post_init__(self) -> None:
        if self.spot < 0 or self.on_demand < 0:
            raise ValueError(f"a lot's counts must be >= 0, were {self.spot}, {self.on_demand}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotQuote:
    """A quote as it stood when a slot opened, and how old it was."""

    quote: Quote
    age_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CountProbability:
    """Probability that exactly this many spot instances are available."""

    instances: int
    probability_ppm: int

    def __post_init__(self) -> None:
        if self.instances < 0:
            raise ValueError(f"instances must be >= 0, was {self.instances}")
        if not 0 <= self.probability_ppm <= PPM:
            raise ValueError(f"probability_ppm must lie in 0..{PPM}, was {self.probability_ppm}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastStep:
    """One step ahead: expected price and the distribution of available spot instances."""

    spot_price_micro_usd: int
    counts: tuple[CountProbability, ...]

    def __post_init__(self) -> None:
        if self.spot_price_micro_usd <= 0:
            raise ValueError(f"spot_price_micro_usd must be > 0, was {self.spot_price_micro_usd}")
        total = sum(count.probability_ppm for count in self.counts)
        if total != PPM:
            raise ValueError(f"the probabilities of a forecast step must sum to {PPM}, was {total}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingForecast:
    """Steps 1, 2, ... after the slot the forecast was issued in."""

    offering_id: str
    steps: tuple[ForecastStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastScore:
    """How one step ahead has fared so far: exponentially weighted error per offering.

    `count_crps_milli` is the ranked probability score of the count in thousandths of an instance,
    `persistence_crps_milli` that of assuming the last count; `price_error_ppm` is relative.
    `scored_milli` is the weight of the counts scored, in thousandths of a slot. Calibrated
    distributions have `coverage_50_ppm` and `pit_mean_ppm` at a half, `coverage_90_ppm` at nine
    tenths; `reliability_error_ppm` is how far the probabilities of some and of all instances lie
    from what came true. `drift_slot` is where `drift_detector` last saw the score get worse, 0 and
    empty if nowhere.
    """

    offering_id: str
    step: int
    count_crps_milli: int
    persistence_crps_milli: int
    price_error_ppm: int
    persistence_price_error_ppm: int
    scored_milli: int = 0
    coverage_50_ppm: int = 0
    coverage_90_ppm: int = 0
    pit_mean_ppm: int = 0
    reliability_error_ppm: int = 0
    drift_detector: str = ""
    drift_slot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A job leaves an offering for the one of its lots: seconds without progress, and egress."""

    from_offering_id: str
    overhead_s: int
    cost_micro_usd: int

    def __post_init__(self) -> None:
        if self.overhead_s < 0 or self.cost_micro_usd < 0:
            raise ValueError(
                f"overhead_s and cost_micro_usd of a move must be >= 0, were "
                f"{self.overhead_s}, {self.cost_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAnswer:
    """What a policy answered for one job: what to hold now, what it remembers, and why.

    `move` is None where the job stays on its offering.
    """

    job_id: str
    policy_id: str
    lots: tuple[Lot, ...]
    memory: tuple[int, ...]
    reason: DecisionReason
    move: Move | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHolding:
    """What the cloud holds for a job, reported by the actuator."""

    job_id: str
    lots: tuple[Lot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeight:
    """A policy's weight, and its utility for the job that moved the weights."""

    policy_id: str
    weight_ppb: int
    utility_micro_usd: int


class DecisionReason(Enum):
    """Why an allocation is what it is."""

    POLICY = "policy"
    SAFETY_NET = "safety_net"
    FORECAST_OVERDUE = "forecast_overdue"
    FORECAST_UNTRUSTED = "forecast_untrusted"
    ALLOCATOR_UNAVAILABLE = "allocator_unavailable"
    LAUNCH_REFUSED = "launch_refused"
    INTERRUPTED = "interrupted"
    BUDGET = "budget"
    CLOSED = "closed"
    AFTER_DEADLINE = "after_deadline"
    NO_CAPACITY = "no_capacity"


class CallOutcome(Enum):
    """How a recorded call ended."""

    ANSWERED = "answered"
    TIMED_OUT = "timed_out"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


class JobOutcome(Enum):
    """How a job ended."""

    COMPLETED = "completed"
    COMPLETED_LATE = "completed_late"
    MISSED_DEADLINE = "missed_deadline"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class InterruptionKind(Enum):
    """Why the provider takes an instance back."""

    CAPACITY_RECLAIMED = "capacity_reclaimed"
    INSTANCE_FAILED = "instance_failed"


class PlacementOutcome(Enum):
    """What was decided on a pipeline."""

    PLACED = "placed"
    MOVED = "moved"
    WAITING = "waiting"
    REFUSED = "refused"
    STARTED = "started"


class PlacementEnd(Enum):
    """How a pipeline ended."""

    COMPLETED = "completed"
    RELEASED = "released"


# --- observations -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketOpened:
    """The offerings and the slot grid of a partition."""

    offerings: tuple[Offering, ...]
    slot_s: int
    first_slot_start_ns: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteObserved:
    """A new quote of one offering."""

    quote: Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOpened:
    """Slot `slot` opens: every offering's latest quote and its age. `last` ends a replay."""

    slot: int
    ts_event_ns: int
    slot_s: int
    quotes: tuple[SlotQuote, ...]
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastOverdue:
    """No forecast for `slot` came in time; the selector decides without one."""

    slot: int
    waited_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A platform handed over a job."""

    job: Job
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    """A platform withdrew a job."""

    job_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgressReported:
    """A platform says how much work a job has done, in the job's own unit.

    It had done that at `ts_event_ns` (0: not said). `rate_per_hour` (0: not measured) is its work
    per hour of late on `instances`, overheads apart.
    """

    job_id: str
    tenant: str
    done: float
    ts_event_ns: int = 0
    rate_per_hour: float = 0.0
    instances: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationAnswered:
    """What the allocator said to the request with this digest, or how the call failed."""

    slot: int
    revision: int
    request_digest: str
    outcome: CallOutcome
    answers: tuple[JobAnswer, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRefused:
    """The cloud granted fewer instances than a command asked for."""

    command_id: str
    job_id: str
    tenant: str
    offering_id: str
    capacity_type: CapacityType
    slot: int
    requested: int
    granted: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionNoticed:
    """The cloud will take these instances back `lead_s` seconds after `offset_s` into the slot."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int
    lead_s: int
    kind: InterruptionKind


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityLost:
    """Instances are gone without our asking."""

    job_id: str
    tenant: str
    offering_id: str
    instance_ids: tuple[str, ...]
    slot: int
    offset_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReported:
    """What every job holds after the commands of a revision were carried out.

    `offset_s` is the moment inside the slot the report describes. `settled` says that nothing is
    left to decide in this slot: no launch was refused and no instance lost since the decision.
    """

    slot: int
    revision: int
    offset_s: int
    settled: bool
    holdings: tuple[JobHolding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAccrued:
    """The bill of one lot over part of a slot; with 0 instances, that of copying a checkpoint."""

    job_id: str
    tenant: str
    offering_id: str
    quota_pool: str
    capacity_type: CapacityType
    slot: int
    instances: int
    held_s: int
    price_micro_usd: int
    cost_micro_usd: int


# --- decisions --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastIssued:
    """The forecast of every offering, issued when `slot` opened."""

    slot: int
    model_id: str
    forecasts: tuple[OfferingForecast, ...]
    scores: tuple[ForecastScore, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdmitted:
    """A job's first slot has come: its policy was drawn and its offering chosen."""

    job_id: str
    tenant: str
    slot: int
    policy_id: str
    offering_id: str
    deadline_slot: int
    weight_ppb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationDecided:
    """What a job is to hold from `offset_s` into the slot on, and whether it moves for that."""

    job_id: str
    tenant: str
    slot: int
    revision: int
    offset_s: int
    policy_id: str
    lots: tuple[Lot, ...]
    reason: DecisionReason
    forecast_used: bool
    explanation: str
    move: Move | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningCommanded:
    """Bring what a job holds of one offering to these counts.

    `transfer_cost_micro_usd` is what copying its checkpoint there costs, where it moves.
    """

    command_id: str
    job_id: str
    tenant: str
    quota_pool: str
    slot: int
    revision: int
    offset_s: int
    target: Lot
    transfer_cost_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecided:
    """All commands of this revision are out."""

    slot: int
    revision: int
    offset_s: int
    commands: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAdvanced:
    """A slot is over: where the job stands."""

    job_id: str
    tenant: str
    slot: int
    lots: tuple[Lot, ...]
    progress_ppm: int
    slot_cost_micro_usd: int
    cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClosed:
    """A job ended; `slot` is the last one it was charged for."""

    job_id: str
    tenant: str
    slot: int
    outcome: JobOutcome
    policy_id: str
    cost_micro_usd: int
    value_micro_usd: int
    progress_ppm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyWeightsUpdated:
    """The weights after one more job's feedback; utilities are those of a full replay.

    The floor and ceiling scale utilities to [0, 1] for rules that need it. `rehearsed_slot` is -1
    for a job that ended, else the past slot from which an arriving job was rehearsed. `regret`
    includes this job; it is None before the first job has ended.
    """

    round: int
    job_id: str
    rule: str
    weights: tuple[PolicyWeight, ...]
    rehearsed_slot: int
    utility_floor_micro_usd: int
    utility_ceiling_micro_usd: int
    regret: SelectionRegret | None = None


# --- laws and value tables --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLaw:
    """A law and its content's SHA-256."""

    law_id: str
    law: MarketLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketLawLearned:
    """The law of an offering, learned from its past up to `slot`."""

    slot: int
    offering_id: str
    named: NamedLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What the value table of one job on one offering is made of, beside the job.

    `table_id` is the SHA-256 of all that it depends on. `taken` spot instances are expected to
    stay with jobs that are served earlier; a launch of on-demand may have to wait for
    `on_demand_reserve_slots`.
    """

    table_id: str
    law_id: str
    offering_id: str
    instance_type: str
    first_slot_start_ns: int
    slot_s: int
    on_demand_price_micro_usd: int
    on_demand_available: int
    taken: int
    on_demand_reserve_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTableRequested:
    """A job was admitted where the law is known: its value table is wanted."""

    job_id: str
    tenant: str
    slot: int
    table: TableSpec
    named: NamedLaw


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueTableReady:
    """A job's value table is built: from now on its decisions name it."""

    job_id: str
    tenant: str
    slot: int
    table_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUse:
    """The table that a decision looks into, and where the market is in its law."""

    table: TableSpec
    run_state: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasured:
    """A run was measured: by a platform, or on `job_id`, a job of ours."""

    run: MeasuredRun
    job_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputReestimated:
    """Reports showed another rate than was believed; `throughputs` replace the job's from now on.

    `factor_ppm` is the measured rate over the one the job was submitted with, its 90 % interval
    `half_width_ppm` parts per million of it to either side.
    """

    job_id: str
    tenant: str
    throughputs: tuple[Throughput, ...]
    reports: int
    factor_ppm: int
    half_width_ppm: int
    explanation: str = ""


# --- pipelines across regions -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionObserved:
    """A region as it is from `ts_event_ns` on; while `down` none of its GPUs can be reached.

    `energy_ahead_usd_per_kwh` are the prices of the hours after this one, where they are known.
    With `more_follow` nothing is decided before the last observation of the moment.
    """

    ts_event_ns: int
    region: Region
    down: bool = False
    energy_ahead_usd_per_kwh: tuple[float, ...] = ()
    more_follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkObserved:
    """A link as it is from `ts_event_ns` on; without bandwidth it is down."""

    ts_event_ns: int
    link: Link
    more_follow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSubmitted:
    """A platform handed over a pipeline; its deadline counts from `ts_event_ns`."""

    pipeline: Pipeline
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineReleased:
    """A platform lets a pipeline go."""

    job_id: str
    tenant: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecided:
    """Where a pipeline runs from now on, or why it does not: nothing is held for it then.

    It goes on from `iterations_done`, its last checkpoint. It computes from `starts_ns` on, later
    than now by its restart where it moved, and is done at `finish_ns` (0: not placed). Where
    instances must be provisioned both are expectations, until it has `STARTED`.
    `earliest_finish_ns` says of a refused one when it could be done (0: never, or not the matter).
    """

    job_id: str
    tenant: str
    ts_event_ns: int
    outcome: PlacementOutcome
    method_id: str
    placement: Placement | None = None
    iterations_done: int = 0
    starts_ns: int = 0
    finish_ns: int = 0
    expected_cost_micro_usd: int = 0
    earliest_finish_ns: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementEnded:
    """A pipeline is over, and what it held is free; `cost_micro_usd` at the prices there were."""

    job_id: str
    tenant: str
    ts_event_ns: int
    end: PlacementEnd
    iterations_done: int
    cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProvisioningCommanded:
    """Bring what a pipeline holds of one offering to these counts, with the next revision.

    A later command for the same offering replaces one that was not carried out yet.
    `transfer_cost_micro_usd` is what copying its checkpoint there costs, where it moves.
    """

    command_id: str
    job_id: str
    tenant: str
    quota_pool: str
    target: Lot
    transfer_cost_micro_usd: int = 0


# --- statistics: for people and dashboards, never part of a decision ---------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketStatisticsIssued:
    """An offering's statistics of the window of `window_s` that ended at `ts_event_ns`.

    One window begins every `hop_s`. `revision` is 0 when it closes, and rises with every issue
    that late observations led to; `late` counts those among its observations.
    """

    offering_id: str
    ts_event_ns: int
    window_s: int
    hop_s: int
    revision: int
    late: int
    figures: MarketFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformStatisticsIssued:
    """A tenant's statistics of a window, in total and by policy; `ALL_TENANTS` has one too.

    Window, revision and `late` as in `MarketStatisticsIssued`.
    """

    tenant: str
    ts_event_ns: int
    window_s: int
    hop_s: int
    revision: int
    late: int
    total: PlatformFigures
    policies: tuple[PolicyFigures, ...]


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
