"""Charges as AWS exports them in FOCUS 1.0, with a few of its own columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.fakes.bills.drawn import HOUR_S, Charge

_SERVICES = {
    "tax": ("Tax", "Other", "Tax"),
    "credit": ("Credit", "Other", "Promotion"),
    "refund": ("Adjustment", "Compute", "Amazon Elastic Compute Cloud"),
    "support": ("Usage", "Management and Governance", "AWS Support (Business)"),
    "marketplace": ("Purchase", "Other", "Some Software"),
    "other_service": ("Usage", "Databases", "Amazon DynamoDB"),
    "disk": ("Usage", "Storage", "Amazon Elastic Block Store"),
}


def written(
    path: Path, charges: Iterable[Charge], *, local: str = "", whole_hours: bool = False
) -> Path:
    """Write them to a CSV.

    `local` makes a bill whose times are those of a zone, without naming it; with `whole_hours` each
    row ends an hour after it begins, whatever clocks did.
    """
    with path.open("w", newline="") as file:
        table: csv.DictWriter[str] | None = None
        for charge in charges:
            row = _row(charge, _Clock(local, whole_hours))
            if table is None:
                table = csv.DictWriter(file, row)
                table.writeheader()
            table.writerow(row)
    return path


def _row(charge: Charge, clock: _Clock) -> dict[str, str]:
    category, service_category, service = _SERVICES.get(
        charge.what, ("Usage", "Compute", "Amazon Elastic Compute Cloud")
    )
    kind = charge.kind
    covered, unused = charge.what == "covered", charge.what == "unused"
    machine = charge.what in ("machine", "covered", "cpu")
    name = "m5.xlarge" if charge.what == "cpu" else "" if kind is None else kind.name
    usage_type = f"USE2-{'Spot' if charge.spot else 'Box'}Usage:{name}"
    if charge.what == "egress":
        usage_type = "USE2-DataTransfer-Out-Bytes"
    if unused:
        usage_type = "ComputeSP:1yrNoUpfront"
    return {
        "AvailabilityZone": kind.zone if kind else "",
        "BilledCost": "0" if covered or unused else str(charge.usd),
        "BillingCurrency": charge.currency,
        "ChargeCategory": category,
        "ChargeClass": "",
        "ChargeDescription": f"{usage_type}, {service}",
        "ChargePeriodEnd": clock.end(charge),
        "ChargePeriodStart": clock.at(charge.begin_s),
        "CommitmentDiscountId": "arn:aws:savingsplans::1:savingsplan/7" if covered or unused else "",
        "CommitmentDiscountStatus": "Used" if covered else "Unused" if unused else "",
        "CommitmentDiscountType": "Compute Savings Plans" if covered or unused else "",
        "ConsumedQuantity": str(Decimal(charge.used_s) / HOUR_S) if machine else "1",
        "ConsumedUnit": "Hrs" if machine else "Units",
        "EffectiveCost": str(charge.usd),
        "ListCost": str(charge.listed),
        "PricingCategory": "Committed" if covered else "Dynamic" if charge.spot else "Standard",
        "ProviderName": "AWS",
        "PublisherName": "Somebody" if charge.what == "marketplace" else "AWS",
        "RegionId": kind.region if kind else "",
        "ResourceId": f"arn:aws:ec2:us-east-2:1:instance/{charge.resource}" if charge.resource else "",
        "ServiceCategory": service_category,
        "ServiceName": service,
        "Tags": json.dumps(dict(charge.tags)),
        "x_UsageType": usage_type,
    }  # fmt: skip


class _Clock:
    def __init__(self, local: str, whole_hours: bool) -> None:
        self._zone = ZoneInfo(local) if local else UTC
        self._form = "%Y-%m-%dT%H:%M:%S" if local else "%Y-%m-%dT%H:%M:%SZ"
        self._whole_hours = whole_hours

    def at(self, at_s: int) -> str:
        return datetime.fromtimestamp(at_s, tz=self._zone).strftime(self._form)

    def end(self, charge: Charge) -> str:
        if not self._whole_hours:
            return self.at(charge.end_s)
        begun = datetime.fromtimestamp(charge.begin_s, tz=self._zone).replace(tzinfo=None)
        return (begun + timedelta(hours=1)).strftime(self._form)
