"""Exchanges between jobs that make a clearing better, compiled: whole numbers, and so exact."""

from __future__ import annotations

import numpy as np

from spotline.domain.kernels import IntArray, kernel

MOST_EXCHANGES = 64
"""Rows that are worth most more than what their jobs have: only these are tried in exchanges."""

_NONE = -1


@kernel
def improve(
    takes: IntArray,
    values: IntArray,
    owner: IntArray,
    limits: IntArray,
    chosen: IntArray,
    rounds: int,
) -> None:
    """Improve `chosen`, the row of each job, in place, in so many rounds at most.

    A round gives one job the row that gains most and fits; where there is none, one job a better
    row and another a worse one that together fit and gain.

    Parameters
    ----------
    takes
        What each row takes of each resource, shape (rows, resources).
    values, owner
        What each row is worth, micro-USD, and the job that it is of, shape (rows,).
    limits
        What there is of each resource, shape (resources,); `chosen` takes no more.
    """
    left = limits.copy()
    for job in range(chosen.shape[0]):
        left -= takes[chosen[job]]
    for _ in range(rounds):
        best, most = _NONE, 0
        for row in range(values.shape[0]):
            gain = values[row] - values[chosen[owner[row]]]
            if gain > most and _fits(takes, left, chosen[owner[row]], row):
                best, most = row, gain
        if best != _NONE:
            _take(takes, left, owner, chosen, best)
            continue
        row, other = _exchange(takes, values, owner, left, chosen)
        if row == _NONE:
            return
        _take(takes, left, owner, chosen, row)
        _take(takes, left, owner, chosen, other)


@kernel
def _take(takes: IntArray, left: IntArray, owner: IntArray, chosen: IntArray, row: int) -> None:
    left += takes[chosen[owner[row]]] - takes[row]
    chosen[owner[row]] = row


@kernel
def _fits(takes: IntArray, left: IntArray, now: int, row: int) -> bool:
    fits = True
    for at in range(left.shape[0]):
        fits &= takes[row, at] - takes[now, at] <= left[at]
    return fits


@kernel
def _exchange(
    takes: IntArray, values: IntArray, owner: IntArray, left: IntArray, chosen: IntArray
) -> tuple[int, int]:
    """A better row of one job and a worse one of another; the first row is -1 where none pay.

    Better rows are tried from the greatest gain on, ties from the first.
    """
    gain = values - values[chosen[owner]]
    wanted = np.flatnonzero(gain > 0)
    wanted = wanted[np.argsort(-gain[wanted], kind="mergesort")][:MOST_EXCHANGES]
    after = left.copy()
    for row in wanted:
        after[:] = left + takes[chosen[owner[row]]] - takes[row]
        best, most = _NONE, -gain[row]
        for other in range(values.shape[0]):
            if owner[other] == owner[row] or gain[other] <= most:
                continue
            if _fits(takes, after, chosen[owner[other]], other):
                best, most = other, gain[other]
        if best != _NONE:
            return int(row), best
    return _NONE, _NONE
