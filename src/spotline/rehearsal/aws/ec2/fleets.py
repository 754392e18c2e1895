"""`CreateFleet` of type `instant`, and `RunInstances`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.rehearsal.aws.drawn import hexadecimal
from spotline.rehearsal.aws.ec2 import tokens
from spotline.rehearsal.aws.ec2.asking import (
    Params,
    dry_run,
    missing,
    tags_of,
    unsupported,
    wrong,
)
from spotline.rehearsal.aws.ec2.described import described
from spotline.rehearsal.aws.ec2.filling import Wish
from spotline.rehearsal.aws.ec2.launching import (
    Marks,
    Source,
    Unusable,
    filling_of,
    instances_of,
    micro_usd,
    named_template,
    sources_of,
)
from spotline.rehearsal.aws.ec2.resources import Template
from spotline.rehearsal.aws.places import ON_DEMAND, SPOT
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.state import Ec2Instance
from spotline.rehearsal.aws.world import RehearsedWorld

# What is asked for by these names is a reservation of the user's, and bought as on demand.
_RESERVED = ("capacity-block", "reserved-capacity")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchError:
    """Why a launch fails for no reason of its own: as EC2 says it of each pool."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What a fleet gets of one kind of purchase."""

    lifecycle: str
    instances: Sequence[Ec2Instance]
    sources: Mapping[str, Source]
    errors: Sequence[dict[str, Any]]


def create_fleet(
    world: RehearsedWorld, call: AwsCall, failing: LaunchError | None = None
) -> dict[str, Any]:
    """Launch what there is of what is asked for, at once; what is not there is in `Errors`.

    Raises
    ------
    AwsError
        The request itself is wrong, or its token came with another one before.
    """
    params = call.params
    targets = _checked(params)
    templates = [
        named_template(world, call, config.get("LaunchTemplateSpecification", {}))
        for config in params["LaunchTemplateConfigs"]
    ]
    token = params.get("ClientToken", "")
    before = tokens.known(world, call, token)
    dry_run(call)
    if before is not None:
        return dict(before.answer)
    fleet_id = "fleet-" + str(uuid.UUID(hexadecimal(32, world.seed, "fleet", world.state.records)))
    marks = Marks(tags=tags_of(params, "instance"), fleet_id=fleet_id)
    sources, errors = _sources(world, call, templates, targets)
    parts = []
    for lifecycle, target in targets.items():
        if failing is not None:
            refused = [
                _error(source.template, source.said, lifecycle, failing.code, failing.message)
                for source in sources
            ]
            parts.append(_Part(lifecycle=lifecycle, instances=(), sources={}, errors=refused))
        elif sources:
            wish = _wish(params, lifecycle, target)
            first = len(world.state.instances) + sum(len(part.instances) for part in parts)
            parts.append(_filled(world, call, sources, (lifecycle, wish), (marks, first)))
    launched = [instance for part in parts for instance in part.instances]
    answer = {
        "FleetId": fleet_id,
        "Errors": [*errors, *(error for part in parts for error in part.errors)],
        "Instances": [group for part in parts for group in _groups(part)],
    }
    world.launch(launched, tokens.remembered(call, token, answer))
    return answer


def run_instances(
    world: RehearsedWorld, call: AwsCall, failing: LaunchError | None = None
) -> dict[str, Any]:
    """Launch at least `MinCount` and up to `MaxCount` instances in one place, or raise AwsError."""
    params = call.params
    for name in ("MinCount", "MaxCount"):
        if name not in params:
            raise missing(name)
    if not 1 <= params["MinCount"] <= params["MaxCount"]:
        raise wrong("MinCount must be at least 1 and at most MaxCount")
    template = None
    if "LaunchTemplate" in params:
        template = named_template(world, call, params["LaunchTemplate"])
    elif "ImageId" not in params:
        raise missing("ImageId")
    spot = params.get("InstanceMarketOptions", {}).get("MarketType") == "spot"
    lifecycle = SPOT if spot else ON_DEMAND
    found = sources_of(world, call, template, params)
    tags = tags_of(params, "instance")
    token = params.get("ClientToken", "")
    before = tokens.known(world, call, token)
    dry_run(call)
    if before is not None:
        tokens.check_alive(world, before)
        return _reservation(world, call, [world.state.instances[i] for i in before.instance_ids])
    if isinstance(found, Unusable):
        raise AwsError(found.code, found.message)
    if failing is not None:
        raise AwsError(failing.code, failing.message)
    # Of several zones EC2 takes one for the whole request.
    wish = Wish(target=params["MaxCount"], least=params["MinCount"], single_zone=True)
    filling = filling_of(world, call, found, lifecycle, wish)
    if not filling.counts:
        refusal = filling.refusals[0]
        raise AwsError(refusal.code, refusal.message)
    marks = Marks(
        tags=tags,
        client_token=token or hexadecimal(32, world.seed, call.request_id),
        user_data=params.get("UserData", ""),
    )
    first = len(world.state.instances)
    instances = instances_of(world, found, filling, lifecycle, marks, first=first)
    world.launch(instances, tokens.remembered(call, token, {}))
    return _reservation(world, call, instances)


def _checked(params: Params) -> dict[str, int]:
    """Refuse what the rehearsal has not or AWS would not; gives the target of each lifecycle."""
    if params.get("Type", "maintain") != "instant":
        raise unsupported("Fleets are of type instant")
    if not params.get("LaunchTemplateConfigs"):
        raise missing("LaunchTemplateConfigs")
    target = params.get("TargetCapacitySpecification", {})
    total = target.get("TotalTargetCapacity", 0)
    if total < 1:
        raise wrong("TotalTargetCapacity must be at least 1")
    kind = target.get("DefaultTargetCapacityType", ON_DEMAND)
    spot = target.get("SpotTargetCapacity", 0)
    on_demand = target.get("OnDemandTargetCapacity", 0)
    if spot + on_demand > total:
        raise wrong("TotalTargetCapacity must not be below what spot and on-demand add up to")
    rest = total - spot - on_demand
    if kind == SPOT:
        spot += rest
    elif kind in (ON_DEMAND, *_RESERVED):
        on_demand += rest
    else:
        raise wrong(f"DefaultTargetCapacityType must be spot or on-demand, was {kind}")
    behaviour = params.get("SpotOptions", {}).get("InstanceInterruptionBehavior", "terminate")
    if behaviour != "terminate":
        raise unsupported("Interrupted instances are terminated")
    for options in ("SpotOptions", "OnDemandOptions"):
        said = params.get(options, {})
        least = said.get("MinTargetCapacity", 0)
        single = said.get("SingleAvailabilityZone") or said.get("SingleInstanceType")
        if least and not single:
            raise AwsError(
                "InvalidParameterCombination",
                f"{options}.MinTargetCapacity needs SingleAvailabilityZone or SingleInstanceType",
            )
        if least > total:
            raise wrong(f"{options}.MinTargetCapacity must be at most TotalTargetCapacity")
    return {name: count for name, count in ((ON_DEMAND, on_demand), (SPOT, spot)) if count}


def _sources(
    world: RehearsedWorld, call: AwsCall, templates: Sequence[Template], targets: Mapping[str, int]
) -> tuple[list[Source], list[dict[str, Any]]]:
    sources: list[Source] = []
    errors: list[dict[str, Any]] = []
    for template, config in zip(templates, call.params["LaunchTemplateConfigs"], strict=True):
        for said in config.get("Overrides") or [{}]:
            found = sources_of(world, call, template, said)
            if isinstance(found, Unusable):
                errors += [
                    _error(template, said, lifecycle, found.code, found.message)
                    for lifecycle in targets
                ]
            else:
                sources += found
    return sources, errors


def _wish(params: Params, lifecycle: str, target: int) -> Wish:
    options = params.get("SpotOptions" if lifecycle == SPOT else "OnDemandOptions", {})
    most = options.get("MaxTotalPrice")
    return Wish(
        target=target,
        least=options.get("MinTargetCapacity", 0),
        strategy=options.get("AllocationStrategy", "lowest-price"),
        single_zone=bool(options.get("SingleAvailabilityZone")),
        single_type=bool(options.get("SingleInstanceType")),
        most_total_micro_usd=micro_usd("MaxTotalPrice", most) if most else None,
    )


def _filled(
    world: RehearsedWorld,
    call: AwsCall,
    sources: Sequence[Source],
    asked: tuple[str, Wish],
    marked: tuple[Marks, int],
) -> _Part:
    lifecycle, wish = asked
    marks, first = marked
    filling = filling_of(world, call, sources, lifecycle, wish)
    instances = instances_of(world, sources, filling, lifecycle, marks, first=first)
    each = [index for index in sorted(filling.counts) for _ in range(filling.counts[index])]
    errors = [
        _error(
            sources[refusal.pool].template,
            sources[refusal.pool].said,
            lifecycle,
            refusal.code,
            refusal.message,
        )
        for refusal in filling.refusals
    ]
    return _Part(
        lifecycle=lifecycle,
        instances=instances,
        sources={
            one.instance_id: sources[index] for one, index in zip(instances, each, strict=True)
        },
        errors=errors,
    )


def _groups(part: _Part) -> list[dict[str, Any]]:
    """The instances of a part as an answer has them, those of one source together."""
    groups: dict[int, dict[str, Any]] = {}
    for instance in part.instances:
        source = part.sources[instance.instance_id]
        group = groups.setdefault(
            id(source),
            {
                "LaunchTemplateAndOverrides": _overrides(source.template, source.said),
                "Lifecycle": part.lifecycle,
                "InstanceIds": [],
                "InstanceType": instance.instance_type,
                "AvailabilityZone": instance.zone,
                "AvailabilityZoneId": instance.zone,
                "SubnetId": instance.subnet_id,
            },
        )
        group["InstanceIds"].append(instance.instance_id)
    return list(groups.values())


def _overrides(template: Template | None, said: Params) -> dict[str, Any]:
    known = ("InstanceType", "MaxPrice", "SubnetId", "AvailabilityZone", "AvailabilityZoneId")
    numbers = ("WeightedCapacity", "Priority")
    overrides = {name: said[name] for name in (*known, *numbers) if name in said}
    group = said.get("Placement", {}).get("GroupName")
    if group:
        overrides["Placement"] = {"GroupName": group}
    specification = {"LaunchTemplateId": template.template_id, "Version": "1"} if template else {}
    return {"LaunchTemplateSpecification": specification, "Overrides": overrides}


def _error(
    template: Template | None, said: Params, lifecycle: str, code: str, message: str
) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _overrides(template, said),
        "Lifecycle": lifecycle,
        "ErrorCode": code,
        "ErrorMessage": message,
    }


def _reservation(
    world: RehearsedWorld, call: AwsCall, instances: Sequence[Ec2Instance]
) -> dict[str, Any]:
    return {
        "ReservationId": instances[0].reservation_id,
        "OwnerId": call.account_id,
        "Groups": [],
        "Instances": [
            described(world, world.state.instances[one.instance_id]) for one in instances
        ],
    }
