"""Lines of a FOCUS export, versions 1.0 to 1.2, and of Spotline's own.

Columns and values: https://focus.finops.org/focus-specification/v1-2/. What a job paid is
`EffectiveCost`: commitments are spread over what used them, and their purchases cost nothing there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from spotline.adapters.bills.machines import gpus_of, type_in
from spotline.adapters.bills.period import period
from spotline.adapters.table_cells import Carry, Wrong, amount, json_cell, tags, whole_micro
from spotline.domain.assessment.facts import BoughtAs, HiredMachine
from spotline.domain.assessment.lines import ExportLine, LineKind
from spotline.domain.units import S_PER_HOUR

REQUIRED = (
    "BilledCost",
    "EffectiveCost",
    "BillingCurrency",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
)
OPTIONAL = (
    "ResourceId",
    "AvailabilityZone",
    "ProviderName",
    "RegionId",
    "ServiceCategory",
    "ServiceName",
    "PublisherName",
    "ChargeClass",
    "ChargeDescription",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ListCost",
    "PricingCategory",
    "ConsumedQuantity",
    "ConsumedUnit",
    "PricingQuantity",
    "PricingUnit",
    "SkuId",
    "SkuMeter",
    "SkuPriceDetails",
    "Tags",
    "x_UsageType",
    "x_SkuDetails",
    "x_JobId",
    "x_Tenant",
    "x_OfferingId",
    "x_Instances",
    "x_HeldSeconds",
    "x_LogEntry",
)
TELLING_APART = ("BillingAccountId", "SubAccountId", "SkuPriceId", "InvoiceId", "x_Operation")
"""Columns of which nothing is read but that two rows differ in them."""

COLUMNS = (*REQUIRED, *OPTIONAL, *TELLING_APART)
_MOST_INSTANCES = 10_000
_HOURS = re.compile(r"(?:1 )?(?:instance[- ])?h(?:ou)?rs?(?:[^a-z].*)?", re.IGNORECASE)
_TRAFFIC = re.compile(r"data ?transfer|egress|bandwidth|network.*out|-out-bytes", re.IGNORECASE)
_DISK = re.compile(
    r"EBS:|VolumeUsage|snapshot|persistent disk|managed disk|gp3|GB-month", re.IGNORECASE
)
_GPU = re.compile(r"\bGPU\b|\bNvidia\b", re.IGNORECASE)
_BOUGHT = {
    "Dynamic": BoughtAs.SPOT,
    "Committed": BoughtAs.COMMITTED,
    "Standard": BoughtAs.ON_DEMAND,
}


class _Row(NamedTuple):
    """The cells of `REQUIRED` and `OPTIONAL`, by name."""

    billed: Any
    effective: Any
    currency: Any
    category: Any
    begin: Any
    end: Any
    resource: Any
    zone: Any
    provider: Any
    region: Any
    service_category: Any
    service: Any
    publisher: Any
    charge_class: Any
    description: Any
    commitment: Any
    commitment_status: Any
    commitment_type: Any
    reservation: Any
    reservation_status: Any
    listed: Any
    pricing: Any
    consumed: Any
    consumed_unit: Any
    quantity: Any
    unit: Any
    sku: Any
    meter: Any
    sku_details: Any
    tags: Any
    usage_type: Any
    more: Any
    job: Any
    tenant: Any
    offering: Any
    instances: Any
    held_s: Any
    log_entry: Any


class FocusReader:
    """Turns rows into lines."""

    def __init__(self, names: Sequence[str]) -> None:
        del names
        self.columns: Sequence[str] = COLUMNS
        self._carry = Carry()
        self.naive = False

    def finish(self) -> Iterator[ExportLine]:
        """What only the whole bill tells: nothing here."""
        return iter(())

    def may_repeat(self, cells: tuple[Any, ...]) -> bool:
        """Whether the same row again is the same charge: it names a resource or comes once anyway."""
        row = _Row(*cells[: len(_Row._fields)])
        return bool(row.resource or row.log_entry) or row.category != "Usage"

    def lines(self, number: int, cells: tuple[Any, ...]) -> Iterator[ExportLine]:
        """The lines of a row: several of a lot of instances; raises `Wrong`."""
        row = _Row(*cells[: len(_Row._fields)])
        columns = "ChargePeriodStart", "ChargePeriodEnd"
        begin_s, end_s, self.naive = period(row.begin, row.end, *columns)
        currency = str(row.currency or "")
        if not currency:
            raise Wrong("BillingCurrency", "a currency such as USD", row.currency)
        line = ExportLine(
            row=number,
            kind=LineKind.APART,
            begin_s=begin_s,
            end_s=end_s,
            micro=self._carry.micro(amount(row.effective, "EffectiveCost"), currency),
            currency=currency,
            resource=_short(str(row.resource or "")),
            tags=tags(row.tags, "Tags"),
        )
        line = line._replace(noted_micro=line.micro)
        if row.job:
            yield from _own(row, line)
            return
        yield _classified(row, line)


def _short(resource: str) -> str:
    """An AWS ARN's last part: the id by which everybody else names the resource."""
    return resource.rpartition("/")[2] if resource.startswith("arn:") else resource


def _classified(row: _Row, line: ExportLine) -> ExportLine:
    """A line of a provider's export."""
    if row.category == "Tax":
        return line._replace(trap="tax")
    if row.category == "Credit":
        return line._replace(kind=LineKind.CORRECTION, trap="credit")
    if row.category == "Adjustment" or row.charge_class == "Correction":
        return line._replace(kind=LineKind.CORRECTION, trap="refund")
    if row.category == "Purchase":
        return _purchase(row, line)
    if row.category != "Usage":
        expected = "Usage, Purchase, Tax, Credit or Adjustment"
        raise Wrong("ChargeCategory", expected, row.category)
    if "Unused" in (row.commitment_status, row.reservation_status):
        return line._replace(kind=LineKind.UNUSED, trap="unused_commitment")
    kind = _kind_of(row.service_category, row.usage_type, row.description, row.meter)
    if kind is not LineKind.INSTANCE:
        return line._replace(kind=kind)
    machine = _machine(row)
    if row.service_category != "Compute" or machine is None:
        unknown = row.service_category == "Compute" and _GPU.search(str(row.description or ""))
        return line._replace(trap="no_resource" if unknown else _apart(row))
    return _timed(row, line, machine)


# A bill has few texts and many rows.
@lru_cache(maxsize=100_000)
def _kind_of(category: Any, *texts: Any) -> LineKind:
    """Traffic, disks, or what may be a machine, by what a line says of itself."""
    text = " ".join(str(each or "") for each in texts)
    if category == "Networking" or _TRAFFIC.search(text):
        return LineKind.EGRESS
    if category == "Storage" or _DISK.search(text):
        return LineKind.DISK
    return LineKind.INSTANCE


def _timed(row: _Row, line: ExportLine, machine: HiredMachine) -> ExportLine:
    """A line of machine time; a machine's other costs (memory, licences) have no hours."""
    purchase = _BOUGHT.get(str(row.pricing), BoughtAs.ON_DEMAND)
    if row.commitment_status == "Used":
        purchase = BoughtAs.COMMITTED
    trap = ""
    if purchase is BoughtAs.COMMITTED:
        kind = str(row.commitment_type or row.commitment or "").lower()
        trap = "savings_plan" if "saving" in kind else "reserved"
    used_s = _used_s(row)
    if used_s is not None and used_s < 0:
        # Taken back, though the line does not call itself a correction.
        return line._replace(kind=LineKind.CORRECTION, trap="refund")
    if used_s == 0 or line.end_s == line.begin_s:
        return line._replace(
            kind=LineKind.CORRECTION, machine=machine, trap="zero_duration", noted_micro=line.micro
        )
    listed = whole_micro(amount(row.listed, "ListCost"))
    if purchase is BoughtAs.SPOT and listed <= line.micro:
        listed = 0  # Some exports name the spot price as the list price of spot.
    return line._replace(
        kind=LineKind.INSTANCE,
        machine=machine,
        purchase=purchase,
        used_s=used_s,
        list_micro=listed,
        trap=trap,
    )


def _used_s(row: _Row) -> int | None:
    """Instance-seconds of a row in hours."""
    for quantity, unit, column in (
        (row.consumed, row.consumed_unit, "ConsumedQuantity"),
        (row.quantity, row.unit, "PricingQuantity"),
    ):
        if quantity not in (None, "") and _HOURS.fullmatch(str(unit or "")):
            return round(amount(quantity, column) * S_PER_HOUR)
    return None


def _purchase(row: _Row, line: ExportLine) -> ExportLine:
    if row.commitment or row.reservation:
        # Spread over what uses it; the purchase itself costs nothing effectively.
        billed = whole_micro(amount(row.billed, "BilledCost"))
        return line._replace(trap="commitment_purchase", noted_micro=billed)
    return line._replace(trap=_apart(row))


def _apart(row: _Row) -> str:
    """Which finding a line belongs to that is no job's."""
    if "support" in str(row.service or "").lower():
        return "support"
    if row.publisher and row.provider and row.publisher != row.provider:
        return "marketplace"
    return "other_service"


def _machine(row: _Row) -> HiredMachine | None:
    kind, gpus = "", 0
    if row.sku_details:
        details = row.sku_details
        if isinstance(details, str):
            details = json_cell(details, "SkuPriceDetails")
        found = dict(tags(details, "SkuPriceDetails"))
        kind = found.get("InstanceType", "")
        gpus = int(found["GpuCount"]) if found.get("GpuCount", "").isdigit() else 0
    kind = kind or _named_in(row.usage_type, row.description, row.meter, row.sku, row.more)
    if not kind:
        return None
    return _machine_at(row.provider or "", row.region or "", row.zone or "", kind, gpus)


@lru_cache(maxsize=100_000)
def _named_in(*texts: Any) -> str:
    """The first instance type that one of a line's texts names."""
    return next((kind for text in texts if (kind := type_in(str(text or "")))), "")


@lru_cache(maxsize=10_000)
def _machine_at(provider: str, region: str, zone: str, kind: str, gpus: int) -> HiredMachine:
    return HiredMachine(
        provider=_provider(provider),
        region=region,
        zone=zone,
        instance_type=kind,
        gpus=gpus or gpus_of(kind),
    )


def _provider(name: str) -> str:
    """By the name that offerings have it under."""
    lowered = name.lower()
    for word, provider in (
        ("aws", "aws"),
        ("amazon", "aws"),
        ("google", "gcp"),
        ("gcp", "gcp"),
        ("microsoft", "azure"),
        ("azure", "azure"),
    ):
        if word in lowered:
            return provider
    return lowered


# --- Spotline's own ------------------------------------------------------------------------------


def _own(row: _Row, line: ExportLine) -> Iterator[ExportLine]:
    """A lot, instance by instance: each as if it were a resource of its own."""
    instances = _count(row.instances, "x_Instances", _MOST_INSTANCES)
    held_s = _count(row.held_s, "x_HeldSeconds", 10**9)
    marks = (("x_JobId", str(row.job)), ("x_Tenant", str(row.tenant or "")))
    line = line._replace(tags=(*marks, *line.tags))
    if not instances:
        yield line._replace(kind=LineKind.EGRESS)
        return
    offering = str(row.offering or "")
    machine = _own_machine(row, offering)
    if not held_s:
        trap, resource = "zero_duration", f"{row.job} {offering} {row.pricing} 0"
        yield line._replace(kind=LineKind.CORRECTION, resource=resource, trap=trap, machine=machine)
        return
    listed = whole_micro(amount(row.listed, "ListCost"))
    covered = row.pricing == "Committed"
    plan = "savings_plan" if row.commitment else "reserved"
    for index in range(instances):
        yield line._replace(
            kind=LineKind.INSTANCE,
            resource=f"{row.job} {offering} {row.pricing} {index}",
            machine=machine,
            purchase=_BOUGHT.get(str(row.pricing), BoughtAs.ON_DEMAND),
            used_s=min(held_s, line.end_s - line.begin_s),
            micro=_part(line.micro, index, instances),
            list_micro=_part(listed, index, instances),
            trap=plan if covered and not index else "",
        )


def _own_machine(row: _Row, offering: str) -> HiredMachine:
    described = str(row.description or "").partition(",")[0]
    kind = type_in(described) or described or offering
    return HiredMachine(
        provider=str(row.provider or ""),
        region=str(row.region or ""),
        zone=str(row.zone or ""),
        instance_type=kind,
        gpus=gpus_of(kind),
    )


def _part(total: int, index: int, parts: int) -> int:
    return total * (index + 1) // parts - total * index // parts


def _count(value: Any, column: str, most: int) -> int:
    found = amount(value, column)
    if found != found.to_integral_value() or not 0 <= found <= Decimal(most):
        raise Wrong(column, f"a whole number from 0 to {most:,}", value)
    return int(found)
