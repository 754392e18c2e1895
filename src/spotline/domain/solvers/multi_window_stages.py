"""The compiled backward induction of the window program over several offerings."""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def solve_stages(  # type: ignore[no-untyped-def]  # noqa: ANN201  # compiled: numba infers the types
    spot,
    first,
    cover_start,
    covers,
    spot_available,
    usable,
    cost,
    finish,
    terminal,
    done,
    gain_cells,
    class_table,
    enter_start,
    enter_base,
    grow,
    launch,
    broken,
    move,
    move_broken,
    shrink_base,
    zero_base,
    dollars,
    opening_gain,
    opening_level,
    opening_dollars,
    home,
):
    """Backward induction; returns the best value, the choices and that of the first slot.

    Pending level 0 is nothing pending. Sets, idle at each home, idle nowhere: in this order.
    """
    never = -(2**62)
    slots = cost.shape[0]
    cells = terminal.shape[0]
    count = spot.shape[0]
    offerings = first.shape[0] - 1
    sources = count + offerings + 1
    levels = class_table.shape[1]
    largest = gain_cells.max()
    after = np.empty((cells, sources, levels), dtype=np.int64)
    now = np.empty((cells, sources, levels), dtype=np.int64)
    for cell in range(cells):
        for source in range(sources):
            for level in range(levels):
                after[cell, source, level] = terminal[cell]
    choice = np.zeros((slots, cells, sources, levels), dtype=np.int16)
    entered = np.empty(enter_base.shape[0], dtype=np.int64)
    entered_at = np.empty(enter_base.shape[0], dtype=np.int16)
    shrunk = np.empty(count, dtype=np.int64)
    shrunk_at = np.empty(count, dtype=np.int16)
    for slot in range(slots - 1, 0, -1):
        reach = min(cells, slot * largest + 1)
        for cell in range(reach):
            for level in range(levels):
                for k in range(offerings):
                    # Among equals more instances win: progress made now nobody can take.
                    for e in range(enter_start[k], enter_start[k + 1]):
                        row = class_table[enter_base[e], level, 0]
                        next_level = class_table[enter_base[e], level, 1]
                        best = never
                        best_at = count + k
                        for c in range(first[k], first[k + 1]):
                            if not usable[slot, c]:
                                continue
                            reached = cell + gain_cells[row, c]
                            if reached >= done:
                                v = finish[slot] - cost[slot, c]
                            else:
                                v = after[reached, c, next_level] - cost[slot, c]
                            if v >= best:
                                best = v
                                best_at = c
                        entered[e] = best
                        entered_at[e] = best_at
                for a in range(offerings):
                    # Move away from a, whole and broken.
                    moved = never
                    moved_at = count + a
                    torn = never
                    torn_at = count + a
                    for b in range(offerings):
                        if a == b:
                            continue
                        e = move[a, b]
                        if entered[e] > never and entered[e] - dollars[a, b] > moved:
                            moved = entered[e] - dollars[a, b]
                            moved_at = entered_at[e]
                        e = move_broken[a, b]
                        if entered[e] > never and entered[e] - dollars[a, b] > torn:
                            torn = entered[e] - dollars[a, b]
                            torn_at = entered_at[e]
                    idle = after[cell, count + a, 0]
                    same_row = class_table[zero_base, level, 0]
                    same_level = class_table[zero_base, level, 1]
                    shrink_row = class_table[shrink_base[a], level, 0]
                    shrink_level = class_table[shrink_base[a], level, 1]
                    for c in range(first[a], first[a + 1]):
                        best = never
                        best_at = count + a
                        if usable[slot, c]:
                            reached = cell + gain_cells[shrink_row, c]
                            if reached >= done:
                                best = finish[slot] - cost[slot, c]
                            else:
                                best = after[reached, c, shrink_level] - cost[slot, c]
                            best_at = c
                        for j in range(cover_start[c], cover_start[c + 1]):
                            if shrunk[covers[j]] > best:
                                best = shrunk[covers[j]]
                                best_at = shrunk_at[covers[j]]
                        shrunk[c] = best
                        shrunk_at[c] = best_at
                        if spot[c] > spot_available[a, slot]:
                            best = entered[broken[a]]
                            best_at = entered_at[broken[a]]
                            if torn > best:
                                best = torn
                                best_at = torn_at
                        else:
                            best = never
                            best_at = count + a
                            if usable[slot, c]:
                                reached = cell + gain_cells[same_row, c]
                                if reached >= done:
                                    best = finish[slot] - cost[slot, c]
                                else:
                                    best = after[reached, c, same_level] - cost[slot, c]
                                best_at = c
                            if shrunk[c] > best:
                                best = shrunk[c]
                                best_at = shrunk_at[c]
                            if entered[grow[a]] > best:
                                best = entered[grow[a]]
                                best_at = entered_at[grow[a]]
                            if moved > best:
                                best = moved
                                best_at = moved_at
                        if idle > best:
                            best = idle
                            best_at = count + a
                        now[cell, c, level] = best
                        choice[slot, cell, c, level] = best_at
                    best = entered[launch[a]]
                    best_at = entered_at[launch[a]]
                    if moved > best:
                        best = moved
                        best_at = moved_at
                    if idle > best:
                        best = idle
                        best_at = count + a
                    now[cell, count + a, level] = best
                    choice[slot, cell, count + a, level] = best_at
                best = never
                best_at = count + offerings
                for b in range(offerings):
                    if entered[launch[b]] > best:
                        best = entered[launch[b]]
                        best_at = entered_at[launch[b]]
                idle = after[cell, count + offerings, 0]
                if idle > best:
                    best = idle
                    best_at = count + offerings
                now[cell, count + offerings, level] = best
                choice[slot, cell, count + offerings, level] = best_at
        after, now = now, after
    # The first slot: the start may be any set, so its changes were laid out by the caller.
    rest = count + home if home >= 0 else count + offerings
    best = after[0, rest, 0]
    best_at = rest
    for c in range(count):
        if usable[0, c]:
            if opening_gain[c] >= done:
                v = finish[0] - cost[0, c] - opening_dollars[c]
            else:
                v = after[opening_gain[c], c, opening_level[c]] - cost[0, c] - opening_dollars[c]
            if v > best:
                best = v
                best_at = c
    return best, choice, best_at
