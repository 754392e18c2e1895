"""The compiled optimum over one scarce thing, held against the same program in arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.crowd.one_resource import best_by_counts
from spotline.domain.kernels import IntArray
from tests.depth import examples


def by_arrays(takes: IntArray, values: IntArray, starts: IntArray, limit: int) -> list[int]:
    """As slots were cleared before it was compiled: logs of then must come out alike, ties too."""
    jobs = len(starts) - 1
    best = np.zeros(limit + 1, dtype=np.int64)
    picked = np.zeros((jobs, limit + 1), dtype=np.int64)
    for job in range(jobs):
        after = np.full(limit + 1, np.iinfo(np.int64).min // 2, dtype=np.int64)
        for row in range(int(starts[job]), int(starts[job + 1])):
            taken = int(takes[row])
            if taken > limit:
                continue
            with_it = best[: limit + 1 - taken] + values[row]
            better = with_it > after[taken:]
            after[taken:][better] = with_it[better]
            picked[job, taken:][better] = row
        best = after
    rows, left = [0] * jobs, limit
    for job in range(jobs - 1, -1, -1):
        rows[job] = int(picked[job, left])
        left -= int(takes[rows[job]])
    return rows


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=4),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 12),
)
def test_rows_are_those_of_the_program_in_arrays(
    jobs: list[list[tuple[int, int]]], limit: int
) -> None:
    # Each job may also take nothing.
    laid = [[(0, 0), *rows] for rows in jobs]
    takes = np.array([taken for rows in laid for taken, _ in rows], dtype=np.int64)
    values = np.array([value for rows in laid for _, value in rows], dtype=np.int64)
    starts = np.cumsum([0, *map(len, laid)]).astype(np.int64)

    rows = best_by_counts(takes, values, starts, limit)

    assert rows.tolist() == by_arrays(takes, values, starts, limit)
