"""Real counts and real prices of the same days: what SkyNomad's authors probed and paid.

H100: every 10 minutes 16 instances were asked for in each zone, and `created` of them started; a
round that is missing is carried forward. V100: spot prices of the nine zones whose availability is
in `spot-traces-skypilot`, over the same days.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from spotline.adapters.market.parse import count, price_micro_usd, read_csv, time_ns
from spotline.adapters.market.series import EventSeries, OfferingSeries, assemble
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.notice import guaranteed_notice_s
from spotline.domain.market.offering import Offering, Provenance
from spotline.domain.units import NS_PER_S

FOLDER = "spot-skynomad"
# The first tick of the nine zones, see the data's README.
NINE_ZONES_START = "2023-02-15T22:08:16Z"
H100_LEARNED_DAYS = 4

_COUNTS, _H100_PRICES, _V100_PRICES = (
    "h100_counts.csv.gz",
    "h100_prices.csv",
    "v100_spot_prices_2023.csv.gz",
)
_MACHINE, _INSTANCE = "a3-highgpu-8g", "a3-highgpu-1g"
_ROUND_NS = 600 * NS_PER_S


def read_h100(data: Path, slot_s: int) -> tuple[Market, ...]:
    """Read every zone as a market of its own, all on one grid; none where the data is not there.

    Raises
    ------
    ContractError
        A file breaks its format, or a zone's region has no price.
    """
    folder = data / FOLDER
    if not (folder / _COUNTS).is_file():
        return ()
    prices = _h100_prices(folder / _H100_PRICES)
    events: dict[str, list[tuple[int, int]]] = {}
    for where, row in read_csv(folder / _COUNTS, ("time_utc", "zone", "created")):
        at = time_ns(row["time_utc"], f"{where}: time_utc")
        events.setdefault(row["zone"], []).append((at, count(row["created"], f"{where}: created")))
    first = min(rounds[0][0] for rounds in events.values())
    last = max(rounds[-1][0] for rounds in events.values())
    markets = []
    for zone, rounds in sorted(events.items()):
        region = zone.rpartition("-")[0]
        if region not in prices:
            raise ContractError(
                str(folder / _H100_PRICES), f"expected a price of {_MACHINE} in {region}"
            )
        spot, on_demand = prices[region]
        series = OfferingSeries(
            offering=_h100_offering(zone, region),
            on_demand_price_micro_usd=on_demand,
            spot_price=EventSeries(ts_ns=np.array([first]), values=np.array([spot])),
            spot_available=_events(sorted(rounds)),
            spot_provenance=Provenance.OBSERVED,
        )
        markets.append(
            assemble(
                [series], start_ns=first, end_ns=last + _ROUND_NS, slot_s=slot_s, source=_COUNTS
            )
        )
    return tuple(markets)


def _events(found: list[tuple[int, int]]) -> EventSeries:
    laid = np.array(found, dtype=np.int64)
    return EventSeries(ts_ns=laid[:, 0].copy(), values=laid[:, 1].copy())


def _h100_offering(zone: str, region: str) -> Offering:
    return Offering(
        offering_id=f"gcp:{zone}:{_INSTANCE}",
        provider="gcp",
        account="default",
        region=region,
        zone=zone,
        instance_type=_INSTANCE,
        gpu_model="h100",
        gpus_per_instance=1,
        quota_pool=f"gcp:{region}:h100",
        notice_lead_s=guaranteed_notice_s("gcp"),
    )


def _h100_prices(path: Path) -> Mapping[str, tuple[int, int]]:
    """Spot and on-demand of one GPU by region, micro-USD per hour."""
    prices = {}
    spot, on_demand = "spot_usd_per_machine_hour", "on_demand_usd_per_machine_hour"
    for where, row in read_csv(path, ("region", "machine_type", "gpus", spot, on_demand)):
        if row["machine_type"] != _MACHINE:
            continue
        gpus = count(row["gpus"], f"{where}: gpus")
        if gpus < 1:
            raise ContractError(f"{where}: gpus", f"expected a number >= 1, found {gpus}")
        prices[row["region"]] = (
            price_micro_usd(row[spot], f"{where}: {spot}") // gpus,
            price_micro_usd(row[on_demand], f"{where}: {on_demand}") // gpus,
        )
    return prices


def read_v100_prices(data: Path) -> Mapping[str, EventSeries]:
    """Read the spot prices of 2023 by zone, micro-USD; nothing where the data is not there.

    Raises
    ------
    ContractError
        The file breaks its format.
    """
    path = data / FOLDER / _V100_PRICES
    if not path.is_file():
        return {}
    events: dict[str, list[tuple[int, int]]] = {}
    name = "spot_usd_per_instance_hour"
    for where, row in read_csv(path, ("time", "zone", "instance_type", name)):
        at = time_ns(row["time"], f"{where}: time")
        price = price_micro_usd(row[name], f"{where}: {name}")
        events.setdefault(row["zone"], []).append((at, price))
    return {zone: _events(sorted(found)) for zone, found in events.items()}


def with_prices(market: Market, prices: Mapping[str, EventSeries]) -> Market:
    """Lay recorded prices over a market of one zone.

    Raises
    ------
    ContractError
        There is none of that zone.
    """
    zone = market.offerings[0].zone
    if zone not in prices:
        raise ContractError(_V100_PRICES, f"expected prices of {zone}, found none")
    held, _ = prices[zone].held_at(market.slot_starts_ns())
    return replace(market, spot_price_micro_usd=held[:, None].copy())
