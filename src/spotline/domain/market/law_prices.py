"""Which levels of a price a law tells apart.

Spot prices of real markets move seldom and then stay: the present one foretells the next day better
than where it was last week. So levels are those of recent slots, and the present price is one of
them, to the part per million; a market whose price returns to a mean still shows so within them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spotline.domain.units import PPM

IntArray = npt.NDArray[np.int64]

MOST_PRICE_LEVELS = 4
# Four days of half-hour slots. Of fewer a law of several prices is learned worse, of more the coming
# half day is foretold no better (ADR 0094).
RECENT_SLOTS = 192
# Prices that move by less than this (ppm of on-demand) are one level: planning gains nothing.
_PRICE_STEP_PPM = 10_000


def price_centres(price_ppm: Sequence[int] | IntArray) -> tuple[int, ...]:
    """Levels where equal shares of the slots fall: ppm of on-demand, ascending, at least one."""
    ordered = np.sort(np.asarray(price_ppm, dtype=np.int64))
    if ordered.size == 0:
        return (PPM // 3,)
    spread = int(ordered[-1] - ordered[0])
    levels = max(1, min(MOST_PRICE_LEVELS, spread // _PRICE_STEP_PPM))
    at = [ordered[(2 * k + 1) * ordered.size // (2 * levels)] for k in range(levels)]
    return tuple(sorted({int(a) for a in at}))


def present_centres(price_ppm: Sequence[int] | IntArray) -> tuple[int, ...]:
    """The same, of `price_ppm` (recent slots, the latest last), with the latest price for the level next to it."""
    centres = price_centres(price_ppm)
    if not len(price_ppm):
        return centres
    latest = int(price_ppm[-1])
    nearest = min(centres, key=lambda centre: (abs(centre - latest), centre))
    return tuple(sorted({latest, *(centre for centre in centres if centre != nearest)}))
