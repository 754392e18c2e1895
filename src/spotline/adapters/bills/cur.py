"""Lines of AWS Cost and Usage Reports: legacy CSV, the Parquet of Athena, and CUR 2.0.

Columns: https://docs.aws.amazon.com/cur/latest/userguide/data-dictionary.html and
https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2.html. What savings plans and
reservations cost is taken as AWS advises for amortised cost
(https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-usingcur.html): covered lines at their
effective cost, negations and upfront fees at nothing, recurring fees at what of them was not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from spotline.adapters.bills.machines import gpus_of, type_in
from spotline.adapters.bills.period import period
from spotline.adapters.market.instance_types import aws_region
from spotline.adapters.table_cells import Carry, Wrong, amount, tags, whole_micro
from spotline.domain.assessment.facts import BoughtAs, HiredMachine
from spotline.domain.assessment.lines import ExportLine, LineKind, Tags
from spotline.domain.units import S_PER_HOUR

REQUIRED = (
    "lineItem/LineItemType",
    "lineItem/UsageStartDate",
    "lineItem/UsageEndDate",
    "lineItem/UsageType",
    "lineItem/UsageAmount",
    "lineItem/ResourceId",
    "lineItem/CurrencyCode",
    "lineItem/UnblendedCost",
)
OPTIONAL = (
    "lineItem/ProductCode",
    "lineItem/Operation",
    "lineItem/AvailabilityZone",
    "lineItem/LineItemDescription",
    "bill/BillingEntity",
    "product/instanceType",
    "product/region",
    "product/regionCode",
    "pricing/publicOnDemandCost",
    "savingsPlan/SavingsPlanARN",
    "savingsPlan/SavingsPlanEffectiveCost",
    "savingsPlan/TotalCommitmentToDate",
    "savingsPlan/UsedCommitment",
    "reservation/ReservationARN",
    "reservation/EffectiveCost",
    "reservation/UnusedAmortizedUpfrontFeeForBillingPeriod",
    "reservation/UnusedRecurringFee",
)
TELLING_APART = (
    "bill/InvoiceId",
    "bill/PayerAccountId",
    "lineItem/UsageAccountId",
    "lineItem/TaxType",
    "lineItem/LegalEntity",
)
"""Columns of which nothing is read but that two rows differ in them."""

_TAG_COLUMNS = ("resourceTags/", "resource_tags_")
_TAG_MAP = "resource_tags"
_MACHINE = re.compile(r"(?:Box|Spot|Heavy|Dedicated)Usage(?::(?P<type>[\w.-]+))?$")
_UNUSED = re.compile(r"UnusedBox|UnusedDed")
_TRAFFIC = re.compile(r"DataTransfer|Out-Bytes|In-Bytes")
_CAMEL = re.compile(r"(?<!^)(?=[A-Z])")


def snake(name: str) -> str:
    """A legacy column under its name in CUR 2.0: `lineItem/UsageType` is `line_item_usage_type`."""
    group, _, column = name.partition("/")
    return "_".join(_CAMEL.sub("_", part).lower() for part in (group, column))


REQUIRED_2 = tuple(map(snake, REQUIRED))


class _Row(NamedTuple):
    """The cells of `REQUIRED` and `OPTIONAL`, by name; then the tags."""

    kind: Any
    begin: Any
    end: Any
    usage_type: Any
    usage: Any
    resource: Any
    currency: Any
    unblended: Any
    product: Any
    operation: Any
    zone: Any
    description: Any
    entity: Any
    instance_type: Any
    region: Any
    region_code: Any
    on_demand: Any
    plan: Any
    plan_effective: Any
    plan_total: Any
    plan_used: Any
    reservation: Any
    reservation_effective: Any
    unused_upfront: Any
    unused_recurring: Any


class CurReader:
    """Turns rows into lines; `names` are the columns of the file."""

    def __init__(self, names: Sequence[str]) -> None:
        self._carry = Carry()
        self.naive = False
        there = set(names)
        # The name of each column in this file; errors use it too.
        known = (*REQUIRED, *OPTIONAL, *TELLING_APART)
        self._named = [name if name in there else snake(name) for name in known]
        self._tags = [name for name in names if name.startswith(_TAG_COLUMNS) and name != _TAG_MAP]
        self._keys = tuple(_tag_key(name) for name in self._tags)
        self.columns: Sequence[str] = (*self._named, *self._tags, _TAG_MAP)
        self._plans_told = self._has("savingsPlan/UsedCommitment", there)
        self._fees_told = self._has("reservation/UnusedRecurringFee", there)

    def may_repeat(self, cells: tuple[Any, ...]) -> bool:
        """Whether the same row again is the same charge: it names a resource or comes once anyway."""
        return bool(cells[5]) or cells[0] != "Usage"

    def finish(self) -> Iterator[ExportLine]:
        """What only the whole bill tells: nothing here."""
        return iter(())

    def lines(self, number: int, cells: tuple[Any, ...]) -> Iterator[ExportLine]:
        """The lines of a row; raises `Wrong`."""
        row = _Row(*cells[: len(_Row._fields)])
        begin_s, end_s, self.naive = period(row.begin, row.end, *self._named[1:3])
        currency = str(row.currency or "")
        if not currency:
            raise Wrong(self._named[6], "a currency such as USD", row.currency)
        money, noted = self._money(row)
        line = ExportLine(
            row=number,
            kind=LineKind.APART,
            begin_s=begin_s,
            end_s=end_s,
            micro=self._carry.micro(money, currency),
            currency=currency,
            resource=_short(str(row.resource or "")),
            tags=self._row_tags(cells[len(self._named) :]),
        )
        line = line._replace(noted_micro=line.micro if noted is None else whole_micro(noted))
        yield from self._of_type(row, line)

    def _of_type(self, row: _Row, line: ExportLine) -> Iterator[ExportLine]:
        kind = str(row.kind or "")
        if kind in ("Usage", "SavingsPlanCoveredUsage", "DiscountedUsage"):
            yield self._usage(row, line, kind)
        elif kind in ("SavingsPlanRecurringFee", "RIFee"):
            if line.micro:
                unused = "unused_commitment"
                yield line._replace(kind=LineKind.UNUSED, trap=unused, noted_micro=line.micro)
            yield line._replace(micro=0, trap="commitment_purchase")
        elif kind == "SavingsPlanNegation":
            yield line._replace(trap="savings_plan_negation")
        elif kind == "SavingsPlanUpfrontFee" or (kind == "Fee" and row.reservation):
            yield line._replace(trap="commitment_purchase")
        elif kind in ("Credit", "Refund"):
            yield line._replace(kind=LineKind.CORRECTION, trap=kind.lower())
        elif kind.endswith("Discount"):
            yield line._replace(kind=LineKind.CORRECTION, trap="discount")
        elif kind == "Tax":
            yield line._replace(trap="tax")
        elif not kind:
            raise Wrong(self._named[0], "a type such as Usage", row.kind)
        else:
            yield line._replace(trap=_apart(row))

    def _money(self, row: _Row) -> tuple[Decimal, Decimal | None]:
        """What a row costs with commitments spread, and what it asks for where that is named apart."""
        asked = amount(row.unblended, self._named[7])
        if row.kind == "SavingsPlanCoveredUsage":
            return amount(row.plan_effective, self._named[18]), None
        if row.kind == "DiscountedUsage":
            return amount(row.reservation_effective, self._named[22]), None
        if row.kind == "SavingsPlanRecurringFee":
            if not self._plans_told:
                raise Wrong(self._named[20], "the column, to tell what of a plan was used", None)
            total = amount(row.plan_total, self._named[19])
            return total - amount(row.plan_used, self._named[20]), asked
        if row.kind == "RIFee":
            if not self._fees_told:
                raise Wrong(self._named[24], "the column, to tell what of it was used", None)
            upfront = amount(row.unused_upfront, self._named[23])
            return upfront + amount(row.unused_recurring, self._named[24]), asked
        if row.kind in ("SavingsPlanNegation", "SavingsPlanUpfrontFee"):
            return Decimal(0), asked
        if row.kind == "Fee" and row.reservation:
            return Decimal(0), asked
        return asked, None

    def _usage(self, row: _Row, line: ExportLine, kind: str) -> ExportLine:
        usage_type = str(row.usage_type or "")
        if row.entity == "AWS Marketplace":
            return line._replace(trap="marketplace")
        sort, named = _sort_of(usage_type)
        if sort is LineKind.UNUSED:
            return line._replace(kind=sort, trap="unused_commitment")
        if sort is LineKind.APART:
            return line._replace(trap=_apart(row))
        if sort is not LineKind.INSTANCE:
            return line._replace(kind=sort)
        instance_type = str(row.instance_type or named)
        instance_type = instance_type or type_in(str(row.description or ""))
        machine = _machine(row, instance_type)
        used_s = round(amount(row.usage, self._named[4]) * S_PER_HOUR)
        if used_s < 0:
            # Taken back, though the line does not call itself a refund.
            return line._replace(kind=LineKind.CORRECTION, trap="refund")
        if used_s == 0 or line.begin_s == line.end_s:
            correction = LineKind.CORRECTION
            return line._replace(kind=correction, machine=machine, trap="zero_duration")
        purchase = BoughtAs.SPOT if "SpotUsage" in usage_type else BoughtAs.ON_DEMAND
        trap = {"SavingsPlanCoveredUsage": "savings_plan", "DiscountedUsage": "reserved"}.get(kind)
        listed = whole_micro(amount(row.on_demand, self._named[16]))
        if purchase is BoughtAs.SPOT and listed <= line.micro:
            listed = 0  # The spot price itself.
        return line._replace(
            kind=LineKind.INSTANCE,
            machine=machine,
            purchase=purchase if trap is None else BoughtAs.COMMITTED,
            used_s=used_s,
            list_micro=listed,
            trap=trap or "",
        )

    def _row_tags(self, cells: Sequence[Any]) -> Tags:
        mapped = cells[-1]
        # A map of Parquet comes as a list, which is no key.
        return _named_tags(
            self._keys, tuple(cells[:-1]), tuple(mapped) if isinstance(mapped, list) else mapped
        )

    @staticmethod
    def _has(name: str, there: set[str]) -> bool:
        return name in there or snake(name) in there


@lru_cache(maxsize=100_000)
def _named_tags(keys: tuple[str, ...], cells: tuple[Any, ...], mapped: Any) -> Tags:
    """The tags of columns of their own, and those of a map or its JSON."""
    named = {key: str(cell) for key, cell in zip(keys, cells, strict=True) if cell}
    if mapped:
        listed = list(mapped) if isinstance(mapped, tuple) else mapped
        named |= dict(tags(listed, _TAG_MAP))
    return tuple(sorted(named.items()))


# A bill has few types of use and many rows.
@lru_cache(maxsize=100_000)
def _sort_of(usage_type: str) -> tuple[LineKind, str]:
    """What a type of use is, and the instance type that it names."""
    if _UNUSED.search(usage_type):
        return LineKind.UNUSED, ""
    if _TRAFFIC.search(usage_type):
        return LineKind.EGRESS, ""
    if "EBS:" in usage_type:
        return LineKind.DISK, ""
    match = _MACHINE.search(usage_type)
    return (LineKind.APART, "") if match is None else (LineKind.INSTANCE, match["type"] or "")


def _tag_key(column: str) -> str:
    for prefix in _TAG_COLUMNS:
        column = column.removeprefix(prefix)
    return column


def _short(resource: str) -> str:
    """An ARN's last part: the id by which machines' lines name themselves."""
    return resource.rpartition("/")[2] if resource.startswith("arn:") else resource


@lru_cache(maxsize=10_000)
def _machine_at(region: str, zone: str, instance_type: str) -> HiredMachine:
    return HiredMachine(
        provider="aws",
        region=region or aws_region(zone),
        zone=zone,
        instance_type=instance_type,
        gpus=gpus_of(instance_type),
    )


def _machine(row: _Row, instance_type: str) -> HiredMachine:
    region = str(row.region_code or row.region or "")
    return _machine_at(region, str(row.zone or ""), instance_type)


def _apart(row: _Row) -> str:
    if row.entity == "AWS Marketplace":
        return "marketplace"
    product = str(row.product or "")
    return "support" if "Support" in product else "other_service"
