"""Lines of Google Cloud's billing export to BigQuery, standard and detailed, as a table in a file.

Columns: https://cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/detailed-usage.
A column within another is named with a dot or an underscore between (`service.description`,
`service_description`). A machine is several lines an hour, one each for GPUs, cores and memory; only
that of its GPUs tells for how long it ran. A commitment to use is a fee on the one hand and credits
on what it covered on the other; the fee is spread over what was covered, by the amounts of use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from spotline.adapters.bills.machines import gpus_of
from spotline.adapters.bills.period import period
from spotline.adapters.table_cells import Carry, Wrong, amount, json_cell, tags, whole_micro
from spotline.domain.assessment.facts import BoughtAs, HiredMachine
from spotline.domain.assessment.lines import ExportLine, LineKind

REQUIRED = (
    "service.description",
    "sku.description",
    "usage_start_time",
    "usage_end_time",
    "cost",
    "currency",
)
OPTIONAL = (
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
    "cost_at_list",
    "seller_name",
)
TELLING_APART = ("billing_account_id", "project.id", "sku.id", "invoice.month")
"""Columns of which nothing is read but that two rows differ in them."""

_SPEC = "compute.googleapis.com/machine_spec"
_GPU = re.compile(r"\bGPU\b|\bNvidia\b", re.IGNORECASE)
_MACHINE = re.compile(r"\bInstance (?:Core|Ram)\b|running in|attached to", re.IGNORECASE)
_COMMITMENT = re.compile(r"^Commitment", re.IGNORECASE)
_TRAFFIC = re.compile(r"egress|data transfer|network.*out", re.IGNORECASE)
_DISK = re.compile(r"\bPD\b|persistent disk|hyperdisk|snapshot|local ssd", re.IGNORECASE)
_COMMITTED = ("COMMITTED_USAGE_DISCOUNT", "COMMITTED_USAGE_DISCOUNT_DOLLAR_BASE")
_GIVEN = ("PROMOTION", "FREE_TIER", "SUBSCRIPTION_BENEFIT")
_GOOGLE = ("", "Google", "Google LLC", "Google Cloud")


# Memory is in byte-seconds: a terabyte over a month is 10^18.
_MOST_USED = Decimal(10) ** 24
_MOST_S = Decimal(10) ** 12


class _Row(NamedTuple):
    """The cells of `REQUIRED` and `OPTIONAL`, by name."""

    service: Any
    sku: Any
    begin: Any
    end: Any
    cost: Any
    currency: Any
    credits: Any
    usage: Any
    unit: Any
    cost_type: Any
    labels: Any
    system_labels: Any
    region: Any
    zone: Any
    name: Any
    global_name: Any
    listed: Any
    seller: Any


@dataclass(slots=True)
class _Commitment:
    """Of one class of resource: what was committed and paid, and what covered lines used of it."""

    fee: Decimal = Decimal(0)
    committed: Decimal = Decimal(0)
    covered: Decimal = Decimal(0)
    by_resource: dict[str, Decimal] = field(default_factory=dict)
    last: ExportLine | None = None
    rows: int = 0


class GcpReader:
    """Turns rows into lines; `names` are the columns of the file."""

    def __init__(self, names: Sequence[str]) -> None:
        self._carry = Carry()
        self.naive = False
        there = set(names)
        known = (*REQUIRED, *OPTIONAL, *TELLING_APART)
        self.columns: Sequence[str] = [
            name if name in there else name.replace(".", "_") for name in known
        ]
        self._commitments: dict[tuple[str, str], _Commitment] = {}
        self._lasting: dict[str, ExportLine] = {}

    def may_repeat(self, cells: tuple[Any, ...]) -> bool:
        """Whether the same row again is the same charge: it names a resource or is no usage."""
        row = _Row(*cells[: len(_Row._fields)])
        return bool(row.global_name or row.name) or row.cost_type not in (None, "", "regular")

    def lines(self, number: int, cells: tuple[Any, ...]) -> Iterator[ExportLine]:
        """The line of a row, and one for each of its credits; raises `Wrong`."""
        row = _Row(*cells[: len(_Row._fields)])
        begin_s, end_s, self.naive = period(row.begin, row.end, *self.columns[2:4])
        currency = str(row.currency or "")
        if not currency:
            raise Wrong(self.columns[5], "a currency such as USD", row.currency)
        cost = amount(row.cost, self.columns[4])
        named = tags(row.labels, self.columns[10])
        if row.name:
            named = tuple(sorted((*named, ("name", str(row.name)))))
        line = ExportLine(
            row=number,
            kind=LineKind.APART,
            begin_s=begin_s,
            end_s=end_s,
            micro=0,
            currency=currency,
            resource=_resource(row),
            tags=named,
        )
        if _COMMITMENT.search(str(row.sku or "")) and row.cost_type in (None, "", "regular"):
            off = sum((each for _, each in _credits(row.credits, self.columns[6])), Decimal(0))
            yield self._fee(row, line, cost + off)
            return
        line = line._replace(micro=self._carry.micro(cost, currency))
        line = line._replace(noted_micro=line.micro)
        credits = list(_credits(row.credits, self.columns[6]))
        covered = -sum((each for kind, each in credits if kind in _COMMITTED), Decimal(0))
        line = self._classified(row, line, committed=bool(cost) and covered * 2 > cost)
        yield line
        for kind, money in credits:
            yield self._credited(kind, money, line)
        if covered > 0 and cost > 0:
            self._cover(row, line, self._used(row) * min(Decimal(1), covered / cost))

    def finish(self) -> Iterator[ExportLine]:
        """The fees of commitments: on what they covered, and what of them nothing used."""
        for key in sorted(self._commitments):
            held = self._commitments[key]
            if held.last is None:
                continue
            # Where a fee says no amount, as one in dollars, all of it counts as used by what it covered.
            share = Decimal(1) if held.covered else Decimal(0)
            if held.committed:
                share = min(Decimal(1), held.covered / held.committed)
            used = held.fee * share
            for resource in sorted(held.by_resource):
                part = used * held.by_resource[resource] / held.covered
                micro = self._carry.micro(part, key[1])
                yield self._lasting[resource]._replace(
                    kind=LineKind.CORRECTION, micro=micro, trap="reserved", noted_micro=micro
                )
            micro = self._carry.micro(held.fee - used, key[1])
            if micro:
                unused = "unused_commitment"
                yield held.last._replace(
                    kind=LineKind.UNUSED, micro=micro, trap=unused, noted_micro=micro
                )

    # --- commitments ----------------------------------------------------------------------------

    def _fee(self, row: _Row, line: ExportLine, cost: Decimal) -> ExportLine:
        held = self._of_class(row, line.currency)
        held.fee += cost
        held.committed += self._used(row)
        held.last = line
        return line._replace(trap="commitment_purchase", noted_micro=whole_micro(cost))

    def _cover(self, row: _Row, line: ExportLine, used: Decimal) -> None:
        if used <= 0:
            return
        held = self._of_class(row, line.currency)
        held.covered += used
        held.by_resource[line.resource] = held.by_resource.get(line.resource, Decimal(0)) + used
        before = self._lasting.get(line.resource)
        if before is None or before.begin_s < line.begin_s:
            self._lasting[line.resource] = line._replace(used_s=None, list_micro=0)

    def _of_class(self, row: _Row, currency: str) -> _Commitment:
        key = _class_of(str(row.sku or "")), currency
        return self._commitments.setdefault(key, _Commitment())

    def _credited(self, kind: str, money: Decimal, line: ExportLine) -> ExportLine:
        micro = self._carry.micro(money, line.currency)
        trap = "reserved" if kind in _COMMITTED else "credit" if kind in _GIVEN else "discount"
        beside = line.kind in (LineKind.EGRESS, LineKind.DISK)
        return line._replace(
            kind=line.kind if beside else LineKind.CORRECTION,
            micro=micro,
            noted_micro=micro,
            trap=trap,
            used_s=None,
            list_micro=0,
        )

    def _used(self, row: _Row) -> Decimal:
        return amount(row.usage, self.columns[7], _MOST_USED)

    # --- kinds of lines -------------------------------------------------------------------------

    def _classified(self, row: _Row, line: ExportLine, *, committed: bool) -> ExportLine:
        cost_type, sku = str(row.cost_type or "regular"), str(row.sku or "")
        if cost_type == "tax":
            return line._replace(trap="tax")
        if cost_type == "adjustment":
            return line._replace(kind=LineKind.CORRECTION, trap="refund")
        if str(row.seller or "") not in _GOOGLE:
            return line._replace(trap="marketplace")
        sort = _sort_of(sku)
        if sort in (LineKind.EGRESS, LineKind.DISK):
            return line._replace(kind=sort)
        if "support" in str(row.service or "").lower():
            return line._replace(trap="support")
        if row.service != "Compute Engine" or sort is not LineKind.INSTANCE:
            # Rows that only carry a credit have no money of their own.
            return line._replace(trap="other_service" if line.micro else "")
        return self._timed(row, line, committed=committed)

    def _timed(self, row: _Row, line: ExportLine, *, committed: bool) -> ExportLine:
        sku = str(row.sku or "")
        spec = dict(tags(row.system_labels, self.columns[11])).get(_SPEC, "")
        used = self._used(row)
        gpus, used_s = gpus_of(spec), None
        if _GPU.search(sku):
            window_s = max(1, line.end_s - line.begin_s)
            # A machine to which GPUs were attached: as many as its use takes for the window.
            gpus = gpus or min(16, max(1, -int(-used // window_s)))
            if row.unit == "seconds" and not 0 <= used <= _MOST_S:
                raise Wrong(self.columns[7], f"seconds from 0 to {_MOST_S:,}", row.usage)
            used_s = round(used / gpus) if row.unit == "seconds" else None
        machine = _machine_at(str(row.region or ""), str(row.zone or ""), spec, gpus)
        if used_s == 0 or line.begin_s == line.end_s:
            return line._replace(kind=LineKind.CORRECTION, machine=machine, trap="zero_duration")
        spot = "preemptible" in sku.lower()
        listed = row.listed if row.listed not in (None, "") else row.cost
        listed_micro = 0 if spot else whole_micro(amount(listed, "cost_at_list"))
        on_demand = BoughtAs.COMMITTED if committed else BoughtAs.ON_DEMAND
        return line._replace(
            kind=LineKind.INSTANCE,
            machine=machine,
            purchase=BoughtAs.SPOT if spot else on_demand,
            used_s=used_s,
            list_micro=listed_micro,
        )


@lru_cache(maxsize=10_000)
def _machine_at(region: str, zone: str, instance_type: str, gpus: int) -> HiredMachine:
    return HiredMachine(
        provider="gcp", region=region, zone=zone, instance_type=instance_type, gpus=gpus
    )


# A bill has few SKUs and many rows.
@lru_cache(maxsize=100_000)
def _sort_of(sku: str) -> LineKind:
    """What a SKU is of."""
    if _TRAFFIC.search(sku):
        return LineKind.EGRESS
    if _DISK.search(sku):
        return LineKind.DISK
    machine = _MACHINE.search(sku) or _GPU.search(sku)
    return LineKind.INSTANCE if machine else LineKind.APART


@lru_cache(maxsize=100_000)
def _class_of(sku: str) -> str:
    """Which resource a commitment is to: GPUs, memory, cores, or dollars."""
    lowered = sku.lower()
    if "dollar" in lowered:
        return "dollars"
    if _GPU.search(sku):
        return "gpus"
    return "memory" if re.search(r"\bram\b|memory", lowered) else "cores"


def _resource(row: _Row) -> str:
    """An instance's number, where the export has it; names may be given again."""
    full = str(row.global_name or "")
    return full.rpartition("/")[2] if full else str(row.name or "")


def _credits(value: Any, column: str) -> Iterator[tuple[str, Decimal]]:
    if not value or value == "[]":
        return
    listed = json_cell(value, column) if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise Wrong(column, "a list of credits, each with type and amount", value)
    for each in listed:
        money = amount(each.get("amount"), column)
        if money:
            yield str(each.get("type") or ""), money
