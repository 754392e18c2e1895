"""What DescribeSpotPriceHistory answers, read: the moments at which spot prices changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD
from spotline.domain.units import micro_usd_from_usd, ns_from_datetime

IN_VPC = "Linux/UNIX (Amazon VPC)"
# Which of the two an account is told depends on its age; where both are, that of the VPC holds.
PRODUCTS = ("Linux/UNIX", IN_VPC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotPricePoint:
    """From `at_ns` on an instance type costs so much in a zone, until its next point.

    `zone_id` is empty where AWS only says the zone's name in this account.
    """

    zone_id: str
    zone_name: str
    instance_type: str
    product: str
    at_ns: int
    price_micro_usd: int


def read_point(row: Mapping[str, Any]) -> SpotPricePoint:
    """One row of `SpotPriceHistory`.

    Raises
    ------
    ContractError
        A member is missing or is none of its kind; names it.
    """
    price, moment = row.get("SpotPrice"), row.get("Timestamp")
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ContractError(
            "SpotPriceHistory[].Timestamp", f"expected a time with its zone, found {moment!r}"
        )
    try:
        usd = Decimal(str(price))
    except InvalidOperation as error:
        raise ContractError(
            "SpotPriceHistory[].SpotPrice", f"expected dollars, found {price!r}"
        ) from error
    micro_usd = micro_usd_from_usd(usd) if usd.is_finite() else 0
    if not 0 < micro_usd <= MOST_PRICE_MICRO_USD:
        raise ContractError(
            "SpotPriceHistory[].SpotPrice",
            f"expected dollars > 0, at most a million, found {price}",
        )
    instance_type = row.get("InstanceType")
    if not instance_type:
        raise ContractError("SpotPriceHistory[].InstanceType", "expected a type, found none")
    return SpotPricePoint(
        zone_id=str(row.get("AvailabilityZoneId") or ""),
        zone_name=str(row.get("AvailabilityZone") or ""),
        instance_type=str(instance_type),
        product=str(row.get("ProductDescription") or ""),
        at_ns=ns_from_datetime(moment),
        price_micro_usd=micro_usd,
    )


def points_by_place(
    points: Iterable[SpotPricePoint], zone_ids: Mapping[str, str]
) -> Mapping[tuple[str, str], Sequence[SpotPricePoint]]:
    """The points of each (zone id, instance type), oldest first.

    `zone_ids` are ids by this account's names, for points that have none. Where a place is quoted
    for the VPC and without it, the VPC's points are the ones.
    """
    found: dict[tuple[str, str], list[SpotPricePoint]] = {}
    for point in points:
        zone = point.zone_id or zone_ids.get(point.zone_name, point.zone_name)
        found.setdefault((zone, point.instance_type), []).append(point)
    return {
        place: sorted(_of_one_product(rows), key=lambda point: (point.at_ns, point.price_micro_usd))
        for place, rows in sorted(found.items())
    }


def _of_one_product(rows: list[SpotPricePoint]) -> list[SpotPricePoint]:
    in_vpc = [point for point in rows if point.product == IN_VPC]
    return in_vpc or rows
