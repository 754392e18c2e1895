"""The optimum of a part that shares one thing, compiled: whole numbers, and so exact."""

from __future__ import annotations

import numpy as np

from spotline.domain.kernels import IntArray, kernel

_LOWEST = np.iinfo(np.int64).min // 2


@kernel
def best_by_counts(takes: IntArray, values: IntArray, starts: IntArray, limit: int) -> IntArray:
    """The row of each job that together are worth the most, by how much of the thing is taken.

    Of rows that are worth as much the earlier one is taken.

    Parameters
    ----------
    takes, values
        What each row takes of the thing, and what it is worth, micro-USD; shape (rows,).
    starts
        Job j's rows are `starts[j]` to `starts[j + 1]`, shape (jobs + 1,). One row of each takes
        nothing.
    limit
        What there is of the thing.

    Returns
    -------
    rows : int64, shape (jobs,)
    """
    jobs = starts.shape[0] - 1
    best = np.zeros(limit + 1, dtype=np.int64)
    after = np.empty(limit + 1, dtype=np.int64)
    picked = np.zeros((jobs, limit + 1), dtype=np.int64)
    for job in range(jobs):
        after[:] = _LOWEST
        for row in range(starts[job], starts[job + 1]):
            taken = takes[row]
            for left in range(taken, limit + 1):
                with_it = best[left - taken] + values[row]
                if with_it > after[left]:
                    after[left] = with_it
                    picked[job, left] = row
        best, after = after, best
    rows = np.zeros(jobs, dtype=np.int64)
    left = limit
    for job in range(jobs - 1, -1, -1):
        rows[job] = picked[job, left]
        left -= takes[rows[job]]
    return rows
