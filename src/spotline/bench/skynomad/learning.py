"""What is learned of how long zones stay up and down, from series of other zones or times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from spotline.bench.skynomad.world import UpArray
from spotline.domain.beliefs.zone_beliefs import ZoneLaws
from spotline.domain.market.run_law import common_law, count_runs, own_law

AGE_STARTS: Final = (1, 2, 4, 9, 20, 48, 120)
_OWN_SHARE: Final = 0.5
_COMMON_SCALES: Final = ((1.0, 1.0), (2.0, 0.5), (0.5, 2.0))
_COMMON_SHARE: Final = 0.4
"""Weight of the common laws among those of an unseen zone."""


def learn_zone_laws(
    series: Sequence[UpArray], *, zones: int, own: Sequence[int | None] | None = None
) -> ZoneLaws:
    """Learn laws from 0/1 series of a tick each, for so many zones.

    `own` gives, per zone, the series that is of that zone at an earlier time.

    Raises
    ------
    ValueError
        There is no series.
    """
    counts = [count_runs(up, AGE_STARTS, open_first=True) for up in series]
    common = common_law(counts, AGE_STARTS)
    commons = [common.scaled(down=down, up=up) for down, up in _COMMON_SCALES]
    laws = [*commons, *(own_law(one, common) for one in counts)]
    weights = np.zeros((zones, len(laws)))
    weights[:, : len(commons)] = _COMMON_SHARE / len(commons)
    weights[:, len(commons) :] = (1.0 - _COMMON_SHARE) / len(counts)
    for zone, index in enumerate(own or [None] * zones):
        if index is not None:
            weights[zone] *= 1.0 - _OWN_SHARE
            weights[zone, len(commons) + index] += _OWN_SHARE
    return ZoneLaws(laws=tuple(laws), weights=weights)
