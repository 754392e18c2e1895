"""The compiled backward induction of the window program over several offerings.

Targets of a slot are numbered: the held sets, then idle with the home 0, 1, ..., then idle nowhere.
Pending level 0 is nothing pending; base overhead 0 is none.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
# What a choice is worth, and its target.
Choice = tuple[int, int]

_NEVER = -(2**62)
# Progress cells of one call: few enough for what is found in them to stay in the cache.
_BLOCK = 64


class HeldSets(NamedTuple):
    """All offerings' held sets but idle: those of offering k are `first[k]` up to `first[k + 1]`.

    `covers[cover_start[c] : cover_start[c + 1]]` are the largest sets properly inside c.
    """

    spot: IntArray
    first: IntArray
    cover_start: IntArray
    covers: IntArray


class WindowSlots(NamedTuple):
    """What the slots of the window offer.

    Spot counts, shape (offerings, slots); whether a set may be held and its cost in micro-USD,
    shape (slots, sets); the value of being done in a slot, shape (slots,).
    """

    spot_available: IntArray
    usable: npt.NDArray[np.bool_]
    cost: IntArray
    finish: IntArray


class ProgressGrid(NamedTuple):
    """Progress in cells: gains by productive seconds and set, worth at the end, cells to be done."""

    gain_cells: IntArray
    terminal: IntArray
    done: int


class Changes(NamedTuple):
    """With which overhead each set is entered, and what moves cost.

    `classes`, shape (bases, levels, 2), gives for a base overhead and what is pending the row of
    the gains and the next pending level. `base[start[k] : start[k + 1]]` are the bases with which
    offering k is entered; `grow`, `launch` and `broken` by offering, `move` and `move_broken` by
    offerings from and to, point into them. `shrink` is a base; `egress_micro_usd` by from and to.
    """

    classes: IntArray
    start: IntArray
    base: IntArray
    grow: IntArray
    launch: IntArray
    broken: IntArray
    shrink: IntArray
    move: IntArray
    move_broken: IntArray
    egress_micro_usd: IntArray


class Opening(NamedTuple):
    """The first slot: gain, next pending level and egress of entering each set; the home or -1."""

    gain_cells: IntArray
    level: IntArray
    egress_micro_usd: IntArray
    home: int


class Block(NamedTuple):
    """Some progress cells of a slot: `first` up to `end`.

    Arrays of a named tuple are counted in and out of every call, so a call does a block of work.
    """

    slot: int
    first: int
    end: int


class StageTables(NamedTuple):
    """Worth after the slot and now, by cell, source and level; and the choices by slot too."""

    after: IntArray
    now: IntArray
    choice: npt.NDArray[np.int16]


class BestEntries(NamedTuple):
    """By cell of a block and pending level: the best set by way of entering it, and by shrinking.

    Entered: shape (block, levels, ways to enter); shrunk: (block, levels, sets).
    """

    entered: IntArray
    entered_at: IntArray
    shrunk: IntArray
    shrunk_at: IntArray


@numba.njit(cache=True, nogil=True)
def solve_stages(
    sets: HeldSets, slots: WindowSlots, grid: ProgressGrid, changes: Changes, opening: Opening
) -> tuple[int, int, npt.NDArray[np.int16]]:
    """Backward induction; returns the best value, the choice of the first slot and all others."""
    cells = grid.terminal.shape[0]
    count = sets.spot.shape[0]
    offerings = sets.first.shape[0] - 1
    levels = changes.classes.shape[1]
    shape = (cells, count + offerings + 1, levels)
    tables = StageTables(
        np.empty(shape, dtype=np.int64),
        np.empty(shape, dtype=np.int64),
        np.zeros((slots.finish.shape[0], shape[0], shape[1], shape[2]), dtype=np.int16),
    )
    for cell in range(cells):
        tables.after[cell] = grid.terminal[cell]
    entered = (_BLOCK, levels, changes.base.shape[0])
    shrunk = (_BLOCK, levels, count)
    best = BestEntries(
        np.empty(entered, dtype=np.int64),
        np.empty(entered, dtype=np.int64),
        np.empty(shrunk, dtype=np.int64),
        np.empty(shrunk, dtype=np.int64),
    )
    largest = grid.gain_cells.max()
    for slot in range(slots.finish.shape[0] - 1, 0, -1):
        reach = min(cells, slot * largest + 1)
        for first in range(0, reach, _BLOCK):
            block = Block(slot, first, min(first + _BLOCK, reach))
            _enter(sets, slots, grid, changes, tables, best, block)
            _shrink(sets, slots, grid, changes, tables, best, block)
            for a in range(offerings):
                _choose(sets, slots, grid, changes, tables, best, block, a)
            _choose_nowhere(sets, changes, tables, best, block)
        tables = StageTables(tables.now, tables.after, tables.choice)
    value, target = _open(sets, slots, grid, opening, tables)
    return value, target, tables.choice


@numba.njit(cache=True, nogil=True, inline="always")
def _better(best: Choice, other: Choice) -> Choice:
    """The choice worth more; among equals the first."""
    return other if other[0] > best[0] else best


@numba.njit(cache=True, nogil=True, inline="always")
def _worth(after: IntArray, reached: int, done: int, finish: int, c: int, level: int) -> int:
    """Worth of having held set c once `reached` cells are done, before its cost."""
    return finish if reached >= done else after[reached, c, level]


@numba.njit(cache=True, nogil=True)
def _enter(
    sets: HeldSets,
    slots: WindowSlots,
    grid: ProgressGrid,
    changes: Changes,
    tables: StageTables,
    best: BestEntries,
    block: Block,
) -> None:
    """Find the best set of every offering by the overhead of entering it."""
    first, gain_cells, done = sets.first, grid.gain_cells, grid.done
    classes, start, base = changes.classes, changes.start, changes.base
    usable, cost = slots.usable[block.slot], slots.cost[block.slot]
    finish, after = slots.finish[block.slot], tables.after
    entered, entered_at = best.entered, best.entered_at
    for cell in range(block.first, block.end):
        for level in range(classes.shape[1]):
            for k in range(first.shape[0] - 1):
                # Among equals more instances win: progress made now cannot be taken.
                for e in range(start[k], start[k + 1]):
                    row, left = classes[base[e], level, 0], classes[base[e], level, 1]
                    value, at = _NEVER, usable.shape[0] + k
                    for c in range(first[k], first[k + 1]):
                        if usable[c]:
                            reached = cell + gain_cells[row, c]
                            v = _worth(after, reached, done, finish, c, left) - cost[c]
                            if v >= value:
                                value, at = v, c
                    entered[cell - block.first, level, e] = value
                    entered_at[cell - block.first, level, e] = at


@numba.njit(cache=True, nogil=True)
def _shrink(
    sets: HeldSets,
    slots: WindowSlots,
    grid: ProgressGrid,
    changes: Changes,
    tables: StageTables,
    best: BestEntries,
    block: Block,
) -> None:
    """Find what every set does best by shrinking, or by being shrunk to."""
    first, cover_start, covers = sets.first, sets.cover_start, sets.covers
    classes, base, gain_cells, done = changes.classes, changes.shrink, grid.gain_cells, grid.done
    usable, cost = slots.usable[block.slot], slots.cost[block.slot]
    finish, after = slots.finish[block.slot], tables.after
    shrunk, shrunk_at = best.shrunk, best.shrunk_at
    for cell in range(block.first, block.end):
        n = cell - block.first
        for level in range(classes.shape[1]):
            for a in range(first.shape[0] - 1):
                row, left = classes[base[a], level, 0], classes[base[a], level, 1]
                for c in range(first[a], first[a + 1]):
                    value, at = _NEVER, usable.shape[0] + a
                    if usable[c]:
                        reached = cell + gain_cells[row, c]
                        value = _worth(after, reached, done, finish, c, left) - cost[c]
                        at = c
                    for j in range(cover_start[c], cover_start[c + 1]):
                        if shrunk[n, level, covers[j]] > value:
                            value = shrunk[n, level, covers[j]]
                            at = shrunk_at[n, level, covers[j]]
                    shrunk[n, level, c] = value
                    shrunk_at[n, level, c] = at


@numba.njit(cache=True, nogil=True, inline="always")
def _move_away(
    ways: IntArray, egress: IntArray, entered: IntArray, entered_at: IntArray, a: int, idle: int
) -> Choice:
    """The best move from offering a; `ways` are the entries by offerings from and to."""
    value, at = _NEVER, idle
    for b in range(ways.shape[0]):
        e = ways[a, b]
        if a != b and entered[e] > _NEVER and entered[e] - egress[a, b] > value:
            value, at = entered[e] - egress[a, b], entered_at[e]
    return value, at


@numba.njit(cache=True, nogil=True)
def _choose(
    sets: HeldSets,
    slots: WindowSlots,
    grid: ProgressGrid,
    changes: Changes,
    tables: StageTables,
    best: BestEntries,
    block: Block,
    a: int,
) -> None:
    """Choose for every set of offering a, and for idle with its home there.

    Among equals holding wins over changing, changing over moving, moving over idling.
    """
    gain_cells, done, classes = grid.gain_cells, grid.done, changes.classes
    move, move_broken, egress = changes.move, changes.move_broken, changes.egress_micro_usd
    grow, launch, broken = changes.grow[a], changes.launch[a], changes.broken[a]
    spot, left_spot = sets.spot, slots.spot_available[a, block.slot]
    begin, end, resting = sets.first[a], sets.first[a + 1], sets.spot.shape[0] + a
    usable, cost = slots.usable[block.slot], slots.cost[block.slot]
    finish, after, now = slots.finish[block.slot], tables.after, tables.now
    choice = tables.choice[block.slot]
    for cell in range(block.first, block.end):
        for level in range(classes.shape[1]):
            n = cell - block.first
            entered, entered_at = best.entered[n, level], best.entered_at[n, level]
            shrunk, shrunk_at = best.shrunk[n, level], best.shrunk_at[n, level]
            moved = _move_away(move, egress, entered, entered_at, a, resting)
            torn = _move_away(move_broken, egress, entered, entered_at, a, resting)
            idle = (after[cell, resting, 0], resting)
            row, left = classes[0, level, 0], classes[0, level, 1]
            for c in range(begin, end):
                if spot[c] > left_spot:
                    found = _better((entered[broken], entered_at[broken]), torn)
                else:
                    found = (_NEVER, resting)
                    if usable[c]:
                        reached = cell + gain_cells[row, c]
                        found = (_worth(after, reached, done, finish, c, left) - cost[c], c)
                    found = _better(found, (shrunk[c], shrunk_at[c]))
                    found = _better(found, (entered[grow], entered_at[grow]))
                    found = _better(found, moved)
                now[cell, c, level], choice[cell, c, level] = _better(found, idle)
            found = _better((entered[launch], entered_at[launch]), moved)
            now[cell, resting, level], choice[cell, resting, level] = _better(found, idle)


@numba.njit(cache=True, nogil=True)
def _choose_nowhere(
    sets: HeldSets, changes: Changes, tables: StageTables, best: BestEntries, block: Block
) -> None:
    """Choose where a job launches first, or to stay idle."""
    launch, resting = changes.launch, sets.spot.shape[0] + changes.launch.shape[0]
    after, now, choice = tables.after, tables.now, tables.choice[block.slot]
    entered, entered_at = best.entered, best.entered_at
    for cell in range(block.first, block.end):
        n = cell - block.first
        for level in range(entered.shape[1]):
            found = (_NEVER, resting)
            for b in range(launch.shape[0]):
                e = launch[b]
                found = _better(found, (entered[n, level, e], entered_at[n, level, e]))
            found = _better(found, (after[cell, resting, 0], resting))
            now[cell, resting, level], choice[cell, resting, level] = found


@numba.njit(cache=True, nogil=True)
def _open(
    sets: HeldSets, slots: WindowSlots, grid: ProgressGrid, opening: Opening, tables: StageTables
) -> Choice:
    """Choose for the first slot: its changes are laid out, for the start may be any set."""
    count = sets.spot.shape[0]
    rest = count + (opening.home if opening.home >= 0 else sets.first.shape[0] - 1)
    found = (tables.after[0, rest, 0], rest)
    for c in range(count):
        if slots.usable[0, c]:
            reached, level = opening.gain_cells[c], opening.level[c]
            worth = _worth(tables.after, reached, grid.done, slots.finish[0], c, level)
            cost = slots.cost[0, c] + opening.egress_micro_usd[c]
            found = _better(found, (worth - cost, c))
    return found
