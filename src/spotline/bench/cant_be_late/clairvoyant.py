"""The clairvoyant optimum of one instance."""

from __future__ import annotations

import numba
import numpy as np

from spotline.bench.cant_be_late.ticks import NONE, ON_DEMAND, SPOT, enforced, tick_of

_NEVER = 1 << 60


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
