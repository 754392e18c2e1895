"""Rule policies: what each requests in a tick, and their runs."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.ticks import (
    BEFORE,
    COLUMNS,
    NONE,
    ON_DEMAND,
    SPOT,
    IntArray,
    TickStanding,
    TickTerms,
    UpArray,
    Windows,
    flags_at,
    noticed,
    run_tick,
    slack_of,
)

GREEDY = 0
UNIFORM_PROGRESS = 1
ROSS = 2
UNIFORM_PROGRESS_EAGER = 3

FloatArray = npt.NDArray[np.float64]


@numba.njit(cache=True, nogil=True)
def rule_request(
    rule: int, terms: TickTerms, standing: TickStanding, up: UpArray, ross: FloatArray
) -> int:
    """Request of a rule policy; nothing is held where spot was just interrupted.

    `ross` is (ratio K of prices, uniform draw in [0, 1), start second or -1, length) and is updated.
    """
    held = standing.held
    if held >= SPOT:
        return held
    if slack_of(terms, standing) < 2 * terms.overhead_s + terms.tick_s:
        return ON_DEMAND
    offered = NONE
    for z in range(up.size):
        if up[z] == 1:
            offered = SPOT + z
            break
    if rule == GREEDY:
        return offered
    if rule in (UNIFORM_PROGRESS, UNIFORM_PROGRESS_EAGER):
        return _uniform_request(rule, terms, standing, offered)
    return ON_DEMAND if _ross_buys(terms, standing, ross) else offered


@numba.njit(cache=True, nogil=True)
def _uniform_request(rule: int, terms: TickTerms, standing: TickStanding, offered: int) -> int:
    """Spot where it is offered; on-demand while work done is behind a straight line to the end."""
    elapsed_s = standing.tick * terms.tick_s
    done = standing.done_s * terms.deadline_ticks * terms.tick_s
    ahead = done >= (elapsed_s + 2 * terms.overhead_s) * terms.work_s
    # Hysteresis: on-demand goes on until two overheads ahead of the line, spot or not.
    if standing.held == ON_DEMAND and not ahead and (rule == UNIFORM_PROGRESS or offered == NONE):
        return ON_DEMAND
    if offered != NONE:
        return offered
    return ON_DEMAND if standing.held == NONE and done < elapsed_s * terms.work_s else NONE


@numba.njit(cache=True, nogil=True)
def _ross_buys(terms: TickTerms, standing: TickStanding, ross: FloatArray) -> bool:
    """Whether the one interval of on-demand that Ross draws covers this tick."""
    elapsed_s = standing.tick * terms.tick_s
    deadline_s = terms.deadline_ticks * terms.tick_s
    root = np.sqrt(ross[0])
    left_s = terms.work_s - standing.done_s
    if ross[2] < 0.0:
        if (deadline_s - elapsed_s) > left_s * (1.0 + 2.0 * root) / (1.0 + root):
            return False
        # The interval may begin at any time that leaves room for what it must do.
        room_s = max(0.0, deadline_s - elapsed_s - left_s - terms.overhead_s)
        ross[3] = left_s / (1.0 + root)
        ross[2] = elapsed_s + ross[1] * room_s
    return bool(ross[2] <= elapsed_s < ross[2] + ross[3])


@numba.njit(cache=True, nogil=True)
def run_rule(
    rule: int, terms: TickTerms, windows: Windows, draws: FloatArray, price_ratio: float
) -> IntArray:
    """Run a rule policy on many windows of one trace; see `run_requests` for the result."""
    runs = np.zeros((windows.starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(windows.up.shape[1], dtype=np.uint8)
    ross = np.zeros(4)
    for w in range(windows.starts.size):
        standing, run = BEFORE, runs[w]
        ross[0], ross[1], ross[2], ross[3] = price_ratio, draws[w], -1.0, 0.0
        while standing.done_s < terms.work_s:
            up = flags_at(windows.up, windows.starts[w] + standing.tick, dark)
            request = rule_request(rule, terms, noticed(standing, up), up, ross)
            standing = run_tick(terms, standing, request, up, run)
    return runs
