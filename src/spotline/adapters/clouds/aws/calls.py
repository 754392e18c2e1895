"""All that feeds, doctor and certify call, by service; what the actuator calls stands in `api`.

The policies of `deploy/aws` are held against these: no right is missing, and none is too many.
"""

from __future__ import annotations

from collections.abc import Mapping

Calls = Mapping[str, tuple[str, ...]]
"""Operations by service, both as botocore names them."""

OBSERVING: Calls = {
    "ec2": ("DescribeAvailabilityZones", "DescribeSpotPriceHistory"),
    "pricing": ("GetProducts",),
}

ADVISED: Calls = {
    **OBSERVING,
    "ec2": (*OBSERVING["ec2"], "GetSpotPlacementScores"),
}
"""Of a feed that is to show placement scores: the right to them is the doctor's."""

BILLING: Calls = {
    "cloudtrail": ("LookupEvents",),
    "ec2": ("DescribeAvailabilityZones", "DescribeInstances", "DescribeSpotPriceHistory"),
    "pricing": ("GetProducts",),
}

EXAMINING: Calls = {
    "cloudtrail": ("LookupEvents",),
    "ec2": (
        "CreateFleet",
        "DescribeAvailabilityZones",
        "DescribeImages",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeLaunchTemplateVersions",
        "DescribeNatGateways",
        "DescribeRouteTables",
        "DescribeSubnets",
        "GetSpotPlacementScores",
        "RunInstances",
        "TerminateInstances",
    ),
    "events": ("DescribeRule", "ListRuleNamesByTarget", "PutEvents"),
    "iam": ("GetRole",),
    "pricing": ("GetProducts",),
    "service-quotas": ("GetServiceQuota",),
    "sqs": ("DeleteMessage", "GetQueueAttributes", "ReceiveMessage"),
    "sts": ("GetCallerIdentity",),
}

INTERRUPTING: Calls = {
    "fis": ("CreateExperimentTemplate", "DeleteExperimentTemplate", "StartExperiment"),
}
