"""Plain boto3 sees one cloud: the same calls against the rehearsal over HTTP, and against moto.

moto is a second opinion on shapes and codes only. Where it differs and is wrong, the reason stands in
`MOTO_IS_WRONG`; each entry fails (strictly) once moto is right.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.fakes.rehearsed_aws import CONFIG, REGION, rehearsed_aws

pytestmark = pytest.mark.integration

MOTO_IS_WRONG = {
    "test_client_token_gives_the_same_fleet_again": "moto forgets client tokens (CreateFleet)",
    "test_instance_type_that_does_not_exist_is_refused": "moto launches types that do not exist",
    "test_price_history_is_of_now": "moto has one price for each type, of 2006",
    "test_price_history_tells_zone_ids": "moto tells names of zones only",
    "test_error_of_a_fleet_names_its_offering": "moto has no capacity that could be used up",
    "test_placement_scores_are_told": "moto has no GetSpotPlacementScores",
}


class Cloud:
    """Something that answers boto3, and what it calls the things that a user has set up."""

    def __init__(self, name, client, template):
        self.name = name
        self.client = client
        self.template = template

    def fleet(self, count=1, kind="spot", **more):
        """Ask for a fleet by the user's template."""
        return self.client("ec2").create_fleet(
            Type="instant",
            LaunchTemplateConfigs=[
                {
                    "LaunchTemplateSpecification": {
                        "LaunchTemplateName": self.template, "Version": "$Default",
                    }
                }
            ],
            TargetCapacitySpecification={
                "TotalTargetCapacity": count, "DefaultTargetCapacityType": kind,
            },
            **more,
        )  # fmt: skip


@contextlib.contextmanager
def the_rehearsal(folder):
    with rehearsed_aws(folder) as aws:
        yield Cloud("rehearsal", aws.client, "spotline-g5.xlarge")


@contextlib.contextmanager
def moto(_):
    from moto import mock_aws

    keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "secret"}
    with mock_aws():
        session, clients = boto3.Session(region_name=REGION, **keys), {}

        def client(service):
            if service not in clients:
                clients[service] = session.client(service, config=CONFIG)
            return clients[service]

        image = client("ec2").describe_images()["Images"][0]["ImageId"]
        client("ec2").create_launch_template(
            LaunchTemplateName="spotline",
            LaunchTemplateData={"InstanceType": "g5.xlarge", "ImageId": image},
        )
        yield Cloud("moto", client, "spotline")
        for one in clients.values():
            one.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(the_rehearsal, id="rehearsal"),
        # It reads 5 s worth of tables before it answers.
        pytest.param(moto, id="moto", marks=pytest.mark.slow),
    ],
)
def cloud(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("aws")) as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def moto_s_faults(request, cloud):
    reason = MOTO_IS_WRONG.get(request.node.originalname)
    if cloud.name == "moto" and reason:
        request.node.add_marker(pytest.mark.xfail(reason=reason, strict=True))


@pytest.fixture
def queue(cloud, request):
    sqs = cloud.client("sqs")
    name = re.sub(r"\W", "_", request.node.originalname)[:80]
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)


def refusal(call, **params):
    with pytest.raises(ClientError) as refused:
        call(**params)
    return refused.value.response["Error"]["Code"]


# --- STS --------------------------------------------------------------------------------------


def test_caller_is_told_who_it_is(cloud):
    who = cloud.client("sts").get_caller_identity()

    assert re.fullmatch(r"\d{12}", who["Account"])
    assert who["Arn"].startswith("arn:aws:")
    assert who["ResponseMetadata"]["RequestId"]


# --- SQS --------------------------------------------------------------------------------------


def test_queue_is_found_by_name_and_says_what_it_is(cloud, queue):
    sqs = cloud.client("sqs")
    name = queue.rpartition("/")[2]

    told = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]

    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == queue
    assert told["QueueArn"].endswith(f":{name}")
    assert told["VisibilityTimeout"] == "30"
    assert told["ApproximateNumberOfMessages"] == "0"


def test_message_is_received_hidden_and_deleted(cloud, queue):
    sqs = cloud.client("sqs")
    sent = sqs.send_message(QueueUrl=queue, MessageBody="<hello> & you")

    (got,) = sqs.receive_message(
        QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["All"]
    )["Messages"]

    assert (got["MessageId"], got["Body"]) == (sent["MessageId"], "<hello> & you")
    assert got["MD5OfBody"] == sent["MD5OfMessageBody"]
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    assert "Messages" not in sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=0)
    sqs.change_message_visibility(
        QueueUrl=queue, ReceiptHandle=got["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1)["Messages"]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=again["ReceiptHandle"])
    told = sqs.get_queue_attributes(
        QueueUrl=queue,
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )["Attributes"]
    assert set(told.values()) == {"0"}


def test_batch_deletes_what_it_can(cloud, queue):
    sqs = cloud.client("sqs")
    sqs.send_message(QueueUrl=queue, MessageBody="one")
    (got,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1)["Messages"]

    told = sqs.delete_message_batch(
        QueueUrl=queue, Entries=[{"Id": "a", "ReceiptHandle": got["ReceiptHandle"]}]
    )

    assert [one["Id"] for one in told["Successful"]] == ["a"]
    assert not told.get("Failed")


def test_queue_that_is_not_there_is_a_modelled_error(cloud, queue):
    sqs = cloud.client("sqs")

    with pytest.raises(sqs.exceptions.QueueDoesNotExist) as refused:
        sqs.receive_message(QueueUrl=f"{queue}-not-there")

    assert refused.value.response["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_wait_time_beyond_twenty_seconds_is_refused(cloud, queue):
    sqs = cloud.client("sqs")

    code = refusal(sqs.receive_message, QueueUrl=queue, WaitTimeSeconds=21)

    assert code == "InvalidParameterValue"


def test_purge_is_allowed_once_a_minute(cloud, queue):
    sqs = cloud.client("sqs")
    sqs.send_message(QueueUrl=queue, MessageBody="one")

    sqs.purge_queue(QueueUrl=queue)

    assert "Messages" not in sqs.receive_message(QueueUrl=queue)
    with pytest.raises(sqs.exceptions.PurgeQueueInProgress):
        sqs.purge_queue(QueueUrl=queue)


# --- EventBridge ------------------------------------------------------------------------------


def test_rule_has_targets(cloud):
    events = cloud.client("events")
    pattern = json.dumps({"source": ["aws.ec2"], "detail": {"state": [{"prefix": "run"}]}})
    target = {"Id": "queue", "Arn": "arn:aws:sqs:us-east-1:000000000001:q"}

    arn = events.put_rule(Name="mine", EventPattern=pattern)["RuleArn"]
    assert events.put_targets(Rule="mine", Targets=[target])["FailedEntryCount"] == 0

    told = events.describe_rule(Name="mine")
    assert (told["Arn"], told["State"], told["EventPattern"]) == (arn, "ENABLED", pattern)
    assert events.list_targets_by_rule(Rule="mine")["Targets"] == [target]
    assert refusal(events.delete_rule, Name="mine") == "ValidationException"
    assert events.remove_targets(Rule="mine", Ids=["queue"])["FailedEntryCount"] == 0
    events.delete_rule(Name="mine")
    assert refusal(events.describe_rule, Name="mine") == "ResourceNotFoundException"


def test_pattern_that_is_none_is_refused(cloud):
    code = refusal(cloud.client("events").put_rule, Name="r", EventPattern='{"source": "aws.ec2"}')

    assert code == "InvalidEventPatternException"


# --- EC2 --------------------------------------------------------------------------------------


def test_fleet_is_launched_described_and_terminated(cloud):
    ec2 = cloud.client("ec2")
    tags = [{"Key": "spotline:installation", "Value": "here"}]

    told = cloud.fleet(2, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])

    ids = [each for got in told["Instances"] for each in got["InstanceIds"]]
    assert {got["Lifecycle"] for got in told["Instances"]} == {"spot"}
    assert len(set(ids)) == 2
    assert told["FleetId"].startswith("fleet-")
    described = [
        instance
        for page in ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "tag:spotline:installation", "Values": ["here"]}]
        )
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    ]
    assert sorted(one["InstanceId"] for one in described) == sorted(ids)
    assert {one["InstanceType"] for one in described} == {"g5.xlarge"}
    assert {one["InstanceLifecycle"] for one in described} == {"spot"}
    assert all(one["State"]["Name"] in ("pending", "running") for one in described)
    assert all(tags[0] in one["Tags"] for one in described)
    assert all(isinstance(one["LaunchTime"], datetime.datetime) for one in described)
    changes = ec2.terminate_instances(InstanceIds=ids)["TerminatingInstances"]
    assert {one["CurrentState"]["Name"] for one in changes} <= {"shutting-down", "terminated"}


def test_client_token_gives_the_same_fleet_again(cloud):
    first = cloud.fleet(1, ClientToken="the-same-token")
    again = cloud.fleet(1, ClientToken="the-same-token")

    assert first["Instances"][0]["InstanceIds"] == again["Instances"][0]["InstanceIds"]


def test_error_of_a_fleet_names_its_offering(cloud):
    told = cloud.fleet(100)

    (error,) = told["Errors"]
    assert error["ErrorCode"] in ("InsufficientInstanceCapacity", "UnfulfillableCapacity")
    assert error["Lifecycle"] == "spot"
    spec = error["LaunchTemplateAndOverrides"]["LaunchTemplateSpecification"]
    assert spec["LaunchTemplateId"].startswith("lt-")


def test_dry_run_is_allowed(cloud):
    ec2 = cloud.client("ec2")
    template = {"LaunchTemplateName": cloud.template}

    code = refusal(ec2.run_instances, DryRun=True, MinCount=1, MaxCount=1, LaunchTemplate=template)

    assert code == "DryRunOperation"


def test_instance_type_that_does_not_exist_is_refused(cloud):
    ec2 = cloud.client("ec2")

    code = refusal(ec2.describe_instance_types, InstanceTypes=["z99.mega"])
    assert code == "InvalidInstanceType"

    template = {"LaunchTemplateName": cloud.template}
    with pytest.raises(ClientError):
        ec2.run_instances(MinCount=1, MaxCount=1, LaunchTemplate=template, InstanceType="z99.mega")


def test_instance_that_is_not_there_is_not_found(cloud):
    ec2 = cloud.client("ec2")
    unknown = ["i-0123456789abcdef0"]

    assert refusal(ec2.describe_instances, InstanceIds=unknown) == "InvalidInstanceID.NotFound"
    assert refusal(ec2.terminate_instances, InstanceIds=unknown) == "InvalidInstanceID.NotFound"


def test_gpus_of_a_type_are_told(cloud):
    (told,) = cloud.client("ec2").describe_instance_types(InstanceTypes=["p4d.24xlarge"])[
        "InstanceTypes"
    ]

    assert told["VCpuInfo"]["DefaultVCpus"] == 96
    (gpu,) = told["GpuInfo"]["Gpus"]
    assert (gpu["Name"], gpu["Count"], gpu["Manufacturer"]) == ("A100", 8, "NVIDIA")


def test_price_history_is_of_now(cloud):
    now = cloud.client("ec2").describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]

    assert now
    assert all(point["Timestamp"].year > 2020 for point in now)
    assert all(float(point["SpotPrice"]) > 0 for point in now)


def test_price_history_tells_zone_ids(cloud):
    history = cloud.client("ec2").describe_spot_price_history(
        InstanceTypes=["g5.xlarge"], ProductDescriptions=["Linux/UNIX"]
    )["SpotPriceHistory"]

    assert all(point["AvailabilityZoneId"].startswith("use1-") for point in history)


def test_zones_have_names_and_ids(cloud):
    zones = cloud.client("ec2").describe_availability_zones()["AvailabilityZones"]

    assert {zone["RegionName"] for zone in zones} == {REGION}
    assert all(zone["ZoneId"].startswith("use1-az") for zone in zones)
    assert all(zone["State"] == "available" for zone in zones)


def test_placement_scores_are_told(cloud):
    told = cloud.client("ec2").get_spot_placement_scores(
        InstanceTypes=["g5.xlarge"],
        TargetCapacity=1,
        SingleAvailabilityZone=True,
        RegionNames=[REGION],
    )["SpotPlacementScores"]

    assert all(1 <= one["Score"] <= 10 for one in told)
    assert told


def test_launch_template_is_described(cloud):
    ec2 = cloud.client("ec2")

    (told,) = ec2.describe_launch_templates(LaunchTemplateNames=[cloud.template])["LaunchTemplates"]

    assert told["LaunchTemplateId"].startswith("lt-")
    (version,) = ec2.describe_launch_template_versions(
        LaunchTemplateId=told["LaunchTemplateId"], Versions=["$Default"]
    )["LaunchTemplateVersions"]
    assert version["LaunchTemplateData"]["InstanceType"] == "g5.xlarge"
    assert refusal(ec2.describe_launch_templates, LaunchTemplateNames=["none-of-it"]) == (
        "InvalidLaunchTemplateName.NotFoundException"
    )
