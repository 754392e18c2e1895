"""The exact program of one instance under a Markov market: expected cost to go.

The safety zone is part of the program: spot is launched only with two overheads and a tick of
slack, ridden or left for idling only with one overhead and a tick, so no trace makes a job late.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.ticks import IntArray, TickPrices, TickTerms, is_forced
from spotline.domain.market.run_law import MarketChain

Costs = npt.NDArray[np.float32]

# Kinds of what is held when a tick begins; the pending ones only where overheads outlast a tick.
IDLE, HELD_OD, HELD_SPOT, PENDING_OD, PENDING_SPOT = 0, 1, 2, 3, 4

_UNCERTAIN = np.float32(-1.0)
# Slack above the forced zone within which a table is exact to the second.
_EXACT_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTask:
    """Work of one instance with a hard deadline.

    Attributes
    ----------
    terms
        Seconds of work, of a tick and of a restart; deadline in ticks.
    spot_usd_per_tick, on_demand_usd_per_tick
        Price of a tick, USD; an idle tick is free.

    Raises
    ------
    ValueError
        A length is not positive, or the overhead exceeds two ticks.
    """

    terms: TickTerms
    spot_usd_per_tick: float
    on_demand_usd_per_tick: float

    def __post_init__(self) -> None:
        if min(self.terms) <= 0:
            raise ValueError("work, deadline, overhead and tick must be positive")
        longest_s = 2 * self.terms.tick_s
        if self.terms.overhead_s > longest_s:
            raise ValueError(
                f"overhead_s must be <= two ticks ({longest_s} s), was {self.terms.overhead_s}"
            )

    @property
    def prices(self) -> TickPrices:
        """Prices of a tick, USD."""
        return TickPrices(spot=self.spot_usd_per_tick, on_demand=self.on_demand_usd_per_tick)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTable:
    """Expected cost to go of a task: `values` (ticks + 1, held kinds, slack grid, market states).

    `values[k]` is the cost, USD, with k ticks left, given the market state one tick before.
    """

    task: InstanceTask
    grid_s: IntArray
    values: Costs


def slack_grid_s(terms: TickTerms) -> IntArray:
    """Slack values of a table, seconds, ascending.

    Exact near the forced zone, on the lattice of tick and overhead, where a second decides what is
    safe; above it one per tick, so that idling, the common move, needs no interpolation.
    """
    lattice_s = math.gcd(terms.tick_s, terms.overhead_s)
    top_s = terms.deadline_ticks * terms.tick_s - terms.work_s
    floor_s = terms.overhead_s + terms.tick_s
    if top_s <= floor_s:
        return np.array([floor_s, floor_s + lattice_s], dtype=np.int64)
    exact = np.arange(top_s % lattice_s, min(floor_s + _EXACT_S, top_s) + 1, lattice_s)
    exact = exact[exact >= floor_s]
    coarse = np.arange(top_s, exact[-1], -terms.tick_s)
    grid: IntArray = np.unique(np.concatenate([exact, coarse])).astype(np.int64)
    if len(grid) == 1:
        grid = np.append(grid, grid[0] + lattice_s)
    return grid


def solve(task: InstanceTask, market: MarketChain) -> InstanceTable:
    """Solve the program of one instance under a Markov market by backward induction."""
    grid_s = slack_grid_s(task.terms)
    values = value_to_go(grid_s, market, task.terms, task.prices)
    return InstanceTable(task=task, grid_s=grid_s, values=values)


@numba.njit(cache=True, nogil=True)
def launched_kind(terms: TickTerms, kind: int) -> int:
    """Kind of on-demand or spot one tick after its launch."""
    return kind + 2 if terms.overhead_s > terms.tick_s else kind


@numba.njit(cache=True, nogil=True)
def slack_launched_s(terms: TickTerms, k: int, slack_s: int) -> int:
    """Slack after a tick that launches, with `k` ticks left before; all that is left where done."""
    credit_s = max(0, terms.tick_s - terms.overhead_s)
    if k * terms.tick_s - slack_s <= credit_s:
        return k * terms.tick_s
    return slack_s - (terms.tick_s - credit_s)


@numba.njit(cache=True, nogil=True)
def slack_kept_s(terms: TickTerms, k: int, slack_s: int, pending_s: int) -> int:
    """Slack after a tick that keeps what is held, with `k` ticks left before."""
    if k * terms.tick_s - slack_s <= terms.tick_s - pending_s:
        return k * terms.tick_s
    return slack_s - pending_s


@numba.njit(cache=True, nogil=True)
def may_launch_spot(terms: TickTerms, k: int, slack_s: int) -> bool:
    """Whether an interruption right after the launch of spot would still leave time."""
    ends_work = k * terms.tick_s - slack_s <= max(0, terms.tick_s - terms.overhead_s)
    return slack_s >= 2 * terms.overhead_s + terms.tick_s or ends_work


@numba.njit(cache=True, nogil=True)
def price_of(prices: TickPrices, kind: int) -> np.float32:
    """Price of the tick that led to a kind, in the precision of a table."""
    if kind == IDLE:
        return np.float32(0.0)
    return np.float32(prices.on_demand if kind in (HELD_OD, PENDING_OD) else prices.spot)


@numba.njit(cache=True, nogil=True)
def certain_cost(
    terms: TickTerms, prices: TickPrices, k: int, kind: int, slack_s: int
) -> np.float32:
    """Price of a tick plus the rest where no market matters, with `k` ticks left; else below 0.

    The work is done, or on-demand is forced to the end.
    """
    left_s = k * terms.tick_s - slack_s
    price = price_of(prices, kind)
    if left_s <= 0:
        return price
    if not is_forced(terms, slack_s):
        return _UNCERTAIN
    pending_s = terms.overhead_s
    if kind == HELD_OD:
        pending_s = 0
    elif kind == PENDING_OD:
        pending_s = terms.overhead_s - terms.tick_s
    ticks = (left_s + pending_s + terms.tick_s - 1) // terms.tick_s
    return price + np.float32(prices.on_demand) * np.float32(ticks)


@numba.njit(cache=True, nogil=True)
def locate(grid_s: IntArray, slack_s: int) -> tuple[int, float]:
    """Lower grid index and the share of the upper one."""
    low, high = 0, grid_s.size - 1
    if slack_s >= grid_s[high]:
        return high, 0.0
    while high - low > 1:
        middle = (low + high) // 2
        if grid_s[middle] <= slack_s:
            low = middle
        else:
            high = middle
    return low, (slack_s - grid_s[low]) / (grid_s[high] - grid_s[low])


@numba.njit(cache=True, nogil=True)
def _fill(
    into: Costs,
    values: Costs,
    grid_s: IntArray,
    terms: TickTerms,
    prices: TickPrices,
    k: int,
    kind: int,
    slack_s: int,
) -> None:
    """Price of a tick plus the expected rest, per market state, with `k` ticks and `slack_s` left."""
    certain = certain_cost(terms, prices, k, kind, slack_s)
    if certain >= 0.0:
        into[:] = certain
        return
    price = price_of(prices, kind)
    low, share = locate(grid_s, slack_s)
    if share == 0.0:
        for n in range(into.size):
            into[n] = price + values[k, kind, low, n]
        return
    upper = np.float32(share)
    lower = np.float32(1.0) - upper
    for n in range(into.size):
        into[n] = price + lower * values[k, kind, low, n] + upper * values[k, kind, low + 1, n]


@numba.njit(cache=True, nogil=True)
def value_to_go(
    grid_s: IntArray, market: MarketChain, terms: TickTerms, prices: TickPrices
) -> Costs:
    """Expected cost to go under a Markov market; see `solve`.

    Returns float32, shape (ticks + 1, kinds held, grid, states): the cost from a tick on, given the
    state in the one before.
    """
    states = market.up.size
    kinds = 5 if terms.overhead_s > terms.tick_s else 3
    shape = (terms.deadline_ticks + 1, kinds, grid_s.size, states)
    values = np.zeros(shape, dtype=np.float32)
    # What each choice costs by the market state of the tick.
    idle = np.empty(states, dtype=np.float32)
    launch_od = np.empty(states, dtype=np.float32)
    launch_spot = np.empty(states, dtype=np.float32)
    stay = np.empty(states, dtype=np.float32)
    best = np.empty(states, dtype=np.float32)
    od, spot = launched_kind(terms, HELD_OD), launched_kind(terms, HELD_SPOT)
    margin_s = grid_s[-1] - grid_s[-2] if grid_s.size > 1 else 0
    for k in range(1, terms.deadline_ticks + 1):
        for cell in range(grid_s.size):
            slack_s = grid_s[cell]
            left_s = k * terms.tick_s - slack_s
            # Nothing to do, or further behind than a job ever is.
            if left_s <= 0 or left_s > terms.work_s + 2 * margin_s:
                continue
            after_s = slack_launched_s(terms, k, slack_s)
            _fill(idle, values, grid_s, terms, prices, k - 1, IDLE, slack_s - terms.tick_s)
            _fill(launch_od, values, grid_s, terms, prices, k - 1, od, after_s)
            may_launch = may_launch_spot(terms, k, slack_s)
            if may_launch:
                _fill(launch_spot, values, grid_s, terms, prices, k - 1, spot, after_s)
            for kind in range(kinds):
                pending_s = terms.overhead_s - terms.tick_s if kind >= PENDING_OD else 0
                is_spot = kind in (HELD_SPOT, PENDING_SPOT)
                is_od = kind in (HELD_OD, PENDING_OD)
                if kind != IDLE:
                    kept_s = slack_kept_s(terms, k, slack_s, pending_s)
                    kept = HELD_SPOT if is_spot else HELD_OD
                    _fill(stay, values, grid_s, terms, prices, k - 1, kept, kept_s)
                for n in range(states):
                    cost = min(idle[n], stay[n] if is_od else launch_od[n])
                    if market.up[n]:
                        if is_spot and not market.lost[n]:
                            cost = min(cost, stay[n])
                        elif may_launch:
                            cost = min(cost, launch_spot[n])
                    best[n] = cost
                _expect(values[k, kind, cell], market, best)
    return values


@numba.njit(cache=True, nogil=True)
def _expect(into: Costs, market: MarketChain, costs: Costs) -> None:
    """Expected cost by the market state of the tick before."""
    for n in range(into.size):
        total = np.float32(0.0)
        for i in range(market.row_start[n], market.row_start[n + 1]):
            total += market.probability[i] * costs[market.column[i]]
        into[n] = total
