"""EC2 in the rehearsal: which operations there are, and what stands between a call and its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from spotline.rehearsal.aws.ec2 import fleets, instances, network, prices, reference
from spotline.rehearsal.aws.ec2.fleets import LaunchError
from spotline.rehearsal.aws.ec2.throttle import Buckets
from spotline.rehearsal.aws.faults import LAUNCHES, Effect, Faults, failure
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.world import RehearsedWorld

Operation = Callable[[RehearsedWorld, AwsCall], dict[str, Any]]

_OPERATIONS: dict[str, Operation] = {
    "CreateTags": instances.create_tags,
    "DeleteTags": instances.delete_tags,
    "DescribeAccountAttributes": reference.describe_account_attributes,
    "DescribeAvailabilityZones": reference.describe_availability_zones,
    "DescribeCapacityReservations": reference.describe_capacity_reservations,
    "DescribeImages": network.describe_images,
    "DescribeInstanceStatus": instances.describe_instance_status,
    "DescribeInstanceTypeOfferings": reference.describe_instance_type_offerings,
    "DescribeInstanceTypes": reference.describe_instance_types,
    "DescribeInstances": instances.describe_instances,
    "DescribeLaunchTemplates": reference.describe_launch_templates,
    "DescribeNatGateways": network.describe_nat_gateways,
    "DescribePlacementGroups": reference.describe_placement_groups,
    "DescribeRegions": reference.describe_regions,
    "DescribeRouteTables": network.describe_route_tables,
    "DescribeSpotPriceHistory": prices.describe_spot_price_history,
    "DescribeSubnets": reference.describe_subnets,
    "DescribeTags": instances.describe_tags,
    "GetSpotPlacementScores": prices.get_spot_placement_scores,
    "TerminateInstances": instances.terminate_instances,
}
_LAUNCHES = {"CreateFleet": fleets.create_fleet, "RunInstances": fleets.run_instances}
_VERSIONS = "DescribeLaunchTemplateVersions"

OPERATIONS = frozenset({*_OPERATIONS, *_LAUNCHES, _VERSIONS})
"""What the rehearsal has of EC2."""


class Ec2:
    """EC2: every call settles the world first, and takes effect as a whole or not at all.

    `denied` holds the operations that an account has no right to: `(account id, operation)`.
    """

    name = "ec2"

    def __init__(self, world: RehearsedWorld, faults: Faults, *, user_data: str = "") -> None:
        self._world = world
        self._faults = faults
        self._buckets = Buckets()
        self._user_data = user_data
        self.denied: set[tuple[str, str]] = set()

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call; errors as `Service.answer`."""
        now_ns = self._world.settle()
        if call.operation not in OPERATIONS:
            message = f"The action {call.operation} is not valid for this web service."
            raise AwsError("InvalidAction", message)
        if self._world.weather.throttled:
            self._buckets.take(call, now_ns)
        if (call.account_id, call.operation) in self.denied:
            raise AwsError(
                "UnauthorizedOperation",
                "You are not authorized to perform this operation. User: "
                f"arn:aws:iam::{call.account_id}:root is not authorized to perform: "
                f"ec2:{call.operation}",
                status=403,
            )
        blow = self._faults.strike(call)
        failing = None
        if blow is not None and blow.of_pools and call.operation in LAUNCHES:
            failing = LaunchError(code=blow.code, message=blow.error().message)
        elif blow is not None and blow.effect is Effect.BEFORE:
            raise failure(blow)
        answer = self._perform(call, failing)
        if blow is not None and failing is None:
            raise failure(blow)
        return answer

    def _perform(self, call: AwsCall, failing: LaunchError | None) -> dict[str, Any]:
        launch = _LAUNCHES.get(call.operation)
        if launch is not None:
            return launch(self._world, call, failing)
        if call.operation == _VERSIONS:
            return reference.describe_launch_template_versions(self._world, call, self._user_data)
        return _OPERATIONS[call.operation](self._world, call)
