"""One instance, one hard deadline: the rules of a tick, rule policies, and the clairvoyant optimum.

Time is exact seconds in whole ticks. A held type is 0 none, 1 on-demand, 2 + z spot in zone z. Any
launch or change sets the pending overhead to the full value; a tick credits what is left of it.
Slack is ticks left times the tick length, minus work left: it never grows, a productive tick keeps
it, so (ticks left, slack) says everything about progress. Below overhead + one tick of slack
on-demand is forced, except that a productive spot instance stays.

Semantics of the "Can't Be Late" benchmark (Wu et al., NSDI'24).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NONE = 0
ON_DEMAND = 1
SPOT = 2

GREEDY = 0
UNIFORM_PROGRESS = 1
ROSS = 2
UNIFORM_PROGRESS_EAGER = 3

# Index of the columns of a run.
SPOT_TICKS = 0
ON_DEMAND_TICKS = 1
IDLE_TICKS = 2
FINISH_TICK = 3
COLUMNS = 4

_NEVER = 1 << 60
# Slack above the forced zone within which a table is exact to the second.
_EXACT_S = 3600


@numba.njit(cache=True, nogil=True)
def enforced(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    held,
    pending_s,
    slack_s,
    overhead_s,
    tick_s,
    request,
    up,
):
    """What is really held in this tick: the forced zone first, then what the market allows.

    `up` is one flag per zone in this tick, shape (zones,).
    """
    if slack_s < overhead_s + tick_s:
        request = held if held >= SPOT and pending_s == 0 else ON_DEMAND
    if request >= SPOT and up[request - SPOT] == 0:
        request = NONE
    return request


@numba.njit(cache=True, nogil=True)
def tick_of(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    held,
    pending_s,
    now_held,
    overhead_s,
    tick_s,
):
    """Seconds of work credited in a tick, and the overhead still pending after it."""
    if now_held == NONE:
        return 0, 0
    if now_held != held:
        pending_s = overhead_s
    return max(0, tick_s - pending_s), max(0, pending_s - tick_s)


@numba.njit(cache=True, nogil=True)
def column_of(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    held,
):
    """Column that counts a tick of what is held."""
    if held == NONE:
        return IDLE_TICKS
    return SPOT_TICKS if held >= SPOT else ON_DEMAND_TICKS


@numba.njit(cache=True, nogil=True)
def rule_request(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    rule, held, slack_s, done_s, tick, work_s, deadline_s, overhead_s, tick_s, up, ross
):
    """Request of a rule policy; `held` is NONE where spot was just interrupted.

    `ross` is (ratio K of prices, uniform draw in [0, 1), start second or -1, length) and is updated.
    """
    if held >= SPOT:
        return held
    net = slack_s < 2 * overhead_s + tick_s
    if net:
        return ON_DEMAND
    zone = -1
    for z in range(up.size):
        if up[z] == 1:
            zone = z
            break
    elapsed_s = tick * tick_s
    if rule == GREEDY:
        return SPOT + zone if zone >= 0 else NONE
    if rule in (UNIFORM_PROGRESS, UNIFORM_PROGRESS_EAGER):
        ahead = done_s * deadline_s >= (elapsed_s + 2 * overhead_s) * work_s
        # Hysteresis: on-demand goes on until two overheads ahead of the line, spot or not.
        if held == ON_DEMAND and not ahead and (rule == UNIFORM_PROGRESS or zone < 0):
            return ON_DEMAND
        if zone >= 0:
            return SPOT + zone
        behind = held == NONE and done_s * deadline_s < elapsed_s * work_s
        return ON_DEMAND if behind else NONE
    root = np.sqrt(ross[0])
    left_s = work_s - done_s
    if ross[2] < 0.0:
        if (deadline_s - elapsed_s) > left_s * (1.0 + 2.0 * root) / (1.0 + root):
            return SPOT + zone if zone >= 0 else NONE
        # The interval may begin at any time that leaves room for what it must do.
        ross[3] = left_s / (1.0 + root)
        ross[2] = elapsed_s + ross[1] * max(0.0, deadline_s - elapsed_s - left_s - overhead_s)
    if ross[2] <= elapsed_s < ross[2] + ross[3]:
        return ON_DEMAND
    return SPOT + zone if zone >= 0 else NONE


@numba.njit(cache=True, nogil=True)
def run_rule(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    rule,
    up,
    starts,
    draws,
    price_ratio,
    work_s,
    deadline_ticks,
    overhead_s,
    tick_s,
):
    """Run a rule policy on many windows of one trace; see `run_requests` for the result."""
    runs = np.zeros((starts.size, COLUMNS), dtype=np.int64)
    zones = up.shape[1]
    dark = np.zeros(zones, dtype=np.uint8)
    deadline_s = deadline_ticks * tick_s
    ross = np.zeros(4)
    for w in range(starts.size):
        held, pending_s, done_s, tick = NONE, 0, 0, 0
        ross[0], ross[1], ross[2], ross[3] = price_ratio, draws[w], -1.0, 0.0
        while done_s < work_s:
            at = starts[w] + tick
            now = up[at] if at < up.shape[0] else dark
            slack_s = deadline_s - tick * tick_s - (work_s - done_s)
            seen = NONE if held >= SPOT and now[held - SPOT] == 0 else held
            request = rule_request(
                rule, seen, slack_s, done_s, tick, work_s, deadline_s, overhead_s, tick_s, now, ross
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
def run_requests(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    requests,
    up,
    starts,
    work_s,
    deadline_ticks,
    overhead_s,
    tick_s,
):
    """Run given requests, shape (windows, ticks), through the same rules.

    Returns shape (windows, 4): spot, on-demand and idle ticks, and the ticks until the work is
    done. Past the last request nothing is requested, and the rules force on-demand.
    """
    runs = np.zeros((starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(up.shape[1], dtype=np.uint8)
    deadline_s = deadline_ticks * tick_s
    for w in range(starts.size):
        held, pending_s, done_s, tick = NONE, 0, 0, 0
        while done_s < work_s:
            at = starts[w] + tick
            now = up[at] if at < up.shape[0] else dark
            slack_s = deadline_s - tick * tick_s - (work_s - done_s)
            request = requests[w, tick] if tick < requests.shape[1] else NONE
            request = enforced(held, pending_s, slack_s, overhead_s, tick_s, request, now)
            credit_s, pending_s = tick_of(held, pending_s, request, overhead_s, tick_s)
            done_s += credit_s
            runs[w, column_of(request)] += 1
            held = request
            tick += 1
        runs[w, FINISH_TICK] = tick
    return runs


@numba.njit(cache=True, nogil=True)
def clairvoyant_requests(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    up, work_s, deadline_ticks, overhead_s, tick_s, spot_micro_usd, on_demand_micro_usd
):
    """Cheapest requests that meet the deadline on a known trace, `up` of shape (ticks, zones).

    Exact: slack moves on the lattice of the tick and the overhead. The optimum obeys the forced
    zone like everybody, but knows when a spot instance in it will not be interrupted. Overheads up
    to two ticks. Returns (requests, shape (deadline_ticks,); cost in micro-USD, or a huge one
    where even on-demand from the start is too late).
    """
    zones = up.shape[1]
    step_s, other = tick_s, overhead_s
    while other:
        step_s, other = other, step_s % other
    first_slack_s = deadline_ticks * tick_s - work_s
    cells = first_slack_s // step_s + 1
    # Held: none, on-demand, spot per zone; then the same again with overhead still pending.
    kinds = SPOT + zones
    carry_s = max(0, overhead_s - tick_s)
    levels = 2 if carry_s > 0 else 1
    first_credit_s = max(0, tick_s - overhead_s)
    value = np.zeros((cells, levels * kinds), dtype=np.int64)
    after = np.zeros((cells, levels * kinds), dtype=np.int64)
    choice = np.zeros((deadline_ticks, cells, levels * kinds), dtype=np.uint8)
    launch_down = (tick_s - first_credit_s) // step_s
    idle_down = tick_s // step_s
    carry_down = carry_s // step_s
    launched = kinds if levels == 2 else 0
    for k in range(1, deadline_ticks + 1):
        at = deadline_ticks - k
        value, after = after, value
        for cell in range(cells):
            slack_s = cell * step_s
            left_s = k * tick_s - slack_s
            if left_s <= 0:
                for h in range(levels * kinds):
                    value[cell, h] = 0
                continue
            forced = slack_s < overhead_s + tick_s
            down = cell - launch_down
            done = left_s <= first_credit_s
            best_spot, best_zone = _NEVER, -1
            for z in range(zones):
                if up[at, z] == 1:
                    price = spot_micro_usd
                    if not done:
                        price += after[down, launched + SPOT + z] if down >= 0 else _NEVER
                    if price < best_spot:
                        best_spot, best_zone = price, z
            launch_od = on_demand_micro_usd
            if not done:
                launch_od += after[down, launched + ON_DEMAND] if down >= 0 else _NEVER
            idle = after[cell - idle_down, NONE] if cell >= idle_down else _NEVER
            for h in range(levels * kinds):
                held = h % kinds
                pending_s = carry_s if h >= kinds else 0
                is_spot = held >= SPOT
                alive = is_spot and up[at, held - SPOT] == 1
                stay = _NEVER
                if held == ON_DEMAND or alive:
                    stay = on_demand_micro_usd if held == ON_DEMAND else spot_micro_usd
                    if left_s > tick_s - pending_s:
                        lower = cell - carry_down if pending_s else cell
                        stay += after[lower, held] if lower >= 0 else _NEVER
                if forced:
                    if is_spot and pending_s == 0:
                        # It stays; interrupted, it idles and is late.
                        best = stay if alive else idle
                        act = held
                    elif held == ON_DEMAND:
                        best, act = stay, ON_DEMAND
                    else:
                        best, act = launch_od, ON_DEMAND
                else:
                    best, act = stay, held
                    if best_spot < best:
                        best, act = best_spot, SPOT + best_zone
                    if held != ON_DEMAND and launch_od < best:
                        best, act = launch_od, ON_DEMAND
                    if idle < best:
                        best, act = idle, NONE
                value[cell, h] = min(best, _NEVER)
                choice[at, cell, h] = act
    requests = np.zeros(deadline_ticks, dtype=np.int64)
    held, pending_s, slack_s, done_s = NONE, 0, first_slack_s, 0
    for at in range(deadline_ticks):
        if done_s >= work_s or slack_s < 0:
            break
        level = kinds if pending_s > 0 else 0
        request = int(choice[at, slack_s // step_s, level + held])
        requests[at] = request
        request = enforced(held, pending_s, slack_s, overhead_s, tick_s, request, up[at])
        credit_s, pending_s = tick_of(held, pending_s, request, overhead_s, tick_s)
        done_s += credit_s
        slack_s -= tick_s - credit_s
        held = request
    return requests, value[cells - 1, NONE]


HELD_KINDS = 5
_IDLE, _HELD_OD, _HELD_SPOT, _PENDING_OD, _PENDING_SPOT = 0, 1, 2, 3, 4


@numba.njit(cache=True, nogil=True)
def _locate(  # type: ignore[no-untyped-def]  # compiled
    grid_s,
    slack_s,
):
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
def _on_demand_to_the_end(  # type: ignore[no-untyped-def]  # compiled
    left_s,
    pending_s,
    tick_s,
    on_demand,
):
    return on_demand * np.float32((left_s + pending_s + tick_s - 1) // tick_s)


@numba.njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]  # compiled
    into,
    table,
    k,
    kind,
    grid_s,
    slack_s,
    overhead_s,
    tick_s,
    carry_s,
    price,
    on_demand,
):
    """Price of a tick plus the expected rest, per market state, once slack is `slack_s`."""
    left_s = k * tick_s - slack_s
    states = into.size
    if left_s <= 0:
        for n in range(states):
            into[n] = price
        return
    if slack_s < overhead_s + tick_s:
        pending_s = overhead_s
        if kind == _HELD_OD:
            pending_s = 0
        elif kind == _PENDING_OD:
            pending_s = carry_s
        rest = price + _on_demand_to_the_end(left_s, pending_s, tick_s, on_demand)
        for n in range(states):
            into[n] = rest
        return
    low, share = _locate(grid_s, slack_s)
    if share == 0.0:
        for n in range(states):
            into[n] = price + table[k, kind, low, n]
        return
    upper = np.float32(share)
    lower = np.float32(1.0) - upper
    for n in range(states):
        into[n] = price + lower * table[k, kind, low, n] + upper * table[k, kind, low + 1, n]


@numba.njit(cache=True, nogil=True)
def value_to_go(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    grid_s,
    up,
    lost,
    row_start,
    column,
    probability,
    work_s,
    ticks,
    overhead_s,
    tick_s,
    spot,
    on_demand,
):
    """Expected cost to go under a Markov market; see `solve`.

    Per market state, `up` says whether spot can be had, and `lost` that entering it interrupts spot
    held even so (there is another zone). Returns float32, shape (ticks + 1, kinds held, grid,
    states): the cost from a tick on, given the state in the one before.
    """
    states = up.size
    carry_s = max(0, overhead_s - tick_s)
    kinds = HELD_KINDS if carry_s > 0 else 3
    launched = 2 if carry_s > 0 else 0
    credit_s = max(0, tick_s - overhead_s)
    table = np.zeros((ticks + 1, kinds, grid_s.size, states), dtype=np.float32)
    idle = np.empty(states, dtype=np.float32)
    launch_od = np.empty(states, dtype=np.float32)
    launch_spot = np.empty(states, dtype=np.float32)
    stay = np.empty(states, dtype=np.float32)
    best = np.empty(states, dtype=np.float32)
    margin_s = grid_s[-1] - grid_s[-2] if grid_s.size > 1 else 0
    for k in range(1, ticks + 1):
        for cell in range(grid_s.size):
            slack_s = grid_s[cell]
            left_s = k * tick_s - slack_s
            # Nothing to do, or further behind than a job ever is.
            if left_s <= 0 or left_s > work_s + 2 * margin_s:
                continue
            after_s = slack_s - (tick_s - credit_s)
            if left_s <= credit_s:
                after_s = k * tick_s
            _fill(
                idle,
                table,
                k - 1,
                _IDLE,
                grid_s,
                slack_s - tick_s,
                overhead_s,
                tick_s,
                carry_s,
                np.float32(0.0),
                on_demand,
            )
            _fill(
                launch_od,
                table,
                k - 1,
                _HELD_OD + launched,
                grid_s,
                after_s,
                overhead_s,
                tick_s,
                carry_s,
                on_demand,
                on_demand,
            )
            may_launch = slack_s >= 2 * overhead_s + tick_s or left_s <= credit_s
            if may_launch:
                _fill(
                    launch_spot,
                    table,
                    k - 1,
                    _HELD_SPOT + launched,
                    grid_s,
                    after_s,
                    overhead_s,
                    tick_s,
                    carry_s,
                    spot,
                    on_demand,
                )
            for kind in range(kinds):
                pending_s = carry_s if kind >= _PENDING_OD else 0
                is_spot = kind in (_HELD_SPOT, _PENDING_SPOT)
                is_od = kind in (_HELD_OD, _PENDING_OD)
                if is_spot or is_od:
                    _fill(
                        stay,
                        table,
                        k - 1,
                        _HELD_SPOT if is_spot else _HELD_OD,
                        grid_s,
                        k * tick_s if left_s <= tick_s - pending_s else slack_s - pending_s,
                        overhead_s,
                        tick_s,
                        carry_s,
                        spot if is_spot else on_demand,
                        on_demand,
                    )
                for n in range(states):
                    value = idle[n]
                    value = min(value, stay[n] if is_od else launch_od[n])
                    if up[n]:
                        if is_spot and not lost[n]:
                            value = min(value, stay[n])
                        elif may_launch:
                            value = min(value, launch_spot[n])
                    best[n] = value
                for n in range(states):
                    total = np.float32(0.0)
                    for i in range(row_start[n], row_start[n + 1]):
                        total += probability[i] * best[column[i]]
                    table[k, kind, cell, n] = total
    return table


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
        if kind == _HELD_OD:
            pending_s = 0
        elif kind == _PENDING_OD:
            pending_s = carry_s
        return np.float64(price + _on_demand_to_the_end(left_s, pending_s, tick_s, od))
    low, share = _locate(grid_s, slack_s)
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
            _IDLE,
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
            _HELD_OD,
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
            _HELD_OD + launched,
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
                _HELD_SPOT,
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
                _HELD_SPOT + launched,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTask:
    """Work of one instance with a hard deadline.

    Attributes
    ----------
    work_s, deadline_ticks, overhead_s, tick_s
        Work and restart overhead in seconds; deadline in ticks of `tick_s` seconds.
    spot_usd_per_tick, on_demand_usd_per_tick
        Price of a tick, USD; an idle tick is free.

    Raises
    ------
    ValueError
        A length is not positive, or the overhead exceeds two ticks.
    """

    work_s: int
    deadline_ticks: int
    overhead_s: int
    tick_s: int
    spot_usd_per_tick: float
    on_demand_usd_per_tick: float

    def __post_init__(self) -> None:
        if min(self.work_s, self.deadline_ticks, self.overhead_s, self.tick_s) <= 0:
            raise ValueError("work, deadline, overhead and tick must be positive")
        if self.overhead_s > 2 * self.tick_s:
            raise ValueError(
                f"overhead_s must be <= two ticks ({2 * self.tick_s} s), was {self.overhead_s}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTable:
    """Expected cost to go of a task: `values` (ticks + 1, held kinds, slack grid, market states).

    `values[k]` is the cost, USD, with k ticks left, given the market state one tick before.
    """

    task: InstanceTask
    grid_s: IntArray
    values: npt.NDArray[np.float32]

    def request(
        self,
        belief: npt.NDArray[np.float32],
        *,
        up: bool,
        held: int,
        pending_s: int,
        slack_s: int,
        ticks_left: int,
    ) -> int:
        """NONE, ON_DEMAND or SPOT for this tick; `held` is NONE where spot was interrupted."""
        task = self.task
        return int(
            best_request(
                self.values,
                belief,
                up,
                held,
                pending_s,
                slack_s,
                ticks_left,
                self.grid_s,
                task.overhead_s,
                task.tick_s,
                np.float32(task.spot_usd_per_tick),
                np.float32(task.on_demand_usd_per_tick),
            )
        )


def slack_grid_s(task: InstanceTask) -> IntArray:
    """Slack values of a table, seconds, ascending.

    Exact near the forced zone, on the lattice of tick and overhead, where a second decides what is
    safe; above it one per tick, so that idling, the common move, needs no interpolation.
    """
    lattice_s = math.gcd(task.tick_s, task.overhead_s)
    top_s = task.deadline_ticks * task.tick_s - task.work_s
    floor_s = task.overhead_s + task.tick_s
    if top_s <= floor_s:
        return np.array([floor_s, floor_s + lattice_s], dtype=np.int64)
    exact = np.arange(top_s % lattice_s, min(floor_s + _EXACT_S, top_s) + 1, lattice_s)
    exact = exact[exact >= floor_s]
    coarse = np.arange(top_s, exact[-1], -task.tick_s)
    grid: IntArray = np.unique(np.concatenate([exact, coarse])).astype(np.int64)
    if len(grid) == 1:
        grid = np.append(grid, grid[0] + lattice_s)
    return grid


def solve(
    task: InstanceTask,
    *,
    up: UpArray,
    lost: UpArray,
    row_start: IntArray,
    column: IntArray,
    probability: npt.NDArray[np.float32],
) -> InstanceTable:
    """Solve the program of one instance under a Markov market by backward induction.

    Parameters
    ----------
    up, lost
        Per market state: spot can be had; entering it interrupts spot held even so. uint8, shape
        (states,).
    row_start, column, probability
        Transitions in sparse rows: those of state n are at [row_start[n], row_start[n + 1]).

    Notes
    -----
    The safety zone is part of the program: spot is launched only with two overheads and a tick of
    slack, ridden or left for idling only with one overhead and a tick.
    """
    grid_s = slack_grid_s(task)
    values = value_to_go(
        grid_s,
        up,
        lost,
        row_start,
        column,
        probability,
        task.work_s,
        task.deadline_ticks,
        task.overhead_s,
        task.tick_s,
        np.float32(task.spot_usd_per_tick),
        np.float32(task.on_demand_usd_per_tick),
    )
    return InstanceTable(task=task, grid_s=grid_s, values=values)
