"""Count how often price sanity and the age limit doubt quotes of real markets.

    python tools/measure_price_sanity.py [DATA]

DATA is the folder of shared traces (docs/adr/0040-prices-that-are-not-believed.md); by default
SPOTLINE_DATA. Each family is shown in two halves of time. The bounds on prices were asked for or taken
from all of GCP's list prices; the limits on age were raised after both halves had been seen, so these
figures are no proof on unseen data. Nothing of the data is kept.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np

from spotline.adapters.market.importers.gcp_gpu_weekly import GCP_GPU_FILE, read_gcp_gpu_prices
from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.domain.limits.market_doubts import DoubtRules, MarketDoubts
from spotline.domain.limits.price_sanity import SanityRule
from spotline.domain.limits.quote_age import AgeRule
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S

_DAY_S = 24 * 3600
_GCP_GPUS = {"a2-highgpu-1g": 1, "a2-ultragpu-1g": 1, "a3-highgpu-8g": 8, "g2-standard-8": 1}


@dataclass(slots=True)
class Half:
    """Counts of one half of a market."""

    quotes: int = 0
    doubted: int = 0
    stale: int = 0
    episodes: int = 0


def count(market: Market) -> tuple[Half, Half]:
    """Judge every quote of a market, slot by slot."""
    doubts = MarketDoubts(DoubtRules(price=SanityRule(), age=AgeRule()))
    halves = (Half(), Half())
    troubled: set[tuple[str, str]] = set()
    starts_ns = market.slot_starts_ns()
    for slot in range(market.slots):
        at_ns = int(starts_ns[slot])
        found = doubts.judge(market.offerings, market.quotes(slot), at_ns, market.slot_s)
        half = halves[2 * slot >= market.slots]
        for each in found:
            half.quotes += 1
            half.doubted += bool(each.judged.doubts)
            half.stale += bool(each.stale_after_s)
            for name, there in (("price", each.judged.doubts), ("age", each.stale_after_s)):
                key = (each.offering.offering_id, name)
                half.episodes += bool(there) and key not in troubled
                (troubled.add if there else troubled.discard)(key)
            for doubt in each.judged.doubts:
                doubts.note_doubt(each.judged.said, doubt.field.value)
        doubts.note_slot([each.judged.stands for each in found], at_ns)
    return halves


def markets(data: Path) -> Iterator[tuple[str, Market]]:
    """The markets of each family, with its name."""
    for file in sorted((data / "gpu-market-prime-intellect").glob("*.jsonl.gz")):
        configs = ("1x",) if file.name.startswith("GH200") else ("1x", "8x")
        for config in configs:
            options = ImportOptions(instance_type=config)
            yield "prime-intellect", import_market("prime-intellect", [file], options)
    aws = data / "spot-price-aws-gpu-2020/aws_spot_price_2019-12-20_2020-03-23.csv.gz"
    for zone in ("us-east-1", "us-east-2", "us-west-2"):
        options = ImportOptions(zones=(zone,), slot_s=1800)
        yield "aws 2020", import_market("aws-spot-price-history", [aws], options)
    yield "aws 2023", v100_of_2023(data / "spot-skynomad/v100_spot_prices_2023.csv.gz")
    for machine_type, gpus in _GCP_GPUS.items():
        yield "gcp weekly", gcp(data / GCP_GPU_FILE, machine_type, gpus)


def v100_of_2023(file: Path) -> Market:
    """Price changes of nine zones, held in between, as AWS tells them; p3.2xlarge costs 3.06."""
    import csv
    import gzip
    from datetime import datetime

    changes: dict[str, list[tuple[int, int]]] = {}
    with gzip.open(file, "rt", encoding="utf-8") as text:
        for row in csv.DictReader(text):
            at_ns = int(datetime.fromisoformat(row["time"]).timestamp()) * NS_PER_S
            micro_usd = int(Decimal(row["spot_usd_per_instance_hour"]) * MICRO_USD_PER_USD)
            changes.setdefault(row["zone"], []).append((at_ns, micro_usd))
    return held(changes, {zone: [(0, 3_060_000)] for zone in changes}, gpus=1, slot_s=1800)


def gcp(file: Path, machine_type: str, gpus: int) -> Market:
    """List prices of each region, held until the next observation."""
    spot: dict[str, list[tuple[int, int]]] = {}
    on_demand: dict[str, list[tuple[int, int]]] = {}
    for region, prices in read_gcp_gpu_prices(file, machine_type).items():
        times = prices.ts_ns.tolist()
        for into, usd in (
            (spot, prices.spot_usd_per_hour),
            (on_demand, prices.on_demand_usd_per_hour),
        ):
            micro = np.rint(usd * MICRO_USD_PER_USD).astype(np.int64).tolist()
            into[region] = list(zip(times, micro, strict=True))
    return held(spot, on_demand, gpus=gpus, slot_s=_DAY_S)


def held(
    spot: dict[str, list[tuple[int, int]]],
    on_demand: dict[str, list[tuple[int, int]]],
    *,
    gpus: int,
    slot_s: int,
) -> Market:
    """A market of prices that hold until the next change, by place: (ns, micro-USD) in order."""
    names = sorted(spot)
    start_ns = max(spot[name][0][0] for name in names)
    end_ns = max(spot[name][-1][0] for name in names)
    slots = (end_ns - start_ns) // (slot_s * NS_PER_S) + 1
    template = generate("mixed", seed=0, slots=slots, slot_s=slot_s, start_ns=start_ns)
    at_ns = template.slot_starts_ns()

    def column(series: list[tuple[int, int]], part: int) -> np.ndarray:
        times = np.array([when for when, _ in series])
        values = np.array([pair[part] for pair in series], dtype=np.int64)
        return values[np.searchsorted(times, at_ns, side="right") - 1]

    def table(series: dict[str, list[tuple[int, int]]], part: int) -> np.ndarray:
        return np.stack([column(series[name], part) for name in names], axis=1)

    zeros = np.zeros((slots, len(names)), dtype=np.int64)
    first = template.offerings[0]
    return replace(
        template,
        offerings=tuple(
            replace(first, offering_id=name, zone=name, gpus_per_instance=gpus) for name in names
        ),
        spot_price_micro_usd=table(spot, 1),
        on_demand_price_micro_usd=table(on_demand, 1),
        spot_available=zeros,
        spot_provenance=zeros + 2,
        on_demand_available=zeros.copy(),
        on_demand_provenance=zeros + 2,
        quoted_ns=table(spot, 0),
        source="held prices",
    )


def main() -> int:
    """Print a row per family and half."""
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("SPOTLINE_DATA", "")
    if not given or not Path(given).is_dir():
        print("expected the folder of traces, or SPOTLINE_DATA", file=sys.stderr)
        return 2
    totals: dict[tuple[str, int], Half] = {}
    for family, market in markets(Path(given)):
        for place, half in enumerate(count(market)):
            total = totals.setdefault((family, place), Half())
            total.quotes += half.quotes
            total.doubted += half.doubted
            total.stale += half.stale
            total.episodes += half.episodes
    print("family | half | quotes | price doubted | too old | freezes")
    for (family, place), half in totals.items():
        print(
            f"{family} | {place + 1} | {half.quotes:,} | {half.doubted:,} | {half.stale:,} | "
            f"{half.episodes:,}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
