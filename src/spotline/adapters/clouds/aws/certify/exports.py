"""The provider's bill, read from an export, and our count beside it, resource by resource.

Columns of three kinds of export: the Cost and Usage Report
(https://docs.aws.amazon.com/cur/latest/userguide/Lineitem-columns.html), CUR 2.0 of Data Exports
(https://docs.aws.amazon.com/cur/latest/userguide/table-dictionary-cur2-line-item.html) and FOCUS
(https://focus.finops.org/focus-specification/, ResourceId, BilledCost).
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path

from spotline.adapters.clouds.aws.certify.record import HeldForTrial
from spotline.application.cloud_checks import ReconciledLine
from spotline.contracts.errors import ContractError
from spotline.domain.units import micro_usd_from_usd

# Dollars are rounded by the line, and an instance has one line an hour.
TOLERATED_MICRO_USD = 100
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportColumns:
    """How a kind of export calls what is read of it; `usage` may be absent."""

    kind: str
    resource: str
    cost: str
    usage: str


COLUMNS = (
    ExportColumns(
        kind="Cost and Usage Report",
        resource="lineItem/ResourceId",
        cost="lineItem/UnblendedCost",
        usage="lineItem/UsageType",
    ),
    ExportColumns(
        kind="CUR 2.0",
        resource="line_item_resource_id",
        cost="line_item_unblended_cost",
        usage="line_item_usage_type",
    ),
    ExportColumns(
        kind="FOCUS", resource="ResourceId", cost="BilledCost", usage="ChargeDescription"
    ),
)
_AGREE = ("same", "cheaper as spot")
_NOT_YET, _CHEAPER = "not on the bill: exports lag by a day or more", "cheaper than counted"
# What an instance itself costs; traffic and the like have the same resource id.
_OF_INSTANCES = ("BoxUsage", "SpotUsage", "instance hour", "instance-hour", "per hour")


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledLine:
    """A line of the bill."""

    resource_id: str
    usage: str
    cost_micro_usd: int

    @property
    def of_instance(self) -> bool:
        """Whether it is the instance's own price."""
        return not self.usage or any(word in self.usage for word in _OF_INSTANCES)


def read_export(path: Path) -> tuple[BilledLine, ...]:
    """Read the lines of a CSV, packed with gzip or not.

    Raises
    ------
    ContractError
        It is none of the kinds that are known, or a cost is no number; names file and line.
    OSError
        It cannot be read.
    """
    raw = path.read_bytes()
    try:
        text = (gzip.decompress(raw) if raw[:2] == _GZIP else raw).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ContractError(str(path), f"expected CSV, found {error}") from error
    try:
        return tuple(_lines(csv.DictReader(io.StringIO(text)), path))
    except csv.Error as error:
        raise ContractError(str(path), f"expected CSV, found {error}") from error


def _lines(reader: csv.DictReader[str], path: Path) -> Iterator[BilledLine]:
    columns = _columns(reader.fieldnames or (), path)
    for number, row in enumerate(reader, start=2):
        resource = row.get(columns.resource) or ""
        if not resource:
            continue
        try:
            cost = micro_usd_from_usd(Decimal(row.get(columns.cost) or ""))
        except (InvalidOperation, ValueError) as error:
            raise ContractError(
                f"{path}:{number}",
                f"{columns.cost}: expected dollars, found {row.get(columns.cost)!r}",
            ) from error
        # FOCUS names resources by ARN in some exports.
        name = resource.rpartition("/")[2] if resource.startswith("arn:") else resource
        yield BilledLine(resource_id=name, usage=row.get(columns.usage) or "", cost_micro_usd=cost)


def reconciled(
    held: Iterable[HeldForTrial], lines: Iterable[BilledLine]
) -> Sequence[ReconciledLine]:
    """Our count and the bill, instance by instance, in order of ids, then the disks of each."""
    billed: dict[str, int] = {}
    beside: dict[str, int] = {}
    for line in lines:
        into = billed if line.of_instance else beside
        into[line.resource_id] = into.get(line.resource_id, 0) + line.cost_micro_usd
    known = sorted(held, key=lambda each: each.instance_id)
    instances = (
        ReconciledLine(
            instance_id=each.instance_id,
            capacity_type=each.capacity_type,
            ours_micro_usd=each.cost_micro_usd,
            billed_micro_usd=billed.get(each.instance_id),
            beside_micro_usd=beside.get(each.instance_id, 0),
            verdict=(verdict := _verdict(each, billed.get(each.instance_id))),
            agrees=verdict in _AGREE,
        )
        for each in known
    )
    of_all = {name: billed.get(name, 0) + beside.get(name, 0) for name in billed | beside}
    return (*instances, *(_disks(each, of_all) for each in known if each.disks is not None))


def _disks(held: HeldForTrial, billed: Mapping[str, int]) -> ReconciledLine:
    """An instance's disks beside the lines of its volumes."""
    shown = [billed[name] for name in held.volume_ids if name in billed]
    if not held.volume_ids:
        verdict = "its volumes were not seen: their lines cannot be told"
    elif not shown:
        verdict = _NOT_YET
    else:
        verdict = _compared(sum(shown) - held.disk_micro_usd)
    return ReconciledLine(
        instance_id=", ".join(held.volume_ids) or held.instance_id,
        capacity_type="disks",
        ours_micro_usd=held.disk_micro_usd,
        billed_micro_usd=sum(shown) if shown else None,
        beside_micro_usd=0,
        verdict=verdict,
        agrees=verdict in _AGREE,
    )


def _verdict(held: HeldForTrial, billed: int | None) -> str:
    if billed is None:
        return _NOT_YET
    verdict = _compared(billed - held.cost_micro_usd)
    cheaper_spot = verdict == _CHEAPER and held.capacity_type == "spot"
    return "cheaper as spot" if cheaper_spot else verdict


def _compared(difference: int) -> str:
    """What it means that the bill has so much more."""
    if abs(difference) <= TOLERATED_MICRO_USD:
        return "same"
    return "dearer than counted" if difference > 0 else _CHEAPER


def _columns(names: Iterable[str], path: Path) -> ExportColumns:
    found = set(names)
    for columns in COLUMNS:
        if {columns.resource, columns.cost} <= found:
            return columns
    kinds = "; ".join(f"{each.kind}: {each.resource}, {each.cost}" for each in COLUMNS)
    raise ContractError(
        str(path), f"expected the columns of an export ({kinds}), with resource ids, found none"
    )
