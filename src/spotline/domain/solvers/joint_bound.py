"""A bound that no schedule of several jobs on one known market exceeds: the joint clairvoyant.

For prices ``lambda >= 0`` of what is shared,

    max over joint schedules of sum_j u_j(x_j)
        <= L(lambda) = sum_j max_{x_j} [u_j(x_j) - lambda . n_j(x_j)] + lambda . c

because every joint schedule holds ``sum_j n_j <= c`` and is, job by job, one of those over which
the maxima run (Lagrangian relaxation of a weakly coupled program: Adelman and Mersereau, Operations
Research 56(3), 2008, section 3). L is convex; `joint_bound` descends on it and keeps the least
value met. Each is exact integer arithmetic at whole prices, so each is a bound by itself, whether
the descent has converged or not.

What is shared is not instances alone. Where counts are small, gangs do not fill them: seven instances are one
gang of four and three over. As ``sum_j n_j <= c`` implies

    sum_j floor(n_j / k) <= floor(c / k)        for every size k

(Chvatal, Discrete Mathematics 4(4), 1973), whole bundles of k = 1, 2, 4 and so on, up to the most
that a job holds, have a price each.

What a job may do here includes all that the services let it do, and costs no more here:

* It may hold any allowed split of any allowed count on one offering at a time, within that
  offering's counts; it pays the same prices and every change the overhead of `jobs.accounting`.
* Spot that *the market* took is an interruption here. Spot that other jobs took is none: yielding
  is charged as shrinking at most, so that rules which charge more stay below the bound.
* A move to another offering costs `max(migrate_s, launch_s)` (after an interruption at least
  `interrupted_s`) and the job's least egress fee. `allocate.moved_task` charges at least as much:
  the launch there follows with the migration pending. After a pause a launch anywhere costs
  `launch_s`, though its checkpoint may lie elsewhere.
* Work that a loss without notice throws away is kept; a budget does not bind.
* After a soft deadline it holds whatever it likes, as before it: a job that is late may run on spot.

On-demand stock is shared and priced like spot where it never changes. Where it does, instances once
held stay beyond it, so it bounds each job by its running maximum and is not shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.solvers.moving_job import (
    IntArray,
    LaidLife,
    MovingJob,
    PerBundle,
    SharedCapacity,
    laid_lives,
)
from spotline.domain.units import S_PER_HOUR

FloatArray = npt.NDArray[np.float64]

# As many cells as `window.CELL_LIMIT` allows a single program.
CELL_LIMIT = 4096
# Passes over all jobs, and blocks of jobs between which prices move within a pass.
PASSES = 60
BLOCKS = 24
# A bound is computed after every so many passes: it costs as much as a pass.
_PASSES_PER_BOUND = 3
# Shares of the prices that jobs pay while a joint schedule is looked for.
_DECIDING_SHARES = (0.0, 0.5, 0.8, 1.0)
# First step, as a share of the mean on-demand price for a slot that is asked for twice over. It falls
# as the square of the passes left: over the number of passes so far it came less low in three times as many.
_STEP = 0.3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointBound:
    """No joint schedule earns more than `upper_micro_usd`; one was found that earns `attained_micro_usd`.

    `alone_micro_usd` is the sum of what each job could earn alone, the bound at no price; `prices` are those
    behind the bound, micro-USD per bundle and slot; `job_micro_usd` what each job earns at them. `exact` says
    that no gain was rounded.
    """

    upper_micro_usd: int
    attained_micro_usd: int
    alone_micro_usd: int
    job_micro_usd: tuple[int, ...]
    prices: PerBundle
    exact: bool


def joint_bound(
    jobs: Sequence[MovingJob],
    market: SharedCapacity,
    *,
    passes: int = PASSES,
    blocks: int = BLOCKS,
    cell_limit: int = CELL_LIMIT,
) -> JointBound:
    """Bound what any joint schedule of the jobs earns, value less cost.

    Parameters
    ----------
    passes
        Passes over all jobs in which prices move, >= 0.
    blocks
        Each pass moves prices after every one of so many blocks of jobs (incremental subgradients:
        Nedic and Bertsekas, SIAM Journal on Optimization 12(1), 2001); bounds are computed at
        the mean of the prices of a pass.

    Returns
    -------
    JointBound
        The least bound met; equal inputs give equal bounds.

    Raises
    ------
    ValueError
        A job has no program, or its life does not lie within the market.
    """
    if passes < 0 or blocks < 1:
        raise ValueError(f"passes must be >= 0 and blocks >= 1, were {passes} and {blocks}")
    shared = _Shared.of(jobs, market)
    lives = laid_lives(jobs, shared.market, cell_limit)
    prices = shared.nothing()
    alone = _evaluate(lives, shared, prices)
    best, best_prices = alone, prices
    if jobs and passes and alone.excess > 0:
        descent = _Descent(lives, shared, passes, blocks)
        for number in range(1, passes + 1):
            mean = descent.go_on()
            if number % _PASSES_PER_BOUND and number < passes:
                continue
            found = _evaluate(lives, shared, mean)
            if found.upper < best.upper:
                best, best_prices = found, mean
            if found.excess <= 0 and found.slack_worth <= 0:
                break
    return JointBound(
        upper_micro_usd=best.upper,
        attained_micro_usd=_attained(jobs, lives, shared, best_prices),
        alone_micro_usd=alone.upper,
        job_micro_usd=best.worth,
        prices=best_prices,
        exact=best.exact,
    )


def bound_at(
    jobs: Sequence[MovingJob],
    market: SharedCapacity,
    prices: PerBundle,
    *,
    cell_limit: int = CELL_LIMIT,
) -> int:
    """L at stated prices, micro-USD: a bound by itself, whatever the prices >= 0.

    Parameters
    ----------
    prices
        Micro-USD per bundle and slot, int64, shape (slots, offerings, sizes); of any sizes >= 1. Those of
        on-demand whose stock changes must be 0: it is not shared.

    Raises
    ------
    ValueError
        A price is negative or cannot be asked, or as for `joint_bound`.
    """
    shared = _Shared.of(jobs, market, prices.sizes)
    shape = (*market.spot.shape, prices.sizes.size)
    for name, extra in (("prices.spot", prices.spot), ("prices.on_demand", prices.on_demand)):
        if extra.shape != shape or extra.dtype != np.int64:
            raise ValueError(f"{name} must be int64 of shape {shape}")
        if extra.size and int(extra.min()) < 0:
            raise ValueError(f"{name} must be >= 0 everywhere, was {int(extra.min())}")
    if prices.on_demand[:, ~shared.priced].any():
        raise ValueError("prices.on_demand must be 0 where the stock changes")
    lives = laid_lives(jobs, shared.market, cell_limit)
    return _evaluate(lives, shared, prices).upper


@dataclass(frozen=True, slots=True, eq=False)
class _Shared:
    """The market with what on-demand can be held of it, and what jobs share: bundles of each size.

    `priced` says of which offerings the on-demand stock is shared.
    """

    market: SharedCapacity
    bundles: PerBundle
    priced: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, jobs: Sequence[MovingJob], market: SharedCapacity, sizes: IntArray | None = None
    ) -> _Shared:
        """Of bundles of `sizes`, powers of two up to the most that a job holds without."""
        stock = market.on_demand
        steady = np.all(stock == stock[:1], axis=0) if stock.size else np.ones(0, dtype=np.bool_)
        held = SharedCapacity(
            spot_price=market.spot_price,
            on_demand_price=market.on_demand_price,
            spot=market.spot,
            on_demand=np.maximum.accumulate(stock, axis=0),
        )
        if sizes is None:
            most = max(
                (there.max_instances for job in jobs for there in job.programs if there), default=1
            )
            sizes = 2 ** np.arange(most.bit_length(), dtype=np.int64)
        bundles = PerBundle(
            sizes, held.spot[..., None] // sizes, held.on_demand[..., None] // sizes
        )
        return cls(held, bundles, np.asarray(steady, dtype=np.bool_))

    def nothing(self) -> PerBundle:
        """No price, or no use."""
        return PerBundle.none(self.market, self.bundles.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """All jobs at some prices: the bound, what each earns, whether all is exact.

    `excess` is the number of bundles used that are not there, `slack_worth` what those left over cost.
    """

    upper: int
    worth: tuple[int, ...]
    exact: bool
    excess: int
    slack_worth: int


def _evaluate(lives: Sequence[LaidLife], shared: _Shared, prices: PerBundle) -> _Found:
    used = shared.nothing()
    worth = []
    all_exact = True
    for life in lives:
        value, exact, offering, held = life.best(prices)
        life.count(offering, held, used)
        worth.append(value)
        all_exact = all_exact and exact
    # Python's integers: plenty of stock at a price must not overflow. Only what is shared is priced.
    bundles, priced = shared.bundles, shared.priced
    rows = [
        (prices.spot, bundles.spot, used.spot),
        (prices.on_demand[:, priced], bundles.on_demand[:, priced], used.on_demand[:, priced]),
    ]
    paid = excess = slack = 0
    for price, count, taken in rows:
        dear = np.nonzero(price)
        of_dear = list(zip(price[dear].tolist(), count[dear].tolist(), strict=True))
        paid += sum(each * there for each, there in of_dear)
        left = np.maximum(0, count - taken)[dear].tolist()
        slack += sum(each * over for (each, _), over in zip(of_dear, left, strict=True))
        excess += int(np.maximum(0, taken - count).sum())
    return _Found(
        upper=sum(worth) + paid,
        worth=tuple(worth),
        exact=all_exact,
        excess=excess,
        slack_worth=slack,
    )


def _attained(
    jobs: Sequence[MovingJob],
    lives: Sequence[LaidLife],
    shared: _Shared,
    prices: PerBundle,
) -> int:
    """What a joint schedule earns: each job takes its best life of what those before it left.

    Jobs pay a share of the prices for deciding only, so that they leave what others need more.
    What others took looks like an interruption here, so the schedule is one that can be had. Where
    gains are rounded up or work can be lost it is no schedule: nothing is claimed.
    """
    most, market = 0, shared.market
    hardest = [
        (-lives[j].burden[0], -lives[j].burden[1], job.first_slot, j) for j, job in enumerate(jobs)
    ]
    order = [j for *_, j in sorted(hardest)]
    for share in _DECIDING_SHARES:
        charged = _whole(prices.sizes, prices.spot, prices.on_demand, share)
        left = SharedCapacity(
            spot_price=market.spot_price,
            on_demand_price=market.on_demand_price,
            spot=market.spot.copy(),
            on_demand=market.on_demand.copy(),
        )
        total = 0
        for j in order:
            value, exact, offering, held = lives[j].best(charged, left)
            if not (exact and lives[j].lossless):
                return 0
            used = shared.nothing()
            lives[j].count(offering, held, used)
            total += value + int((used.spot * charged.spot).sum())
            total += int((used.on_demand * charged.on_demand).sum())
            # Of size one are all instances.
            left.spot[:] -= used.spot[..., 0]
            left.on_demand[:] -= np.where(shared.priced, used.on_demand[..., 0], 0)
        most = max(most, total)
    return most


class _Descent:
    """Incremental subgradient steps on the prices, scaled by what each offering has."""

    def __init__(
        self, lives: Sequence[LaidLife], shared: _Shared, passes: int, blocks: int
    ) -> None:
        self._shared = shared
        # Every block has jobs of all times and kinds.
        blocks = min(blocks, len(lives))
        self._blocks = [lives[first::blocks] for first in range(blocks)]
        slot_s = lives[0].slot_s
        bundles = shared.bundles
        price = shared.market.on_demand_price.mean(axis=0) * (slot_s / S_PER_HOUR)
        of_bundle = price[:, None] * bundles.sizes
        self._spot_scale = of_bundle * _weights(bundles.spot, bundles.sizes)
        self._stock_scale = np.where(
            shared.priced[:, None], of_bundle * _weights(bundles.on_demand, bundles.sizes), 0.0
        )
        self._spot = np.zeros(bundles.spot.shape)
        self._stock = np.zeros(bundles.spot.shape)
        self._passes, self._most = 0, passes

    def go_on(self) -> PerBundle:
        """Pass over all jobs once; the mean of the prices on the way."""
        step = _STEP * (1.0 - self._passes / self._most) ** 2
        self._passes += 1
        share = 1.0 / len(self._blocks)
        bundles = self._shared.bundles
        spot_sum, stock_sum = np.zeros_like(self._spot), np.zeros_like(self._stock)
        for block in self._blocks:
            prices = _whole(bundles.sizes, self._spot, self._stock)
            used = self._shared.nothing()
            for life in block:
                _, _, offering, held = life.best(prices)
                life.count(offering, held, used)
            over = used.spot - bundles.spot * share
            self._spot = np.maximum(0.0, self._spot + step * self._spot_scale * over)
            over = used.on_demand - bundles.on_demand * share
            self._stock = np.maximum(0.0, self._stock + step * self._stock_scale * over)
            spot_sum += self._spot
            stock_sum += self._stock
        return _whole(bundles.sizes, spot_sum, stock_sum, share)


def _weights(bundles: IntArray, sizes: IntArray) -> FloatArray:
    """Share of a price that a price moves for one bundle too many, shape of `bundles`.

    The more of the instances a size leaves over, the more it adds to what their price says.
    """
    instances = bundles[..., :1]
    over = (instances - bundles * sizes) / np.maximum(1, instances)
    over[..., 0] = 1.0
    return over / np.maximum(1, bundles)


def _whole(
    sizes: IntArray,
    spot: FloatArray | IntArray,
    stock: FloatArray | IntArray,
    share: float = 1.0,
) -> PerBundle:
    """Whole prices, a share of these, rounded down."""
    return PerBundle(
        sizes,
        np.floor(spot * share).astype(np.int64),
        np.floor(stock * share).astype(np.int64),
    )
