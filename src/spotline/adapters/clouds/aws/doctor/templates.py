"""The user's launch templates: that they are there, fit their zone and type, and cost no surprise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread
from spotline.adapters.clouds.aws.doctor.places import TypeFacts
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, failed, ok, warning

_NAME = "launch template"


@dataclass(slots=True)
class TemplateFacts:
    """What is known of an offering's launch: the template's data, its subnet and its disks.

    `disk_gb` is None where neither template nor image says it; `volumes` are gigabytes by volume type,
    by "" where none is said.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    subnet_id: str = ""
    vpc_id: str = ""
    disk_gb: int | None = None
    volumes: Mapping[str, int] = field(default_factory=dict)
    checks: list[CloudCheck] = field(default_factory=list)


async def check_template(
    reader: AwsReader, site: AwsPlace, offering: AwsOffering, facts: Mapping[str, TypeFacts]
) -> TemplateFacts:
    """Look at the launch template of an offering, its image and its subnet."""
    look, found = Look(reader, _NAME, site), TemplateFacts()
    where, template = offering.offering_id, offering.launch_template_id
    try:
        versions = await look.rows(
            "ec2",
            "DescribeLaunchTemplateVersions",
            "LaunchTemplateVersions",
            LaunchTemplateId=template,
            Versions=[offering.launch_template_version],
        )
    except Unread as error:
        found.checks.append(error.check)
        return found
    if not versions:
        found.checks.append(
            failed(
                _NAME,
                where,
                f"{template} has no version {offering.launch_template_version}",
                "state a version that is there, or $Default",
            )
        )
        return found
    found.data = versions[0].get("LaunchTemplateData", {})
    _check_data(found, where)
    _check_reservation(found, offering)
    await _check_image(look, found, offering, facts)
    await _check_subnet(look, found, offering)
    if not found.checks:
        found.checks.append(ok(_NAME, where, f"{template} fits its zone and type"))
    return found


def _check_data(found: TemplateFacts, where: str) -> None:
    data = found.data
    if data.get("InstanceMarketOptions"):
        found.checks.append(
            failed(
                _NAME,
                where,
                "it says itself whether to buy spot (InstanceMarketOptions), and a fleet refuses that",
                "leave InstanceMarketOptions out: Spotline says it with each launch",
            )
        )
    if data.get("DisableApiTermination"):
        found.checks.append(
            failed(
                _NAME,
                where,
                "its instances are protected against their end (DisableApiTermination): they could "
                "be bought and never released",
                "leave DisableApiTermination out",
            )
        )
    if data.get("InstanceInitiatedShutdownBehavior") == "stop":
        found.checks.append(
            warning(
                _NAME,
                where,
                "an instance that shuts itself down is stopped, and its disks go on costing",
                "set InstanceInitiatedShutdownBehavior to terminate",
            )
        )
    kept = [
        str(mapping.get("DeviceName"))
        for mapping in data.get("BlockDeviceMappings", ())
        if mapping.get("Ebs", {}).get("DeleteOnTermination") is False
    ]
    if kept:
        found.checks.append(
            warning(
                _NAME,
                where,
                f"disks outlive their instance: {', '.join(kept)}",
                "set DeleteOnTermination, or expect a bill for each launch that ever was",
            )
        )
    if data.get("MetadataOptions", {}).get("HttpTokens") == "optional":
        found.checks.append(
            warning(
                _NAME,
                where,
                "the instance's metadata are open to anything that can make it fetch a URL (IMDSv1)",
                "set MetadataOptions.HttpTokens to required",
            )
        )


def _check_reservation(found: TemplateFacts, offering: AwsOffering) -> None:
    """Whether what a commitment is used for can only come from it: it is reckoned as paid for."""
    wanted = offering.capacity_reservation_id
    target = found.data.get("CapacityReservationSpecification", {}).get(
        "CapacityReservationTarget", {}
    )
    named = target.get("CapacityReservationId")
    if not wanted or named == wanted or target.get("CapacityReservationResourceGroupArn"):
        return
    found.checks.append(
        failed(
            _NAME,
            offering.offering_id,
            f"it names {named or 'no capacity reservation'}, not {wanted}: instances beside the "
            "reservation would be bought at the list price and counted as paid for",
            "set CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId to "
            f"{wanted}",
        )
    )


async def _check_image(
    look: Look, found: TemplateFacts, offering: AwsOffering, facts: Mapping[str, TypeFacts]
) -> None:
    image_id, where = str(found.data.get("ImageId", "")), offering.offering_id
    if not image_id:
        found.checks.append(failed(_NAME, where, "it names no image", "set ImageId"))
        return
    if image_id.startswith("resolve:"):
        # An SSM parameter: EC2 reads it at each launch.
        return
    try:
        answer = await look.ask("ec2", "DescribeImages", ImageIds=[image_id])
    except Unread as error:
        found.checks.append(error.check)
        return
    images = answer.get("Images", ())
    if not images or images[0].get("State", "available") != "available":
        found.checks.append(
            failed(
                _NAME,
                where,
                f"image {image_id} is not there for this account in {offering.region}",
                "share the image with the account, or copy it to the region",
            )
        )
        return
    image, kind = images[0], facts.get(offering.instance_type)
    built_for = image.get("Architecture")
    if kind and kind.architectures and built_for and built_for not in kind.architectures:
        found.checks.append(
            failed(
                _NAME,
                where,
                f"image {image_id} is of {built_for}, {offering.instance_type} runs "
                f"{', '.join(kind.architectures)}",
                "use an image of that architecture",
            )
        )
    found.volumes = _volumes(image, found.data)
    found.disk_gb = sum(found.volumes.values()) or None


async def _check_subnet(look: Look, found: TemplateFacts, offering: AwsOffering) -> None:
    where = offering.offering_id
    found.subnet_id = offering.subnet_id or _subnet_of(found.data)
    if not found.subnet_id:
        found.checks.append(
            warning(
                _NAME,
                where,
                "no subnet is named: EC2 takes the default subnet of the zone, if there is one",
                "state subnet_id of the offering",
            )
        )
        return
    try:
        answer = await look.ask("ec2", "DescribeSubnets", SubnetIds=[found.subnet_id])
    except Unread as error:
        found.checks.append(error.check)
        return
    subnet: Mapping[str, Any] = next(iter(answer.get("Subnets", ())), {})
    found.vpc_id = str(subnet.get("VpcId", ""))
    zone = subnet.get("AvailabilityZoneId")
    if zone != offering.zone:
        found.checks.append(
            failed(
                _NAME,
                where,
                f"subnet {found.subnet_id} lies in {zone}, not in {offering.zone}",
                "state a subnet of the offering's zone",
            )
        )
    free = subnet.get("AvailableIpAddressCount")
    if free == 0:
        found.checks.append(
            failed(
                _NAME, where, f"subnet {found.subnet_id} has no free address", "use a larger subnet"
            )
        )


def _subnet_of(data: Mapping[str, Any]) -> str:
    interfaces = data.get("NetworkInterfaces", ())
    return next((str(each["SubnetId"]) for each in interfaces if each.get("SubnetId")), "")


def _volumes(image: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, int]:
    """Gigabytes of the disks of one instance, by type: the template's word counts before the image's."""
    by_device: dict[str, dict[str, Any]] = {}
    mappings: Sequence[Mapping[str, Any]] = (
        *image.get("BlockDeviceMappings", ()),
        *data.get("BlockDeviceMappings", ()),
    )
    for mapping in mappings:
        if "NoDevice" in mapping:
            # The template leaves out a disk of the image.
            by_device.pop(str(mapping.get("DeviceName")), None)
            continue
        said = {name: value for name, value in mapping.get("Ebs", {}).items() if value}
        by_device.setdefault(str(mapping.get("DeviceName")), {}).update(said)
    volumes: dict[str, int] = {}
    for disk in by_device.values():
        if disk.get("VolumeSize"):
            kind = str(disk.get("VolumeType", ""))
            volumes[kind] = volumes.get(kind, 0) + int(disk["VolumeSize"])
    return volumes
