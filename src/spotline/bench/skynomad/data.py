"""Files of the benchmark: counts and prices of H100, traces and prices of V100, egress.

Names of zones, times and lengths are read from the files.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from spotline.adapters.market.parse import (
    count,
    field,
    names,
    price_micro_usd,
    read_csv,
    read_json,
    time_ns,
)
from spotline.bench.skynomad.world import AlignedZones, IntArray, UpArray, tick_micro_usd
from spotline.contracts.errors import ContractError
from spotline.domain.units import MICRO_USD_PER_USD

H100_TICK_S: Final = 600
V100_ON_DEMAND_USD: Final = 3.06

_COUNTS, _H100_PRICES = "h100_counts.csv", "h100_prices.csv"
_V100_PRICES, _EGRESS = "v100_spot_prices_2023.csv", "aws_egress_usd_per_gb.csv"
# The letter ends the name of a zone, after a hyphen at Google.
_ZONE = re.compile(r"(?P<region>[a-z]+(?:-[a-z]+)+-?\d+)-?[a-z]$")
_NS_PER_S = 1_000_000_000
# More rounds than a year of them is a wrong time, not a gap.
_MOST_TICKS = 60_000


def region_of(zone: str, where: str) -> str:
    """Region of a zone's name; raises ContractError."""
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise ContractError(where, f"expected a zone such as us-east-1a, found {zone!r}")
    return match["region"]


def read_h100(directory: Path) -> AlignedZones:
    """Read counts and prices of H100: a zone is up in a tick where at least one was created.

    A round that is missing is as the last one of its zone; before the first, none was created.

    Raises
    ------
    ContractError
        A file is absent or breaks its format, or a region has no price.
    """
    path = _found(directory, _COUNTS)
    seen: dict[str, dict[int, int]] = defaultdict(dict)
    for where, row in read_csv(path, ("time_utc", "zone", "created")):
        at = time_ns(row["time_utc"], f"{where}, field time_utc")
        if at % (H100_TICK_S * _NS_PER_S):
            raise ContractError(
                f"{where}, field time_utc",
                f"expected a whole {H100_TICK_S // 60} minutes, found {row['time_utc']}",
            )
        tick = at // (H100_TICK_S * _NS_PER_S)
        if tick in seen[row["zone"]]:
            raise ContractError(where, f"expected each zone once at a time, found {row['zone']}")
        seen[row["zone"]][tick] = count(row["created"], f"{where}, field created")
    if not seen:
        raise ContractError(str(path), "expected rows of counts, found none")
    first = min(min(ticks) for ticks in seen.values())
    length = max(max(ticks) for ticks in seen.values()) + 1 - first
    if length > _MOST_TICKS:
        raise ContractError(str(path), f"expected at most {_MOST_TICKS} rounds, found {length}")
    zones = sorted(seen)
    up = np.zeros((length, len(zones)), dtype=np.uint8)
    for z, zone in enumerate(zones):
        rounds = np.array(sorted(seen[zone]), dtype=np.int64) - first
        created = np.array([seen[zone][tick] for tick in sorted(seen[zone])], dtype=np.int64)
        last = np.searchsorted(rounds, np.arange(length), side="right") - 1
        up[:, z] = np.where(last >= 0, created[np.maximum(last, 0)] >= 1, 0)
    prices = _h100_prices(_found(directory, _H100_PRICES))
    regions = [region_of(zone, str(path)) for zone in zones]
    for region in regions:
        if region not in prices:
            raise ContractError(
                f"{directory / _H100_PRICES}, field region",
                f"expected the price of {region}, found {names(sorted(prices))}",
            )
    spot = np.array([prices[region][0] for region in regions], dtype=np.int64)
    kept = tuple(dict.fromkeys(regions))
    return AlignedZones(
        zones=tuple(zones),
        regions=kept,
        region_of=np.array([kept.index(region) for region in regions], dtype=np.int64),
        up=up,
        spot_micro_usd=np.tile(spot, (length, 1)),
        on_demand_micro_usd=np.array([prices[region][1] for region in kept], dtype=np.int64),
        tick_s=H100_TICK_S,
    )


def _h100_prices(path: Path) -> dict[str, tuple[int, int]]:
    """Price of a tick by region: spot and on-demand."""
    columns = ("spot_usd_per_machine_hour", "on_demand_usd_per_machine_hour")
    prices = {}
    for where, row in read_csv(path, ("region", *columns)):
        spot, on_demand = (
            tick_micro_usd(_usd(row[column], f"{where}, field {column}"), H100_TICK_S)
            for column in columns
        )
        prices[row["region"]] = (spot, on_demand)
    return prices


def read_v100(directory: Path, traces: Path) -> AlignedZones:
    """Read V100 traces, and the prices of their zones from `directory`.

    Traces are skypilot JSON, aligned; their common length is taken.

    Raises
    ------
    ContractError
        A file is absent or breaks its format, the ticks differ, or a zone has no price.
    """
    files = sorted(traces.rglob("*.json")) if traces.is_dir() else []
    if not files:
        raise ContractError(str(traces), "expected skypilot traces (*.json), found none")
    path = _found(directory, _V100_PRICES)
    changes = _v100_prices(path)
    ups: dict[str, UpArray] = {}
    gaps: dict[int, Path] = {}
    for file in files:
        zone = file.name.split("_", maxsplit=1)[0].removesuffix(".json")
        region_of(zone, str(file))
        if zone in ups:
            raise ContractError(str(file), f"expected one trace for each zone, found {zone} again")
        if zone not in changes:
            raise ContractError(
                f"{path}, field zone", f"expected prices of {zone}, found {names(sorted(changes))}"
            )
        gap_s, ups[zone] = _trace(file)
        gaps.setdefault(gap_s, file)
    if len(gaps) > 1:
        raise ContractError(
            str(traces), f"expected one tick for all traces, found {names(map(str, gaps))} s"
        )
    return _v100_market(ups, changes, next(iter(gaps)))


def _v100_market(
    ups: Mapping[str, UpArray], changes: Mapping[str, Sequence[tuple[int, float]]], tick_s: int
) -> AlignedZones:
    zones = sorted(ups)
    length = min(len(up) for up in ups.values())
    # Traces and prices share a time line: its first tick is at the first price of any zone.
    begin = min(changes[zone][0][0] for zone in changes)
    at = begin + np.arange(length, dtype=np.int64) * tick_s * _NS_PER_S
    spot = np.zeros((length, len(zones)), dtype=np.int64)
    for z, zone in enumerate(zones):
        times = np.array([time for time, _ in changes[zone]], dtype=np.int64)
        levels = np.array([tick_micro_usd(usd, tick_s) for _, usd in changes[zone]])
        spot[:, z] = levels[np.maximum(np.searchsorted(times, at, side="right") - 1, 0)]
    regions = tuple(dict.fromkeys(region_of(zone, zone) for zone in zones))
    on_demand = tick_micro_usd(V100_ON_DEMAND_USD, tick_s)
    return AlignedZones(
        zones=tuple(zones),
        regions=regions,
        region_of=np.array([regions.index(region_of(zone, zone)) for zone in zones]),
        up=np.ascontiguousarray(np.stack([ups[zone][:length] for zone in zones], axis=1)),
        spot_micro_usd=spot,
        on_demand_micro_usd=np.full(len(regions), on_demand, dtype=np.int64),
        tick_s=tick_s,
    )


def _v100_prices(path: Path) -> dict[str, list[tuple[int, float]]]:
    """Changes of the price by zone: time, ns, and USD per hour."""
    changes: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for where, row in read_csv(path, ("time", "zone", "spot_usd_per_instance_hour")):
        at = time_ns(row["time"], f"{where}, field time")
        earlier = changes[row["zone"]]
        if earlier and earlier[-1][0] >= at:
            raise ContractError(f"{where}, field time", "expected times of a zone to ascend")
        usd = _usd(row["spot_usd_per_instance_hour"], f"{where}, field spot_usd_per_instance_hour")
        earlier.append((at, usd))
    if not changes:
        raise ContractError(str(path), "expected rows of prices, found none")
    return dict(changes)


def _trace(path: Path) -> tuple[int, UpArray]:
    """Seconds of a tick, and whether at least one instance could be had in each."""
    document = read_json(path)
    where = f"{path}, field metadata"
    gap = field(field(document, "metadata", str(path)), "gap_seconds", where)
    gap_s = count(gap, f"{where}.gap_seconds")
    if gap_s < 1:
        raise ContractError(f"{where}.gap_seconds", f"expected seconds >= 1, found {gap_s}")
    values = field(document, "data", str(path))
    if not isinstance(values, list) or not values:
        raise ContractError(f"{path}, field data", "expected a list of counts, found none")
    counts: IntArray = np.array(
        [count(value, f"{path}, field data, tick {tick}") for tick, value in enumerate(values)],
        dtype=np.int64,
    )
    return gap_s, (counts >= 1).astype(np.uint8)


def read_egress(directory: Path) -> dict[tuple[str, str], float]:
    """Read egress by pair of regions, USD per GB; raises ContractError."""
    path = _found(directory, _EGRESS)
    prices = {}
    for where, row in read_csv(path, ("from_region", "to_region", "price_usd_per_gb")):
        usd = _usd(row["price_usd_per_gb"], f"{where}, field price_usd_per_gb")
        prices[row["from_region"], row["to_region"]] = usd
    return prices


def _usd(text: str, where: str) -> float:
    return price_micro_usd(text, where) / MICRO_USD_PER_USD


def _found(directory: Path, name: str) -> Path:
    """The file of that name, or its gzip; raises ContractError."""
    for path in (directory / name, directory / f"{name}.gz"):
        if path.is_file():
            return path
    raise ContractError(str(directory), f"expected {name} or {name}.gz, found neither")
