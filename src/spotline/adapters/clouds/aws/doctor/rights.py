"""Whether we may do what has to be done: EC2's dry runs, which change nothing.

"If you have the required permissions, the error response is DryRunOperation. Otherwise, it is
UnauthorizedOperation" (API reference of CreateFleet, RunInstances and TerminateInstances).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused
from spotline.adapters.clouds.aws.doctor.looking import NO_RIGHT, unread
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning
from spotline.contracts.errors import ProviderUnavailable

ALLOWED = "DryRunOperation"
# It is nobody's: what EC2 says of it tells about rights alone.
NOBODYS_INSTANCE = "i-00000000000000000"
_ACT = "attach deploy/aws/act-policy.json to the role, with this installation's id in it"


def fleet_request(
    offering: AwsOffering, *, spot: bool, tags: Mapping[str, str], dry_run: bool
) -> dict[str, Any]:
    """CreateFleet for one instance of an offering, as the actuator asks for it."""
    stated = [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
    override: dict[str, Any] = {"InstanceType": offering.instance_type}
    if offering.subnet_id:
        override["SubnetId"] = offering.subnet_id
    else:
        override["AvailabilityZoneId"] = offering.zone
    kind = "spot" if spot else "on-demand"
    return {
        "DryRun": dry_run,
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateId": offering.launch_template_id,
                    "Version": offering.launch_template_version,
                },
                "Overrides": [override],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": kind,
        },
        "TagSpecifications": [
            {"ResourceType": "instance", "Tags": stated},
            {"ResourceType": "fleet", "Tags": stated},
        ],
    }


async def check_rights(
    reader: AwsReader, site: AwsPlace, offering: AwsOffering, tags: Mapping[str, str]
) -> list[CloudCheck]:
    """Ask EC2 whether fleets may be created, instances run and ended; nothing is."""
    run = {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": offering.instance_type,
        "LaunchTemplate": {
            "LaunchTemplateId": offering.launch_template_id,
            "Version": offering.launch_template_version,
        },
        "TagSpecifications": [
            {
                "ResourceType": "instance",
                "Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)],
            }
        ],
    }
    if offering.subnet_id:
        run["SubnetId"] = offering.subnet_id
    asked = [
        ("CreateFleet", "spot", fleet_request(offering, spot=True, tags=tags, dry_run=True)),
        ("CreateFleet", "on demand", fleet_request(offering, spot=False, tags=tags, dry_run=True)),
        ("RunInstances", "behind a fleet", run),
        (
            "TerminateInstances",
            "of one of ours",
            {"DryRun": True, "InstanceIds": [NOBODYS_INSTANCE]},
        ),
    ]
    return [await _dry(reader, site, operation, what, ask) for operation, what, ask in asked]


async def _dry(
    reader: AwsReader, site: AwsPlace, operation: str, what: str, params: dict[str, Any]
) -> CloudCheck:
    name, where, said = "rights", str(site), f"{operation}, {what}"
    try:
        await reader.call(site.account, site.region, "ec2", operation, **params)
    except CallRefused as error:
        if error.code == ALLOWED:
            return ok(name, where, f"{said}: allowed")
        if operation == "TerminateInstances":
            # A policy that allows it for our own instances alone says no to one that is nobody's.
            return left_open(
                name,
                where,
                f"{said}: {error.code}, which a policy for own instances says to any other",
                "spotline cloud doctor aws --launch, or certify, ends one of ours",
            )
        if error.code in NO_RIGHT:
            return failed(name, where, f"{said}: {error.code}: {error.message}", _ACT)
        return failed(
            name, where, f"{said}: {error.code}: {error.message}", "put right what EC2 names"
        )
    except ProviderUnavailable as error:
        return unread(name, where, "ec2", operation, error)
    return warning(
        name,
        where,
        f"{said}: answered as if it were no dry run",
        "look at once for what it may have started, by the tag spotline-owner",
    )
