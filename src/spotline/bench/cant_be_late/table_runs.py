"""Acting on a table of expected cost to go."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.instance_table import (
    HELD_OD,
    HELD_SPOT,
    IDLE,
    Costs,
    certain_cost,
    launched_kind,
    locate,
    may_launch_spot,
    price_of,
    slack_kept_s,
    slack_launched_s,
)
from spotline.bench.cant_be_late.ticks import (
    BEFORE,
    COLUMNS,
    NONE,
    ON_DEMAND,
    SPOT,
    IntArray,
    TickPrices,
    TickStanding,
    TickTerms,
    Windows,
    flags_at,
    is_forced,
    noticed,
    run_tick,
    slack_of,
)
from spotline.domain.market.run_law import MarketChain

Beliefs = npt.NDArray[np.float32]


class Zones(NamedTuple):
    """What a job among zones sees in each tick of its windows, reduced to market states.

    `quality`, shape (windows, ticks, zones), is the market state of a job that holds that zone;
    `best` and `free`, shape (windows, ticks), the zone to launch in, -1 where all are down, and the
    market state of a job that holds none.
    """

    quality: IntArray
    best: IntArray
    free: IntArray


@numba.njit(cache=True, nogil=True)
def _expected(
    values: Costs,
    grid_s: IntArray,
    terms: TickTerms,
    prices: TickPrices,
    belief: Beliefs,
    k: int,
    kind: int,
    slack_s: int,
) -> float:
    """Price of a tick plus the expected rest, weighted by the belief over market states."""
    certain = certain_cost(terms, prices, k, kind, slack_s)
    if certain >= 0.0:
        return np.float64(certain)
    low, share = locate(grid_s, slack_s)
    total = 0.0
    high = low + 1 if share > 0.0 else low
    for n in range(belief.size):
        weight = belief[n]
        if weight > 1e-6:
            total += weight * (
                (1.0 - share) * values[k, kind, low, n] + share * values[k, kind, high, n]
            )
    return np.float64(price_of(prices, kind)) + total


@numba.njit(cache=True, nogil=True)
def best_request(
    values: Costs,
    grid_s: IntArray,
    terms: TickTerms,
    prices: TickPrices,
    belief: Beliefs,
    standing: TickStanding,
    up: bool,
) -> int:
    """Cheapest safe request on a table: NONE, ON_DEMAND or SPOT; ties keep what is held.

    Spot is launched only with two overheads and a tick of slack, ridden or left for idling only
    with one overhead and a tick: no trace then makes the job late. `standing` holds nothing where
    spot was just interrupted, and SPOT whatever its zone.
    """
    k = terms.deadline_ticks - standing.tick
    slack_s = slack_of(terms, standing)
    if is_forced(terms, slack_s):
        return ON_DEMAND
    launched_s = slack_launched_s(terms, k, slack_s)
    kept_s = slack_kept_s(terms, k, slack_s, standing.pending_s)
    idle_s = slack_s - terms.tick_s
    act, best = NONE, _expected(values, grid_s, terms, prices, belief, k - 1, IDLE, idle_s)
    keeps = standing.held == ON_DEMAND
    kind = HELD_OD if keeps else launched_kind(terms, HELD_OD)
    after_s = kept_s if keeps else launched_s
    cost = _expected(values, grid_s, terms, prices, belief, k - 1, kind, after_s)
    if cost < best:
        act, best = ON_DEMAND, cost
    if not up:
        return act
    if standing.held == SPOT:
        cost = _expected(values, grid_s, terms, prices, belief, k - 1, HELD_SPOT, kept_s)
        if cost <= best:
            act = SPOT
    elif may_launch_spot(terms, k, slack_s):
        kind = launched_kind(terms, HELD_SPOT)
        cost = _expected(values, grid_s, terms, prices, belief, k - 1, kind, launched_s)
        if cost < best:
            act = SPOT
    return act


@numba.njit(cache=True, nogil=True)
def run_table(
    values: Costs,
    grid_s: IntArray,
    terms: TickTerms,
    prices: TickPrices,
    beliefs: Beliefs,
    windows: Windows,
) -> IntArray:
    """Act on a table along windows of one zone; `beliefs` (windows, ticks, states).

    See `run_requests` for the result.
    """
    runs = np.zeros((windows.starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(windows.up.shape[1], dtype=np.uint8)
    for w in range(windows.starts.size):
        standing, run = BEFORE, runs[w]
        while standing.done_s < terms.work_s:
            up = flags_at(windows.up, windows.starts[w] + standing.tick, dark)
            request = ON_DEMAND
            if standing.tick < terms.deadline_ticks:
                seen = noticed(standing, up)
                belief = beliefs[w, standing.tick]
                request = best_request(values, grid_s, terms, prices, belief, seen, up[0] == 1)
            standing = run_tick(terms, standing, request, up, run)
    return runs


@numba.njit(cache=True, nogil=True)
def run_zones(
    values: Costs,
    grid_s: IntArray,
    terms: TickTerms,
    prices: TickPrices,
    zones: Zones,
    windows: Windows,
) -> IntArray:
    """Act on a table whose market states are the quality of a zone, moving when one is lost.

    See `run_requests` for the result.
    """
    runs = np.zeros((windows.starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(windows.up.shape[1], dtype=np.uint8)
    belief = np.zeros(values.shape[3], dtype=np.float32)
    for w in range(windows.starts.size):
        standing, run = BEFORE, runs[w]
        while standing.done_s < terms.work_s:
            up = flags_at(windows.up, windows.starts[w] + standing.tick, dark)
            tick, held = standing.tick, standing.held
            request = ON_DEMAND
            if tick < terms.deadline_ticks and not is_forced(terms, slack_of(terms, standing)):
                seen = noticed(standing, up)
                # A zone that is up is not left for another: the program does not model it.
                rides = seen.held >= SPOT
                if rides:
                    seen = TickStanding(tick, SPOT, seen.pending_s, seen.done_s)
                state = zones.quality[w, tick, held - SPOT] if rides else zones.free[w, tick]
                launch = zones.best[w, tick]
                belief[:] = 0.0
                belief[state] = 1.0
                offered = rides or launch >= 0
                request = best_request(values, grid_s, terms, prices, belief, seen, offered)
                if request == SPOT:
                    request = held if rides else SPOT + launch
            standing = run_tick(terms, standing, request, up, run)
    return runs


@numba.njit(cache=True, nogil=True)
def filter_beliefs(
    windows: Windows, zone: int, ticks: int, market: MarketChain, first: npt.NDArray[np.float64]
) -> Beliefs:
    """Belief over market states after each tick's observation of a zone, (windows, ticks, states).

    `first` is the belief before the first observation, shape (states,).
    """
    states = market.up.size
    beliefs = np.zeros((windows.starts.size, ticks, states), dtype=np.float32)
    now = np.zeros(states)
    after = np.zeros(states)
    for w in range(windows.starts.size):
        now[:] = first
        for t in range(ticks):
            if t > 0:
                after[:] = 0.0
                for n in range(states):
                    if now[n] > 1e-12:
                        for i in range(market.row_start[n], market.row_start[n + 1]):
                            after[market.column[i]] += now[n] * market.probability[i]
                now[:] = after
            flag = windows.up[windows.starts[w] + t, zone]
            total = 0.0
            for n in range(states):
                if market.up[n] != flag:
                    now[n] = 0.0
                total += now[n]
            for n in range(states):
                now[n] /= total
                beliefs[w, t, n] = now[n]
    return beliefs
