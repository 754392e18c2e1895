"""What priors are learned from: the first part of public traces, with every file and row named."""

from __future__ import annotations

import csv
import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.market.prior_laws import SLOT_S
from spotline.domain.units import NS_PER_S

IntArray = npt.NDArray[np.int64]

_SKYPILOT = "spot-traces-skypilot"
_NEOCLOUD = "gpu-market-prime-intellect"
_H100 = "spot-skynomad/h100_counts.csv.gz"
_ANY_START_NS = 0
_ANY_PRICE = Decimal(1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriorSource:
    """One offering's spot counts over the slots that priors may learn from.

    `counts` has shape (slots used,). `rows_used` are the first and one past the last slot of the
    whole series that were read, of `rows` there are; `file` is relative to the data's folder.
    """

    name: str
    kind: str
    region: str
    file: str
    sha256: str
    counts: IntArray
    rows: int

    @property
    def rows_used(self) -> tuple[int, int]:
        """First and one past the last slot used."""
        return 0, len(self.counts)

    def as_json(self) -> dict[str, object]:
        """The source as a card states it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "region": self.region,
            "file": self.file,
            "sha256": self.sha256,
            "slot_s": SLOT_S,
            "slots_used": list(self.rows_used),
            "slots": self.rows,
        }


def prior_sources(data: Path) -> tuple[PriorSource, ...]:
    """Read the first half of every series that priors are learned from, in the order of their names.

    Raises
    ------
    ContractError
        A file breaks its format, or there is none at all.
    """
    found = [*_skypilot(data), *_neocloud(data), *_h100(data)]
    if not found:
        raise ContractError("--data", f"expected recorded markets in {data}, found none")
    return tuple(sorted(found, key=lambda source: (source.kind, source.name)))


def region_of(zone: str) -> str:
    """The region of a zone of AWS or Google Cloud: all but its last letter."""
    return zone.rstrip("abcdefghijklmnopqrstuvwxyz").rstrip("-") if "-" in zone else zone


def _source(
    data: Path, path: Path, name: str, kind: str, region: str, counts: IntArray
) -> PriorSource:
    half = len(counts) // 2
    return PriorSource(
        name=name,
        kind=kind,
        region=region,
        file=str(path.relative_to(data)),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        counts=counts[:half],
        rows=len(counts),
    )


def _skypilot(data: Path) -> Iterator[PriorSource]:
    root = data / _SKYPILOT
    kinds = {
        "availability/16-node": "cloud gang",
        "preemption/4-node": "cloud gang",
        "availability/1-node": "cloud single",
    }
    options = ImportOptions(price=_ANY_PRICE, start_ns=_ANY_START_NS, slot_s=SLOT_S)
    for folder, kind in kinds.items():
        for path in sorted((root / folder).glob("*/*.json*")):
            market = import_market("skypilot", [path], options)
            zone = market.offerings[0].zone
            name = f"{folder}/{path.parent.name}/{zone}"
            counts = market.spot_available[:, 0]
            yield _source(data, path, name, kind, region_of(zone), counts)


def _neocloud(data: Path) -> Iterator[PriorSource]:
    for path in sorted((data / _NEOCLOUD).glob("*.jsonl.gz")):
        market = import_market("prime-intellect", [path], ImportOptions(slot_s=SLOT_S))
        gpu = market.offerings[0].gpu_model
        counts = market.spot_available[:, 0]
        yield _source(data, path, gpu, "neocloud", gpu, counts)


def _h100(data: Path) -> Iterator[PriorSource]:
    path = data / _H100
    if not path.is_file():
        return
    seen: dict[str, dict[int, int]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as opened:
        for line, row in enumerate(csv.DictReader(opened), start=2):
            try:
                at_s = time_ns(row["time_utc"], "time_utc") // NS_PER_S
                seen.setdefault(row["zone"], {})[at_s // SLOT_S] = int(row["created"])
            except (KeyError, TypeError, ValueError) as error:
                raise ContractError(f"{path} line {line}", str(error)) from error
    for zone in sorted(seen):
        counts, slots = [], seen[zone]
        last = 0
        # A round that is missing tells nothing: what was there last stays.
        for slot in range(min(slots), max(slots) + 1):
            last = slots.get(slot, last)
            counts.append(last)
        series = np.array(counts, dtype=np.int64)
        yield _source(data, path, zone, "H100 counts", region_of(zone), series)
