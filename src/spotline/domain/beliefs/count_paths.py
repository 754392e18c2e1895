"""Paths that a believed count may have taken while one job could have held of it.

Policies that a job did not follow are replayed on several of them. Each path goes on by the law that it
follows; where a slot has shown it to be wrong it is drawn anew from the belief of that slot. So in every
slot paths are drawn from what was believed at its end, and those of two jobs are independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.beliefs.count_laws import LEVEL_STARTS
from spotline.domain.beliefs.spot_beliefs import BelievedOffering
from spotline.domain.drawn import uniform
from spotline.domain.market.law import AGE_STARTS

FEEDBACK_PATHS = 8
"""How many a job's feedback is the mean of, where nothing else is said."""

MOST_PATHS = 64
"""More are refused: each replays the whole pool once more."""

_AGES = len(AGE_STARTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountPaths:
    """Where the paths of one job's home stand in a slot.

    `at` are law and run state of each. `agreed` is the chance, as it was foreseen slot by slot, of
    all that slots have shown since the first: what paths drawn blindly would have to agree with.
    """

    offering_id: str
    at: tuple[tuple[int, int], ...]
    agreed: float = 1.0

    def counts(self, held: int) -> tuple[int, ...]:
        """The count of each path, at least the `held`."""
        return tuple(max(held, LEVEL_STARTS[state // _AGES]) for _, state in self.at)


def paths_onward(
    before: CountPaths | None, known: BelievedOffering, *, offering_id: str, paths: int, seed: str
) -> CountPaths:
    """The paths of a job in a slot that has just been settled; without those `before` they begin.

    `seed` names the job and the slot.
    """
    agreed = 1.0 if before is None else before.agreed
    begins = before is None or before.offering_id != offering_id
    drawn = [uniform(0, "paths of counts", seed, path) for path in range(paths)]
    moved: Sequence[tuple[int, int] | None] = [None] * paths
    if before is not None and not begins:
        agreed *= known.foreseen
        moved = [_moved(known, *at, chance) for at, chance in zip(before.at, drawn, strict=True)]
    at = tuple(
        _drawn(known, chance) if state is None else state
        for state, chance in zip(moved, drawn, strict=True)
    )
    return CountPaths(offering_id=offering_id, at=at, agreed=agreed)


def _moved(known: BelievedOffering, law: int, state: int, chance: float) -> tuple[int, int] | None:
    """Where a path goes by its law, None where the slot has shown that it did not."""
    reached = known.belief.laws.transitions[law, state].cumsum()
    state = int(np.searchsorted(reached, chance * reached[-1], side="right"))
    low, high = known.levels_seen
    return (law, state) if low <= state // _AGES <= high else None


def _drawn(known: BelievedOffering, chance: float) -> tuple[int, int]:
    """A law and a state as they are believed; `chance` may have said where a path is not."""
    again = uniform(0, "drawn anew", chance)
    reached = known.belief.mass.ravel().cumsum()
    place = int(np.searchsorted(reached, again * reached[-1], side="right"))
    states = int(known.belief.mass.shape[1])
    return place // states, place % states
