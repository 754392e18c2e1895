"""A bound that no schedule of several jobs on one known market exceeds: the joint clairvoyant.

For prices ``lambda >= 0`` of what is shared,

    max over joint schedules of sum_j u_j(x_j)
        <= L(lambda) = sum_j max_{x_j} [u_j(x_j) - lambda . n_j(x_j)] + lambda . c

because every joint schedule holds ``sum_j n_j <= c`` and is, job by job, one of those over which
the maxima run (Lagrangian relaxation of a weakly coupled program: Adelman and Mersereau, Operations
Research 56(3), 2008, section 3). L is convex; `joint_bound` descends on it and keeps the least
value met. Each is exact integer arithmetic at whole prices, so each is a bound by itself, whether
the descent has converged or not.

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
    PerInstance,
    SharedCapacity,
    laid_lives,
)
from spotline.domain.units import S_PER_HOUR

FloatArray = npt.NDArray[np.float64]

# As many cells as `window.CELL_LIMIT` allows a single program.
CELL_LIMIT = 4096
# Passes over all jobs, and blocks of jobs between which prices move within a pass.
PASSES = 30
BLOCKS = 24
# A bound is computed after every so many passes: it costs as much as a pass.
_PASSES_PER_BOUND = 3
# Shares of the prices that jobs pay while a joint schedule is looked for.
_DECIDING_SHARES = (0.0, 0.5, 0.8, 1.0)
# First step, as a share of the mean on-demand price for a slot that is asked for twice over.
_STEP = 0.6


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointBound:
    """No joint schedule earns more than `upper_micro_usd`; one was found that earns `attained_micro_usd`.

    `alone_micro_usd` is the sum of what each job could earn alone, the bound at no price; `spot_extra` and
    `on_demand_extra` are the prices behind the bound, micro-USD per instance and slot, shape
    (slots, offerings); `job_micro_usd` what each job earns at them. `exact` says that no gain was
    rounded.
    """

    upper_micro_usd: int
    attained_micro_usd: int
    alone_micro_usd: int
    job_micro_usd: tuple[int, ...]
    spot_extra: IntArray
    on_demand_extra: IntArray
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
    market, priced = _shared(market)
    lives = laid_lives(jobs, market, cell_limit)
    prices = PerInstance.none(market)
    alone = _evaluate(lives, market, prices, priced)
    best, best_prices = alone, prices
    if jobs and passes and alone.excess > 0:
        descent = _Descent(lives, market, priced, blocks)
        for number in range(1, passes + 1):
            mean = descent.go_on()
            if number % _PASSES_PER_BOUND and number < passes:
                continue
            found = _evaluate(lives, market, mean, priced)
            if found.upper < best.upper:
                best, best_prices = found, mean
            if found.excess <= 0 and found.slack_worth <= 0:
                break
    return JointBound(
        upper_micro_usd=best.upper,
        attained_micro_usd=_attained(jobs, lives, market, best_prices, priced),
        alone_micro_usd=alone.upper,
        job_micro_usd=best.worth,
        spot_extra=best_prices.spot,
        on_demand_extra=best_prices.on_demand,
        exact=best.exact,
    )


def bound_at(
    jobs: Sequence[MovingJob],
    market: SharedCapacity,
    spot_extra: IntArray,
    on_demand_extra: IntArray,
    *,
    cell_limit: int = CELL_LIMIT,
) -> int:
    """L at stated prices, micro-USD: a bound by itself, whatever the prices >= 0.

    Parameters
    ----------
    spot_extra, on_demand_extra
        Micro-USD per instance and slot, int64, shape (slots, offerings). Those of on-demand whose
        stock changes must be 0: it is not shared.

    Raises
    ------
    ValueError
        A price is negative or cannot be asked, or as for `joint_bound`.
    """
    held, priced = _shared(market)
    for name, prices in (("spot_extra", spot_extra), ("on_demand_extra", on_demand_extra)):
        if prices.shape != market.spot.shape or prices.dtype != np.int64:
            raise ValueError(f"{name} must be int64 of shape {market.spot.shape}")
        if prices.size and int(prices.min()) < 0:
            raise ValueError(f"{name} must be >= 0 everywhere, was {int(prices.min())}")
    if on_demand_extra[:, ~priced].any():
        raise ValueError("on_demand_extra must be 0 where the stock changes")
    lives = laid_lives(jobs, held, cell_limit)
    return _evaluate(lives, held, PerInstance(spot_extra, on_demand_extra), priced).upper


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """All jobs at some prices: the bound, what each earns, what they use, whether all is exact."""

    upper: int
    worth: tuple[int, ...]
    used: PerInstance
    exact: bool
    excess: int
    slack_worth: int


def _shared(market: SharedCapacity) -> tuple[SharedCapacity, npt.NDArray[np.bool_]]:
    """The market with what on-demand can be held of it, and whether its stock is shared."""
    stock = market.on_demand
    steady = np.all(stock == stock[:1], axis=0) if stock.size else np.ones(0, dtype=np.bool_)
    return (
        SharedCapacity(
            spot_price=market.spot_price,
            on_demand_price=market.on_demand_price,
            spot=market.spot,
            on_demand=np.maximum.accumulate(stock, axis=0),
        ),
        np.asarray(steady, dtype=np.bool_),
    )


def _evaluate(
    lives: Sequence[LaidLife],
    market: SharedCapacity,
    prices: PerInstance,
    priced: npt.NDArray[np.bool_],
) -> _Found:
    used = PerInstance.none(market)
    worth = []
    all_exact = True
    for life in lives:
        value, exact, offering, held = life.best(prices)
        life.count(offering, held, used)
        worth.append(value)
        all_exact = all_exact and exact
    # Python's integers: plenty of stock at a price must not overflow. Only what is shared is priced.
    rows = [
        (prices.spot.ravel(), market.spot.ravel(), used.spot.ravel()),
        (
            prices.on_demand[:, priced].ravel(),
            market.on_demand[:, priced].ravel(),
            used.on_demand[:, priced].ravel(),
        ),
    ]
    paid = excess = slack = 0
    for price, count, taken in rows:
        dear = np.flatnonzero(price)
        paid += sum(int(price[i]) * int(count[i]) for i in dear)
        slack += sum(int(price[i]) * max(0, int(count[i] - taken[i])) for i in dear)
        excess += int(np.maximum(0, taken - count).sum())
    return _Found(
        upper=sum(worth) + paid,
        worth=tuple(worth),
        used=used,
        exact=all_exact,
        excess=excess,
        slack_worth=slack,
    )


def _attained(
    jobs: Sequence[MovingJob],
    lives: Sequence[LaidLife],
    market: SharedCapacity,
    prices: PerInstance,
    priced: npt.NDArray[np.bool_],
) -> int:
    """What a joint schedule earns: each job takes its best life of what those before it left.

    Jobs pay a share of the prices for deciding only, so that they leave what others need more.
    What others took looks like an interruption here, so the schedule is one that can be had. Where
    gains are rounded up or work can be lost it is no schedule: nothing is claimed.
    """
    most = 0
    hardest = [
        (-lives[j].burden[0], -lives[j].burden[1], job.first_slot, j) for j, job in enumerate(jobs)
    ]
    order = [j for *_, j in sorted(hardest)]
    for share in _DECIDING_SHARES:
        charged = _whole(prices.spot, prices.on_demand, share)
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
            used = PerInstance.none(market)
            lives[j].count(offering, held, used)
            total += value + int((used.spot * charged.spot).sum())
            total += int((used.on_demand * charged.on_demand).sum())
            left.spot[:] -= used.spot
            left.on_demand[:] -= np.where(priced, used.on_demand, 0)
        most = max(most, total)
    return most


class _Descent:
    """Incremental subgradient steps on the prices, scaled by what each offering has."""

    def __init__(
        self,
        lives: Sequence[LaidLife],
        market: SharedCapacity,
        priced: npt.NDArray[np.bool_],
        blocks: int,
    ) -> None:
        self._market = market
        # Every block has jobs of all times and kinds.
        blocks = min(blocks, len(lives))
        self._blocks = [lives[first::blocks] for first in range(blocks)]
        slot_s = lives[0].slot_s
        price = market.on_demand_price.mean(axis=0) * (slot_s / S_PER_HOUR)
        self._spot_scale = price / np.maximum(1.0, market.spot)
        self._stock_scale = np.where(priced, price / np.maximum(1.0, market.on_demand), 0.0)
        self._spot = np.zeros(market.spot.shape)
        self._stock = np.zeros(market.spot.shape)
        self._passes = 0

    def go_on(self) -> PerInstance:
        """Pass over all jobs once; the mean of the prices on the way."""
        self._passes += 1
        step = _STEP / self._passes
        share = 1.0 / len(self._blocks)
        spot_sum, stock_sum = np.zeros_like(self._spot), np.zeros_like(self._stock)
        for block in self._blocks:
            prices = _whole(self._spot, self._stock)
            used = PerInstance.none(self._market)
            for life in block:
                _, _, offering, held = life.best(prices)
                life.count(offering, held, used)
            over = used.spot - self._market.spot * share
            self._spot = np.maximum(0.0, self._spot + step * self._spot_scale * over)
            over = used.on_demand - self._market.on_demand * share
            self._stock = np.maximum(0.0, self._stock + step * self._stock_scale * over)
            spot_sum += self._spot
            stock_sum += self._stock
        return _whole(spot_sum, stock_sum, share)


def _whole(
    spot: FloatArray | IntArray, stock: FloatArray | IntArray, share: float = 1.0
) -> PerInstance:
    """Whole prices, a share of these, rounded down."""
    return PerInstance(
        np.floor(spot * share).astype(np.int64), np.floor(stock * share).astype(np.int64)
    )
