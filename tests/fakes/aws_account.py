"""An account of AWS by script, in which all is well until a test changes an answer."""

from __future__ import annotations

from email.utils import formatdate

from spotline.adapters.clouds.aws.calling import CallRefused
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings

QUEUE = "https://sqs.us-east-1.amazonaws.com/000000000001/spotline"
QUEUE_ARN = "arn:aws:sqs:us-east-1:000000000001:spotline"
NOW_S = 1_767_225_600
POLICY = (
    '{"Statement": [{"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, '
    f'"Action": "sqs:SendMessage", "Resource": "{QUEUE_ARN}"}}]}}'
)
PATTERN = (
    '{"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning", '
    '"EC2 Instance Rebalance Recommendation", "EC2 Instance State-change Notification"]}'
)


NO_DISKS = {"disk_gb": 0, "disk_usd_per_gb_month": 0.0}


def settings(**changed) -> AwsSettings:
    """One account with one offering and a queue."""
    offering = {
        "account": "main",
        "region": "us-east-1",
        "zone": "use1-az4",
        "instance_type": "g5.xlarge",
        "gpu_model": "a10g",
        "gpus_per_instance": 1,
        "disk_gb": 200,
        "disk_usd_per_gb_month": 0.08,
        "launch_template_id": "lt-1",
        "subnet_id": "subnet-1",
    }
    return AwsSettings(
        accounts=(AwsAccount(name="main", account_id="000000000001", queues={"us-east-1": QUEUE}),),
        offerings=(AwsOffering(**{**offering, **changed}),),
    )


def refused(operation: str, code: str = "UnauthorizedOperation") -> CallRefused:
    return CallRefused(operation, code, "no")


ANSWERS = {
    "GetCallerIdentity": {
        "Account": "000000000001",
        "Arn": "arn:aws:sts::000000000001:assumed-role/spotline",
        "ResponseMetadata": {"HTTPHeaders": {"date": formatdate(NOW_S, usegmt=True)}},
    },
    "GetRole": {"Role": {"RoleName": "AWSServiceRoleForEC2Spot"}},
    "DescribeAvailabilityZones": {
        "AvailabilityZones": [
            {"ZoneId": "use1-az4", "ZoneName": "us-east-1a", "State": "available"},
            {"ZoneId": "use1-az6", "ZoneName": "us-east-1b", "OptInStatus": "not-opted-in"},
        ]
    },
    "DescribeInstanceTypes": {
        "InstanceTypes": [
            {
                "InstanceType": "g5.xlarge",
                "VCpuInfo": {"DefaultVCpus": 4},
                "GpuInfo": {"Gpus": [{"Name": "A10G", "Count": 1}]},
                "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
                "SupportedUsageClasses": ["on-demand", "spot"],
            }
        ]
    },
    "DescribeInstanceTypeOfferings": {
        "InstanceTypeOfferings": [{"Location": "use1-az4", "InstanceType": "g5.xlarge"}]
    },
    "DescribeLaunchTemplateVersions": {
        "LaunchTemplateVersions": [
            {
                "LaunchTemplateData": {
                    "ImageId": "ami-1",
                    "BlockDeviceMappings": [
                        {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}}
                    ],
                }
            }
        ]
    },
    "DescribeImages": {
        "Images": [
            {
                "State": "available",
                "Architecture": "x86_64",
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 60}}],
            }
        ]
    },
    "DescribeSubnets": {
        "Subnets": [
            {"VpcId": "vpc-1", "AvailabilityZoneId": "use1-az4", "AvailableIpAddressCount": 9}
        ]
    },
    "DescribeRouteTables": {"RouteTables": []},
    "LookupEvents": {"Events": []},
    "GetServiceQuota": {"Quota": {"Value": 64.0}},
    "GetQueueAttributes": {
        "Attributes": {
            "QueueArn": QUEUE_ARN,
            "Policy": POLICY,
            "ApproximateNumberOfMessages": "0",
        }
    },
    "ListRuleNamesByTarget": {"RuleNames": ["spotline"]},
    "DescribeRule": {"State": "ENABLED", "EventPattern": PATTERN},
    "CreateFleet": refused("CreateFleet", "DryRunOperation"),
    "RunInstances": refused("RunInstances", "DryRunOperation"),
    "TerminateInstances": refused("TerminateInstances", "DryRunOperation"),
    "GetProducts": {
        "PriceList": [
            {
                "product": {"attributes": {}},
                "terms": {
                    "OnDemand": {
                        "t": {"priceDimensions": {"d": {"pricePerUnit": {"USD": "1.006"}}}}
                    }
                },
            }
        ]
    },
}


class ScriptedAccount:
    """Implements `AwsReader`: an answer by operation, or an error that is raised.

    An answer may be a function of the parameters.
    """

    def __init__(self, **changed) -> None:
        self.answers = {**ANSWERS, **changed}
        self.calls: list[tuple[str, dict]] = []

    async def call(self, account, region, service, operation, **params):
        self.calls.append((f"{service}:{operation}", params))
        answer = self.answers.get(operation)
        if answer is None:
            raise refused(operation, "InvalidAction")
        if callable(answer):
            answer = answer(params)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def called(self) -> list[str]:
        return [action for action, _ in self.calls]


class StandingWall:
    """Implements `FeedWall`: it is always the same moment."""

    def __init__(self, now_s: float = NOW_S) -> None:
        self._now_s = now_s

    def now_ns(self) -> int:
        return round(self._now_s * 10**9)

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody waits here, {seconds} s")
