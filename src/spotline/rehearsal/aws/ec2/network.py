"""What instances boot from, and the way out of their subnets: one image, one NAT gateway in a VPC."""

from __future__ import annotations

from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.drawn import hexadecimal
from spotline.rehearsal.aws.ec2.asking import (
    Fields,
    dry_run,
    filtered,
    moment,
    paged,
    unsupported,
    with_token,
)
from spotline.rehearsal.aws.ec2.resources import IMAGE_ID, ROOT_DEVICE, Subnet, subnets, vpc_id
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.world import RehearsedWorld

_ROOT_GB = 30
_DAY_NS = 86_400 * NS_PER_S


def describe_images(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The one image that there is, by its id."""
    dry_run(call)
    named = call.params.get("ImageIds", ())
    unknown = [name for name in named if name != IMAGE_ID]
    if unknown:
        said = ", ".join(unknown)
        raise AwsError("InvalidAMIID.NotFound", f"The image id '[{said}]' does not exist")
    if "Filters" in call.params:
        raise unsupported("Images are described by their ids")
    return {
        "Images": [
            {
                "ImageId": IMAGE_ID,
                "Name": "rehearsal",
                "Architecture": "x86_64",
                "CreationDate": f"{moment(world.places.start_ns - _DAY_NS):%Y-%m-%dT%H:%M:%S}.000Z",
                "ImageType": "machine",
                "OwnerId": call.account_id,
                "Public": False,
                "State": "available",
                "RootDeviceName": ROOT_DEVICE,
                "RootDeviceType": "ebs",
                "VirtualizationType": "hvm",
                "BlockDeviceMappings": [
                    {
                        "DeviceName": ROOT_DEVICE,
                        "Ebs": {
                            "VolumeSize": _ROOT_GB,
                            "VolumeType": "gp3",
                            "DeleteOnTermination": True,
                        },
                    }
                ],
            }
        ]
    }


def describe_route_tables(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The main route table of the VPC: all that leaves it goes through the NAT gateway."""
    dry_run(call)
    vpc = vpc_id(call.account_id, call.region)
    table_id = _id("rtb", call)
    tables = [table_id] if _subnets(world, call) else []
    fields: Fields[str] = {
        "vpc-id": lambda _: (vpc,),
        "route-table-id": lambda one: (one,),
        "association.main": lambda _: ("true",),
    }
    named = call.params.get("RouteTableIds", ())
    unknown = [name for name in named if name not in tables]
    if unknown:
        said = ", ".join(unknown)
        raise AwsError("InvalidRouteTableID.NotFound", f"The routeTable ID '{said}' does not exist")
    page, token = paged(filtered(tables, call.params, fields), call.params, str, 5, 100)
    said_of = [
        {
            "RouteTableId": one,
            "VpcId": vpc,
            "OwnerId": call.account_id,
            "Associations": [
                {
                    "Main": True,
                    "RouteTableAssociationId": _id("rtbassoc", call),
                    "RouteTableId": one,
                    "AssociationState": {"State": "associated"},
                }
            ],
            "Routes": [
                {
                    "DestinationCidrBlock": "10.0.0.0/8",
                    "GatewayId": "local",
                    "Origin": "CreateRouteTable",
                    "State": "active",
                },
                {
                    "DestinationCidrBlock": "0.0.0.0/0",
                    "NatGatewayId": _id("nat", call),
                    "Origin": "CreateRoute",
                    "State": "active",
                },
            ],
            "Tags": [],
        }
        for one in page
    ]
    return with_token("RouteTables", said_of, token)


def describe_nat_gateways(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The NAT gateway of the VPC, in the first of its zones."""
    dry_run(call)
    there = _subnets(world, call)[:1]
    nat_id = _id("nat", call)
    unknown = [name for name in call.params.get("NatGatewayIds", ()) if name != nat_id or not there]
    if unknown:
        said = ", ".join(unknown)
        raise AwsError("NatGatewayNotFound", f"The Nat Gateway {said} was not found")
    if "Filter" in call.params:
        raise unsupported("NAT gateways are described by their ids")
    page, token = paged(there, call.params, lambda one: one.subnet_id, 5, 1000)
    gateways = [
        {
            "NatGatewayId": nat_id,
            "SubnetId": one.subnet_id,
            "VpcId": one.vpc_id,
            "State": "available",
            "ConnectivityType": "public",
            "CreateTime": moment(world.places.start_ns - _DAY_NS),
            "Tags": [],
        }
        for one in page
    ]
    return with_token("NatGateways", gateways, token)


def _subnets(world: RehearsedWorld, call: AwsCall) -> list[Subnet]:
    there = subnets(world, call.account_id, call.region).values()
    return sorted(there, key=lambda one: one.zone)


def _id(kind: str, call: AwsCall) -> str:
    return f"{kind}-" + hexadecimal(17, kind, call.account_id, call.region)
