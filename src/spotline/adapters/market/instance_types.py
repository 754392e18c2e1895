"""GPU instance types named by the sources we import, and what they cost on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from spotline.contracts.errors import ContractError
from spotline.domain.market.notice import guaranteed_notice_s
from spotline.domain.market.offering import Offering
from spotline.domain.units import micro_usd_from_usd

US_LIST_PRICE_REGIONS = frozenset({"us-east-1", "us-east-2", "us-west-2"})
"""Regions in which AWS charges the list prices below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """GPUs of an instance type; `us_list_price_usd` is None where it changed over the years."""

    gpu_model: str
    gpus: int
    us_list_price_usd: Decimal | None = None


def _type(gpu_model: str, gpus: int, usd_per_hour: str | None = None) -> InstanceType:
    price = None if usd_per_hour is None else Decimal(usd_per_hour)
    return InstanceType(gpu_model=gpu_model, gpus=gpus, us_list_price_usd=price)


# Source: EC2 on-demand pricing page, Linux, us-east-1, us-east-2 and us-west-2
# (https://aws.amazon.com/ec2/pricing/on-demand/), unchanged over the years of the traces.
INSTANCE_TYPES: Mapping[str, InstanceType] = MappingProxyType(
    {
        "p2.xlarge": _type("k80", 1, "0.90"),
        "p2.8xlarge": _type("k80", 8, "7.20"),
        "p2.16xlarge": _type("k80", 16, "14.40"),
        "p3.2xlarge": _type("v100", 1, "3.06"),
        "p3.8xlarge": _type("v100", 4, "12.24"),
        "p3.16xlarge": _type("v100", 8, "24.48"),
        "g4dn.xlarge": _type("t4", 1, "0.526"),
        "g5.xlarge": _type("a10g", 1, "1.006"),
        "p4d.24xlarge": _type("a100-40gb", 8),
        "p4de.24xlarge": _type("a100-80gb", 8),
        "p5.48xlarge": _type("h100-80gb", 8),
    }
)


def aws_region(zone: str) -> str:
    """Region of an AWS zone: `us-east-2b` lies in `us-east-2`."""
    return zone.rstrip("abcdefghijklmnopqrstuvwxyz")


def in_place(zone: str, places: tuple[str, ...]) -> bool:
    """Whether a zone is wanted: `places` holds zones or regions, none means all."""
    return not places or zone in places or aws_region(zone) in places


def aws_offering(zone: str, instance_type: str, gpu_model: str, gpus: int) -> Offering:
    """The offering of an AWS zone in imported data."""
    region = aws_region(zone)
    return Offering(
        offering_id=f"aws:{zone}:{instance_type}",
        provider="aws",
        account="default",
        region=region,
        zone=zone,
        instance_type=instance_type,
        gpu_model=gpu_model,
        gpus_per_instance=gpus,
        quota_pool=f"aws:{region}:{instance_type.partition('.')[0]}",
        notice_lead_s=guaranteed_notice_s("aws"),
    )


def on_demand_micro_usd(zone: str, instance_type: str, given_usd: Decimal | None) -> int:
    """On-demand price per instance-hour: the given one, else the list price.

    Raises
    ------
    ContractError
        None is given and none is known for that type and region.
    """
    if given_usd is not None:
        return micro_usd_from_usd(given_usd)
    known = INSTANCE_TYPES.get(instance_type)
    if known is None or known.us_list_price_usd is None:
        priced = ", ".join(name for name, t in INSTANCE_TYPES.items() if t.us_list_price_usd)
        raise ContractError(
            "--on-demand-usd",
            f"expected an on-demand price per instance-hour of {instance_type}, found none "
            f"(known without it: {priced})",
        )
    if aws_region(zone) not in US_LIST_PRICE_REGIONS:
        raise ContractError(
            "--on-demand-usd",
            f"expected an on-demand price per instance-hour of {instance_type} in {zone}, found "
            f"none (known without it: {', '.join(sorted(US_LIST_PRICE_REGIONS))}; choose zones "
            "or regions with --zone)",
        )
    return micro_usd_from_usd(known.us_list_price_usd)
