"""Whether we may do what has to be done: EC2's dry runs, which change nothing.

"If you have the required permissions, the error response is DryRunOperation. Otherwise, it is
UnauthorizedOperation" (API reference of CreateFleet, RunInstances and TerminateInstances).
"""

from __future__ import annotations

from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused
from spotline.adapters.clouds.aws.doctor.looking import NO_RIGHT, unread
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.requests import client_token, fleet_of
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.adapters.clouds.aws.tags import tags_of
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import LaunchRequest, Owner
from spotline.application.cloud_checks import (
    CloudCheck,
    Examination,
    failed,
    left_open,
    ok,
    warning,
)
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.market.offering import CapacityType

# What the doctor launches is nobody's orphan: no installation has an owner of this name.
DOCTOR_OWNER = "spotline-doctor"
ALLOWED = "DryRunOperation"
# It is nobody's: what EC2 says of it tells about rights alone.
NOBODYS_INSTANCE = "i-00000000000000000"
_ACT = (
    "attach deploy/aws/act-policy.json to the role, with this installation's id in it, and name that "
    "id by --installation"
)


def doctor_request(offering: AwsOffering, kind: CapacityType, plan: Examination) -> LaunchRequest:
    """One instance of an offering, as the actuator would ask for it, under an owner that is nobody."""
    traded = market_offering(offering)
    return LaunchRequest(
        token=f"{DOCTOR_OWNER}-{plan.token}-{kind.value}",
        owner=Owner(name=DOCTOR_OWNER, epoch=1),
        job_id=DOCTOR_OWNER,
        tenant=DOCTOR_OWNER,
        quota_pool=traded.quota_pool,
        offering_id=traded.offering_id,
        capacity_type=kind,
        instances=1,
        at=Moment(slot=0, slot_s=3600, offset_s=0, ts_ns=0),
        installation_id=plan.installation_id,
    )


def _fleet(offering: AwsOffering, kind: CapacityType, plan: Examination) -> dict[str, Any]:
    request = doctor_request(offering, kind, plan)
    asked = fleet_of(request, offering, client_token(request.owner.name, request.token))
    return {**asked, "DryRun": True}


async def check_rights(
    reader: AwsReader, site: AwsPlace, offering: AwsOffering, plan: Examination
) -> list[CloudCheck]:
    """Ask EC2 whether fleets may be created, instances run and ended; nothing is."""
    tags = tags_of(doctor_request(offering, CapacityType.ON_DEMAND, plan))
    run: dict[str, Any] = {
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
        ("CreateFleet", "spot", _fleet(offering, CapacityType.SPOT, plan)),
        ("CreateFleet", "on demand", _fleet(offering, CapacityType.ON_DEMAND, plan)),
        ("RunInstances", "behind a fleet", run),
        (
            "TerminateInstances",
            "of one of ours",
            {"DryRun": True, "InstanceIds": [NOBODYS_INSTANCE]},
        ),
    ]
    return [await _dry(reader, site, operation, what, ask) for operation, what, ask in asked]


async def check_event_history(reader: AwsReader, site: AwsPlace) -> CloudCheck:
    """Whether the event history may be read: it has the answers to ends that were lost."""
    name, where, asked = "rights", str(site), "LookupEvents"
    try:
        await reader.call(site.account, site.region, "cloudtrail", asked, MaxResults=1)
    except CallRefused as error:
        if error.code in NO_RIGHT:
            return warning(
                name,
                where,
                f"{asked}: {error.code}: what is ended before it ran, and whose answer is lost, is "
                "settled at its minimum, which AWS does not bill",
                "allow cloudtrail:LookupEvents (deploy/aws/act-policy.json)",
            )
        return unread(name, where, "cloudtrail", asked, error)
    except ProviderUnavailable as error:
        return unread(name, where, "cloudtrail", asked, error)
    return ok(name, where, f"{asked}: allowed")


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
