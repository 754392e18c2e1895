"""The market file: one Parquet table in long form, byte-identical for the same market.

The format is described in docs/market-format.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from spotline.adapters.market.columns import PROVENANCE_NAMES, LongColumns, market_from_columns
from spotline.adapters.market.parse import (
    check_offering_id,
    field,
    json_value,
    names,
    refusal_of,
    shown,
)
from spotline.adapters.whole_file import replacing
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.notice import guaranteed_notice_s
from spotline.domain.market.offering import BillingRules, Disks, Offering, Reservation

FORMAT_VERSION = 1
METADATA_KEY = "spotline.market"

SPOT_PRICE = "spot_price_micro_usd_per_instance_hour"
ON_DEMAND_PRICE = "on_demand_price_micro_usd_per_instance_hour"

# Column -> kind; the order is the order in the file.
COLUMNS: Mapping[str, str] = {
    "slot_start": "time",
    "offering_id": "text",
    SPOT_PRICE: "integer",
    ON_DEMAND_PRICE: "integer",
    "spot_available": "integer",
    "spot_available_provenance": "text",
    "on_demand_available": "integer",
    "on_demand_available_provenance": "text",
    "quoted_at": "time",
}
_EXPECTED = {
    "time": "timestamps with time zone UTC",
    "text": "strings",
    "integer": "integers",
}
# Slots times offerings: 20 zones over ten years of slots of 10 minutes.
MOST_ROWS = 10_000_000
_ROWS_PER_GROUP = 1 << 16
# Fields of an offering that older files do not have.
_MAY_BE_LEFT_OUT = ("notice_lead_s", "reservation", "billing", "disks")
_NESTED: Mapping[str, type[Reservation] | type[BillingRules] | type[Disks]] = {
    "reservation": Reservation,
    "billing": BillingRules,
    "disks": Disks,
}
# Files of before, and reservations of their own, do not have them.
_OF_PLANS: Mapping[str, type[str] | type[int]] = {"plan": str, "plan_micro_usd_per_hour": int}
_KIND_NAMES = {int: "a whole number", str: "text"}
_INTEGERS = ("gpus_per_instance", "notice_lead_s")


def write_market(market: Market, path: Path) -> None:
    """Write `market` to `path`, replacing it whole or not at all.

    Raises
    ------
    OSError
        The folder is absent or not writable.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    width = len(market.offerings)
    starts_ns = np.repeat(market.slot_starts_ns(), width)
    kinds = np.array(PROVENANCE_NAMES)
    time_type = pa.timestamp("ns", tz="UTC")
    ids = [offering.offering_id for offering in market.offerings]
    arrays = {
        "slot_start": pa.array(starts_ns, pa.int64()).cast(time_type),
        "offering_id": pa.array(ids * market.slots, pa.string()),
        SPOT_PRICE: pa.array(market.spot_price_micro_usd.ravel()),
        ON_DEMAND_PRICE: pa.array(market.on_demand_price_micro_usd.ravel()),
        "spot_available": pa.array(market.spot_available.ravel()),
        "spot_available_provenance": pa.array(kinds[market.spot_provenance.ravel()], pa.string()),
        "on_demand_available": pa.array(market.on_demand_available.ravel()),
        "on_demand_available_provenance": pa.array(
            kinds[market.on_demand_provenance.ravel()], pa.string()
        ),
        "quoted_at": pa.array(market.quoted_ns.ravel(), pa.int64()).cast(time_type),
    }
    header = {
        "format_version": FORMAT_VERSION,
        "slot_s": market.slot_s,
        "source": market.source,
        "offerings": [_stated(offering) for offering in market.offerings],
    }
    table = pa.table(arrays).replace_schema_metadata(
        {METADATA_KEY: json.dumps(header, sort_keys=True, separators=(",", ":"))}
    )
    with replacing(path) as unfinished:
        pq.write_table(table, unfinished, compression="zstd", row_group_size=_ROWS_PER_GROUP)


def _stated(offering: Offering) -> dict[str, Any]:
    """An offering's fields, less what may be left out and is not stated."""
    stated = {
        name: value
        for name, value in asdict(offering).items()
        if name not in _MAY_BE_LEFT_OUT or value is not None
    }
    if offering.reservation is not None and not offering.reservation.plan:
        held = stated["reservation"]
        stated["reservation"] = {name: held[name] for name in held if name not in _OF_PLANS}
    return stated


def read_market(path: Path) -> Market:
    """Read a market file and check every row of it.

    Raises
    ------
    ContractError
        The file is absent, truncated or not Parquet, a column is missing or of another unit, or a
        row breaks the format; file, row (from 1) and field are named.
    """
    table = _read_table(path)
    header = _header(table.schema.metadata, path)
    _check_columns(table, path)
    values = {name: _values(table, name, kind, path) for name, kind in COLUMNS.items()}
    columns = LongColumns(
        slot_start_ns=values["slot_start"],
        offering_id=values["offering_id"],
        spot_price_micro_usd=values[SPOT_PRICE],
        on_demand_price_micro_usd=values[ON_DEMAND_PRICE],
        spot_available=values["spot_available"],
        spot_available_provenance=values["spot_available_provenance"],
        on_demand_available=values["on_demand_available"],
        on_demand_available_provenance=values["on_demand_available_provenance"],
        quoted_ns=values["quoted_at"],
    )
    return market_from_columns(
        columns,
        offerings=_offerings(header, path),
        slot_s=_slot_s(header, path),
        source=str(field(header, "source", f"{path}: metadata {METADATA_KEY}")),
        locate=lambda row: f"{path}: row {row + 1}",
        price_names=(SPOT_PRICE, ON_DEMAND_PRICE),
    )


def _read_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        found = (
            "no such file" if not path.exists() else "a directory" if path.is_dir() else "no file"
        )
        raise ContractError(str(path), f"expected a market file (Parquet), found {found}")
    try:
        with path.open("rb") as stream:
            file = pq.ParquetFile(stream)
            # A few bytes may unpack to any number of rows.
            if file.metadata.num_rows > MOST_ROWS:
                raise ContractError(
                    str(path),
                    f"expected at most {MOST_ROWS:,} rows, found {file.metadata.num_rows:,}",
                )
            return file.read()
    except (pa.ArrowException, OSError) as error:
        raise ContractError(
            str(path), f"expected a whole Parquet file, found a truncated or other file ({error})"
        ) from error


def _header(metadata: Mapping[bytes, bytes] | None, path: Path) -> Any:
    where = f"{path}: metadata {METADATA_KEY}"
    text = (metadata or {}).get(METADATA_KEY.encode())
    if text is None:
        raise ContractError(where, "expected a market file of Spotline, found no such metadata")
    header = json_value(text.decode("utf-8", errors="replace"), where)
    version = field(header, "format_version", where)
    if version != FORMAT_VERSION:
        raise ContractError(
            f"{where}, field format_version", f"expected {FORMAT_VERSION}, found {shown(version)}"
        )
    return header


def _slot_s(header: Any, path: Path) -> int:
    where = f"{path}: metadata {METADATA_KEY}"
    slot_s = field(header, "slot_s", where)
    if not isinstance(slot_s, int) or isinstance(slot_s, bool) or slot_s < 1:
        raise ContractError(
            f"{where}, field slot_s", f"expected seconds >= 1, found {shown(slot_s)}"
        )
    return slot_s


def _offerings(header: Any, path: Path) -> list[Offering]:
    where = f"{path}: metadata {METADATA_KEY}"
    listed = field(header, "offerings", where)
    if not isinstance(listed, list) or not listed:
        found = "none" if listed == [] else shown(listed)
        raise ContractError(
            f"{where}, field offerings", f"expected a list of at least one offering, found {found}"
        )
    offerings: list[Offering] = []
    for number, entry in enumerate(listed, start=1):
        place = f"{where}, offering {number}"
        values = {
            f.name: field(entry, f.name, place)
            for f in fields(Offering)
            if f.name not in _MAY_BE_LEFT_OUT or f.name in entry
        }
        for name in _NESTED.keys() & values.keys():
            values[name] = _nested(_NESTED[name], values[name], f"{place}, {name}")
        for name, value in values.items():
            if name in _NESTED:
                continue
            _check_kind(value, int if name in _INTEGERS else str, f"{place}, field {name}")
        unknown = sorted(set(entry) - set(values))
        if unknown:
            raise ContractError(place, f"expected only {', '.join(values)}, found {names(unknown)}")
        # Files from before 0.3.0 do not say it.
        values.setdefault("notice_lead_s", guaranteed_notice_s(values["provider"]))
        check_offering_id(values["offering_id"], f"{place}, field offering_id")
        try:
            offerings.append(Offering(**values))
        except ValueError as error:
            raise refusal_of(error, place) from error
    ids = [offering.offering_id for offering in offerings]
    seen: set[str] = set()
    for number, offering_id in enumerate(ids, start=1):
        if offering_id in seen:
            raise ContractError(
                f"{where}, offering {number}, field offering_id",
                f"expected each id once, found {offering_id} again",
            )
        seen.add(offering_id)
    return offerings


def _nested(kind: type[Reservation | BillingRules | Disks], entry: Any, where: str) -> Any:
    values = {
        f.name: field(entry, f.name, where)
        for f in fields(kind)
        if f.name not in _OF_PLANS or f.name in entry
    }
    for name, value in values.items():
        _check_kind(value, _OF_PLANS.get(name, int), f"{where}, field {name}")
    try:
        return kind(**values)
    except ValueError as error:
        raise refusal_of(error, where) from error


def _check_kind(value: Any, kind: type, where: str) -> None:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ContractError(where, f"expected {_KIND_NAMES[kind]}, found {shown(value)}")


def _check_columns(table: Any, path: Path) -> None:
    for name in COLUMNS:
        if name in table.column_names:
            continue
        hint = ""
        stem = name.split("_micro_usd")[0]
        alike = [c for c in table.column_names if c.startswith(stem) and c not in COLUMNS]
        if alike and "_micro_usd" in name:
            hint = f" ({alike[0]}: is that another unit? prices are integer micro-USD)"
        raise ContractError(
            str(path),
            f"expected the column {name}, found {names(table.column_names)}{hint}",
        )


def _values(table: Any, name: str, kind: str, path: Path) -> Any:
    """One column as an array of int64 or of str."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    found = column.type
    if pa.types.is_floating(found):
        values = column.to_numpy()
        not_finite = ~np.isfinite(values)
        if not_finite.any():
            row = int(np.argmax(not_finite))
            raise ContractError(
                f"{path}: row {row + 1}, field {name}",
                f"expected {_EXPECTED[kind]}, found {values[row]}",
            )
    right = {
        "time": pa.types.is_timestamp(found) and found.tz is not None,
        "text": pa.types.is_string(found)
        or pa.types.is_large_string(found)
        or pa.types.is_dictionary(found),
        "integer": pa.types.is_integer(found),
    }[kind]
    if not right:
        raise ContractError(
            f"{path}: {name}", f"expected {_EXPECTED[kind]}, found the type {found}"
        )
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise ContractError(
            f"{path}: row {row + 1}, field {name}", f"expected {_EXPECTED[kind]}, found null"
        )
    if kind == "text":
        return column.cast(pa.string()).to_numpy()
    try:
        if kind == "time":
            column = column.cast(pa.timestamp("ns", tz=found.tz))
        return column.cast(pa.int64()).to_numpy().copy()
    except pa.ArrowInvalid as error:
        raise ContractError(f"{path}: {name}", f"a value is out of range: {error}") from error
