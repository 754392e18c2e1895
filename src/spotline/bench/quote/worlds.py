"""The markets that quotes are tried on: generated ones, and recorded ones."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import numpy as np

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.market.generate import generate
from spotline.domain.market.market import OBSERVED, UNKNOWN, IntArray, Market
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S, micro_usd_from_usd

SLOT_S = 1800
_GENERATED_SLOTS = 336
# Of longer recorded series the first eight days: to forecast them slot by slot takes long.
_MOST_SLOTS = 384
_PRESETS = ("mixed", "cloud-gang", "cloud-zones", "neocloud")

_SKYNOMAD = "spot-skynomad"
_SKYPILOT = "spot-traces-skypilot/availability"
_AWS_PRICES = "spot-price-aws-gpu-2020/aws_spot_price_2019-12-20_2020-03-23.csv.gz"
_V100_START = "2023-02-15T22:08:16Z"
_V100_ON_DEMAND_USD = Decimal("3.06")
_GANGS_START = "2023-08-27T00:00:00Z"
_H100_PER_MACHINE = 8
_PLENTY = 64

WORLD_NAMES = (*_PRESETS, "skynomad-h100", "aws-v100-2023", "aws-gangs-2020-prices")


# Jobs of one world share its weather: generated ones come in several.
_GENERATED_WORLDS = 2


def worlds_of(name: str) -> int:
    """How many worlds of a name there are, by seed."""
    return _GENERATED_WORLDS if name in _PRESETS else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A market under a name; `recorded` says where its figures come from."""

    name: str
    market: Market
    recorded: str


def load_world(name: str, data: Path, seed: int) -> World | None:
    """Read or generate a world; None where its recorded data is absent.

    Raises
    ------
    ContractError
        No world has this name, or a file breaks its format.
    """
    if name in _PRESETS:
        market = generate(name, seed=seed, slots=_GENERATED_SLOTS, slot_s=SLOT_S, start_ns=0)
        return World(name=name, market=market, recorded=f"generated, seed {seed}")
    if name not in _RECORDED:
        raise ContractError("--market", f"expected one of {', '.join(WORLD_NAMES)}, found {name!r}")
    recorded, read = _RECORDED[name]
    found = read(data)
    if found is None:
        return None
    if found.slots > _MOST_SLOTS:
        found = found.between(0, _MOST_SLOTS)
    return World(name=name, market=found, recorded=recorded)


# --- H100 counts in nine zones ----------------------------------------------------------------


def _h100(data: Path) -> Market | None:
    counts, prices = data / _SKYNOMAD / "h100_counts.csv.gz", data / _SKYNOMAD / "h100_prices.csv"
    if not counts.is_file() or not prices.is_file():
        return None
    with gzip.open(counts, "rt", encoding="utf-8") as lines:
        seen: dict[str, dict[int, int]] = {}
        for row in csv.DictReader(lines):
            at = time_ns(row["time_utc"], str(counts)) // NS_PER_S
            seen.setdefault(row["zone"], {})[at] = int(row["created"])
    with prices.open(encoding="utf-8") as lines:
        by_region = {row["region"]: row for row in csv.DictReader(lines)}
    start_s = min(min(row) for row in seen.values()) // SLOT_S * SLOT_S + SLOT_S
    end_s = max(max(row) for row in seen.values())
    opens = range(start_s, end_s - SLOT_S, SLOT_S)
    zones = sorted(seen)
    spot = np.array([[_last(seen[zone], at) for zone in zones] for at in opens], dtype=np.int64)
    quoted = [by_region[zone.rpartition("-")[0]] for zone in zones]

    def usd(column: str) -> list[int]:
        return [
            micro_usd_from_usd(float(Decimal(row[column]) / _H100_PER_MACHINE)) for row in quoted
        ]

    return _market(
        tuple(_offering("gcp", zone, "a3-highgpu-1g", "H100") for zone in zones),
        start_ns=start_s * NS_PER_S,
        spot=spot,
        spot_price=np.tile(np.array(usd("spot_usd_per_machine_hour")), (len(spot), 1)),
        on_demand_price=usd("on_demand_usd_per_machine_hour"),
        source="SkyNomad H100 probes, October 2025",
    )


def _last(row: Mapping[int, int], at_s: int) -> int:
    """The last count up to a moment; the first where none was before."""
    before = [at for at in row if at <= at_s]
    return row[max(before)] if before else row[min(row)]


# --- V100 in nine zones, availability and prices of the same days ------------------------------


def _v100(data: Path) -> Market | None:
    prices = data / _SKYNOMAD / "v100_spot_prices_2023.csv.gz"
    traces = sorted((data / _SKYPILOT / "1-node").glob("*/*.json*"))
    if not prices.is_file() or not traces:
        return None
    options = ImportOptions(
        price=Decimal("0.918"), start_ns=time_ns(_V100_START, str(prices)), slot_s=SLOT_S
    )
    market = side_by_side([import_market("skypilot", [path], options) for path in traces])
    changes: dict[str, list[tuple[int, int]]] = {}
    with gzip.open(prices, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            at = _moment_ns(row["time"])
            usd = float(row["spot_usd_per_instance_hour"])
            changes.setdefault(row["zone"], []).append((at, micro_usd_from_usd(usd)))
    opens = market.slot_starts_ns()
    columns = []
    for offering in market.offerings:
        known = sorted(changes[offering.zone])
        moments = np.array([moment for moment, _ in known], dtype=np.int64)
        before = np.searchsorted(moments, opens, side="right") - 1
        columns.append(np.array([usd for _, usd in known])[np.maximum(0, before)])
    on_demand = np.full_like(market.on_demand_price_micro_usd, int(_V100_ON_DEMAND_USD * 1_000_000))
    return replace(
        market,
        spot_price_micro_usd=np.stack(columns, axis=1).astype(np.int64),
        on_demand_price_micro_usd=on_demand,
    )


def _moment_ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * NS_PER_S


def _gangs(data: Path) -> Market | None:
    traces = sorted((data / _SKYPILOT / "16-node").glob("*/*.json*"))
    if not traces or not (data / _AWS_PRICES).is_file():
        return None
    options = ImportOptions(
        price=data / _AWS_PRICES, start_ns=time_ns(_GANGS_START, "16-node"), slot_s=SLOT_S
    )
    return side_by_side([import_market("skypilot", [path], options) for path in traces])


def side_by_side(markets: Sequence[Market]) -> Market:
    """Markets that begin together as one, cut to the shortest."""
    slots = min(market.slots for market in markets)
    cut = [market.between(0, slots) for market in markets]

    def joined(name: str) -> IntArray:
        return np.concatenate([getattr(market, name) for market in cut], axis=1)

    return replace(
        cut[0],
        offerings=tuple(offering for market in cut for offering in market.offerings),
        spot_price_micro_usd=joined("spot_price_micro_usd"),
        on_demand_price_micro_usd=joined("on_demand_price_micro_usd"),
        spot_available=joined("spot_available"),
        spot_provenance=joined("spot_provenance"),
        on_demand_available=joined("on_demand_available"),
        on_demand_provenance=joined("on_demand_provenance"),
        quoted_ns=joined("quoted_ns"),
    )


def _offering(provider: str, zone: str, instance_type: str, gpu_model: str) -> Offering:
    return Offering(
        offering_id=f"{provider}:{zone}:{instance_type}",
        provider=provider,
        account="recorded",
        region=zone.rpartition("-")[0],
        zone=zone,
        instance_type=instance_type,
        gpu_model=gpu_model,
        gpus_per_instance=1,
        quota_pool=f"{provider}:{zone}",
        notice_lead_s=30,
    )


def _market(
    offerings: tuple[Offering, ...],
    *,
    start_ns: int,
    spot: IntArray,
    spot_price: IntArray,
    on_demand_price: Sequence[int],
    source: str,
) -> Market:
    slots, columns = spot.shape
    opens = start_ns + np.arange(slots, dtype=np.int64) * SLOT_S * NS_PER_S
    return Market(
        offerings=offerings,
        slot_s=SLOT_S,
        start_ns=start_ns,
        source=source,
        spot_price_micro_usd=spot_price.astype(np.int64),
        on_demand_price_micro_usd=np.tile(np.array(on_demand_price, dtype=np.int64), (slots, 1)),
        spot_available=spot,
        spot_provenance=np.full((slots, columns), OBSERVED, dtype=np.int64),
        on_demand_available=np.full((slots, columns), _PLENTY, dtype=np.int64),
        on_demand_provenance=np.full((slots, columns), UNKNOWN, dtype=np.int64),
        quoted_ns=np.tile(opens[:, None], (1, columns)),
    )


_RECORDED: Mapping[str, tuple[str, Callable[[Path], Market | None]]] = MappingProxyType(
    {
        "skynomad-h100": ("H100 counts in nine GCP zones, list prices, a week of 2025", _h100),
        "aws-v100-2023": ("AWS V100 in nine zones, availability and prices of 2023", _v100),
        "aws-gangs-2020-prices": (
            "AWS V100 gangs of 16 of 2023; spot prices of 2020 laid over them, a synthetic pairing",
            _gangs,
        ),
    }
)
