"""One instance, one hard deadline: the rules of a tick.

Time is exact seconds in whole ticks. A held type is 0 none, 1 on-demand, 2 + z spot in zone z. Any
launch or change sets the pending overhead to the full value; a tick credits what is left of it.
Slack is ticks left times the tick length, minus work left: it never grows, a productive tick keeps
it, so (ticks left, slack) says everything about progress. Below overhead + one tick of slack
on-demand is forced, except that a productive spot instance stays.

Semantics of the "Can't Be Late" benchmark (Wu et al., NSDI'24).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

NONE = 0
ON_DEMAND = 1
SPOT = 2

# Index of the columns of a run.
SPOT_TICKS = 0
ON_DEMAND_TICKS = 1
IDLE_TICKS = 2
FINISH_TICK = 3
COLUMNS = 4


class TickTerms(NamedTuple):
    """Terms of a job of one instance: seconds of work and of a restart, the deadline in ticks."""

    work_s: int
    deadline_ticks: int
    overhead_s: int
    tick_s: int


class TickStanding(NamedTuple):
    """Where a job stands when a tick begins: the ticks that passed, what it holds, work done."""

    tick: int
    held: int
    pending_s: int
    done_s: int


class TickPrices(NamedTuple):
    """Price of a tick, in any one unit of money; an idle tick is free."""

    spot: float
    on_demand: float


class Windows(NamedTuple):
    """Windows on aligned zones: `up` uint8, shape (ticks, zones); `starts` ticks."""

    up: UpArray
    starts: IntArray


BEFORE = TickStanding(tick=0, held=NONE, pending_s=0, done_s=0)


@numba.njit(cache=True, nogil=True, inline="always")
def slack_of(terms: TickTerms, standing: TickStanding) -> int:
    """Seconds to the deadline beyond the work left."""
    left_s = terms.work_s - standing.done_s
    return (terms.deadline_ticks - standing.tick) * terms.tick_s - left_s


@numba.njit(cache=True, nogil=True, inline="always")
def is_forced(terms: TickTerms, slack_s: int) -> bool:
    """Whether so little slack is left that on-demand is forced."""
    return slack_s < terms.overhead_s + terms.tick_s


@numba.njit(cache=True, nogil=True, inline="always")
def flags_at(up: UpArray, tick: int, dark: UpArray) -> UpArray:
    """Whether each zone is up in a tick of the traces; `dark` past their end."""
    return up[tick] if tick < up.shape[0] else dark


@numba.njit(cache=True, nogil=True, inline="always")
def noticed(standing: TickStanding, up: UpArray) -> TickStanding:
    """The standing with nothing held where spot was just interrupted."""
    if standing.held >= SPOT and up[standing.held - SPOT] == 0:
        return TickStanding(standing.tick, NONE, standing.pending_s, standing.done_s)
    return standing


@numba.njit(cache=True, nogil=True, inline="always")
def enforced(terms: TickTerms, standing: TickStanding, request: int, up: UpArray) -> int:
    """What is really held in this tick: the forced zone first, then what the market allows.

    `up` is one flag per zone in this tick, shape (zones,).
    """
    if is_forced(terms, slack_of(terms, standing)):
        stays = standing.held >= SPOT and standing.pending_s == 0
        request = standing.held if stays else ON_DEMAND
    if request >= SPOT and up[request - SPOT] == 0:
        request = NONE
    return request


@numba.njit(cache=True, nogil=True, inline="always")
def after_tick(terms: TickTerms, standing: TickStanding, held: int) -> TickStanding:
    """Where the job stands after a tick in which `held` was really held."""
    tick = standing.tick + 1
    if held == NONE:
        return TickStanding(tick, NONE, 0, standing.done_s)
    pending_s = standing.pending_s if held == standing.held else terms.overhead_s
    credit_s = max(0, terms.tick_s - pending_s)
    return TickStanding(tick, held, max(0, pending_s - terms.tick_s), standing.done_s + credit_s)


@numba.njit(cache=True, nogil=True)
def run_tick(
    terms: TickTerms, standing: TickStanding, request: int, up: UpArray, run: IntArray
) -> TickStanding:
    """Hold what the rules make of a request for a tick, and count it in `run`, (COLUMNS,)."""
    held = enforced(terms, standing, request, up)
    if held == NONE:
        run[IDLE_TICKS] += 1
    else:
        run[SPOT_TICKS if held >= SPOT else ON_DEMAND_TICKS] += 1
    after = after_tick(terms, standing, held)
    run[FINISH_TICK] = after.tick
    return after


@numba.njit(cache=True, nogil=True)
def run_requests(terms: TickTerms, windows: Windows, requests: IntArray) -> IntArray:
    """Run given requests, shape (windows, ticks), through the same rules.

    Returns shape (windows, 4): spot, on-demand and idle ticks, and the ticks until the work is
    done. Past the last request nothing is requested, and the rules force on-demand.
    """
    runs = np.zeros((windows.starts.size, COLUMNS), dtype=np.int64)
    dark = np.zeros(windows.up.shape[1], dtype=np.uint8)
    for w in range(windows.starts.size):
        standing, run = BEFORE, runs[w]
        while standing.done_s < terms.work_s:
            up = flags_at(windows.up, windows.starts[w] + standing.tick, dark)
            request = requests[w, standing.tick] if standing.tick < requests.shape[1] else NONE
            standing = run_tick(terms, standing, request, up, run)
    return runs
