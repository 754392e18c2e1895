"""From a request's templates and overrides to pools, and from what they give to instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Any

from spotline.domain.units import MICRO_USD_PER_USD, NS_PER_S
from spotline.rehearsal.aws.drawn import between, hexadecimal
from spotline.rehearsal.aws.ec2.asking import Params, missing, wrong
from spotline.rehearsal.aws.ec2.filling import Filling, Pool, Wish, fill
from spotline.rehearsal.aws.ec2.resources import (
    ADDRESSES,
    Subnet,
    Template,
    groups,
    subnet_of,
    subnets,
    templates,
    zones,
)
from spotline.rehearsal.aws.places import SPOT, SoldPlace
from spotline.rehearsal.aws.quotas import pool_of
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.state import PENDING, Ec2Instance
from spotline.rehearsal.aws.world import RehearsedWorld

VERSION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where instances may come from: a place, by a template, with what a request said of it."""

    place: SoldPlace
    template: Template | None
    subnet: Subnet
    group: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)
    key_name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """What a request said of a source, and why it is none."""

    template: Template | None
    said: Mapping[str, Any]
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What instances of one request have in common."""

    tags: Mapping[str, str]
    client_token: str = ""
    fleet_id: str = ""
    user_data: str = ""


def named_template(world: RehearsedWorld, call: AwsCall, said: Params) -> Template:
    """The template that a request names; raises AwsError if there is none, or none of that version."""
    by_id, by_name = said.get("LaunchTemplateId"), said.get("LaunchTemplateName")
    if bool(by_id) == bool(by_name):
        raise AwsError(
            "InvalidParameterCombination",
            "Either LaunchTemplateId or LaunchTemplateName must be specified, and not both.",
        )
    there = templates(world, call.account_id, call.region)
    if by_id:
        template = there.get(by_id)
        if template is None:
            message = f"The specified launch template, with template ID {by_id}, does not exist."
            raise AwsError("InvalidLaunchTemplateId.NotFound", message)
    else:
        template = next((one for one in there.values() if one.name == by_name), None)
        if template is None:
            message = (
                f"The specified launch template, with template name {by_name}, does not exist."
            )
            raise AwsError("InvalidLaunchTemplateName.NotFoundException", message)
    version = said.get("Version", "$Default")
    if version not in (VERSION, "$Default", "$Latest"):
        raise AwsError(
            "InvalidLaunchTemplateId.VersionNotFound",
            f"Could not find the specified version {version} for the launch template with ID "
            f"{template.template_id}.",
        )
    return template


def sources_of(
    world: RehearsedWorld, call: AwsCall, template: Template | None, said: Params
) -> list[Source] | Unusable:
    """Where instances may come from that one override asks for: every zone if it names none.

    `said` has InstanceType, SubnetId, AvailabilityZone or AvailabilityZoneId and Placement.
    """
    placement = said.get("Placement", {})
    kind = said.get("InstanceType") or (template.instance_type if template else "")
    if not kind:
        raise missing("InstanceType")
    zone = (
        said.get("AvailabilityZone")
        or said.get("AvailabilityZoneId")
        or placement.get("AvailabilityZone")
        or placement.get("AvailabilityZoneId")
    )
    subnet_id, group = said.get("SubnetId"), placement.get("GroupName", "")

    def unusable(code: str, message: str) -> Unusable:
        return Unusable(template=template, said=said, code=code, message=message)

    if subnet_id:
        subnet = subnets(world, call.account_id, call.region).get(subnet_id)
        if subnet is None:
            message = f"The subnet ID '{subnet_id}' does not exist"
            return unusable("InvalidSubnetID.NotFound", message)
        if zone and zone != subnet.zone:
            message = f"The subnet '{subnet_id}' is not in the Availability Zone {zone}."
            return unusable("InvalidParameterValue", message)
        zone = subnet.zone
    if zone and zone not in zones(world, call.region):
        return unusable("InvalidParameterValue", f"Invalid availability zone: [{zone}]")
    if group and group not in groups(world, call.account_id, call.region):
        message = f"The Placement Group '{group}' is unknown."
        return unusable("InvalidPlacementGroup.Unknown", message)
    reservation = template.reservation if template else ""
    places = [
        place
        for place in world.offered(call.account_id, call.region)
        if place.instance_type == kind
        and (not zone or place.zone == zone)
        and place.reservation == reservation
    ]
    if not places:
        where = f" in your requested Availability Zone ({zone})" if zone else ""
        message = f"Your requested instance type ({kind}) is not supported{where}."
        return unusable("Unsupported", message)
    return [
        Source(
            place=place,
            template=template,
            subnet=subnet_of(world, place),
            group=group,
            said=said,
            key_name=said.get("KeyName", ""),
        )
        for place in places
    ]


def filling_of(
    world: RehearsedWorld, call: AwsCall, sources: Sequence[Source], lifecycle: str, wish: Wish
) -> Filling:
    """What sources give to a wish now."""
    used: dict[str, int] = {}
    for instance in world.state.here.values():
        used[instance.subnet_id] = used.get(instance.subnet_id, 0) + 1
    vcpus = {
        quota.code: quota.vcpus - quota.used_vcpus
        for quota in world.quotas(call.account_id, call.region)
    }
    addresses = {
        source.subnet.subnet_id: ADDRESSES - used.get(source.subnet.subnet_id, 0)
        for source in sources
    }
    return fill([_pool(world, source, lifecycle) for source in sources], wish, vcpus, addresses)


def _pool(world: RehearsedWorld, source: Source, lifecycle: str) -> Pool:
    place = source.place
    free = world.free(place.offering_id, lifecycle)
    now_ns = world.now_ns()
    if place.reservation_ends_ns and now_ns >= place.reservation_ends_ns:
        free = 0
    max_price = source.said.get("MaxPrice")
    return Pool(
        name=place.offering_id,
        zone=place.zone,
        instance_type=place.instance_type,
        lifecycle=lifecycle,
        free=free,
        price_micro_usd=world.places.price_micro_usd(place.offering_id, lifecycle, now_ns),
        vcpus=world.type_of(place.offering_id).vcpus,
        quota_code=pool_of(place.instance_type, lifecycle).code,
        subnet=source.subnet.subnet_id,
        max_price_micro_usd=None if not max_price else micro_usd("MaxPrice", max_price),
        weight=source.said.get("WeightedCapacity", 1.0),
        priority=source.said.get("Priority", 0.0),
    )


def instances_of(
    world: RehearsedWorld,
    sources: Sequence[Source],
    filling: Filling,
    lifecycle: str,
    marks: Marks,
    *,
    first: int,
) -> list[Ec2Instance]:
    """The instances that a filling is, in order of its pools, numbered from `first`; none runs yet."""
    made: list[Ec2Instance] = []
    for index in sorted(filling.counts):
        for _ in range(filling.counts[index]):
            made.append(_instance(world, sources[index], lifecycle, marks, first + len(made)))
    return [replace(instance, index=index) for index, instance in enumerate(made)]


def _instance(
    world: RehearsedWorld, source: Source, lifecycle: str, marks: Marks, number: int
) -> Ec2Instance:
    instance_id = "i-" + hexadecimal(17, world.seed, "instance", number)
    place, template = source.place, source.template
    # AWS says and bills times to the second.
    now_ns = world.now_ns()
    launched_ns = now_ns // NS_PER_S * NS_PER_S
    pending_s = round(between(*world.weather.pending_s, world.seed, "pending", instance_id))
    hidden_s = between(0.0, world.weather.hidden_s, world.seed, "hidden", instance_id)
    tags = dict(marks.tags)
    if marks.fleet_id:
        tags["aws:ec2:fleet-id"] = marks.fleet_id
    if template is not None:
        tags["aws:ec2launchtemplate:id"] = template.template_id
        tags["aws:ec2launchtemplate:version"] = VERSION
    token = marks.client_token or f"{marks.fleet_id}-{number}"
    return Ec2Instance(
        instance_id=instance_id,
        account_id=place.account_id,
        region=place.region,
        zone=place.zone,
        instance_type=place.instance_type,
        offering_id=place.offering_id,
        lifecycle=lifecycle,
        state=PENDING,
        launched_ns=launched_ns,
        hidden_until_ns=now_ns + round(hidden_s * NS_PER_S),
        running_ns=launched_ns + pending_s * NS_PER_S,
        client_token=token,
        template_id=template.template_id if template else "",
        template_version=VERSION if template else "",
        subnet_id=source.subnet.subnet_id,
        private_ip=source.subnet.address(number),
        reservation_id="r-" + hexadecimal(17, world.seed, "reservation", marks.fleet_id, token),
        fleet_id=marks.fleet_id,
        placement_group=source.group,
        spot_request_id=(
            "sir-" + hexadecimal(8, world.seed, "request", number) if lifecycle == SPOT else ""
        ),
        capacity_reservation_id=place.reservation,
        disk_gb=place.disk_gb,
        key_name=source.key_name,
        tags=tags,
        user_data=marks.user_data,
    )


def micro_usd(name: str, said: str) -> int:
    """A price that was sent in dollars; raises AwsError if it is none."""
    try:
        price = Decimal(said)
    except InvalidOperation as error:
        raise wrong(f"{name} must be a price in USD, was '{said}'") from error
    if not price.is_finite() or price < 0:
        raise wrong(f"{name} must be a price in USD, was '{said}'")
    return int(price * MICRO_USD_PER_USD)
