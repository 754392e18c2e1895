"""The exact program of one instance under a Markov market: expected cost to go."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

UpArray = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]

# Slack above the forced zone within which a table is exact to the second.
_EXACT_S = 3600

HELD_KINDS = 5
IDLE, HELD_OD, HELD_SPOT, PENDING_OD, PENDING_SPOT = 0, 1, 2, 3, 4


@numba.njit(cache=True, nogil=True)
def locate(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
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
def on_demand_to_the_end(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled
    left_s,
    pending_s,
    tick_s,
    on_demand,
):
    """Cost of on-demand until the work is done."""
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
        if kind == HELD_OD:
            pending_s = 0
        elif kind == PENDING_OD:
            pending_s = carry_s
        rest = price + on_demand_to_the_end(left_s, pending_s, tick_s, on_demand)
        for n in range(states):
            into[n] = rest
        return
    low, share = locate(grid_s, slack_s)
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
                IDLE,
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
                HELD_OD + launched,
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
                    HELD_SPOT + launched,
                    grid_s,
                    after_s,
                    overhead_s,
                    tick_s,
                    carry_s,
                    spot,
                    on_demand,
                )
            for kind in range(kinds):
                pending_s = carry_s if kind >= PENDING_OD else 0
                is_spot = kind in (HELD_SPOT, PENDING_SPOT)
                is_od = kind in (HELD_OD, PENDING_OD)
                if is_spot or is_od:
                    _fill(
                        stay,
                        table,
                        k - 1,
                        HELD_SPOT if is_spot else HELD_OD,
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
