"""SkyPilot spot traces: counts at a fixed gap, one JSON file per zone, no prices, no start time."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from spotline.adapters.market.instance_types import (
    INSTANCE_TYPES,
    aws_offering,
    in_place,
    on_demand_micro_usd,
)
from spotline.adapters.market.options import Importer, ImportOptions
from spotline.adapters.market.parse import count, field, read_json, shown
from spotline.adapters.market.price_history import Key, choose_series, read_price_history
from spotline.adapters.market.series import EventSeries, OfferingSeries, assemble
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Provenance
from spotline.domain.units import NS_PER_S, micro_usd_from_usd, utc_iso

_FILE_NAME = re.compile(r"(?P<zone>[a-z0-9-]+)_(?P<gpu>[a-z0-9]+)_(?P<gpus>\d+)\.json(\.gz)?")
_EXPECTED_NAME = "expected a file name ZONE_GPU_GPUS.json such as us-east-2b_v100_1.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trace:
    path: Path
    zone: str
    gpu_model: str
    gpus: int
    gap_s: int
    counts: list[int]

    @property
    def instance_type(self) -> str | None:
        """The AWS type with these GPUs."""
        for name, kind in INSTANCE_TYPES.items():
            if (kind.gpu_model, kind.gpus) == (self.gpu_model, self.gpus):
                return name
        return None


def read_skypilot(files: Sequence[Path], options: ImportOptions) -> Market:
    """Read the traces of one set, cut to their common length, under given or paired prices.

    Raises
    ------
    ContractError
        `price` or `start_ns` is missing, or a file breaks the format.
    """
    if options.start_ns is None:
        raise ContractError(
            "--start",
            "expected the time of the first tick such as 2023-08-27T00:00:00Z, found nothing: "
            "the traces hold none",
        )
    if options.price is None:
        raise ContractError(
            "--price",
            "expected USD per instance-hour or a spot price history file, found nothing: "
            "the traces hold none",
        )
    traces = _traces(files, options.zones)
    gap_s = traces[0].gap_s
    for trace in traces:
        if trace.gap_s != gap_s:
            raise ContractError(
                f"{trace.path}: metadata.gap_seconds",
                f"expected {gap_s} as in {traces[0].path.name}, found {trace.gap_s}: "
                "files of one set share their gap",
            )
    ticks = min(len(trace.counts) for trace in traces)
    history = read_price_history([options.price]) if isinstance(options.price, Path) else {}
    end_ns = options.start_ns + ticks * gap_s * NS_PER_S
    notes = [
        f"skypilot: {', '.join(trace.path.name for trace in traces)}, "
        f"{ticks} ticks of {gap_s} s, start given"
    ]
    series = []
    for trace in traces:
        instance_type = options.instance_type or trace.instance_type
        if instance_type is None:
            raise ContractError(
                "--instance-type",
                f"expected a type with {trace.gpus} x {trace.gpu_model} ({trace.path.name}), "
                "found none",
            )
        spot_price, note = _price(options, history, instance_type, trace.zone)
        notes.append(note)
        tick_ns = options.start_ns + np.arange(ticks, dtype=np.int64) * (gap_s * NS_PER_S)
        series.append(
            OfferingSeries(
                offering=aws_offering(trace.zone, instance_type, trace.gpu_model, trace.gpus),
                on_demand_price_micro_usd=on_demand_micro_usd(
                    trace.zone, instance_type, options.on_demand_usd
                ),
                spot_price=spot_price,
                spot_available=EventSeries(
                    ts_ns=tick_ns, values=np.array(trace.counts[:ticks], dtype=np.int64)
                ),
                spot_provenance=Provenance.OBSERVED,
            )
        )
    return assemble(
        series,
        start_ns=options.start_ns,
        end_ns=end_ns,
        slot_s=options.slot_s or gap_s,
        source="; ".join(dict.fromkeys(notes)),
    )


IMPORTER = Importer(
    name="skypilot",
    description="SkyPilot spot traces (JSON): counts, without prices or start time",
    read=read_skypilot,
    accepts=frozenset({"price", "on_demand_usd", "start_ns", "instance_type", "slot_s", "zones"}),
)


def _traces(files: Sequence[Path], zones: tuple[str, ...]) -> list[_Trace]:
    traces = [_trace(path) for path in files]
    kept = [trace for trace in traces if in_place(trace.zone, zones)]
    if not kept:
        found = ", ".join(trace.zone for trace in traces)
        raise ContractError("--zone", f"expected zones or regions of {found}")
    kept.sort(key=lambda trace: (trace.zone, trace.gpu_model, trace.gpus))
    for first, other in itertools.pairwise(kept):
        if (first.zone, first.gpu_model, first.gpus) == (other.zone, other.gpu_model, other.gpus):
            raise ContractError(str(other.path), f"expected each zone once, found {first.path} too")
    return kept


def _trace(path: Path) -> _Trace:
    name = _FILE_NAME.fullmatch(path.name)
    if name is None:
        raise ContractError(str(path), f"{_EXPECTED_NAME}, found {shown(path.name)}")
    document = read_json(path)
    gap = field(field(document, "metadata", str(path)), "gap_seconds", f"{path}: metadata")
    gap_s = count(gap, f"{path}: metadata.gap_seconds")
    values = field(document, "data", str(path))
    if gap_s < 1:
        raise ContractError(
            f"{path}: metadata.gap_seconds", f"expected seconds >= 1, found {gap_s}"
        )
    if not isinstance(values, list) or not values:
        found = "none" if values == [] else shown(values)
        raise ContractError(
            f"{path}: field data", f"expected a list of at least one count, found {found}"
        )
    return _Trace(
        path=path,
        zone=name["zone"],
        gpu_model=name["gpu"],
        gpus=int(name["gpus"]),
        gap_s=gap_s,
        counts=[
            count(value, f"{path}: tick {tick}, field data") for tick, value in enumerate(values)
        ],
    )


def _price(
    options: ImportOptions, history: Mapping[Key, EventSeries], instance_type: str, zone: str
) -> tuple[EventSeries, str]:
    """Spot price under a trace, and what to say about its origin."""
    start_ns = options.start_ns
    price = options.price
    if start_ns is None or price is None:
        raise ValueError("a start and a price are needed")
    if isinstance(price, Decimal):
        constant = EventSeries(
            ts_ns=np.array([start_ns], dtype=np.int64),
            values=np.array([micro_usd_from_usd(price)], dtype=np.int64),
        )
        return constant, f"spot price constant at {price} USD per instance-hour"
    priced_zone, series = choose_series(history, instance_type, zone)
    note = f"{zone} paired with {instance_type} spot prices of {priced_zone} ({price.name})"
    first_ns, last_ns = int(series.ts_ns[0]), int(series.ts_ns[-1])
    if not first_ns <= start_ns <= last_ns:
        series = series.shifted(start_ns - first_ns)
        note += f", synthetic pairing: prices of {utc_iso(first_ns)} laid from the start on"
    elif priced_zone != zone:
        note += ", synthetic pairing"
    return series, note
