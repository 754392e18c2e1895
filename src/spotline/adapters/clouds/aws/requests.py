"""What is asked of AWS: one CreateFleet for a launch, a gang or a single instance."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from spotline.adapters.clouds.aws import tags
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_actuator.ports import LaunchRequest
from spotline.domain.market.offering import CapacityType

# TerminateInstances takes up to 1,000 ids, DescribeInstances shows up to 1,000 a page.
MOST_IDS = 1000
# A filter takes up to 200 values.
MOST_VALUES = 200


def payload_of(request: LaunchRequest) -> str:
    """What belongs to a token: with another payload it is another launch.

    Neither the moment nor the epoch is part of it, nor what is of use: a later process may ask again,
    when the job is over.
    """
    stated = (
        *(request.job_id, request.tenant, request.quota_pool, request.offering_id),
        *(request.capacity_type.value, str(request.instances), request.installation_id),
    )
    return hashlib.sha256("\x1f".join(stated).encode()).hexdigest()


def client_token(owner_name: str, token: str, tries: int = 0) -> str:
    """AWS's token for one of ours: 64 ASCII characters at most.

    `tries` counts fleets that were answered as empty for a passing reason: AWS would give that same
    answer for ever, and the next try cannot buy anything twice.
    """
    words = (owner_name, token, *((str(tries),) if tries else ()))
    return hashlib.sha256("\x1f".join(words).encode()).hexdigest()


def fleet_of(request: LaunchRequest, offering: AwsOffering, token: str) -> dict[str, Any]:
    """The parameters of CreateFleet.

    It is of type `instant`: answered at once, and AWS replaces nothing behind our back. One override
    names the one pool that the offering is. The smallest count that is of use is the least that is
    launched, in one zone and of one type, so that no gang begins in part.

    Raises
    ------
    ValueError
        A tag would be too long; names it.
    """
    stated = [{"Key": key, "Value": value} for key, value in tags.tags_of(request).items()]
    options: dict[str, Any] = {"SingleInstanceType": True, "SingleAvailabilityZone": True}
    least = min(request.useful_counts)
    if least > 1:
        options["MinTargetCapacity"] = least
    target = {"TotalTargetCapacity": request.instances}
    fleet: dict[str, Any] = {
        "Type": "instant",
        "ClientToken": token,
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": offering.launch_template_id,
                    "Version": offering.launch_template_version,
                },
                "Overrides": [_override(offering)],
            }
        ],
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": stated},
            {"ResourceType": "fleet", "Tags": stated},
        ],
    }
    if request.capacity_type is CapacityType.SPOT:
        # One pool: the strategy decides nothing, but AWS advises against the default, lowest-price.
        fleet["SpotOptions"] = {
            "AllocationStrategy": "price-capacity-optimized",
            "InstanceInterruptionBehavior": "terminate",
            **options,
        }
        kind = "spot"
    elif offering.capacity_block:
        kind = "capacity-block"
    else:
        if offering.capacity_reservation_id:
            options["CapacityReservationOptions"] = {
                "UsageStrategy": "use-capacity-reservations-first"
            }
        fleet["OnDemandOptions"] = {"AllocationStrategy": "lowest-price", **options}
        kind = "on-demand"
    fleet["TargetCapacitySpecification"] = {**target, "DefaultTargetCapacityType": kind}
    return fleet


def _override(offering: AwsOffering) -> dict[str, Any]:
    override: dict[str, Any] = {"InstanceType": offering.instance_type}
    if offering.subnet_id:
        override["SubnetId"] = offering.subnet_id
    else:
        override["AvailabilityZoneId"] = offering.zone
    if offering.placement_group:
        override["Placement"] = {"GroupName": offering.placement_group}
    return override


def owned_by(owner_name: str) -> list[dict[str, Any]]:
    """Filters of what carries an owner's tag, in whatever state."""
    return [{"Name": f"tag:{tags.OWNER}", "Values": [owner_name]}]


def launched_by(owner_name: str, token: str) -> list[dict[str, Any]]:
    """Filters of what a token launched for an owner."""
    return [*owned_by(owner_name), {"Name": f"tag:{tags.TOKEN}", "Values": [token]}]


def among(instance_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Filters of these instances: unlike ids themselves, unknown ones are no error."""
    return [{"Name": "instance-id", "Values": list(instance_ids)}]


def batches(ids: Sequence[str], most: int) -> Sequence[Sequence[str]]:
    """Split ids into calls."""
    return [ids[first : first + most] for first in range(0, len(ids), most)]
