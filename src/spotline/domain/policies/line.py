"""The straight line from a job's first slot to its deadline, which several policies follow."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from spotline.domain.jobs.program import JobProgram
from spotline.domain.kernels import IntArray

# Rows of `line_of`.
LINE = 0  # progress of the line when a slot opens
AHEAD_SHRINK = 1  # the line, ahead by two overheads of a shrink
AHEAD_GROW = 2  # and by two of a growth


def line_of(program: JobProgram) -> IntArray:
    """Lay the line out: quanta by slot of the job's life, shape (3, deadline_slots + 1)."""
    return _line(
        program.slot_s,
        program.work_quanta,
        program.deadline_slots,
        program.shrink_s,
        program.grow_s,
    )


@lru_cache(maxsize=16_384)
def _line(slot_s: int, work_quanta: int, deadline: int, shrink_s: int, grow_s: int) -> IntArray:
    line = np.zeros((3, deadline + 1), dtype=np.int64)
    # Exact in Python: work times seconds can exceed 64 bits.
    for slot in range(deadline + 1 if deadline else 0):
        for row, change_s in ((LINE, 0), (AHEAD_SHRINK, shrink_s), (AHEAD_GROW, grow_s)):
            passed_s = slot * slot_s + 2 * change_s
            line[row, slot] = work_quanta * passed_s // (deadline * slot_s)
    return line
