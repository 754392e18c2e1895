"""Rule policies: what each asks for in a tick."""

from __future__ import annotations

import numba
import numpy as np

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

GREEDY = 0
UNIFORM_PROGRESS = 1
ROSS = 2
UNIFORM_PROGRESS_EAGER = 3


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
