"""What a job is expected to cost at a home, by the law of its spot from where that stands now.

The job runs on spot whenever it is there, and on demand from the last slot from which that still does
the rest of its work in time: the rule of maximal spot use, exact for a law of states, without a
choice in it. It takes a thousandth of the time of a value table, so a home can be looked for among all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spotline.domain.kernels import FloatArray, IntArray, kernel

# Parts of a slot in which work and overheads are counted.
PARTS = 4


class Stint(NamedTuple):
    """A job at a home: `slots` to its deadline, `parts` of slots of work on its largest count."""

    slots: int
    parts: int


class SpotParts(NamedTuple):
    """What a slot of spot does by run state, in parts of a slot, and what share of instances it holds.

    `first` is what it does where the job did not run before. All have shape (run states,).
    """

    first: IntArray
    next: IntArray
    share: FloatArray


def slots_of_each_kind(
    matrix: FloatArray, run_state: int, stint: Stint, spot: SpotParts
) -> tuple[float, float]:
    """Slots of the largest count that the work is expected to take on spot, and on demand.

    Parameters
    ----------
    matrix
        Chances of the run state of the next slot, shape (run states, run states).
    run_state
        Where the offering is in the slot in which the job comes.
    """
    held, bought = _slots(
        matrix, run_state, stint.slots, stint.parts, (spot.first, spot.next), spot.share
    )
    return float(held), float(bought)


@kernel
def _slots(
    matrix: FloatArray,
    run_state: int,
    slots: int,
    parts: int,
    does: tuple[IntArray, IntArray],
    share: FloatArray,
) -> tuple[float, float]:
    states = matrix.shape[0]
    # Where each state leads: most states lead to few, and this is asked for every part of work left.
    leads = np.zeros(states, dtype=np.int64)
    to = np.empty((states, states), dtype=np.int64)
    for state in range(states):
        for following in range(states):
            if matrix[state, following] > 0.0:
                to[state, leads[state]] = following
                leads[state] += 1
    # Chance by run state, whether it ran in the slot before, and parts of work left.
    now = np.zeros((states, 2, parts + 1))
    now[run_state, 0, parts] = 1.0
    held = bought = 0.0
    for slot in range(slots):
        after = np.zeros((states, 2, parts + 1))
        due = min(parts, PARTS * (slots - slot - 1))
        for state in range(states):
            runs = 1 if share[state] > 0.0 else 0
            for ran in range(2):
                done = does[ran][state]
                for left in range(1, parts + 1):
                    chance = now[state, ran, left]
                    if chance == 0.0:
                        continue
                    if left > due and left - done > due:
                        # On demand from now on: later it would not be done in time.
                        bought += chance * left / PARTS
                        continue
                    held += chance * share[state] * min(1.0, left / max(1, done)) if runs else 0.0
                    if left <= done:
                        continue
                    for lead in range(leads[state]):
                        following = to[state, lead]
                        after[following, runs, left - done] += chance * matrix[state, following]
        now = after
    for state in range(states):
        for ran in range(2):
            for left in range(1, parts + 1):
                bought += now[state, ran, left] * left / PARTS
    return held, bought
