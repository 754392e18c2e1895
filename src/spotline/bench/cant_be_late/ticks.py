"""One instance, one hard deadline: the rules of a tick.

Time is exact seconds in whole ticks. A held type is 0 none, 1 on-demand, 2 + z spot in zone z. Any
launch or change sets the pending overhead to the full value; a tick credits what is left of it.
Slack is ticks left times the tick length, minus work left: it never grows, a productive tick keeps
it, so (ticks left, slack) says everything about progress. Below overhead + one tick of slack
on-demand is forced, except that a productive spot instance stays.

Semantics of the "Can't Be Late" benchmark (Wu et al., NSDI'24).
"""

from __future__ import annotations

import numba
import numpy as np

NONE = 0
ON_DEMAND = 1
SPOT = 2

# Index of the columns of a run.
SPOT_TICKS = 0
ON_DEMAND_TICKS = 1
IDLE_TICKS = 2
FINISH_TICK = 3
COLUMNS = 4


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
