"""What is asked of instances that there are: described, ended, tagged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spotline.rehearsal.aws.drawn import uniform
from spotline.rehearsal.aws.ec2.asking import (
    Fields,
    check_instance_id,
    checked_tags,
    dry_run,
    filtered,
    missing,
    paged,
    with_token,
)
from spotline.rehearsal.aws.ec2.described import (
    INSTANCE_FIELDS,
    described,
    is_shown,
    state_of,
)
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.state import PENDING, RUNNING, Ec2Instance
from spotline.rehearsal.aws.world import RehearsedWorld

_MOST_TERMINATED = 1000
# Of the new instances that are not described yet, so many can be terminated all the same.
_KNOWN_BEFORE_SHOWN = 0.5


def describe_instances(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """Describe the instances of an account in a region, with some delay after a launch."""
    dry_run(call)
    chosen = filtered(_asked(world, call), call.params, INSTANCE_FIELDS)
    page, token = _paged(chosen, call, 5)
    reservations: dict[str, dict[str, Any]] = {}
    for instance in page:
        reservation = reservations.setdefault(
            instance.reservation_id,
            {
                "ReservationId": instance.reservation_id,
                "OwnerId": instance.account_id,
                "Groups": [],
                "Instances": [],
            },
        )
        reservation["Instances"].append(described(world, instance))
    return with_token("Reservations", list(reservations.values()), token)


def describe_instance_status(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The status of instances: of those that run, unless all are asked for."""
    dry_run(call)
    everyone = call.params.get("IncludeAllInstances", False)
    asked = [one for one in _asked(world, call) if everyone or one.state == RUNNING]
    page, token = _paged(filtered(asked, call.params, INSTANCE_FIELDS), call, 5)
    return with_token("InstanceStatuses", [_status(one) for one in page], token)


def terminate_instances(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """End instances, all of them or, if one is not known, none; ended ones stay so."""
    ids = call.params.get("InstanceIds", ())
    if not ids:
        raise missing("InstanceId")
    if len(ids) > _MOST_TERMINATED:
        raise AwsError("InvalidParameterValue", f"At most {_MOST_TERMINATED} instances at once")
    before = _known(world, call, ids, _is_terminable)
    dry_run(call)
    for instance in before:
        if world.state.instances[instance.instance_id].alive:
            world.terminate(instance.instance_id)
    return {
        "TerminatingInstances": [
            {
                "InstanceId": one.instance_id,
                "PreviousState": state_of(one.state),
                "CurrentState": state_of(world.state.instances[one.instance_id].state),
            }
            for one in before
        ]
    }


def create_tags(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """Set tags of instances."""
    instances = _known(world, call, call.params.get("Resources", ()), is_shown)
    tags = checked_tags(call.params.get("Tags", ()))
    dry_run(call)
    ids = [one.instance_id for one in instances]
    world.record("tagged", world.now_ns(), instance_ids=ids, tags=tags, removed=[])
    return {}


def delete_tags(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """Take tags off instances: all of a key, or only if the value is the one that is said."""
    instances = _known(world, call, call.params.get("Resources", ()), is_shown)
    dry_run(call)
    said = call.params.get("Tags")
    for instance in instances:
        removed = [
            key
            for key, value in instance.tags.items()
            if not key.startswith("aws:")
            and (
                said is None
                or any(tag.get("Key") == key and tag.get("Value", value) == value for tag in said)
            )
        ]
        ids = [instance.instance_id]
        world.record("tagged", world.now_ns(), instance_ids=ids, tags={}, removed=removed)
    return {}


_TAG_FIELDS: Fields[tuple[str, str, str]] = {
    "key": lambda tag: (tag[1],),
    "resource-id": lambda tag: (tag[0],),
    "resource-type": lambda _: ("instance",),
    "value": lambda tag: (tag[2],),
}


def describe_tags(world: RehearsedWorld, call: AwsCall) -> dict[str, Any]:
    """The tags of all instances."""
    dry_run(call)
    tags = [
        (instance.instance_id, key, instance.tags[key])
        for instance in _shown(world, call)
        for key in sorted(instance.tags)
    ]
    kept = filtered(sorted(tags), call.params, _TAG_FIELDS)
    page, token = paged(kept, call.params, lambda tag: f"{tag[0]} {tag[1]}", 5, 1000)
    said = [
        {"ResourceId": name, "ResourceType": "instance", "Key": key, "Value": value}
        for name, key, value in page
    ]
    return with_token("Tags", said, token)


def _asked(world: RehearsedWorld, call: AwsCall) -> list[Ec2Instance]:
    ids = call.params.get("InstanceIds")
    if not ids:
        return _shown(world, call)
    if "MaxResults" in call.params:
        message = "The parameter instancesSet cannot be used with the parameter maxResults"
        raise AwsError("InvalidParameterCombination", message)
    return _known(world, call, ids, is_shown)


def _shown(world: RehearsedWorld, call: AwsCall) -> list[Ec2Instance]:
    now_ns = world.now_ns()
    shown = [one for one in _of(world, call) if is_shown(world, one, now_ns)]
    return sorted(shown, key=lambda one: one.instance_id)


def _of(world: RehearsedWorld, call: AwsCall) -> list[Ec2Instance]:
    where = call.account_id, call.region
    return [one for one in world.state.instances.values() if (one.account_id, one.region) == where]


def _known(
    world: RehearsedWorld,
    call: AwsCall,
    ids: list[str],
    is_known: Callable[[RehearsedWorld, Ec2Instance, int], bool],
) -> list[Ec2Instance]:
    """The instances of these ids, once each; raises AwsError if one is not there, or not yet."""
    for instance_id in ids:
        check_instance_id(instance_id)
    where, now_ns = (call.account_id, call.region), world.now_ns()
    found: dict[str, Ec2Instance] = {}
    unknown = []
    for instance_id in ids:
        instance = world.state.instances.get(instance_id)
        if (
            instance is None
            or (instance.account_id, instance.region) != where
            or not is_known(world, instance, now_ns)
        ):
            unknown.append(instance_id)
        else:
            found[instance_id] = instance
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        verb = "do" if plural else "does"
        message = f"The instance ID{plural} '{', '.join(unknown)}' {verb} not exist"
        raise AwsError("InvalidInstanceID.NotFound", message)
    return list(found.values())


def _is_terminable(world: RehearsedWorld, instance: Ec2Instance, now_ns: int) -> bool:
    early = uniform(world.seed, "known early", instance.instance_id) < _KNOWN_BEFORE_SHOWN
    if now_ns < instance.hidden_until_ns:
        return early
    return is_shown(world, instance, now_ns)


def _paged(
    chosen: list[Ec2Instance], call: AwsCall, least: int
) -> tuple[list[Ec2Instance], str | None]:
    return paged(chosen, call.params, lambda one: one.instance_id, least, 1000)


def _status(instance: Ec2Instance) -> dict[str, Any]:
    checks = {RUNNING: "ok", PENDING: "initializing"}.get(instance.state, "not-applicable")
    said = {
        "Status": checks,
        "Details": [{"Name": "reachability", "Status": "passed"}] if checks == "ok" else [],
    }
    return {
        "InstanceId": instance.instance_id,
        "AvailabilityZone": instance.zone,
        "AvailabilityZoneId": instance.zone,
        "InstanceState": state_of(instance.state),
        "InstanceStatus": said,
        "SystemStatus": said,
        "Events": [],
    }
