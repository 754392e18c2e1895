"""What EC2 says of itself and of what a user has set up: types, zones, templates, subnets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.catalog import Ec2Type, instance_type
from spotline.rehearsal.aws.ec2.asking import (
    Fields,
    dry_run,
    filtered,
    moment,
    paged,
    with_token,
    wrong,
)
from spotline.rehearsal.aws.ec2.launching import VERSION, named_template
from spotline.rehearsal.aws.ec2.resources import (
    ADDRESSES,
    IMAGE_ID,
    ROOT_DEVICE,
    PlacementGroup,
    Subnet,
    Template,
    groups,
    regions,
    subnets,
    templates,
    vpc_id,
    zones,
)
from spotline.rehearsal.aws.places import ON_DEMAND, SPOT, SoldPlace
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.world import RehearsedWorld

_ATTRIBUTES = {
    "supported-platforms": ("VPC",),
    "default-vpc": ("none",),
    "max-instances": ("20",),
    "vpc-max-security-groups-per-interface": ("5",),
    "max-elastic-ips": ("5",),
    "vpc-max-elastic-ips": ("5",),
}


def _chosen(there: dict[str, Any], ids: Sequence[str], code: str, what: str) -> list[Any]:
    """Those that are named, all if none is; raises AwsError with `code` if one is not there."""
    unknown = [name for name in ids if name not in there]
    if unknown:
        raise AwsError(code, f"The {what} '{', '.join(unknown)}' does not exist")
    return [there[name] for name in ids] if ids else list(there.values())


def describe_regions(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The regions that the market has."""
    dry_run(call)
    there = {name: name for name in regions(world)}
    chosen = _chosen(there, call.params.get("RegionNames", ()), "InvalidParameterValue", "region")
    fields: Fields[str] = {"region-name": lambda name: (name,)}
    return {
        "Regions": [
            {
                "RegionName": name,
                "Endpoint": f"ec2.{name}.amazonaws.com",
                "OptInStatus": "opt-in-not-required",
            }
            for name in filtered(chosen, call.params, fields)
        ]
    }


def describe_availability_zones(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The zones of a region; names and ids are the same here."""
    dry_run(call)
    named = [*call.params.get("ZoneNames", ()), *call.params.get("ZoneIds", ())]
    there = {zone: zone for zone in zones(world, call.region)}
    chosen = _chosen(there, named, "InvalidParameterValue", "availability zone")
    fields: Fields[str] = {
        "zone-name": lambda zone: (zone,),
        "zone-id": lambda zone: (zone,),
        "region-name": lambda _: (call.region,),
        "state": lambda _: ("available",),
        "zone-type": lambda _: ("availability-zone",),
        "opt-in-status": lambda _: ("opt-in-not-required",),
    }
    return {
        "AvailabilityZones": [
            {
                "State": "available",
                "OptInStatus": "opt-in-not-required",
                "Messages": [],
                "RegionName": call.region,
                "ZoneName": zone,
                "ZoneId": zone,
                "GroupName": call.region,
                "NetworkBorderGroup": call.region,
                "ZoneType": "availability-zone",
            }
            for zone in filtered(chosen, call.params, fields)
        ]
    }


def _types(world: RehearsedWorld, call: AwsCall) -> dict[str, Ec2Type]:
    made: dict[str, Ec2Type] = {}
    for place in world.offered(call.account_id, call.region):
        made.setdefault(
            place.instance_type, instance_type(place.instance_type, place.gpu_model, place.gpus)
        )
    return dict(sorted(made.items()))


def describe_instance_types(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The types that are sold in a region, with their GPUs."""
    dry_run(call)
    named = call.params.get("InstanceTypes", ())
    chosen: list[Ec2Type] = _chosen(
        _types(world, call), named, "InvalidInstanceType", "instance type"
    )
    fields: Fields[Ec2Type] = {
        "instance-type": lambda one: (one.name,),
        "vcpu-info.default-vcpus": lambda one: (str(one.vcpus),),
        "memory-info.size-in-mib": lambda one: (str(one.memory_mib),),
        "supported-usage-class": lambda _: (ON_DEMAND, SPOT),
        "processor-info.supported-architecture": lambda _: ("x86_64",),
        "current-generation": lambda _: ("true",),
        "bare-metal": lambda _: ("false",),
        "hypervisor": lambda _: ("nitro",),
    }
    kept = filtered(chosen, call.params, fields)
    page, token = paged(kept, call.params, lambda one: one.name, 5, 100)
    return with_token("InstanceTypes", [_type(one) for one in page], token)


def _type(one: Ec2Type) -> dict[str, Any]:
    return {
        "InstanceType": one.name,
        "CurrentGeneration": True,
        "FreeTierEligible": False,
        "SupportedUsageClasses": [ON_DEMAND, SPOT],
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "BareMetal": False,
        "Hypervisor": "nitro",
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": one.vcpus},
        "MemoryInfo": {"SizeInMiB": one.memory_mib},
        "GpuInfo": {
            "Gpus": [
                {
                    "Name": one.gpu,
                    "Manufacturer": one.manufacturer,
                    "Count": one.gpus,
                    "MemoryInfo": {"SizeInMiB": one.gpu_memory_mib},
                }
            ],
            "TotalGpuMemoryInMiB": one.gpus * one.gpu_memory_mib,
        },
        "PlacementGroupInfo": {"SupportedStrategies": ["cluster", "partition", "spread"]},
        "HibernationSupported": False,
        "BurstablePerformanceSupported": False,
        "SupportedBootModes": ["legacy-bios", "uefi"],
    }


def describe_instance_type_offerings(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """Which types are sold where: in a region, or in its zones."""
    dry_run(call)
    kind = call.params.get("LocationType", "region")
    if kind not in ("region", "availability-zone", "availability-zone-id"):
        raise wrong(f"LocationType must be region or availability-zone(-id), was {kind}")
    sold = {
        (place.instance_type, call.region if kind == "region" else place.zone)
        for place in world.offered(call.account_id, call.region)
    }
    fields: Fields[tuple[str, str]] = {
        "instance-type": lambda one: (one[0],),
        "location": lambda one: (one[1],),
    }
    kept = filtered(sorted(sold), call.params, fields)
    page, token = paged(kept, call.params, " ".join, 5, 1000)
    said = [
        {"InstanceType": name, "LocationType": kind, "Location": location}
        for name, location in page
    ]
    return with_token("InstanceTypeOfferings", said, token)


def describe_launch_templates(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The launch templates of an account in a region."""
    dry_run(call)
    params = call.params
    there = templates(world, call.account_id, call.region)
    named = {one.name: one for one in there.values()}
    if params.get("LaunchTemplateNames"):
        code = "InvalidLaunchTemplateName.NotFoundException"
        chosen = _chosen(named, params["LaunchTemplateNames"], code, "launch template")
    else:
        code = "InvalidLaunchTemplateId.NotFound"
        chosen = _chosen(there, params.get("LaunchTemplateIds", ()), code, "launch template")
    fields: Fields[Template] = {
        "launch-template-name": lambda one: (one.name,),
        "tag-key": lambda _: (),
        "tag:": lambda _: (),
    }
    kept = filtered(sorted(chosen, key=lambda one: one.name), params, fields)
    page, token = paged(kept, params, lambda one: one.name, 1, 200)
    said = [
        {
            "LaunchTemplateId": one.template_id,
            "LaunchTemplateName": one.name,
            "CreateTime": moment(world.places.start_ns),
            "CreatedBy": f"arn:aws:iam::{call.account_id}:root",
            "DefaultVersionNumber": 1,
            "LatestVersionNumber": 1,
            "Tags": [],
        }
        for one in page
    ]
    return with_token("LaunchTemplates", said, token)


def describe_launch_template_versions(
    world: RehearsedWorld, call: AwsCall, user_data: str
) -> dict[str, Any]:
    """The one version of each launch template, or of the one that is named."""
    dry_run(call)
    params = call.params
    if "LaunchTemplateId" in params or "LaunchTemplateName" in params:
        for version in params.get("Versions") or [VERSION]:
            named_template(world, call, {**params, "Version": version})
        chosen = [named_template(world, call, {**params, "Version": VERSION})]
    else:
        chosen = list(templates(world, call.account_id, call.region).values())
    page, token = paged(chosen, params, lambda one: one.name, 1, 200)
    said = []
    for one in page:
        data: dict[str, Any] = {"ImageId": IMAGE_ID, "InstanceType": one.instance_type}
        data["IamInstanceProfile"] = {"Name": "spotline-instance"}
        data["MetadataOptions"] = {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
        if user_data:
            data["UserData"] = user_data
        if one.disk_gb:
            disk = {"VolumeSize": one.disk_gb, "VolumeType": "gp3", "DeleteOnTermination": True}
            data["BlockDeviceMappings"] = [{"DeviceName": ROOT_DEVICE, "Ebs": disk}]
        if one.reservation:
            target = {"CapacityReservationId": one.reservation}
            data["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}
        said.append(
            {
                "LaunchTemplateId": one.template_id,
                "LaunchTemplateName": one.name,
                "VersionNumber": 1,
                "DefaultVersion": True,
                "CreateTime": moment(world.places.start_ns),
                "CreatedBy": f"arn:aws:iam::{call.account_id}:root",
                "LaunchTemplateData": data,
            }
        )
    return with_token("LaunchTemplateVersions", said, token)


def describe_subnets(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The subnets, one for each zone, with the addresses that are left."""
    dry_run(call)
    there = subnets(world, call.account_id, call.region)
    asked = call.params.get("SubnetIds", ())
    chosen: list[Subnet] = _chosen(there, asked, "InvalidSubnetID.NotFound", "subnet ID")
    fields: Fields[Subnet] = {
        "subnet-id": lambda one: (one.subnet_id,),
        "availability-zone": lambda one: (one.zone,),
        "availability-zone-id": lambda one: (one.zone,),
        "vpc-id": lambda one: (one.vpc_id,),
        "state": lambda _: ("available",),
        "default-for-az": lambda _: ("true",),
    }
    kept = filtered(sorted(chosen, key=lambda one: one.subnet_id), call.params, fields)
    page, token = paged(kept, call.params, lambda one: one.subnet_id, 5, 1000)
    used: dict[str, int] = {}
    for instance in world.state.here.values():
        used[instance.subnet_id] = used.get(instance.subnet_id, 0) + 1
    said = [
        {
            "SubnetId": one.subnet_id,
            "VpcId": one.vpc_id,
            "AvailabilityZone": one.zone,
            "AvailabilityZoneId": one.zone,
            "CidrBlock": one.cidr,
            "AvailableIpAddressCount": ADDRESSES - used.get(one.subnet_id, 0),
            "State": "available",
            "DefaultForAz": True,
            "MapPublicIpOnLaunch": False,
            "OwnerId": call.account_id,
            "SubnetArn": f"arn:aws:ec2:{call.region}:{call.account_id}:subnet/{one.subnet_id}",
            "Tags": [],
        }
        for one in page
    ]
    return with_token("Subnets", said, token)


def describe_placement_groups(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The cluster placement groups, one for each zone."""
    dry_run(call)
    there = groups(world, call.account_id, call.region)
    by_id = {one.group_id: one for one in there.values()}
    code = "InvalidPlacementGroup.Unknown"
    if call.params.get("GroupIds"):
        chosen = _chosen(by_id, call.params["GroupIds"], code, "Placement Group")
    else:
        chosen = _chosen(there, call.params.get("GroupNames", ()), code, "Placement Group")
    fields: Fields[PlacementGroup] = {
        "group-name": lambda one: (one.name,),
        "strategy": lambda _: ("cluster",),
        "state": lambda _: ("available",),
    }
    return {
        "PlacementGroups": [
            {
                "GroupName": one.name,
                "GroupId": one.group_id,
                "State": "available",
                "Strategy": "cluster",
                "Tags": [],
            }
            for one in filtered(chosen, call.params, fields)
        ]
    }


def describe_capacity_reservations(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The capacity reservations of an account in a region, with what is unused of each."""
    dry_run(call)
    there = {
        place.reservation: place
        for place in world.offered(call.account_id, call.region)
        if place.reservation
    }
    asked = call.params.get("CapacityReservationIds", ())
    code = "InvalidCapacityReservationId.NotFound"
    chosen: list[SoldPlace] = _chosen(there, asked, code, "capacity reservation")
    fields: Fields[SoldPlace] = {
        "instance-type": lambda one: (one.instance_type,),
        "availability-zone": lambda one: (one.zone,),
        "state": lambda one: (_reservation_state(world, one),),
    }
    kept = filtered(sorted(chosen, key=lambda one: one.reservation), call.params, fields)
    page, token = paged(kept, call.params, lambda one: one.reservation, 1, 1000)
    said = []
    for one in page:
        entry = {
            "CapacityReservationId": one.reservation,
            "OwnerId": call.account_id,
            "InstanceType": one.instance_type,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": one.zone,
            "AvailabilityZoneId": one.zone,
            "Tenancy": "default",
            "TotalInstanceCount": one.reserved,
            "AvailableInstanceCount": world.free(one.offering_id, ON_DEMAND),
            "State": _reservation_state(world, one),
            "StartDate": moment(world.places.start_ns),
            "EndDateType": "limited" if one.reservation_ends_ns else "unlimited",
            "InstanceMatchCriteria": "targeted",
            "CreateDate": moment(world.places.start_ns),
            "ReservationType": "default",
            "Tags": [],
        }
        if one.reservation_ends_ns:
            entry["EndDate"] = moment(one.reservation_ends_ns // NS_PER_S * NS_PER_S)
        said.append(entry)
    return with_token("CapacityReservations", said, token)


def _reservation_state(world: RehearsedWorld, place: SoldPlace) -> str:
    over = place.reservation_ends_ns and world.now_ns() >= place.reservation_ends_ns
    return "expired" if over else "active"


def describe_account_attributes(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """A few numbers of an account, of before there were quotas."""
    dry_run(call)
    named = call.params.get("AttributeNames") or list(_ATTRIBUTES)
    unknown = [name for name in named if name not in _ATTRIBUTES]
    if unknown:
        raise wrong(f"Invalid attribute name: {', '.join(unknown)}")
    told = {**_ATTRIBUTES, "default-vpc": (vpc_id(call.account_id, call.region),)}
    return {
        "AccountAttributes": [
            {
                "AttributeName": name,
                "AttributeValues": [{"AttributeValue": value} for value in told[name]],
            }
            for name in named
        ]
    }
