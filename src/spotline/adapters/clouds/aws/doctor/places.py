"""Where instances are to run: regions, zones, instance types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, failed, ok, warning


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFacts:
    """What EC2 says of an instance type."""

    vcpus: int
    gpus: int
    architectures: tuple[str, ...]
    spot: bool


async def check_zones(
    reader: AwsReader, site: AwsPlace, offerings: Sequence[AwsOffering]
) -> list[CloudCheck]:
    """Whether the region answers, and its zones are open to the account."""
    name = "zones"
    try:
        answer = await Look(reader, name, site).ask(
            "ec2", "DescribeAvailabilityZones", AllAvailabilityZones=True
        )
    except Unread as error:
        return [error.check]
    zones = {str(zone.get("ZoneId")): zone for zone in answer.get("AvailabilityZones", ())}
    known = ", ".join(sorted(zones))
    checks = []
    for zone in sorted({offering.zone for offering in offerings}):
        found = zones.get(zone)
        if found is None:
            detail, step = f"{zone} is no zone of {site.region}", f"state one of {known}, by its id"
        elif found.get("OptInStatus") == "not-opted-in":
            detail, step = f"{zone} is not opted into", "enable the zone group, or leave it out"
        elif found.get("State", "available") != "available":
            detail, step = f"{zone} is {found.get('State')}", "wait, or leave it out"
        else:
            continue
        checks.append(failed(name, str(site), detail, step))
    return checks or [ok(name, str(site), f"the region answers; zones are open: {known}")]


async def type_facts(
    reader: AwsReader, site: AwsPlace, offerings: Iterable[AwsOffering]
) -> Mapping[str, TypeFacts]:
    """What EC2 says of the types of some offerings; raises `Unread`."""
    types = sorted({offering.instance_type for offering in offerings})
    rows = await Look(reader, "instance types", site).rows(
        "ec2", "DescribeInstanceTypes", "InstanceTypes", InstanceTypes=types
    )
    return {str(row["InstanceType"]): _facts(row) for row in rows}


async def check_types(
    reader: AwsReader,
    site: AwsPlace,
    offerings: Sequence[AwsOffering],
    facts: Mapping[str, TypeFacts],
) -> list[CloudCheck]:
    """Whether each type is sold in its zone, as spot, with the GPUs that are stated."""
    name = "instance types"
    checks = [check for offering in offerings for check in _of_facts(offering, facts)]
    try:
        rows = await Look(reader, name, site).rows(
            "ec2",
            "DescribeInstanceTypeOfferings",
            "InstanceTypeOfferings",
            LocationType="availability-zone-id",
            Filters=[
                {
                    "Name": "instance-type",
                    "Values": sorted({offering.instance_type for offering in offerings}),
                }
            ],
        )
    except Unread as error:
        return [*checks, error.check]
    sold = {(str(row.get("Location")), str(row.get("InstanceType"))) for row in rows}
    for offering in offerings:
        if (offering.zone, offering.instance_type) not in sold:
            zones = sorted(zone for zone, kind in sold if kind == offering.instance_type)
            checks.append(
                failed(
                    name,
                    offering.offering_id,
                    f"{offering.instance_type} is not sold in {offering.zone}",
                    f"use one of {', '.join(zones)}" if zones else "use another region",
                )
            )
    return checks or [ok(name, str(site), "each is sold in its zone, with the GPUs stated")]


def _of_facts(offering: AwsOffering, facts: Mapping[str, TypeFacts]) -> list[CloudCheck]:
    name, where, found = "instance types", offering.offering_id, facts.get(offering.instance_type)
    if found is None:
        return [
            failed(name, where, f"EC2 knows no {offering.instance_type}", "state a type of EC2")
        ]
    checks = []
    if found.gpus != offering.gpus_per_instance:
        checks.append(
            failed(
                name,
                where,
                f"{offering.instance_type} has {found.gpus} GPUs, "
                f"{offering.gpus_per_instance} are stated",
                f"set gpus_per_instance to {found.gpus}",
            )
        )
    if not found.spot:
        checks.append(
            warning(name, where, "it is not sold as spot", "expect on-demand prices alone")
        )
    return checks


def _facts(row: Mapping[str, Any]) -> TypeFacts:
    gpus = row.get("GpuInfo", {}).get("Gpus", ())
    usage = row.get("SupportedUsageClasses", ("on-demand", "spot"))
    return TypeFacts(
        vcpus=int(row.get("VCpuInfo", {}).get("DefaultVCpus", 0)),
        gpus=sum(int(gpu.get("Count", 0)) for gpu in gpus),
        architectures=tuple(row.get("ProcessorInfo", {}).get("SupportedArchitectures", ())),
        spot="spot" in usage,
    )
