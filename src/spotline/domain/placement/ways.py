"""The ways one job can run on what is free, each priced in one figure.

Every way looked at (one region or a path from any seed, several counts of GPUs up to K*) scores,
in USD per iteration,

    usd + time_usd_per_s * (iteration_s + lost_s) * (1 + waiting_per_gpu * gpus)

`usd` is GPUs, egress of activations both ways over each boundary, and spot risk; `lost_s` is what
interruptions are expected to waste. A second of the job is worth `time_weight` times what its K*
GPUs cost a second at the mean price: relative to its own bill, so that one weight serves both
electricity and rent. `waiting_per_gpu` charges a job for GPUs that others want.

Stalls are not looked for: over a link of b bytes per second, k stages that wait run at the rate of
b c / A stages that do not (up to rounding), and cost more. They are taken only where memory asks
for more stages than any link keeps fed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from spotline.domain.placement.cost import copy_usd_per_gb
from spotline.domain.placement.cost_min import cheapest_split, cheapest_splits
from spotline.domain.placement.free import Free, reservation_bytes_per_s
from spotline.domain.placement.graph import FloatArray, IntArray, RegionGraph
from spotline.domain.placement.pathfinder import GrownPaths, grow_paths, largest_paths
from spotline.domain.placement.pipeline import PipelineJob

_S_PER_HOUR = 3600.0
_BYTES_PER_GB = 1e9

# A second of a job is worth this many seconds of its K* GPUs. Of steps of 0.25 the largest at which
# the median cost of 30 drawn tables (seeds 5000-5029, of which nothing is reported) lies at least
# 12.6 % below every baseline's; from 2 on more weight made jobs slower there, too.
TIME_WEIGHT = 1.25

# Paths over regions are not looked for where they could save no more than this share of the
# score: a boundary is one more thing that can fail.
WORTH_A_BOUNDARY = 0.02

# A job that the network would slow down further than this is not worth its GPUs.
LONGEST_STALL = 10.0

# What a GPU-hour is taken to cost where nothing has a price, so that time still counts.
_USD_PER_FREE_GPU_HOUR = 0.01

# From USD per iteration, seconds lost, seconds of an iteration and GPUs to what is minimised;
# infinite: not to be taken. All broadcast together.
Ranking = Callable[[FloatArray, FloatArray, FloatArray, IntArray], FloatArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to run a job: regions in pipeline order, GPUs in each; figures per iteration."""

    path: tuple[int, ...]
    gpus: tuple[int, ...]
    iteration_s: float
    lost_s: float
    usd: float

    @property
    def expected_s(self) -> float:
        """Seconds per iteration, with what interruptions waste."""
        return self.iteration_s + self.lost_s


class MarketPrices:
    """Prices of a scheduling event, in the form the weighing reads; index as in the graph."""

    def __init__(self, graph: RegionGraph, usd_per_gpu_hour: FloatArray) -> None:
        self.usd_per_s: FloatArray = usd_per_gpu_hour / _S_PER_HOUR
        mean = float(np.abs(usd_per_gpu_hour).mean()) if len(usd_per_gpu_hour) else 0.0
        self.mean_usd_per_s = (mean or _USD_PER_FREE_GPU_HOUR) / _S_PER_HOUR
        self.interruptions_per_s: FloatArray = (
            np.array([region.interruptions_per_hour for region in graph.regions]) / _S_PER_HOUR
        )
        self.boundary_usd_per_gb: FloatArray = graph.egress_usd_per_gb + graph.egress_usd_per_gb.T
        self.copy_usd_per_gb: FloatArray = copy_usd_per_gb(graph)


class Weigher:
    """Finds the best way for one job on what is free.

    Parameters
    ----------
    job, free, market
        What is to be placed, what is left, and what it costs.
    time_weight
        What a second of the job is worth, in seconds of its K* GPUs at the mean price.
    waiting_per_gpu
        How many other jobs a GPU held keeps waiting, per GPU.
    """

    def __init__(
        self,
        job: PipelineJob,
        free: Free,
        market: MarketPrices,
        *,
        time_weight: float = TIME_WEIGHT,
        waiting_per_gpu: float = 0.0,
    ) -> None:
        self.job, self.free, self.market = job, free, market
        self.time_usd_per_s = time_weight * job.best_gpus * market.mean_usd_per_s
        self._waiting_per_gpu = waiting_per_gpu
        self._counts, self._iteration_s = _iteration_times(
            job.microbatches,
            job.compute_s,
            job.stage_overhead_s,
            job.min_gpus,
            job.best_gpus,
        )
        self._iteration_gb = job.microbatches * job.activation_bytes / _BYTES_PER_GB

    def score_usd(self, way: Way) -> float:
        """What a way counts for over the whole job, USD."""
        waiting = 1 + self._waiting_per_gpu * sum(way.gpus)
        return self.job.iterations * (way.usd + self.time_usd_per_s * way.expected_s * waiting)

    def bound_usd(self) -> float:
        """No way scores less over the whole job, wherever there is room."""
        return self.job.iterations * self._bound()[0]

    def best(self) -> Way | None:
        """The way of least score, if any runs without stalls."""
        one = self._in_one_region(self._score)
        bound, gpus = self._bound()
        if one is not None:
            score = self.score_usd(one) / self.job.iterations
            if score <= bound + WORTH_A_BOUNDARY * abs(bound):
                return one
        # As many GPUs as in one region may come cheaper in several.
        also = sum(one.gpus) if one is not None else self.job.min_gpus
        ways = self._across(gpus, self._score, also)
        return min([*ways, *([one] if one else [])], key=self.score_usd, default=None)

    def least_gpus_within(self, left_s: FloatArray) -> IntArray:
        """The fewest GPUs that could be done within a number of seconds; 2^62 where none could."""
        # Iterations get shorter up to K*.
        place = np.searchsorted(-self._iteration_s * self.job.iterations, -left_s)
        enough: IntArray = np.append(self._counts, 1 << 62)[place]
        return enough

    def shortest_s(self, gpus: IntArray) -> FloatArray:
        """Seconds of the whole job on as many of these GPUs as it can use; infinite if too few."""
        most = np.minimum(gpus, self.job.best_gpus)
        iteration_s = self._iteration_s[np.maximum(most - self.job.min_gpus, 0)]
        shortest: FloatArray = np.where(
            most < self.job.min_gpus, np.inf, self.job.iterations * iteration_s
        )
        return shortest

    def cheapest_within(self, left_s: float) -> Way | None:
        """The cheapest way that is expected to be done within `left_s` seconds."""

        def usd_in_time(
            usd: FloatArray, lost_s: FloatArray, iteration_s: FloatArray, gpus: IntArray
        ) -> FloatArray:
            in_time = (iteration_s + lost_s) * self.job.iterations <= left_s
            return np.where(in_time, usd, np.inf)

        enough = np.flatnonzero(self._iteration_s * self.job.iterations <= left_s)
        if not len(enough):
            return None
        one = self._in_one_region(usd_in_time)
        ways = [one] if one is not None else []
        if one is not None:
            cheapest = float(self.market.usd_per_s[self.free.gpus > 0].min())
            bound = cheapest * (self._counts * self._iteration_s)[enough]
            if one.usd <= float(bound.min()) + WORTH_A_BOUNDARY * abs(float(bound.min())):
                return one
        for gpus in sorted({int(self._counts[enough[0]]), self.job.best_gpus}):
            ways += self._across(gpus, usd_in_time)
        return min(ways, key=lambda way: (way.usd, way.expected_s), default=None)

    def fastest(self) -> Way | None:
        """The way that is done first, interruptions included."""

        def expected_s(
            usd: FloatArray, lost_s: FloatArray, iteration_s: FloatArray, gpus: IntArray
        ) -> FloatArray:
            return iteration_s + lost_s + 0.0 * usd

        one = self._in_one_region(expected_s)
        if one is not None and one.expected_s <= float(self._iteration_s[-1]):
            return one
        ways = [one] if one is not None else []
        if self.market.interruptions_per_s.any():
            ways += self._across(self.job.best_gpus, expected_s)
        else:
            # Then whichever path has most stages is the fastest.
            target, grown = largest_paths(
                self.job, self.free, self.job.best_gpus, along=self._boundary_usd()
            )
            widest = self._best_of(grown, target, expected_s)
            ways += [widest] if widest is not None else []
        return min(ways, key=lambda way: (way.expected_s, way.usd), default=None)

    def stalled(self) -> Way | None:
        """The least slow way with just the stages that memory asks for, whatever links carry."""
        gpus = self.job.min_gpus
        grown = grow_paths(self.free, gpus, 1.0)
        able = np.flatnonzero(grown.gpus >= gpus).tolist()
        ways = []
        for seed in able:
            path = grown.path(seed)
            width = self.free.bottleneck_bytes_per_s(path)
            share = cheapest_split(path, gpus, self.free.gpus, self.market.usd_per_s)
            ways.append(self.way(path, share, self.job.iteration_s(gpus, width)))
        best = min(ways, key=lambda way: (way.iteration_s, self.score_usd(way)), default=None)
        if best is None or best.iteration_s > LONGEST_STALL * self.job.iteration_s(gpus):
            return None
        return best

    def every_region_and_seed(self) -> list[Way]:
        """Best counts for every region alone and for the path from every seed, to be shown."""
        rows = np.flatnonzero(self.free.gpus >= self.job.min_gpus).tolist()
        ways = []
        for row in rows:
            most = min(int(self.free.gpus[row]), self.job.best_gpus)
            usable = self._counts[: most - self.job.min_gpus + 1]
            each = [self.way([row], [int(k)], self.job.iteration_s(int(k))) for k in usable]
            ways.append(min(each, key=self.score_usd))
        for grown, target in self._growths(self._bound()[1]):
            for step in (*grown.shorter, grown):
                ways += self._shown(step, target)
        # Whatever links carry, so that it can be seen what a narrow one would come to.
        ways += self._shown(grow_paths(self.free, self.job.best_gpus, 1.0), self.job.best_gpus)
        return ways

    def _shown(self, grown: GrownPaths, target: int) -> list[Way]:
        """The path from every seed, with as many stages as its links keep fed."""
        job, ways = self.job, []
        for seed in np.flatnonzero(grown.gpus >= job.min_gpus).tolist():
            path = grown.path(seed)
            width = self.free.bottleneck_bytes_per_s(path)
            gpus = min(int(grown.gpus[seed]), target)
            if job.activation_bytes:
                gpus = int(min(gpus, width * job.compute_s / job.activation_bytes))
            gpus = max(gpus, job.min_gpus, len(path))
            if gpus > job.best_gpus:
                continue
            share = cheapest_split(path, gpus, self.free.gpus, self.market.usd_per_s)
            ways.append(self.way(path, share, job.iteration_s(gpus, width)))
        return ways

    def way(self, path: list[int], gpus: list[int], iteration_s: float) -> Way:
        """Price one way."""
        market = self.market
        egress_usd = self._iteration_gb * sum(
            float(market.boundary_usd_per_gb[here, there]) for here, there in pairwise(path)
        )
        usd, lost_s = self._costs(
            np.array(iteration_s),
            np.array(sum(float(market.usd_per_s[r]) * k for r, k in zip(path, gpus, strict=True))),
            np.array(sum(float(market.interruptions_per_s[region]) for region in path)),
            np.array(egress_usd),
            np.array(path[0]),
        )
        return Way(
            path=tuple(path),
            gpus=tuple(gpus),
            iteration_s=iteration_s,
            lost_s=float(lost_s),
            usd=float(usd),
        )

    def _bound(self) -> tuple[float, int]:
        """The least score per iteration if links were free, and the GPUs that have it."""
        cheapest = float(self.market.usd_per_s[self.free.gpus > 0].min(initial=np.inf))
        if not np.isfinite(cheapest):
            return np.inf, self.job.min_gpus
        waiting = 1 + self._waiting_per_gpu * self._counts
        score = self._iteration_s * (self.time_usd_per_s * waiting + cheapest * self._counts)
        best = int(score.argmin())
        return float(score[best]), int(self._counts[best])

    def _in_one_region(self, rank: Ranking) -> Way | None:
        rows = np.flatnonzero(self.free.gpus >= self.job.min_gpus)
        if not len(rows):
            return None
        line = rows[:, None]
        usd, lost_s = self._costs(
            self._iteration_s,
            self.market.usd_per_s[line] * self._counts,
            self.market.interruptions_per_s[line],
            np.zeros((1, 1)),
            line,
        )
        ranks = rank(usd, lost_s, self._iteration_s, self._counts)
        ranks = np.where(self._counts <= self.free.gpus[line], ranks, np.inf)
        row, column = divmod(int(ranks.argmin()), len(self._counts))
        if not np.isfinite(ranks[row, column]):
            return None
        return Way(
            path=(int(rows[row]),),
            gpus=(int(self._counts[column]),),
            iteration_s=float(self._iteration_s[column]),
            lost_s=float(lost_s[row, column]),
            usd=float(usd[row, column]),
        )

    def _across(self, most_gpus: int, rank: Ranking, also: int = 0) -> list[Way]:
        """Ways over paths with up to `most_gpus`, half way to that from one region, and `also`."""
        growths = self._growths(most_gpus, also)
        # Paths of two regions at least, before and after each join: the last may not be worth it.
        ways = (
            self._best_of(step, gpus, rank)
            for grown, gpus in growths
            for step in (*grown.shorter[1:], grown)
        )
        return [way for way in ways if way is not None]

    def _growths(self, most_gpus: int, also: int = 0) -> list[tuple[GrownPaths, int]]:
        job, free = self.job, self.free
        boundary_usd = self._boundary_usd()
        # What a further GPU costs through each link: its boundary's egress is shared by all the
        # GPUs behind it.
        joining_usd = boundary_usd / np.maximum(free.gpus, 1) + (
            self.market.usd_per_s * job.iteration_s(most_gpus)
        )
        growths = []
        for order in (None, -joining_usd):
            found, grown = largest_paths(job, free, most_gpus, order=order, along=boundary_usd)
            growths.append((grown, found))
            for fewer in sorted({(int(free.gpus.max()) + found) // 2, also}):
                if not job.min_gpus <= fewer < found:
                    continue
                least = reservation_bytes_per_s(job, fewer)
                grown = grow_paths(free, fewer, least, order=order, along=boundary_usd)
                growths.append((grown, fewer))
        return growths

    def _boundary_usd(self) -> FloatArray:
        """USD of egress per iteration for each boundary, shape (R, R)."""
        usd: FloatArray = self._iteration_gb * self.market.boundary_usd_per_gb
        return usd

    def _best_of(self, grown: GrownPaths, most_gpus: int, rank: Ranking) -> Way | None:
        gpus = np.minimum(grown.gpus, most_gpus)
        able = np.flatnonzero(gpus >= self.job.min_gpus)
        if not len(able):
            return None
        gpus, members = gpus[able], grown.members[able]
        shares = cheapest_splits(members, gpus, self.free.gpus, self.market.usd_per_s)
        iteration_s = self._iteration_s[gpus - self.job.min_gpus]
        usd, lost_s = self._costs(
            iteration_s,
            shares @ self.market.usd_per_s,
            members @ self.market.interruptions_per_s,
            grown.along[able],
            grown.seeds[able],
        )
        ranks = rank(usd, lost_s, iteration_s, gpus)
        best = int(ranks.argmin())
        if not np.isfinite(ranks[best]):
            return None
        path = grown.path(int(able[best]))
        share = [int(shares[best, region]) for region in path]
        # Priced again for the path as it is: growth at the front changes its first region.
        return self.way(path, share, float(iteration_s[best]))

    def _costs(
        self,
        iteration_s: FloatArray,
        gpu_usd_per_s: FloatArray,
        interruptions_per_s: FloatArray,
        egress_usd: FloatArray,
        first: IntArray,
    ) -> tuple[FloatArray, FloatArray]:
        """USD and lost seconds per iteration; as `cost.iteration_cost`, for arrays."""
        job = self.job
        interruptions = interruptions_per_s * iteration_s
        lost_s = interruptions * (
            job.restart_s + job.checkpoint_interval_iterations * iteration_s / 2
        )
        copies_usd = interruptions * (job.checkpoint_gb * self.market.copy_usd_per_gb[first])
        return gpu_usd_per_s * (iteration_s + lost_s) + egress_usd + copies_usd, lost_s

    def _score(
        self, usd: FloatArray, lost_s: FloatArray, iteration_s: FloatArray, gpus: IntArray
    ) -> FloatArray:
        waiting = 1 + self._waiting_per_gpu * gpus
        return usd + self.time_usd_per_s * (iteration_s + lost_s) * waiting


@lru_cache(maxsize=4096)
def _iteration_times(
    microbatches: int, compute_s: float, stage_overhead_s: float, least: int, most: int
) -> tuple[IntArray, FloatArray]:
    """Counts of GPUs, and an iteration's seconds at each without stalls."""
    counts = np.arange(least, most + 1)
    iteration_s = (microbatches + counts - 1) * compute_s / counts + counts * stage_overhead_s
    return counts, iteration_s
