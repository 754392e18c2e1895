"""Charges as Google's detailed billing export, taken from BigQuery as a CSV.

A machine's hour is two lines: seven tenths of its price are its GPUs, three its memory.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from tests.fakes.bills.drawn import Charge, micro

COLUMNS = (
    "service.description",
    "sku.description",
    "usage_start_time",
    "usage_end_time",
    "cost",
    "currency",
    "credits",
    "usage.amount",
    "usage.unit",
    "cost_type",
    "labels",
    "system_labels",
    "location.region",
    "location.zone",
    "resource.name",
    "resource.global_name",
    "seller_name",
)
_GPU_PART = Decimal("0.7")
_SERVICES = {
    "support": ("Support", "Enhanced Support"),
    "other_service": ("BigQuery", "Analysis"),
    "marketplace": ("Some Software", "Licence"),
    "tax": ("Invoice", "Tax"),
    "refund": ("Compute Engine", "Adjustment of an invoice"),
    "credit": ("Invoice", "Promotion"),
    "egress": ("Compute Engine", "Network Internet Egress from Americas to Americas"),
    "disk": ("Compute Engine", "Balanced PD Capacity"),
}


def written(path: Path, charges: Iterable[Charge]) -> Path:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for charge in charges:
            table.writerows(_rows(charge))
    return path


def _rows(charge: Charge) -> Iterator[dict[str, str]]:
    if charge.what in ("machine", "covered"):
        yield from _machine(charge)
        return
    if charge.what == "unused":
        # GPU-seconds of two machines of four over twenty hours, and a quarter more.
        yield {**_row(charge, "Compute Engine", "Commitment v1: Nvidia GPU in Americas for 1 Year", charge.asked),
               "usage.amount": "720000", "usage.unit": "seconds"}  # fmt: skip
        return
    if charge.what == "cpu":
        row = _row(charge, "Compute Engine", "N2 Instance Core running in Americas", charge.usd)
        yield {**row, **_spec("n2-standard-4"), "usage.amount": "14400", "usage.unit": "seconds"}
        return
    service, sku = _SERVICES[charge.what]
    row = _row(charge, service, sku, charge.usd)
    if charge.what == "tax":
        row["cost_type"] = "tax"
    if charge.what == "refund":
        row["cost_type"] = "adjustment"
    if charge.what == "marketplace":
        row["seller_name"] = "Somebody"
    if charge.what == "credit":
        row["cost"] = "0"
        row["credits"] = json.dumps(
            [{"name": "Trial", "amount": str(charge.usd), "type": "PROMOTION"}]
        )
    yield row


def _machine(charge: Charge) -> Iterator[dict[str, str]]:
    kind = charge.kind
    assert kind is not None
    spot = "Spot Preemptible " if charge.spot else ""
    asked = charge.asked
    gpu = micro(asked * _GPU_PART)
    first = _row(
        charge, "Compute Engine", f"Nvidia GPU attached to {spot}VMs running in Americas", gpu
    )
    first |= {"usage.amount": str(charge.used_s * kind.gpus), "usage.unit": "seconds"}
    second = _row(
        charge, "Compute Engine", f"{spot}A2 Instance Ram running in Americas", asked - gpu
    )
    second |= {"usage.amount": str(charge.used_s * 10**9), "usage.unit": "byte-seconds"}
    if charge.what == "covered":
        # All of it is credited; the commitment's fee stands in the plan's own line.
        for row in (first, second):
            given = {
                "name": "Commitment",
                "amount": f"-{row['cost']}",
                "type": "COMMITTED_USAGE_DISCOUNT",
            }
            row["credits"] = json.dumps([given])
    for row in (first, second):
        yield {**row, **_spec(kind.name)}


def _spec(name: str) -> dict[str, str]:
    labels = [{"key": "compute.googleapis.com/machine_spec", "value": name}]
    return {"system_labels": json.dumps(labels)}


def _row(charge: Charge, service: str, sku: str, cost: Decimal) -> dict[str, str]:
    kind = charge.kind
    name = f"projects/p/zones/{kind.zone}/instances/{charge.resource}" if kind else ""
    return {
        "service.description": service,
        "sku.description": sku,
        "usage_start_time": _time(charge.begin_s),
        "usage_end_time": _time(charge.end_s),
        "cost": str(cost),
        "currency": charge.currency,
        "credits": "[]",
        "usage.amount": "1",
        "usage.unit": "requests",
        "cost_type": "regular",
        "labels": json.dumps([{"key": key, "value": value} for key, value in charge.tags]),
        "system_labels": "[]",
        "location.region": kind.region if kind else "",
        "location.zone": kind.zone if kind else "",
        "resource.name": charge.resource,
        "resource.global_name": f"//compute.googleapis.com/{name}" if name else "",
        "seller_name": "Google",
    }


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
