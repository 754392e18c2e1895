"""Charges as a Cost and Usage Report: CUR 2.0 in Parquet, or the legacy report in CSV."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fakes.bills.drawn import HOUR_S, Charge

LEGACY = {
    "line_item_id": "identity/LineItemId",
    "billing_entity": "bill/BillingEntity",
    "type": "lineItem/LineItemType",
    "begin": "lineItem/UsageStartDate",
    "end": "lineItem/UsageEndDate",
    "product": "lineItem/ProductCode",
    "usage_type": "lineItem/UsageType",
    "zone": "lineItem/AvailabilityZone",
    "resource": "lineItem/ResourceId",
    "amount": "lineItem/UsageAmount",
    "currency": "lineItem/CurrencyCode",
    "unblended": "lineItem/UnblendedCost",
    "instance_type": "product/instanceType",
    "region": "product/region",
    "on_demand": "pricing/publicOnDemandCost",
    "plan": "savingsPlan/SavingsPlanARN",
    "effective": "savingsPlan/SavingsPlanEffectiveCost",
    "total": "savingsPlan/TotalCommitmentToDate",
    "used": "savingsPlan/UsedCommitment",
    "reservation": "reservation/ReservationARN",
    "reservation_effective": "reservation/EffectiveCost",
}
SECOND = {
    "line_item_id": "identity_line_item_id",
    "billing_entity": "bill_billing_entity",
    "type": "line_item_line_item_type",
    "begin": "line_item_usage_start_date",
    "end": "line_item_usage_end_date",
    "product": "line_item_product_code",
    "usage_type": "line_item_usage_type",
    "zone": "line_item_availability_zone",
    "resource": "line_item_resource_id",
    "amount": "line_item_usage_amount",
    "currency": "line_item_currency_code",
    "unblended": "line_item_unblended_cost",
    "instance_type": "product_instance_type",
    "region": "product_region_code",
    "on_demand": "pricing_public_on_demand_cost",
    "plan": "savings_plan_savings_plan_a_r_n",
    "effective": "savings_plan_savings_plan_effective_cost",
    "total": "savings_plan_total_commitment_to_date",
    "used": "savings_plan_used_commitment",
    "reservation": "reservation_reservation_a_r_n",
    "reservation_effective": "reservation_effective_cost",
}
_NUMBERS = ("amount", "unblended", "on_demand", "effective", "total", "used", "reservation_effective")  # fmt: skip
_TIMES = ("begin", "end")
_PLAN = "arn:aws:savingsplans::1:savingsplan/7"
_TYPES = {"tax": "Tax", "credit": "Credit", "refund": "Refund"}
_USAGE = {
    "egress": "USE2-DataTransfer-Out-Bytes",
    "disk": "USE2-EBS:VolumeUsage.gp3",
    "unused": "USE2-ComputeSP:1yrNoUpfront",
}


def written_parquet(path: Path, charges: Iterable[Charge]) -> Path:
    """CUR 2.0: times as timestamps, money as doubles, tags as a map."""
    types = {
        name: pa.float64() if name in _NUMBERS else pa.timestamp("ms") if name in _TIMES else pa.string()
        for name in SECOND
    }  # fmt: skip
    schema = pa.schema(
        [*((SECOND[name], types[name]) for name in SECOND), ("resource_tags", pa.map_(pa.string(), pa.string()))]
    )  # fmt: skip
    with pq.ParquetWriter(path, schema) as writer:
        held: list[dict[str, Any]] = []
        for row in _rows(charges):
            held.append(_typed(row))
            if len(held) == 50_000:
                writer.write_table(pa.Table.from_pylist(held, schema=schema))
                held = []
        writer.write_table(pa.Table.from_pylist(held, schema=schema))
    return path


def _typed(row: dict[str, Any]) -> dict[str, Any]:
    typed: dict[str, Any] = {
        "resource_tags": [(f"user_{key}", value) for key, value in row["tags"]]
    }
    for name, column in SECOND.items():
        value = row.get(name)
        if name in _TIMES:
            value = datetime.fromtimestamp(row[name], tz=UTC).replace(tzinfo=None)
        elif name in _NUMBERS:
            value = None if value is None else float(value)
        typed[column] = value
    return typed


def written_legacy(path: Path, charges: Iterable[Charge]) -> Path:
    """The legacy report, packed; tags are columns of their own."""
    text = io.StringIO()
    rows = list(_rows(charges))
    keys = sorted({key for row in rows for key, _ in row["tags"]})
    table = csv.writer(text)
    table.writerow([*LEGACY.values(), *(f"resourceTags/user:{key}" for key in keys)])
    for row in rows:
        cells = [
            datetime.fromtimestamp(row[name], tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            if name in _TIMES
            else row.get(name)
            for name in LEGACY
        ]
        named = dict(row["tags"])
        table.writerow([*cells, *(named.get(key, "") for key in keys)])
    path.write_bytes(gzip.compress(text.getvalue().encode()))
    return path


def _rows(charges: Iterable[Charge]) -> Iterator[dict[str, Any]]:
    for number, charge in enumerate(charges):
        yield from ({**row, "line_item_id": f"{number}"} for row in _of(charge))


def _of(charge: Charge) -> Iterator[dict[str, Any]]:
    kind = charge.kind
    machine = charge.what in ("machine", "covered", "cpu")
    name = "m5.xlarge" if charge.what == "cpu" else "" if kind is None else kind.name
    usage_type = _USAGE.get(charge.what, "Other-Requests")
    if machine:
        usage_type = f"USE2-{'Spot' if charge.spot else 'Box'}Usage:{name}"
    row: dict[str, Any] = {
        "billing_entity": "AWS Marketplace" if charge.what == "marketplace" else "AWS",
        "type": _TYPES.get(charge.what, "Usage"),
        "begin": charge.begin_s,
        "end": charge.end_s,
        "product": "AWSSupportBusiness" if charge.what == "support" else "AmazonEC2",
        "usage_type": usage_type,
        "zone": kind.zone if kind else None,
        "resource": charge.resource or None,
        "amount": Decimal(charge.used_s) / HOUR_S if machine else Decimal(1),
        "currency": charge.currency,
        "unblended": charge.usd,
        "instance_type": name if machine else None,
        "region": kind.region if kind else None,
        "on_demand": charge.listed,
        "tags": charge.tags,
    }
    if charge.what == "covered":
        yield {
            **row, "type": "SavingsPlanCoveredUsage", "unblended": charge.asked, "plan": _PLAN,
            "effective": charge.usd,
        }  # fmt: skip
        yield {
            **row, "type": "SavingsPlanNegation", "unblended": -charge.asked, "plan": _PLAN, "amount": 0,
            "resource": None,
        }  # fmt: skip
        return
    if charge.what == "unused":
        yield {
            **row, "type": "SavingsPlanRecurringFee", "unblended": charge.asked, "plan": _PLAN,
            "total": charge.asked, "used": charge.asked - charge.usd,
        }  # fmt: skip
        return
    yield row
