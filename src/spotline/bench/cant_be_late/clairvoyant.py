"""The clairvoyant optimum of one instance: an exact program on a known trace.

Slack moves on the lattice of the tick and the overhead. The optimum obeys the forced zone like
everybody, but knows when a spot instance in it will not be interrupted.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from spotline.bench.cant_be_late.ticks import (
    BEFORE,
    NONE,
    ON_DEMAND,
    SPOT,
    IntArray,
    TickPrices,
    TickTerms,
    UpArray,
    after_tick,
    enforced,
    is_forced,
    slack_of,
)

_NEVER = 1 << 60

Choices = npt.NDArray[np.uint8]


@numba.njit(cache=True, nogil=True)
def clairvoyant_requests(
    up: UpArray, terms: TickTerms, prices: TickPrices
) -> tuple[IntArray, float]:
    """Cheapest requests that meet the deadline on a known trace, `up` of shape (ticks, zones).

    Overheads up to two ticks; whole prices. Returns (requests, shape (deadline_ticks,); cost in the
    unit of the prices, or a huge one where even on-demand from the start is too late).
    """
    step_s = _lattice_s(terms)
    choice, cost = _choices(up, terms, prices)
    kinds = SPOT + up.shape[1]
    requests = np.zeros(terms.deadline_ticks, dtype=np.int64)
    standing = BEFORE
    for at in range(terms.deadline_ticks):
        slack_s = slack_of(terms, standing)
        if standing.done_s >= terms.work_s or slack_s < 0:
            break
        level = kinds if standing.pending_s > 0 else 0
        requests[at] = choice[at, slack_s // step_s, level + standing.held]
        held = enforced(terms, standing, requests[at], up[at])
        standing = after_tick(terms, standing, held)
    return requests, cost


@numba.njit(cache=True, nogil=True)
def _lattice_s(terms: TickTerms) -> int:
    """Greatest common divisor of the tick and the overhead."""
    step_s, other = terms.tick_s, terms.overhead_s
    while other:
        step_s, other = other, step_s % other
    return step_s


@numba.njit(cache=True, nogil=True)
def _choices(up: UpArray, terms: TickTerms, prices: TickPrices) -> tuple[Choices, float]:
    """Backward induction: the choice by tick, slack and what is held, and the least cost.

    Held: none, on-demand, spot per zone; then the same again with overhead still pending.
    """
    tick_s = terms.tick_s
    step_s = _lattice_s(terms)
    cells = slack_of(terms, BEFORE) // step_s + 1
    kinds = SPOT + up.shape[1]
    carry_s = max(0, terms.overhead_s - tick_s)
    launched = kinds if carry_s > 0 else 0
    launch_credit_s = max(0, tick_s - terms.overhead_s)
    launch_down = (tick_s - launch_credit_s) // step_s
    idle_down = tick_s // step_s
    pending = np.zeros(launched + kinds, dtype=np.int64)
    pending[kinds:] = carry_s
    pending_cells = pending // step_s
    value = np.zeros((cells, launched + kinds), dtype=np.int64)
    after = np.zeros((cells, launched + kinds), dtype=np.int64)
    choice = np.zeros((terms.deadline_ticks, cells, launched + kinds), dtype=np.uint8)
    for at in range(terms.deadline_ticks - 1, -1, -1):
        value, after = after, value
        for cell in range(cells):
            slack_s = cell * step_s
            left_s = (terms.deadline_ticks - at) * tick_s - slack_s
            if left_s <= 0:
                value[cell, :] = 0
                continue
            last = left_s <= launch_credit_s
            down = cell - launch_down
            launch_spot, zone = _launch_spot(up[at], prices, after, down, launched, last)
            launch_od = _paid(prices.on_demand, after, down, launched + ON_DEMAND, last)
            idle = _paid(0, after, cell - idle_down, NONE, False)
            forced = is_forced(terms, slack_s)
            for h in range(launched + kinds):
                held = h if h < kinds else h - kinds
                pending_s = pending[h]
                alive = held >= SPOT and up[at, held - SPOT] == 1
                stay: float = _NEVER
                if held == ON_DEMAND or alive:
                    price = prices.on_demand if held == ON_DEMAND else prices.spot
                    ends = left_s <= tick_s - pending_s
                    stay = _paid(price, after, cell - pending_cells[h], held, ends)
                if forced:
                    if held >= SPOT and pending_s == 0:
                        # It stays; interrupted, it idles and is late.
                        best, act = stay if alive else idle, held
                    else:
                        best, act = stay if held == ON_DEMAND else launch_od, ON_DEMAND
                else:
                    best, act = stay, held
                    if launch_spot < best:
                        best, act = launch_spot, SPOT + zone
                    if held != ON_DEMAND and launch_od < best:
                        best, act = launch_od, ON_DEMAND
                    if idle < best:
                        best, act = idle, NONE
                value[cell, h] = min(best, _NEVER)
                choice[at, cell, h] = act
    return choice, value[cells - 1, NONE]


@numba.njit(cache=True, nogil=True, inline="always")
def _paid(price: float, after: IntArray, cell: int, held: int, ends: bool) -> float:
    """Price of a tick and the least cost after it; a huge one below slack 0, where a job is late.

    `ends` says that the tick ends the work.
    """
    if ends:
        return price
    return price + (after[cell, held] if cell >= 0 else _NEVER)


@numba.njit(cache=True, nogil=True, inline="always")
def _launch_spot(
    up: UpArray, prices: TickPrices, after: IntArray, down: int, launched: int, ends: bool
) -> tuple[float, int]:
    """Least cost of launching spot in a zone that is up, and that zone; -1 where none is.

    `down` is the slack cell after the tick, `launched` where held kinds with an overhead pending
    begin.
    """
    best: float = _NEVER
    zone = -1
    for z in range(up.size):
        if up[z] == 1:
            cost = _paid(prices.spot, after, down, launched + SPOT + z, ends)
            if cost < best:
                best, zone = cost, z
    return best, zone
