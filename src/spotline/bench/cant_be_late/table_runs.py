"""Acting on a table of expected cost to go."""

from __future__ import annotations

import numba
import numpy as np

from spotline.bench.cant_be_late.instance_table import (
    HELD_OD,
    HELD_SPOT,
    IDLE,
    PENDING_OD,
    locate,
    on_demand_to_the_end,
)
from spotline.bench.cant_be_late.ticks import (
    COLUMNS,
    FINISH_TICK,
    NONE,
    ON_DEMAND,
    SPOT,
    column_of,
    enforced,
    tick_of,
)


@numba.njit(cache=True, nogil=True)
def _expected(  # type: ignore[no-untyped-def]  # compiled
    table,
    belief,
    k,
    kind,
    grid_s,
    slack_s,
    overhead_s,
    tick_s,
    carry_s,
    price,
    od,
):
    """As `_fill`, weighted by the belief."""
    left_s = k * tick_s - slack_s
    if left_s <= 0:
        return np.float64(price)
    if slack_s < overhead_s + tick_s:
        pending_s = overhead_s
        if kind == HELD_OD:
            pending_s = 0
        elif kind == PENDING_OD:
            pending_s = carry_s
        return np.float64(price + on_demand_to_the_end(left_s, pending_s, tick_s, od))
    low, share = locate(grid_s, slack_s)
    total = 0.0
    high = low + 1 if share > 0.0 else low
    for n in range(belief.size):
        weight = belief[n]
        if weight > 1e-6:
            total += weight * (
                (1.0 - share) * table[k, kind, low, n] + share * table[k, kind, high, n]
            )
    return price + total


@numba.njit(cache=True, nogil=True)
def best_request(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    table, belief, up, held, pending_s, slack_s, k, grid_s, overhead_s, tick_s, spot, on_demand
):
    """Cheapest safe request on a table with `k` ticks left; ties keep what is held.

    Spot is launched only with two overheads and a tick of slack, ridden or left for idling only
    with one overhead and a tick: no trace then makes the job late.
    """
    left_s = k * tick_s - slack_s
    carry_s = max(0, overhead_s - tick_s)
    launched = 2 if carry_s > 0 else 0
    credit_s = max(0, tick_s - overhead_s)
    if slack_s < overhead_s + tick_s:
        return ON_DEMAND
    after_s = k * tick_s if left_s <= credit_s else slack_s - (tick_s - credit_s)
    act, best = (
        NONE,
        _expected(
            table,
            belief,
            k - 1,
            IDLE,
            grid_s,
            slack_s - tick_s,
            overhead_s,
            tick_s,
            carry_s,
            np.float32(0.0),
            on_demand,
        ),
    )
    if held == ON_DEMAND:
        value = _expected(
            table,
            belief,
            k - 1,
            HELD_OD,
            grid_s,
            k * tick_s if left_s <= tick_s - pending_s else slack_s - pending_s,
            overhead_s,
            tick_s,
            carry_s,
            on_demand,
            on_demand,
        )
    else:
        value = _expected(
            table,
            belief,
            k - 1,
            HELD_OD + launched,
            grid_s,
            after_s,
            overhead_s,
            tick_s,
            carry_s,
            on_demand,
            on_demand,
        )
    if value < best:
        act, best = ON_DEMAND, value
    if up:
        if held == SPOT:
            value = _expected(
                table,
                belief,
                k - 1,
                HELD_SPOT,
                grid_s,
                k * tick_s if left_s <= tick_s - pending_s else slack_s - pending_s,
                overhead_s,
                tick_s,
                carry_s,
                spot,
                on_demand,
            )
            if value <= best:
                act, best = SPOT, value
        elif slack_s >= 2 * overhead_s + tick_s or left_s <= credit_s:
            value = _expected(
                table,
                belief,
                k - 1,
                HELD_SPOT + launched,
                grid_s,
                after_s,
                overhead_s,
                tick_s,
                carry_s,
                spot,
                on_demand,
            )
            if value < best:
                act, best = SPOT, value
    return act


@numba.njit(cache=True, nogil=True)
def run_table(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    table, beliefs, up, starts, grid_s, work_s, deadline_ticks, overhead_s, tick_s, spot, on_demand
):
    """Act on a table along windows; `beliefs` (windows, ticks, states), see `run_requests`."""
    runs = np.zeros((starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(up.shape[1], dtype=np.uint8)
    deadline_s = deadline_ticks * tick_s
    for w in range(starts.size):
        held, pending_s, done_s, tick = NONE, 0, 0, 0
        while done_s < work_s:
            at = starts[w] + tick
            now = up[at] if at < up.shape[0] else dark
            slack_s = deadline_s - tick * tick_s - (work_s - done_s)
            seen = NONE if held >= SPOT and now[held - SPOT] == 0 else held
            request = ON_DEMAND
            if tick < deadline_ticks:
                request = best_request(
                    table,
                    beliefs[w, tick],
                    now[0] == 1,
                    seen,
                    pending_s,
                    slack_s,
                    deadline_ticks - tick,
                    grid_s,
                    overhead_s,
                    tick_s,
                    spot,
                    on_demand,
                )
            request = enforced(held, pending_s, slack_s, overhead_s, tick_s, request, now)
            credit_s, pending_s = tick_of(held, pending_s, request, overhead_s, tick_s)
            done_s += credit_s
            runs[w, column_of(request)] += 1
            held = request
            tick += 1
        runs[w, FINISH_TICK] = tick
    return runs


@numba.njit(cache=True, nogil=True)
def filter_beliefs(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    up,
    starts,
    ticks,
    state_up,
    first,
    row_start,
    column,
    probability,
):
    """Belief over market states after each tick's observation, (windows, ticks, states)."""
    states = state_up.size
    beliefs = np.zeros((starts.size, ticks, states), dtype=np.float32)
    now = np.zeros(states)
    after = np.zeros(states)
    for w in range(starts.size):
        now[:] = first
        for t in range(ticks):
            if t > 0:
                after[:] = 0.0
                for n in range(states):
                    if now[n] > 1e-12:
                        for i in range(row_start[n], row_start[n + 1]):
                            after[column[i]] += now[n] * probability[i]
                now[:] = after
            flag = up[starts[w] + t]
            total = 0.0
            for n in range(states):
                if state_up[n] != flag:
                    now[n] = 0.0
                total += now[n]
            for n in range(states):
                now[n] /= total
                beliefs[w, t, n] = now[n]
    return beliefs


@numba.njit(cache=True, nogil=True)
def run_zones(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    table,
    quality,
    zone_of_best,
    free,
    up,
    starts,
    grid_s,
    work_s,
    deadline_ticks,
    overhead_s,
    tick_s,
    spot,
    on_demand,
):
    """Act on a table whose market states are the quality of a zone, moving when one is lost.

    `quality`, shape (windows, ticks, zones), is the market state of a job that holds that zone;
    `zone_of_best` and `free`, shape (windows, ticks), the zone to launch in, -1 where all are down,
    and the market state of a job that holds none. See `run_requests` for the result.
    """
    runs = np.zeros((starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(up.shape[1], dtype=np.uint8)
    deadline_s = deadline_ticks * tick_s
    states = table.shape[3]
    at_best = np.zeros(states, dtype=np.float32)
    at_held = np.zeros(states, dtype=np.float32)
    for w in range(starts.size):
        held, pending_s, done_s, tick = NONE, 0, 0, 0
        while done_s < work_s:
            at = starts[w] + tick
            now = up[at] if at < up.shape[0] else dark
            slack_s = deadline_s - tick * tick_s - (work_s - done_s)
            request = ON_DEMAND
            if tick < deadline_ticks and slack_s >= overhead_s + tick_s:
                k = deadline_ticks - tick
                best_zone = zone_of_best[w, tick]
                at_best[:] = 0.0
                at_best[free[w, tick]] = 1.0
                seen = NONE if held >= SPOT else held
                request = best_request(
                    table,
                    at_best,
                    best_zone >= 0,
                    seen,
                    pending_s,
                    slack_s,
                    k,
                    grid_s,
                    overhead_s,
                    tick_s,
                    spot,
                    on_demand,
                )
                if request == SPOT:
                    request = SPOT + best_zone
                if held >= SPOT and now[held - SPOT] == 1:
                    at_held[:] = 0.0
                    at_held[quality[w, tick, held - SPOT]] = 1.0
                    # A zone that is up is not left for another: the program does not model it.
                    request = best_request(
                        table,
                        at_held,
                        True,
                        SPOT,
                        pending_s,
                        slack_s,
                        k,
                        grid_s,
                        overhead_s,
                        tick_s,
                        spot,
                        on_demand,
                    )
                    if request == SPOT:
                        request = held
            request = enforced(held, pending_s, slack_s, overhead_s, tick_s, request, now)
            credit_s, pending_s = tick_of(held, pending_s, request, overhead_s, tick_s)
            done_s += credit_s
            runs[w, column_of(request)] += 1
            held = request
            tick += 1
        runs[w, FINISH_TICK] = tick
    return runs
