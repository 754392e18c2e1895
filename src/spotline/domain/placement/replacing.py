"""Placements that have to change, or pay to: failures, and prices that move.

A job changes place at a checkpoint: nothing done is lost then, it restarts, and its checkpoint is
copied into the first region of its new path. After a failure it resumes from its last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from spotline.domain.placement.cost import egress_usd_per_iteration, lost_s_per_iteration
from spotline.domain.placement.graph import FloatArray, RegionGraph
from spotline.domain.placement.interface import PlacementMethod, PlacementMoment, Residual
from spotline.domain.placement.pipeline import PipelineJob, Placement

_S_PER_HOUR = 3600.0

# A move must save this share of what staying costs: prices ahead are forecasts, and restarts do
# not always take the time they should.
WORTH_MOVING = 0.02

# Sets of victims looked through for the fewest, before a set that cannot be made smaller will do.
_MOST_SETS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesAhead:
    """Prices of a GPU-hour in the hours to come.

    `usd_per_gpu_hour` has shape (hours, R); the first row holds from `start_s`, the last without end.
    """

    start_s: float
    usd_per_gpu_hour: FloatArray

    def __post_init__(self) -> None:
        if self.usd_per_gpu_hour.ndim != 2 or not len(self.usd_per_gpu_hour):
            raise ValueError(
                "usd_per_gpu_hour must have shape (hours, regions) with an hour at least, "
                f"had {self.usd_per_gpu_hour.shape}"
            )
        if not np.isfinite(self.usd_per_gpu_hour).all():
            raise ValueError("usd_per_gpu_hour must be finite")

    def usd_per_gpu(self, start_s: float, end_s: float) -> FloatArray:
        """What a GPU costs from `start_s` to `end_s`, USD per region, shape (R,)."""
        hours = len(self.usd_per_gpu_hour)
        edges = self.start_s + _S_PER_HOUR * np.arange(hours + 1)
        edges[0], edges[-1] = -np.inf, np.inf
        spent_s = np.minimum(edges[1:], end_s) - np.maximum(edges[:-1], start_s)
        total: FloatArray = np.maximum(spent_s, 0.0) @ self.usd_per_gpu_hour / _S_PER_HOUR
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsideredMove:
    """Whether to move a job now, and what that and staying come to.

    `stay_usd` and `move_usd` are all that is still to be paid, with `migration_usd` part of the
    latter; `*_finish_s` when the job is expected to be done, interruptions included.
    """

    pays: bool
    placement: Placement | None
    stay_usd: float
    move_usd: float
    migration_usd: float
    stay_finish_s: float
    move_finish_s: float
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """Which placements cannot go on after a failure, and why."""

    job_ids: tuple[str, ...]
    reasons: Mapping[str, str]


def checkpointed_iterations(job: PipelineJob, iterations_done: int) -> int:
    """Of the iterations done, those up to the last checkpoint: the rest is lost in a failure."""
    interval = job.checkpoint_interval_iterations
    return min(max(iterations_done, 0), job.iterations) // interval * interval


def resumed(
    job: PipelineJob, iterations_done: int, *, gpus: int | None = None
) -> PipelineJob | None:
    """The job with what is left of it after its last checkpoint; None if that is nothing.

    Parameters
    ----------
    job, iterations_done
        The job as it was placed, and how far it came there.
    gpus
        Stages it must keep, as in the paper, where the depth is fixed for the job's life; None
        lets it be cut again.
    """
    left = job.iterations - checkpointed_iterations(job, iterations_done)
    if left <= 0:
        return None
    least, most = (job.min_gpus, job.max_gpus) if gpus is None else (gpus, gpus)
    # What has begun was accepted.
    promised = job.promised or iterations_done > 0
    return replace(job, iterations=left, min_gpus=least, max_gpus=most, promised=promised)


def migration_usd(
    job: PipelineJob,
    graph: RegionGraph,
    held: Placement,
    candidate: Placement,
    start_s: float,
    prices: PricesAhead,
) -> float:
    """USD of moving: GPUs that restart, and the checkpoint's egress to the new first region."""
    source, destination = held.path[0].region_id, candidate.path[0].region_id
    egress = 0.0
    if source != destination and source in graph.index:
        pair = graph.index[source], graph.index[destination]
        egress = job.checkpoint_gb * float(graph.egress_usd_per_gb[pair])
    restarting = prices.usd_per_gpu(start_s, start_s + job.restart_s)
    return egress + float(_gpus(graph, candidate) @ restarting)


def weigh_move(
    job: PipelineJob,
    graph: RegionGraph,
    held: Placement,
    candidate: Placement,
    now_s: float,
    prices: PricesAhead,
    *,
    time_usd_per_s: float = 0.0,
) -> ConsideredMove:
    """Whether to move a job that is at a checkpoint.

    Parameters
    ----------
    job
        With the iterations it still has to do.
    held, candidate
        Where it is, and where it could go: the GPUs of both must have been weighed against what
        is free once `held` is given back.
    now_s, prices
        When the move would begin, and what GPUs will cost.
    time_usd_per_s
        What a second until the end is worth; 0 looks at money only.

    Returns
    -------
    ConsideredMove
        It pays if all that is still to be paid, migration and time included, is less by
        `WORTH_MOVING`, and a deadline that staying may meet is met by moving.
    """
    stay_finish_s = now_s + job.iterations * expected_iteration_s(job, graph, held)
    begin_s = now_s + job.restart_s
    move_finish_s = begin_s + job.iterations * expected_iteration_s(job, graph, candidate)
    stay_usd = _usd(job, graph, held, now_s, stay_finish_s, prices)
    moving_usd = migration_usd(job, graph, held, candidate, now_s, prices)
    move_usd = moving_usd + _usd(job, graph, candidate, begin_s, move_finish_s, prices)
    later_usd = time_usd_per_s * (move_finish_s - stay_finish_s)
    saved_usd = stay_usd - move_usd - later_usd
    # The iteration it is in counts as not begun: staying may end that much sooner.
    kept = stay_finish_s - held.iteration_s <= job.deadline_s
    late = kept and move_finish_s > job.deadline_s
    pays = not late and saved_usd > WORTH_MOVING * abs(stay_usd)
    if late:
        reason = "would miss its deadline"
    elif pays:
        reason = f"saves {saved_usd:.2f} USD of {stay_usd:.2f} after {moving_usd:.2f} for moving"
    else:
        reason = f"saves {saved_usd:.2f} USD of {stay_usd:.2f}: not worth moving"
    return ConsideredMove(
        pays=pays,
        placement=candidate,
        stay_usd=stay_usd,
        move_usd=move_usd,
        migration_usd=moving_usd,
        stay_finish_s=stay_finish_s,
        move_finish_s=move_finish_s,
        reason=reason,
    )


def expected_iteration_s(job: PipelineJob, graph: RegionGraph, placement: Placement) -> float:
    """Seconds per iteration of a placement, with what interruptions are expected to waste."""
    path = [graph.index[share.region_id] for share in placement.path]
    lost_s = lost_s_per_iteration(job, graph, path, placement.iteration_s)
    return placement.iteration_s + lost_s


def consider_move(
    job: PipelineJob,
    held: Placement,
    method: PlacementMethod,
    moment: PlacementMoment,
    prices: PricesAhead,
    *,
    time_usd_per_s: float = 0.0,
) -> ConsideredMove:
    """Let a method place a running job again, and see whether moving there pays.

    Parameters
    ----------
    job
        With what is left of it; cut to `held`'s stages by `resumed` if the depth is to stay.
    held
        Where it runs. `moment.residual` is what is free beside it.
    method, moment, prices
        Who chooses, on what, and what GPUs will cost. The method sees the mean price over the time
        the job would still take, in place of the moment's.
    time_usd_per_s
        As for `weigh_move`.
    """
    graph = moment.residual.graph
    without = moment.residual.copy()
    without.give_back(held)
    run_s = job.iterations * expected_iteration_s(job, graph, held)
    finish_s = moment.now_s + max(1.0, run_s)
    hours = (finish_s - moment.now_s) / _S_PER_HOUR
    mean = prices.usd_per_gpu(moment.now_s, finish_s) / hours
    view = PlacementMoment(now_s=moment.now_s, usd_per_gpu_hour=mean, residual=without)
    # It computes only once it has restarted.
    asked = replace(job, deadline_s=job.deadline_s - job.restart_s)
    answer = method.place([asked], view)[0]
    if isinstance(answer, Placement) and answer.path != held.path:
        return weigh_move(
            job, graph, held, answer, moment.now_s, prices, time_usd_per_s=time_usd_per_s
        )
    stay_usd = _usd(job, graph, held, moment.now_s, finish_s, prices)
    return ConsideredMove(
        pays=False,
        placement=None,
        stay_usd=stay_usd,
        move_usd=stay_usd,
        migration_usd=0.0,
        stay_finish_s=finish_s,
        move_finish_s=finish_s,
        reason="no other place is better",
    )


def affected(placements: Sequence[Placement], graph: RegionGraph) -> Affected:
    """Which placements have to go after regions or links were lost or became smaller.

    Everything that touches a region that is gone, or crosses a link that is; then the fewest
    placements without which the rest fits again: of several such sets the one that holds least
    GPUs, then the first by ids. All others are left alone. Where very many placements cross very
    many narrowed links, the set is one of which none could be spared, but may not be the fewest.

    Parameters
    ----------
    placements
        Those running, of different jobs.
    graph
        As it is now: a lost region has no GPUs, or is not in it.
    """
    running = sorted(placements, key=lambda placement: placement.job_id)
    reasons: dict[str, str] = {}
    for placement in running:
        lost = _lost(placement, graph)
        if lost:
            reasons[placement.job_id] = lost
    rest = [placement for placement in running if placement.job_id not in reasons]
    for placement in _fewest(rest, graph):
        reasons[placement.job_id] = "what is left of its regions or links is too little for all"
    return Affected(job_ids=tuple(sorted(reasons)), reasons=reasons)


def _lost(placement: Placement, graph: RegionGraph) -> str:
    for share in placement.path:
        if share.region_id not in graph.index or not graph.gpus[graph.index[share.region_id]]:
            return f"{share.region_id} is lost"
    for source, destination in placement.links:
        if graph.bytes_per_s[graph.index[source], graph.index[destination]] < 1:
            return f"link {source} -> {destination} is lost"
    return ""


def _fewest(placements: list[Placement], graph: RegionGraph) -> list[Placement]:
    residual = Residual.of(graph, placements)
    short = np.maximum(-np.concatenate([residual.gpus, residual.bytes_per_s.ravel()]), 0.0)
    needs = np.flatnonzero(short)
    if not len(needs):
        return []
    touching, rows = [], []
    for placement in placements:
        holds = _holds(placement, graph)[needs]
        if holds.any():
            touching.append(placement)
            rows.append(holds)
    holding, need = np.array(rows), short[needs]
    enough = _spared(touching, holding, need)
    chosen = enough
    for size in range(1, len(enough) + 1):
        if math.comb(len(touching), size) > _MOST_SETS:
            break
        sets = [
            picked
            for picked in combinations(range(len(touching)), size)
            if (holding[list(picked)].sum(axis=0) >= need).all()
        ]
        if sets:
            chosen = list(
                min(sets, key=lambda picked: (sum(touching[i].gpus for i in picked), picked))
            )
            break
    return [touching[i] for i in chosen]


def _spared(touching: list[Placement], holding: FloatArray, need: FloatArray) -> list[int]:
    """A set that covers the need, largest relief first, less those it can do without."""
    chosen: list[int] = []
    left = need.copy()
    while (left > 0).any():
        relief = (np.minimum(holding, np.maximum(left, 0.0)) / need).sum(axis=1)
        relief[chosen] = -1.0
        best = int(relief.argmax())
        chosen.append(best)
        left = left - holding[best]
    for i in list(chosen):
        others = [k for k in chosen if k != i]
        if (holding[others].sum(axis=0) >= need).all():
            chosen = others
    return chosen


def _holds(placement: Placement, graph: RegionGraph) -> FloatArray:
    """GPUs per region and bytes per second per link that a placement holds, in one row."""
    regions = len(graph.region_ids)
    held = np.zeros(regions + regions * regions)
    held[:regions] = _gpus(graph, placement)
    for source, destination in placement.links:
        at = regions + graph.index[source] * regions + graph.index[destination]
        held[at] += placement.reserved_bytes_per_s
    return held


def _gpus(graph: RegionGraph, placement: Placement) -> FloatArray:
    gpus = np.zeros(len(graph.region_ids))
    for share in placement.path:
        gpus[graph.index[share.region_id]] += share.gpus
    return gpus


def _usd(
    job: PipelineJob,
    graph: RegionGraph,
    placement: Placement,
    start_s: float,
    end_s: float,
    prices: PricesAhead,
) -> float:
    path = [graph.index[share.region_id] for share in placement.path]
    egress = job.iterations * egress_usd_per_iteration(job, graph, path)
    return egress + float(_gpus(graph, placement) @ prices.usd_per_gpu(start_s, end_s))
