"""Our own CSV: the columns of the market file, prices in USD. See docs/market-format.md."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import numpy as np

from spotline.adapters.market.columns import LongColumns, market_from_columns
from spotline.adapters.market.instance_types import INSTANCE_TYPES
from spotline.adapters.market.options import Importer, ImportOptions
from spotline.adapters.market.parse import (
    check_offering_id,
    count,
    names,
    price_micro_usd,
    read_csv,
    refusal_of,
    shown,
    time_ns,
)
from spotline.adapters.market.series import resampled
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import Market
from spotline.domain.market.notice import guaranteed_notice_s
from spotline.domain.market.offering import Offering, Provenance
from spotline.domain.units import micro_usd_from_usd

SPOT_PRICE = "spot_price_usd_per_instance_hour"
ON_DEMAND_PRICE = "on_demand_price_usd_per_instance_hour"

_REQUIRED = ("slot_start", "offering_id", SPOT_PRICE)
_OFFERING_FIELDS = (
    "provider",
    "account",
    "region",
    "zone",
    "instance_type",
    "gpu_model",
    "gpus_per_instance",
    "quota_pool",
    "notice_lead_s",
)
_OPTIONAL = (
    ON_DEMAND_PRICE,
    "spot_available",
    "spot_available_provenance",
    "on_demand_available",
    "on_demand_available_provenance",
    "quoted_at",
    *_OFFERING_FIELDS,
)


def read_long_csv(files: Sequence[Path], options: ImportOptions) -> Market:
    """Read one CSV file; without counts they are unknown, without quoted_at it is slot_start.

    Raises
    ------
    ContractError
        A column, row or field breaks the format; file, line and field are named.
    """
    if len(files) != 1:
        raise ContractError("FILE", f"expected one CSV file, found {len(files)}")
    path = files[0]
    rows = list(read_csv(path, _REQUIRED))
    if not rows:
        raise ContractError(str(path), "expected rows, found none")
    unknown = sorted(set(rows[0][1]) - {*_REQUIRED, *_OPTIONAL})
    if unknown:
        hint = " (prices are in USD per instance-hour)" if "price" in "".join(unknown) else ""
        raise ContractError(
            f"{path}: line 1",
            f"expected only {', '.join((*_REQUIRED, *_OPTIONAL))}, found {names(unknown)}{hint}",
        )
    offerings: dict[str, Offering] = {}
    for where, row in rows:
        name = row["offering_id"]
        if name not in offerings:
            check_offering_id(name, f"{where}, field offering_id")
            offerings[name] = _offering(row, where)
    counted = [_counts(row, where, "spot_available") for where, row in rows]
    stocked = [_counts(row, where, "on_demand_available") for where, row in rows]
    starts_ns = [time_ns(row["slot_start"], f"{where}, field slot_start") for where, row in rows]
    quoted_ns = [
        time_ns(row["quoted_at"], f"{where}, field quoted_at") if row.get("quoted_at") else start
        for (where, row), start in zip(rows, starts_ns, strict=True)
    ]
    columns = LongColumns(
        slot_start_ns=np.array(starts_ns, dtype=np.int64),
        offering_id=np.array([row["offering_id"] for _, row in rows], dtype=np.object_),
        spot_price_micro_usd=np.array(
            [
                price_micro_usd(row[SPOT_PRICE], f"{where}, field {SPOT_PRICE}")
                for where, row in rows
            ],
            dtype=np.int64,
        ),
        on_demand_price_micro_usd=np.array(
            [_on_demand(row, where, options.on_demand_usd) for where, row in rows], dtype=np.int64
        ),
        spot_available=np.array([number for number, _ in counted], dtype=np.int64),
        spot_available_provenance=np.array([kind for _, kind in counted], dtype=np.object_),
        on_demand_available=np.array([number for number, _ in stocked], dtype=np.int64),
        on_demand_available_provenance=np.array([kind for _, kind in stocked], dtype=np.object_),
        quoted_ns=np.array(quoted_ns, dtype=np.int64),
    )
    market = market_from_columns(
        columns,
        offerings=tuple(offerings.values()),
        slot_s=None,
        source=f"csv: {path.name}",
        locate=lambda row: rows[row][0],
        price_names=(SPOT_PRICE, ON_DEMAND_PRICE),
    )
    return market if options.slot_s is None else resampled(market, options.slot_s)


IMPORTER = Importer(
    name="csv",
    description="CSV with the columns of the market file, prices in USD per instance-hour",
    read=read_long_csv,
    accepts=frozenset({"on_demand_usd", "slot_s"}),
)


def _on_demand(row: dict[str, str], where: str, given_usd: Decimal | None) -> int:
    if given_usd is not None:
        return micro_usd_from_usd(given_usd)
    if ON_DEMAND_PRICE not in row:
        raise ContractError(
            where,
            f"expected the column {ON_DEMAND_PRICE} or the option --on-demand-usd, found neither",
        )
    return price_micro_usd(row[ON_DEMAND_PRICE], f"{where}, field {ON_DEMAND_PRICE}")


def _counts(row: dict[str, str], where: str, name: str) -> tuple[int, str]:
    """A count and its provenance: an empty count is unknown, one without a word is observed."""
    text = row.get(name, "")
    kind = row.get(f"{name}_provenance", "")
    if not text:
        if kind not in ("", Provenance.UNKNOWN.value):
            raise ContractError(
                f"{where}, field {name}", f"expected a count, as it is {kind}, found none"
            )
        return 0, Provenance.UNKNOWN.value
    return count(text, f"{where}, field {name}"), kind or Provenance.OBSERVED.value


def _offering(row: dict[str, str], where: str) -> Offering:
    """Columns win; else an id of the form provider:zone:instance_type tells."""
    name = row["offering_id"]
    parts = name.split(":")
    told = dict(zip(("provider", "zone", "instance_type"), parts, strict=False))
    if len(parts) != 3:
        told = {}
    values = {key: row.get(key) or told.get(key, "") for key in _OFFERING_FIELDS}
    for key in ("provider", "zone", "instance_type"):
        if not values[key]:
            raise ContractError(
                f"{where}, field {key}",
                f"expected the column {key} or an offering_id PROVIDER:ZONE:INSTANCE_TYPE, "
                f"found {shown(name)}",
            )
    known = INSTANCE_TYPES.get(values["instance_type"])
    gpus = values["gpus_per_instance"] or str(known.gpus if known else 1)
    region = values["region"] or values["zone"].rstrip("abcdefghijklmnopqrstuvwxyz")
    region = region or values["zone"]
    try:
        return Offering(
            offering_id=name,
            provider=values["provider"],
            account=values["account"] or "default",
            region=region,
            zone=values["zone"],
            instance_type=values["instance_type"],
            gpu_model=values["gpu_model"] or (known.gpu_model if known else "unknown"),
            gpus_per_instance=count(gpus, f"{where}, field gpus_per_instance"),
            quota_pool=values["quota_pool"] or f"{values['provider']}:{region}",
            notice_lead_s=(
                count(values["notice_lead_s"], f"{where}, field notice_lead_s")
                if values["notice_lead_s"]
                else guaranteed_notice_s(values["provider"])
            ),
        )
    except ValueError as error:
        raise refusal_of(error, where) from error
