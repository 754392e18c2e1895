"""Prices that are wrong by orders of magnitude: in another unit, or with a digit too many."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import ClassVar

from spotline.application.market_ingest.handler import IngestOptions
from spotline.bench.faults.families.interface import Hasty
from spotline.bench.faults.scenario import Scenario
from spotline.domain.market.market import Market

_SPELLS = 3
_FACTORS = (1_000, 100, 60)


class Price(Hasty):
    """Multiplies all prices of some slots, now and then to the market's end."""

    name: ClassVar[str] = "price"
    same_ledger: bool = False
    most_spend_percent: ClassVar[int] = 200

    def __init__(
        self, scenario: Scenario, rng: random.Random, calm_points: Counter[str] | None = None
    ) -> None:
        super().__init__(scenario, rng, calm_points)
        slots = scenario.market.slots
        # Never from the first slots on: what is wrong from the beginning is all that is known.
        self._spells = [
            (first, first + rng.choice((1, 4, slots)), rng.choice(_FACTORS))
            for first in sorted(rng.sample(range(8, slots - 2), _SPELLS))
        ]

    def ingest(self) -> IngestOptions:
        """As `up` runs it: prices are judged before they are shown."""
        return IngestOptions(price_sanity=True)

    def market(self, market: Market) -> Market:
        """The market with such spells."""
        spot = market.spot_price_micro_usd.copy()
        on_demand = market.on_demand_price_micro_usd.copy()
        self.faults = 0
        for first, end, factor in self._spells:
            spot[first:end] = market.spot_price_micro_usd[first:end] * factor
            on_demand[first:end] = market.on_demand_price_micro_usd[first:end] * factor
            self.faults += min(end, market.slots) - first
        return replace(market, spot_price_micro_usd=spot, on_demand_price_micro_usd=on_demand)
