"""Events of pipelines across regions: `placement.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.jobs.lot import Lot
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.pipeline import Placement
from spotline.domain.placement.submission import Pipeline


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
