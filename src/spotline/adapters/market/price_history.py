"""AWS spot price history: our CSV of it, or the JSON of `aws ec2 describe-spot-price-history`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from spotline.adapters.market.instance_types import aws_region
from spotline.adapters.market.parse import (
    field,
    json_value,
    price_micro_usd,
    read_csv,
    read_text,
    time_ns,
)
from spotline.adapters.market.series import EventSeries
from spotline.contracts.errors import ContractError
from spotline.domain.units import utc_iso

Key = tuple[str, str]  # instance type, zone
_Event = tuple[int, int]  # time in ns, price in micro-USD

_CSV_COLUMNS = ("timestamp", "availability_zone", "instance_type", "spot_price_usd_per_hour")
_LINUX = "Linux/UNIX"


def read_price_history(paths: Sequence[Path]) -> Mapping[Key, EventSeries]:
    """Read price events of every (instance type, zone), Linux only, files merged.

    CSV files must be in time order per series; the JSON of AWS comes newest first and is sorted.

    Raises
    ------
    ContractError
        A file, row or field breaks the format, a price of a CSV goes back in time, or no Linux
        price is in the files.
    """
    events: dict[Key, list[_Event]] = {}
    for path in paths:
        text = read_text(path)
        in_file: dict[Key, list[_Event]] = {}
        if text.lstrip().startswith(("{", "[")):
            rows = _json_events(text, path)
        else:
            rows = _in_time_order(_csv_events(path))
        for key, event in rows:
            in_file.setdefault(key, []).append(event)
        for key, found in in_file.items():
            events.setdefault(key, []).extend(found)
    if not events:
        raise ContractError(
            ", ".join(str(path) for path in paths), f"expected {_LINUX} prices, found none"
        )
    return {key: _series(found) for key, found in sorted(events.items())}


def choose_series(
    history: Mapping[Key, EventSeries], instance_type: str, zone: str
) -> tuple[str, EventSeries]:
    """Choose the price series for a zone: its own, else one of its region, else any.

    Series of a single event say nothing about change and are passed over while others exist.

    Returns
    -------
    tuple
        The zone whose prices were chosen, and its series.

    Raises
    ------
    ContractError
        The history has no price of that instance type.
    """
    zones = [z for kind, z in history if kind == instance_type]
    if not zones:
        kinds = ", ".join(sorted({kind for kind, _ in history}))
        raise ContractError(
            "--instance-type",
            f"expected a type in the price history ({kinds}), found {instance_type}",
        )
    moving = [z for z in zones if len(history[instance_type, z].values) > 1] or zones

    def distance(candidate: str) -> tuple[bool, bool, str]:
        return candidate != zone, aws_region(candidate) != aws_region(zone), candidate

    chosen = min(moving, key=distance)
    return chosen, history[instance_type, chosen]


def _csv_events(path: Path) -> Iterator[tuple[str, Key, _Event]]:
    for where, row in read_csv(path, _CSV_COLUMNS):
        if not row.get("product", _LINUX).startswith(_LINUX):
            continue
        key = (row["instance_type"], row["availability_zone"])
        _require(key, where)
        event = (
            time_ns(row["timestamp"], f"{where}, field timestamp"),
            price_micro_usd(
                row["spot_price_usd_per_hour"], f"{where}, field spot_price_usd_per_hour"
            ),
        )
        yield where, key, event


def _in_time_order(
    rows: Iterable[tuple[str, Key, _Event]],
) -> Iterator[tuple[Key, _Event]]:
    latest: dict[Key, int] = {}
    for where, key, event in rows:
        if event[0] < latest.get(key, event[0]):
            raise ContractError(
                f"{where}, field timestamp",
                f"expected a time >= {utc_iso(latest[key])}, the price before of {key[0]} in "
                f"{key[1]}, found {utc_iso(event[0])}: a quote must not go back in time",
            )
        latest[key] = event[0]
        yield key, event


def _json_events(text: str, path: Path) -> Iterator[tuple[Key, _Event]]:
    document = json_value(text, str(path))
    listed = document
    if not isinstance(document, list):
        listed = field(document, "SpotPriceHistory", str(path))
    if not isinstance(listed, list):
        raise ContractError(f"{path}: SpotPriceHistory", "expected a list")
    for number, entry in enumerate(listed, start=1):
        where = f"{path}: entry {number}"
        if not str(field(entry, "ProductDescription", where)).startswith(_LINUX):
            continue
        key = (
            str(field(entry, "InstanceType", where)),
            str(field(entry, "AvailabilityZone", where)),
        )
        _require(key, where)
        event = (
            time_ns(field(entry, "Timestamp", where), f"{where}, field Timestamp"),
            price_micro_usd(field(entry, "SpotPrice", where), f"{where}, field SpotPrice"),
        )
        yield key, event


def _require(key: Key, where: str) -> None:
    if not all(key):
        raise ContractError(where, f"expected an instance type and a zone, found {key}")


def _series(events: list[_Event]) -> EventSeries:
    events.sort(key=lambda event: event[0])  # stable: the last of equal times counts
    array = np.array(events, dtype=np.int64)
    return EventSeries(ts_ns=array[:, 0].copy(), values=array[:, 1].copy())
