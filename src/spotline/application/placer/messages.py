"""What is asked of the placer and what it answers, as frozen values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from spotline.application.market_view import ClockReading
from spotline.application.paging import PagedQuery
from spotline.application.spec import derive_id
from spotline.domain.placement.considered import Considered, ConsideredPath, consider
from spotline.domain.placement.deadlines import earliest_finish
from spotline.domain.placement.interface import CostBasis, PlacementMethod, PlacementMoment
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.submission import Pipeline


def pipeline_id_for(tenant: str, client_request_id: str) -> str:
    """The id of a pipeline: the same request of the same tenant is the same job."""
    return derive_id(tenant, f"pipeline:{client_request_id}")


class PlacementPhase(Enum):
    """Where a pipeline is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    RELEASED = "released"
    REFUSED = "refused"
    STARTING = "starting"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self in (
            PlacementPhase.COMPLETED,
            PlacementPhase.RELEASED,
            PlacementPhase.REFUSED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStatus:
    """Where one pipeline stands; fields as in `placement_service.proto`."""

    pipeline: Pipeline
    phase: PlacementPhase
    submitted_ns: int
    placement: Placement | None
    iterations_done: int
    finish_ns: int
    cost_micro_usd: int
    moves: int
    earliest_finish_ns: int
    reason: str
    ledger_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """Hand a pipeline over."""

    pipeline: Pipeline
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceReceipt:
    """Where the pipeline stands after the decision on it."""

    message_name: ClassVar[str] = "PlaceResponse"

    status: PlacementStatus
    already_submitted: bool = False
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRequest:
    """Let a pipeline go."""

    job_id: str
    tenant: str
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseReceipt:
    """The pipeline as it ended."""

    message_name: ClassVar[str] = "ReleaseResponse"

    status: PlacementStatus
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementQuery(PagedQuery):
    """Which pipelines to list; empty fields: any."""

    message_name: ClassVar[str] = "ListPlacementsRequest"

    tenant: str = ""
    phase: PlacementPhase | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPage:
    """Pipelines by job id; an empty token: no more follow."""

    message_name: ClassVar[str] = "ListPlacementsResponse"

    statuses: tuple[PlacementStatus, ...]
    next_page_token: str = ""
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationRequest:
    """Ask where a pipeline could run; empty fields: as the service is set."""

    message_name: ClassVar[str] = "ExplainRequest"

    pipeline: Pipeline
    method_id: str = ""
    basis: CostBasis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPath:
    """One way to run it; fields as in `placement_service.proto`."""

    placement: Placement
    bottleneck_source: str
    bottleneck_destination: str
    bottleneck_bytes_per_s: float
    gpu_usd: float
    egress_usd: float
    risk_usd: float
    expected_job_s: float
    expected_job_usd: float
    score_usd: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The paths considered, least score first, and why the chosen one or none."""

    message_name: ClassVar[str] = "ExplainResponse"

    method_id: str
    basis: CostBasis
    paths: tuple[ExplainedPath, ...]
    reason: str
    earliest_finish_s: float = 0.0
    clock: ClockReading | None = None


def explain(
    job: PipelineJob, moment: PlacementMoment, method: PlacementMethod, basis: CostBasis
) -> Explanation:
    """List the ways to run a job now, beside what is running and without regard to who waits.

    None is chosen where the deadline is missed: handed over, the job waits for a release that lets
    it be met, or is refused.
    """
    if not moment.residual.graph.region_ids:
        return Explanation(
            method_id=method.method_id, basis=basis, paths=(), reason="no region is known"
        )
    considered = consider(job, moment, method)
    late = _late(considered, job, moment)
    soonest_s = earliest_of(considered.answer, job, moment) if late else 0.0
    hopeless = math.isfinite(soonest_s) and soonest_s > job.deadline_s
    return Explanation(
        method_id=method.method_id,
        basis=basis,
        paths=tuple(
            _explained(path, job, chosen=path.chosen and not late) for path in considered.paths
        ),
        reason=late or considered.answer.reason,
        earliest_finish_s=soonest_s - moment.now_s if hopeless else 0.0,
    )


def _late(considered: Considered, job: PipelineJob, moment: PlacementMoment) -> str:
    answer = considered.answer
    if isinstance(answer, NoPlacement):
        return answer.reason if answer.earliest_finish_s is not None else ""
    finish_s = moment.now_s + job.iterations * answer.iteration_s
    if finish_s <= job.deadline_s:
        return ""
    return (
        f"the best there is now would be done after {finish_s - moment.now_s:.0f} s, "
        f"the deadline is in {job.deadline_s - moment.now_s:.0f} s"
    )


def earliest_of(
    answer: Placement | NoPlacement, job: PipelineJob, moment: PlacementMoment
) -> float:
    """When a job could be done beside what is running, seconds; infinite: never.

    A method may find a way that is sooner than what `earliest_finish` looks for.
    """
    finishes = [earliest_finish(job, moment).finish_s]
    if isinstance(answer, Placement):
        finishes.append(moment.now_s + job.iterations * answer.iteration_s)
    return min(finishes)


def _explained(one: ConsideredPath, job: PipelineJob, *, chosen: bool) -> ExplainedPath:
    source, destination = one.bottleneck or ("", "")
    return ExplainedPath(
        placement=one.placement,
        bottleneck_source=source,
        bottleneck_destination=destination,
        bottleneck_bytes_per_s=one.bottleneck_bytes_per_s if one.bottleneck else 0.0,
        gpu_usd=one.cost.gpu_usd,
        egress_usd=one.cost.egress_usd,
        risk_usd=one.cost.risk_usd,
        expected_job_s=job.iterations * one.expected_iteration_s,
        expected_job_usd=job.iterations * one.cost.usd,
        score_usd=one.score_usd,
        chosen=chosen,
    )
