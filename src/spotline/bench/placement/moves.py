"""Moving running jobs: what makes ours go on after it has placed a job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spotline.bench.placement.setting import PriceCurve, Setting
from spotline.bench.placement.simulate import RunningJob
from spotline.domain.placement.graph import FloatArray
from spotline.domain.placement.interface import PlacementMethod, PlacementMoment
from spotline.domain.placement.pipeline import Placement
from spotline.domain.placement.replacing import PricesAhead, consider_move
from spotline.domain.placement.ways import TIME_WEIGHT

_S_PER_HOUR = 3600.0
_DAY_H = 24
# Day-ahead prices of the next day are published after noon.
_PUBLISHED_H = 12


class PayingMoves:
    """Moves a job where what is left of it, time included, comes cheaper after moving.

    It is looked at whenever something happens; prices are known to the end of the day, from noon to
    the end of the next, and taken to be their mean after that. A second is worth what `spotline`
    takes it to be.
    """

    def __init__(self, method: PlacementMethod, *, time_weight: float = TIME_WEIGHT) -> None:
        self._method = method
        self._time_weight = time_weight

    def __call__(
        self, one: RunningJob, moment: PlacementMoment, setting: Setting
    ) -> Placement | None:
        """Where to move to, if that pays."""
        left = one.job.iterations - one.done_by(moment.now_s)
        job = replace(one.job, iterations=left)
        mean = float(np.abs(moment.usd_per_gpu_hour).mean())
        move = consider_move(
            job,
            one.placement,
            self._method,
            moment,
            prices_ahead(setting.prices, moment.now_s),
            time_usd_per_s=self._time_weight * job.best_gpus * mean / _S_PER_HOUR,
        )
        return move.placement if move.pays else None


def prices_ahead(prices: PriceCurve, now_s: float) -> PricesAhead:
    """What is known of prices at a time: hours to come, then the mean of them."""
    hour = int(now_s // _S_PER_HOUR)
    of_day = hour % _DAY_H
    known = _DAY_H - of_day + (_DAY_H if of_day >= _PUBLISHED_H else 0)
    rows: list[FloatArray] = [prices.at((hour + place) * _S_PER_HOUR) for place in range(known)]
    table = np.array(rows)
    if (table == table[0]).all():
        table = table[:1]
    return PricesAhead(
        start_s=hour * _S_PER_HOUR, usd_per_gpu_hour=np.vstack([table, table.mean(axis=0)])
    )
