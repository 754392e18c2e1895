"""The paths a job could take now, with the bottleneck and the cost of each: what `place` explains.

Every region alone and the paths grown from every seed are priced like `spotline` prices them,
whichever method decides; what that method takes is among them and marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from spotline.domain.placement.cost import IterationCost, iteration_cost
from spotline.domain.placement.free import Free, placed
from spotline.domain.placement.interface import PlacementMethod, PlacementMoment
from spotline.domain.placement.pipeline import NoPlacement, PipelineJob, Placement
from spotline.domain.placement.ways import TIME_WEIGHT, MarketPrices, Weigher


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsideredPath:
    """One way to run a job.

    `bottleneck` is the narrowest link of the path and `bottleneck_bytes_per_s` what it has free
    both ways (none and infinite within one region). `score_usd` is what `spotline` minimises, over
    the whole job and without regard to others that wait.
    """

    placement: Placement
    bottleneck: tuple[str, str] | None
    bottleneck_bytes_per_s: float
    cost: IterationCost
    expected_iteration_s: float
    score_usd: float
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Considered:
    """A method's answer for one job, and the paths beside it, least score first."""

    answer: Placement | NoPlacement
    paths: tuple[ConsideredPath, ...]


def consider(
    job: PipelineJob,
    moment: PlacementMoment,
    method: PlacementMethod,
    *,
    time_weight: float = TIME_WEIGHT,
) -> Considered:
    """Ask a method to place one job alone, and list what could have been done instead."""
    graph = moment.residual.graph
    free = Free.of(moment.residual)
    market = MarketPrices(graph, moment.usd_per_gpu_hour)
    weigher = Weigher(job, free, market, time_weight=time_weight)
    (answer,) = method.place([job], moment)
    candidates: dict[tuple[tuple[str, int], ...], Placement] = {}
    ways = weigher.every_region_and_seed() if int(free.gpus.sum()) >= job.min_gpus else []
    for way in ways:
        draft = placed(job, free, way.path, way.gpus, usd_per_iteration=way.usd)
        candidates.setdefault(_key(draft), draft)
    if isinstance(answer, Placement):
        candidates[_key(answer)] = answer
    paths = []
    for key, placement in candidates.items():
        regions = [graph.index[share.region_id] for share in placement.path]
        gpus = [share.gpus for share in placement.path]
        way = weigher.way(regions, gpus, placement.iteration_s)
        links = [(float(free.width[pair]), pair) for pair in pairwise(regions)]
        width, narrowest = min(links, default=(float("inf"), None))
        paths.append(
            ConsideredPath(
                placement=placement,
                bottleneck=(
                    (graph.region_ids[narrowest[0]], graph.region_ids[narrowest[1]])
                    if narrowest
                    else None
                ),
                bottleneck_bytes_per_s=width,
                cost=iteration_cost(
                    job, graph, moment.usd_per_gpu_hour, regions, gpus, placement.iteration_s
                ),
                expected_iteration_s=way.expected_s,
                score_usd=weigher.score_usd(way),
                chosen=isinstance(answer, Placement) and key == _key(answer),
            )
        )
    return Considered(
        answer=answer,
        paths=tuple(sorted(paths, key=lambda path: (path.score_usd, _key(path.placement)))),
    )


def _key(placement: Placement) -> tuple[tuple[str, int], ...]:
    """What tells ways apart: a pipeline and its reverse are one."""
    path = tuple((share.region_id, share.gpus) for share in placement.path)
    return min(path, path[::-1])
