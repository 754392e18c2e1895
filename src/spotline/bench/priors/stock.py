"""Priors of on-demand stock: measured on the first half of what is recorded, assumed elsewhere."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.beliefs.stock_laws import StockFamily, StockLaw, StockPriors
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR

RECORDED = "on-demand-launchability-digitalocean/do_gpu_launchable_2026-04_2026-08.csv.gz"

PLENTY = StockLaw(name="plenty", out_ppm=5_000, outage_s=S_PER_HOUR)
TIGHT = StockLaw(name="tight", out_ppm=150_000, outage_s=3 * S_PER_HOUR)

# What is likely before anything is seen: plenty, tight, scarce (all that is recorded, alike).
_FAMILIES = (
    (
        "accelerators since H100",
        ("h100", "h200", "h800", "b100", "b200", "b300", "gb200", "gb300", "gh200", "mi3"),
        (400_000, 300_000, 300_000),
    ),
    ("A100", ("a100", "a800"), (600_000, 350_000, 50_000)),
    ("others", (), (920_000, 79_000, 1_000)),
)

_ASSUMED = {
    "laws": "plenty and tight: no public series of stock of large clouds is known; 0.5 % of the time "
    "out, an hour at a time, and 15 %, three hours at a time",
    "families": "how likely each law is by GPU model: stock-outs of H100-class machines are normal "
    "(recorded at one neocloud, told of others), of A100 less so, of older ones rare",
    "gangs": "stock is there for a whole gang or for none of it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStock:
    """What the first half of one recorded series shows; seconds.

    A probe holds until the next one. `outages` are those that ended within the half.
    """

    name: str
    probes: int
    probes_used: int
    out_s: float
    there_s: float
    outages: int

    def law(self) -> StockLaw | None:
        """Its law, None where nothing ever changed."""
        if not self.outages or not self.there_s:
            return None
        share = self.out_s / (self.out_s + self.there_s)
        return StockLaw(
            name=self.name,
            out_ppm=round(share * PPM),
            outage_s=round(self.out_s / self.outages),
        )

    def as_json(self) -> dict[str, object]:
        """The series as a card states it."""
        return {
            "name": self.name,
            "probes": self.probes,
            "probes_used": [0, self.probes_used],
            "out_share": round(self.out_s / (self.out_s + self.there_s), 4),
            "outages_over": self.outages,
            "learned": self.law() is not None,
        }


def recorded_stock(data: Path) -> tuple[RecordedStock, ...]:
    """The first half, in time, of every recorded series of launchability, by name.

    Raises
    ------
    ContractError
        The file is not there, or breaks its format.
    """
    path = data / RECORDED
    if not path.is_file():
        raise ContractError("--data", f"expected a recording of stock at {path}, found none")
    probes: dict[str, list[tuple[float, bool]]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as opened:
        for line, row in enumerate(csv.DictReader(opened), start=2):
            try:
                at_s = time_ns(row["timestamp"], "timestamp") / NS_PER_S
                name = f"{row['region']} {row['sku']}"
                probes.setdefault(name, []).append((at_s, row["launchable"] == "1"))
            except (KeyError, TypeError, ValueError) as error:
                raise ContractError(f"{path} line {line}", str(error)) from error
    return tuple(_first_half(name, probes[name]) for name in sorted(probes))


def _first_half(name: str, probes: list[tuple[float, bool]]) -> RecordedStock:
    end_s = (probes[0][0] + probes[-1][0]) / 2
    used = [probe for probe in probes if probe[0] < end_s]
    out_s = there_s = 0.0
    outages = 0
    for (at_s, is_there), (until_s, then_there) in pairwise(used):
        if is_there:
            there_s += until_s - at_s
        else:
            out_s += until_s - at_s
            outages += then_there
    return RecordedStock(
        name=name,
        probes=len(probes),
        probes_used=len(used),
        out_s=out_s,
        there_s=there_s,
        outages=outages,
    )


def build_stock(data: Path, *, command: str = "") -> tuple[StockPriors, Mapping[str, Any]]:
    """Priors of on-demand stock, and their card.

    Raises
    ------
    ContractError
        What is recorded is not there, or breaks its format.
    """
    recorded = recorded_stock(data)
    scarce = [law for law in (series.law() for series in recorded) if law is not None]
    laws = (PLENTY, TIGHT, *scarce)
    families = []
    for name, models, (plenty, tight, rest) in _FAMILIES:
        each = rest // len(scarce)
        last = rest - each * (len(scarce) - 1)
        chances = (plenty, tight, *([each] * (len(scarce) - 1)), last)
        families.append(StockFamily(name=name, gpu_models=models, chances_ppm=chances))
    card = {
        "command": command,
        "file": RECORDED,
        "sha256": hashlib.sha256((data / RECORDED).read_bytes()).hexdigest(),
        "source": "github.com/vishwamitra1971/canadian-gpu-availability (MIT), DigitalOcean",
        "series": [series.as_json() for series in recorded],
        "assumed": _ASSUMED,
    }
    return StockPriors(laws=laws, families=tuple(families)), card
