"""Instances as EC2 describes them."""

from __future__ import annotations

from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.disk_bill import volume_id
from spotline.rehearsal.aws.ec2.asking import Fields, moment, tag_set
from spotline.rehearsal.aws.ec2.resources import IMAGE_ID, ROOT_DEVICE, vpc_id
from spotline.rehearsal.aws.state import PENDING, RUNNING, SHUTTING_DOWN, TERMINATED, Ec2Instance
from spotline.rehearsal.aws.world import BY_USER, RehearsedWorld

CODES = {PENDING: 0, RUNNING: 16, SHUTTING_DOWN: 32, TERMINATED: 48}
_PRODUCT = "Linux/UNIX"


def state_of(name: str) -> dict[str, Any]:
    """A state with its code."""
    return {"Code": CODES[name], "Name": name}


def is_shown(world: RehearsedWorld, instance: Ec2Instance, now_ns: int) -> bool:
    """Whether an instance is described: new ones not at once, ended ones for an hour or so."""
    if now_ns < instance.hidden_until_ns:
        return False
    gone_ns = instance.terminated_ns + world.weather.shown_ended_s * NS_PER_S
    return instance.state != TERMINATED or now_ns < gone_ns


def launch_ns(instance: Ec2Instance) -> int:
    """When it was launched, as AWS says it: when it ran, once it did."""
    ran = instance.state == RUNNING or (
        instance.ended_ns and instance.running_ns <= instance.ended_ns
    )
    return instance.running_ns if ran else instance.launched_ns


def described(world: RehearsedWorld, instance: Ec2Instance) -> dict[str, Any]:
    """An instance as `DescribeInstances` says it."""
    placement = {
        "AvailabilityZone": instance.zone,
        "AvailabilityZoneId": instance.zone,
        "GroupName": instance.placement_group,
        "Tenancy": "default",
    }
    ended = instance.state in (SHUTTING_DOWN, TERMINATED)
    said: dict[str, Any] = {
        "InstanceId": instance.instance_id,
        "ImageId": IMAGE_ID,
        "State": state_of(instance.state),
        "PrivateDnsName": "",
        "PublicDnsName": "",
        "StateTransitionReason": _transition(instance) if ended else "",
        "AmiLaunchIndex": instance.index,
        "ProductCodes": [],
        "InstanceType": instance.instance_type,
        "LaunchTime": moment(launch_ns(instance)),
        "Placement": placement,
        "Monitoring": {"State": "disabled"},
        "Architecture": "x86_64",
        "ClientToken": instance.client_token,
        "EbsOptimized": False,
        "EnaSupport": True,
        "Hypervisor": "xen",
        "RootDeviceName": ROOT_DEVICE,
        "RootDeviceType": "ebs",
        "VirtualizationType": "hvm",
        "BlockDeviceMappings": [] if ended else _volumes(instance),
        "NetworkInterfaces": [],
        "SecurityGroups": [],
        "Tags": tag_set(instance.tags),
        "PlatformDetails": _PRODUCT,
        "UsageOperation": "RunInstances",
        "MetadataOptions": {
            "State": "applied",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
            "HttpEndpoint": "enabled",
        },
    }
    if instance.is_spot:
        said["InstanceLifecycle"] = "spot"
        said["SpotInstanceRequestId"] = instance.spot_request_id
    if instance.capacity_reservation_id:
        said["CapacityReservationId"] = instance.capacity_reservation_id
    if ended:
        said["StateReason"] = {"Code": instance.reason, "Message": _reason(instance)}
    else:
        said["SubnetId"] = instance.subnet_id
        said["VpcId"] = vpc_id(instance.account_id, instance.region)
        said["PrivateIpAddress"] = instance.private_ip
    return said


def _volumes(instance: Ec2Instance) -> list[dict[str, Any]]:
    """Its one volume; of what has ended AWS shows none."""
    if not instance.disk_gb:
        return []
    return [
        {
            "DeviceName": ROOT_DEVICE,
            "Ebs": {
                "VolumeId": volume_id(instance.instance_id),
                "Status": "attached",
                "AttachTime": moment(instance.launched_ns),
                "DeleteOnTermination": True,
            },
        }
    ]


def _reason(instance: Ec2Instance) -> str:
    if instance.reason == BY_USER:
        return f"{BY_USER}: User initiated shutdown"
    return f"{instance.reason}: Spot instance termination"


def _transition(instance: Ec2Instance) -> str:
    who = "User" if instance.reason == BY_USER else "Service"
    return f"{who} initiated ({moment(instance.ended_ns):%Y-%m-%d %H:%M:%S} GMT)"


INSTANCE_FIELDS: Fields[Ec2Instance] = {
    "availability-zone": lambda one: (one.zone,),
    "availability-zone-id": lambda one: (one.zone,),
    "client-token": lambda one: (one.client_token,),
    "instance-id": lambda one: (one.instance_id,),
    "instance-lifecycle": lambda one: ("spot",) if one.is_spot else (),
    "instance-state-code": lambda one: (str(CODES[one.state]),),
    "instance-state-name": lambda one: (one.state,),
    "instance-type": lambda one: (one.instance_type,),
    "owner-id": lambda one: (one.account_id,),
    "placement-group-name": lambda one: (one.placement_group,) if one.placement_group else (),
    "reason": lambda one: (one.reason,) if one.reason else (),
    "reservation-id": lambda one: (one.reservation_id,),
    "capacity-reservation-id": lambda one: (one.capacity_reservation_id,),
    "spot-instance-request-id": lambda one: (one.spot_request_id,) if one.is_spot else (),
    "state-reason-code": lambda one: (one.reason,) if one.reason else (),
    "subnet-id": lambda one: (one.subnet_id,),
    "vpc-id": lambda one: (vpc_id(one.account_id, one.region),),
    "tag-key": lambda one: tuple(one.tags),
    "tag:": lambda one: tuple(f"{key}={value}" for key, value in one.tags.items()),
}
