"""How long an instance stays where spot comes and goes: stays, and their survival curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.units import S_PER_HOUR

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# A share that is a product of ratios may miss 0.5 or 0.9 by a rounding error.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stays:
    """Lengths of stays, in hours, and which of them are known whole; both shape (stays,).

    What is not `ended` lasted at least that long: an end of the file, or a stretch of which nothing
    is known, cut it. `began_before` of them were there when the file, or what is known, began.
    """

    hours: FloatArray
    ended: BoolArray
    began_before: int = 0

    @property
    def cut(self) -> int:
        """How many lasted at least as long, and nobody knows how much longer."""
        return int((~self.ended).sum())


def stays_of(there: BoolArray, known: BoolArray, slot_s: int) -> Stays:
    """Cut a series into stays.

    A stay begins in the first slot in which enough is there, and ends in the first in which it is
    not.

    Parameters
    ----------
    there
        Whether enough instances are there in a slot, shape (slots,); not read where not `known`.
    known
        Whether that is known.
    slot_s
        Length of a slot, seconds.
    """
    up = there & known
    edges = np.diff(np.concatenate(([False], up, [False])).astype(np.int8))
    begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    # A stay is seen to begin, or to end, where the slot beside it is known to be without it.
    without = np.concatenate(([False], known & ~there, [False]))
    seen_begin, seen_end = without[begins], without[ends + 1]
    return Stays(
        hours=(ends - begins) * np.float64(slot_s / S_PER_HOUR),
        ended=seen_begin & seen_end,
        began_before=int((~seen_begin).sum()),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SurvivalCurve:
    """The share of stays that last longer than so many hours, by Kaplan and Meier.

    `hours` ascend, `share` falls from 1 at 0 hours; both shape (points,). Beyond `longest_h`, the
    longest that was seen, nothing is known. Lengths are None where the curve does not fall so far.
    """

    hours: FloatArray
    share: FloatArray
    longest_h: float

    @property
    def median_h(self) -> float | None:
        """Half of the stays are over by then."""
        return self.gone_by_h(0.5)

    @property
    def p10_h(self) -> float | None:
        """A tenth of the stays is over by then; nine of ten last as long."""
        return self.gone_by_h(0.1)

    def gone_by_h(self, share: float) -> float | None:
        """By when at least this share of the stays is over, hours."""
        fallen = self.share <= 1.0 - share + _ROUNDING
        return float(self.hours[int(np.argmax(fallen))]) if fallen.any() else None


def survival_of(stays: Stays) -> SurvivalCurve | None:
    """The survival curve of stays; None where there are none.

    Notes
    -----
    Kaplan and Meier, "Nonparametric estimation from incomplete observations", JASA 53 (1958). A
    stay that was cut counts as there until then, never as ended. Of one that was there before the
    file began, what is left out of its length makes it count for less than it lasted.
    """
    if not len(stays.hours):
        return None
    from scipy.stats import CensoredData, ecdf

    sample = CensoredData(uncensored=stays.hours[stays.ended], right=stays.hours[~stays.ended])
    curve = ecdf(sample).sf
    return SurvivalCurve(
        hours=np.concatenate(([0.0], curve.quantiles)),
        share=np.concatenate(([1.0], curve.probabilities)),
        longest_h=float(stays.hours.max()),
    )
