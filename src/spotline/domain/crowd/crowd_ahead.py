"""What spot will be worth to a crowd: futures of counts and arrivals, each solved as a fluid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.fluid import MOST_PRICE_MICRO_USD, FluidWork, Supply, marginal_worths
from spotline.domain.drawn import generator
from spotline.domain.market.counts_ahead import counts_ahead, spread_chances
from spotline.domain.market.law import FloatArray, IntArray, MarketLaw
from spotline.domain.market.offering import Quote
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.units import S_PER_HOUR

# Futures that worths are the mean of.
FUTURES = 16
# Periods of a future: the rest of a day of half-hour slots, where each is one slot.
PERIODS = 36
# Slots to come whose worths are averaged: half a day of them.
AHEAD_SLOTS = 24
# Slots of a period, at most: deadlines that are farther away than all periods then are cut off.
MOST_SLOTS = 4
# What is due after the last period is done by then, but for what this share of its largest count does later.
LATER_SHARE = 0.6
# Work is counted in quarters of what an instance does in a slot.
UNITS = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferingNow:
    """An offering of which a count is known, as it stands in a slot.

    `speed` is the share of the greatest speed that jobs have on it in the mean. `run_state` is where
    it is in its `law`; without one its count stays.
    """

    quote: Quote
    speed: float
    run_state: int = -1
    law: MarketLaw | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CrowdAhead:
    """All that tells what spot will be worth, the same on every machine.

    `offerings` are in order of their ids. `works` is what is left of running jobs, `arrivals` are
    those of late: of their like more may come.
    """

    slot: int
    slot_s: int
    offerings: tuple[OfferingNow, ...]
    works: tuple[FluidWork, ...]
    arrivals: Arrivals

    def worths(self) -> dict[str, int]:
        """What an instance of spot is worth beyond its price in the slots to come, micro-USD per hour.

        By offering, as a mean over futures and slots, each slot weighted by its spot.
        """
        rng = generator("worths ahead", self.slot)
        period = _period_of(self.works, self.arrivals.longest)
        spot = self._futures(rng, period * PERIODS)
        flowing = self._within(self.works, period)
        total, weight = np.zeros(spot.shape[2]), np.zeros(spot.shape[2])
        near = max(1, AHEAD_SLOTS // period)
        for future in spot:
            coming = self.arrivals.drawn(self.slot, period * PERIODS, rng)
            supply = self._supply(future.reshape(PERIODS, period, -1).sum(axis=1), period)
            worths = marginal_worths([*flowing, *self._within(coming, period)], supply)
            there = supply.spot[1 : near + 1]
            total += (worths[1 : near + 1] * there).sum(axis=0)
            weight += there.sum(axis=0)
        mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
        per_hour = np.rint(mean * UNITS * self._speeds * S_PER_HOUR / self.slot_s).astype(np.int64)
        return dict(zip(self._offering_ids, per_hour.tolist(), strict=True))

    @property
    def _offering_ids(self) -> tuple[str, ...]:
        return tuple(each.quote.offering_id for each in self.offerings)

    @property
    def _speeds(self) -> FloatArray:
        return np.array([each.speed for each in self.offerings])

    def _futures(self, rng: np.random.Generator, slots: int) -> IntArray:
        """Spot that may come, in instances, shape (futures, slots, offerings)."""
        found = np.empty((FUTURES, slots, len(self.offerings)), dtype=np.int64)
        for column, each in enumerate(self.offerings):
            chances = spread_chances(rng, FUTURES, slots)
            count = each.quote.spot_available.instances
            if each.law is None:
                found[:, :, column] = count
                continue
            found[:, :, column] = counts_ahead(each.law, each.run_state, count, chances)
        return found

    def _within(self, works: Sequence[FluidWork], period: int) -> list[FluidWork]:
        """Works as far as offerings of the market do them, in periods of `period` slots."""
        here = set(self._offering_ids)
        found = []
        for work in works:
            where = tuple(name for name in work.where if name in here)
            cut = _cut(work, period) if where else None
            if cut is not None:
                found.append(cut._replace(where=where))
        return found

    def _supply(self, spot: IntArray, period: int) -> Supply:
        """What there is in a future with this spot, shape (periods, offerings)."""
        scale = self._speeds * UNITS
        hours = self.slot_s / S_PER_HOUR
        quotes = [each.quote for each in self.offerings]
        on_demand = [quote.on_demand_available for quote in quotes]
        return Supply(
            offering_ids=self._offering_ids,
            spot=np.rint(spot * scale).astype(np.int64),
            on_demand=np.rint(
                np.array([count.instances if count.known else UNCOUNTED for count in on_demand])
                * scale
                * period
            ).astype(np.int64),
            spot_price=self._per_unit([quote.spot_price_micro_usd for quote in quotes], hours),
            on_demand_price=self._per_unit(
                [quote.on_demand_price_micro_usd for quote in quotes], hours
            ),
        )

    def _per_unit(self, prices: Sequence[int], hours: float) -> IntArray:
        per_unit = np.rint(np.array(prices) * hours / (self._speeds * UNITS))
        found: IntArray = np.minimum(per_unit, MOST_PRICE_MICRO_USD).astype(np.int64)
        return found


def _cut(work: FluidWork, period: int) -> FluidWork | None:
    """Work in periods of `period` slots, as far as futures go; None where it begins beyond."""
    begins, due = -(-work.begins // period), max(1, work.due // period)
    if begins >= PERIODS:
        return None
    due = max(due, begins + 1)
    beyond = max(0, due - PERIODS)
    done_later = int(beyond * period * work.most * LATER_SHARE)
    return work._replace(
        begins=begins,
        due=min(due, PERIODS),
        most=work.most * period,
        amount=max(0, work.amount - done_later),
    )


def _period_of(work: Sequence[FluidWork], longest: int) -> int:
    """Slots of a period: as few as hold the last deadline within all periods."""
    last = max([longest, *(each.due for each in work)])
    return max(1, min(MOST_SLOTS, -(-last // PERIODS)))
