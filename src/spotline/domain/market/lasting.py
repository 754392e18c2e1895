"""How long spot that is there now stays, by the law of its offering."""

from __future__ import annotations

import numpy as np

from spotline.domain.market.law import FloatArray, MarketLaw
from spotline.domain.remembered import BySelf


class Lasting:
    """What a law says of the slots to come, by run state; found once for all jobs that ask."""

    def __init__(self, law: MarketLaw) -> None:
        self._matrix = law.run_matrix()
        self._counts = law.run_counts()
        self._lasts: dict[tuple[int, int, int], FloatArray] = {}
        self._chances: dict[tuple[int, int], FloatArray] = {}

    def lasts(self, run_state: int, least: int, slots: int) -> FloatArray:
        """The chance of each of the next slots that `least` instances are there, given the one before.

        Shape (slots,), the first being that of the next slot. A chance is 0 from where it is sure
        that they are gone. In the open slot they are taken to be there, whatever its run state says.
        """
        key = run_state, least, slots
        found = self._lasts.get(key)
        if found is None:
            found = np.zeros(slots)
            stays = np.where(self._counts >= least, 1.0, 0.0)
            now = np.zeros(self._matrix.shape[0])
            now[run_state] = 1.0
            for slot in range(slots):
                now = _moved(now, self._matrix) * stays
                there = float(now.sum())
                if there <= 0.0:
                    break
                found[slot] = there
                now /= there
            self._lasts[key] = found
        return found

    def expected_slots(self, run_state: int, least: int, slots: int) -> float:
        """Slots that `least` instances are expected to stay, this one and at most `slots` more counted."""
        there = found = 1.0
        for chance in self.lasts(run_state, least, slots):
            there *= float(chance)
            found += there
        return found

    def chances(self, run_state: int, slots: int) -> FloatArray:
        """The chance of every run state in this slot and the next ones, shape (slots, run states)."""
        key = run_state, slots
        found = self._chances.get(key)
        if found is None:
            found = np.zeros((slots, self._matrix.shape[0]))
            found[0, run_state] = 1.0
            for slot in range(1, slots):
                found[slot] = _moved(found[slot - 1], self._matrix)
            self._chances[key] = found
        return found


def _moved(chances: FloatArray, matrix: FloatArray) -> FloatArray:
    """One slot on; summed row by row, so that processors do not differ in the last bit."""
    moved = np.zeros_like(chances)
    for state in range(chances.shape[0]):
        if chances[state]:
            moved += chances[state] * matrix[state]
    return moved


# As many laws as are in force at a time, and those before them.
_lasting = BySelf(Lasting, 256)


def lasting_of(law: MarketLaw) -> Lasting:
    """What a law says of the slots to come; the same object for the same law."""
    return _lasting.of(law)
