"""What a launch costs beside its instance: NAT, traffic between zones, disks.

Prices are list prices of us-east-1 and differ elsewhere; they are estimates for a person. Bills and
decisions count disks as an offering states them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread
from spotline.adapters.clouds.aws.doctor.templates import TemplateFacts
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, left_open, ok, warning
from spotline.domain.market.offering import HOURS_PER_MONTH, Disks


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficPrices:
    """List prices in us-east-1, in USD, with where they are stated.

    NAT per gigabyte processed: https://aws.amazon.com/vpc/pricing/. Between zones per gigabyte and
    direction: https://aws.amazon.com/ec2/pricing/on-demand/, Data Transfer.
    """

    nat_usd_per_gb: float = 0.045
    zone_usd_per_gb: float = 0.01


# List prices in us-east-1, USD a gigabyte and month, by volume type, without what is provisioned beside:
# https://aws.amazon.com/ebs/pricing/, as of 2026. What says no type is taken for gp3.
DISK_USD_PER_GB_MONTH = {
    "gp3": 0.08,
    "gp2": 0.10,
    "io1": 0.125,
    "io2": 0.125,
    "st1": 0.045,
    "sc1": 0.015,
    "standard": 0.05,
}
# Above this a launch should not pull its image through a NAT.
_DEAR_USD = 0.25
_PRICES = TrafficPrices()


async def check_costs(
    reader: AwsReader, site: AwsPlace, offering: AwsOffering, found: TemplateFacts, image_gb: float
) -> list[CloudCheck]:
    """Estimate what one launch costs beside the instance; `image_gb` is pulled by each."""
    name, where = "costs", offering.offering_id
    checks = [_disks(where, found, offering.disks)]
    if not found.subnet_id or not found.vpc_id:
        return [*checks, left_open(name, where, "the way out of its subnet is not known")]
    look = Look(reader, name, site)
    try:
        tables = await look.rows(
            "ec2",
            "DescribeRouteTables",
            "RouteTables",
            Filters=[{"Name": "vpc-id", "Values": [found.vpc_id]}],
        )
        nat = nat_of(tables, found.subnet_id)
        if not nat:
            checks.append(ok(name, where, "nothing goes through a NAT gateway"))
            return checks
        gateways = await look.rows("ec2", "DescribeNatGateways", "NatGateways", NatGatewayIds=[nat])
        subnets = await look.ask(
            "ec2", "DescribeSubnets", SubnetIds=[str(gateways[0]["SubnetId"])] if gateways else []
        )
    except Unread as error:
        return [*checks, error.check]
    zones = {str(subnet.get("AvailabilityZoneId")) for subnet in subnets.get("Subnets", ())}
    checks.append(_pull(where, nat, image_gb, across=offering.zone not in zones))
    return checks


def nat_of(tables: list[Any], subnet_id: str) -> str:
    """The NAT gateway through which a subnet reaches the internet, empty for none."""
    own = [table for table in tables if _has(table, "SubnetId", subnet_id)]
    main = [table for table in tables if _has(table, "Main", True)]
    for table in (own or main)[:1]:
        for route in table.get("Routes", ()):
            if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("NatGatewayId"):
                return str(route["NatGatewayId"])
    return ""


def _has(table: Any, member: str, value: Any) -> bool:
    return any(each.get(member) == value for each in table.get("Associations", ()))


def _pull(where: str, nat: str, image_gb: float, *, across: bool) -> CloudCheck:
    per_gb = _PRICES.nat_usd_per_gb + (_PRICES.zone_usd_per_gb if across else 0.0)
    usd = per_gb * image_gb
    through = f"{nat}, in another zone" if across else nat
    said = (
        f"pulling {image_gb:g} GB through {through} costs {usd:.2f} USD a launch "
        f"({per_gb:.3f} USD/GB, list price of us-east-1)"
    )
    step = "pull from ECR or S3 through VPC endpoints, or put the image into the AMI"
    return warning("costs", where, said, step) if usd >= _DEAR_USD else ok("costs", where, said)


def _disks(where: str, found: TemplateFacts, stated: Disks | None) -> CloudCheck:
    """Whether what bills and decisions count is what the template makes."""
    if stated is not None:
        usd = stated.micro_usd_per_hour / 1e6
        said = f"disks of {stated.gb} GB are counted with {usd:.4f} USD an hour"
        if found.disk_gb is None:
            return left_open("costs", where, f"{said}; what the template makes is not known")
        if found.disk_gb == stated.gb:
            return ok("costs", where, said)
        return warning(
            "costs",
            where,
            f"{said}, but the template and its image make {found.disk_gb} GB",
            f"state disk_gb: {found.disk_gb} of the offering",
        )
    if found.disk_gb is None:
        return left_open("costs", where, "the size of its disks is not known")
    per_gb = disk_usd_per_gb_month(found.volumes)
    usd = found.disk_gb * per_gb / HOURS_PER_MONTH
    kinds = ", ".join(sorted(kind or "gp3" for kind in found.volumes))
    return warning(
        "costs",
        where,
        f"disks of {found.disk_gb} GB cost {usd:.4f} USD an hour ({kinds}, list price of us-east-1), "
        "and no bill, limit or decision counts them",
        f"state disk_gb: {found.disk_gb} and disk_usd_per_gb_month: {per_gb:.4g} (your region's price) "
        "of the offering",
    )


def disk_usd_per_gb_month(volumes: Mapping[str, int]) -> float:
    """What a gigabyte of such disks costs a month on average, by the list; of unknown types as gp3."""
    basic = DISK_USD_PER_GB_MONTH["gp3"]
    usd = sum(gb * DISK_USD_PER_GB_MONTH.get(kind, basic) for kind, gb in volumes.items())
    return usd / max(1, sum(volumes.values()))
