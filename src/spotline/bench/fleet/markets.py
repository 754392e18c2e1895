"""The markets of a crowd: counts scaled until what jobs demand is the wanted load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from spotline.bench.quote.worlds import SLOT_S, load_world, side_by_side
from spotline.contracts.errors import ContractError
from spotline.domain.market.generate import generate
from spotline.domain.market.market import OBSERVED, Market

GENERATED, NINE_ZONES, H100 = "generated", "nine-zones", "h100"
MARKET_NAMES = (GENERATED, NINE_ZONES, H100)

_WORLDS: Mapping[str, str] = MappingProxyType({NINE_ZONES: "aws-v100-2023", H100: "skynomad-h100"})
_PRESETS = ("cloud-zones", "neocloud")
_GENERATED_SLOTS = 336
# The nine zones of the traces say up or down of one node; quoted worlds of gangs have 16.
_ZONE_INSTANCES = 16
# On-demand of every third generated offering: this share of the most spot it ever has.
_LIMITED_EVERY = 3
_STOCK_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetMarket:
    """A market as recorded or generated; `limited` are the columns of short on-demand stock.

    Nothing that is reported begins before slot `half`: all before may be learned from.
    """

    name: str
    market: Market
    recorded: str
    limited: tuple[int, ...] = ()

    @property
    def half(self) -> int:
        """The first slot of what is reported."""
        return self.market.slots // 2

    def scaled(self, factor: float, least_stock: int) -> Market:
        """The market with its spot counts times a factor, rounded, and its limited stock.

        That is `_STOCK_SHARE` of the offering's largest scaled count, at least `least_stock`.
        """
        spot = np.rint(self.market.spot_available * factor).astype(np.int64)
        stock = self.market.on_demand_available.copy()
        provenance = self.market.on_demand_provenance.copy()
        for column in self.limited:
            share = int(np.ceil(spot[:, column].max() * _STOCK_SHARE))
            stock[:, column] = max(least_stock, share)
            provenance[:, column] = OBSERVED
        return replace(
            self.market,
            spot_available=spot,
            on_demand_available=stock,
            on_demand_provenance=provenance,
        )


def fleet_market(name: str, data: Path, seed: int) -> FleetMarket:
    """Read or generate a market; `seed` varies generated ones only.

    Raises
    ------
    ContractError
        No market has this name, its data is absent, or a file breaks its format.
    """
    if name == GENERATED:
        parts = [
            generate(preset, seed=seed, slots=_GENERATED_SLOTS, slot_s=SLOT_S, start_ns=0)
            for preset in _PRESETS
        ]
        market = side_by_side(parts)
        return FleetMarket(
            name=name,
            market=market,
            recorded=f"generated: nine cloud zones and two neoclouds, seed {seed}",
            limited=tuple(range(0, len(market.offerings), _LIMITED_EVERY)),
        )
    if name not in _WORLDS:
        raise ContractError(
            "--cell", f"market must be one of {', '.join(MARKET_NAMES)}, was {name!r}"
        )
    world = load_world(_WORLDS[name], data, seed)
    if world is None:
        raise ContractError(
            "--data",
            f"expected spot-skynomad and spot-traces-skypilot in {data} for market {name}, found "
            "not all of them; SPOTLINE_DATA or --data says where recorded data lies",
        )
    market = world.market
    if name == NINE_ZONES:
        market = replace(market, spot_available=market.spot_available * _ZONE_INSTANCES)
    return FleetMarket(name=name, market=market, recorded=world.recorded)
