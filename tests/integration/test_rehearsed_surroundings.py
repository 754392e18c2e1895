"""What stands around EC2 in the rehearsal, over HTTP: who may ask, and how a notice arrives."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import socket
import sys
import time
import urllib.error
import urllib.request

import botocore.exceptions
import pytest
from botocore.exceptions import ClientError
from botocore.utils import InstanceMetadataFetcher

from spotline.adapters.agents.identity_documents import DocumentRules, IdentityDocuments
from spotline.adapters.identity.signing import ForgedStatement
from spotline.agent.aws_instance import read_instance
from spotline.agent.aws_metadata import Metadata
from spotline.rehearsal.aws.faults import Script
from spotline.rehearsal.aws.server import serve
from spotline.rehearsal.aws.service import Registry
from spotline.rehearsal.aws.sts import RehearsedKeys
from spotline.rehearsal.aws.surroundings import QUEUE
from tests.fakes.rehearsed_aws import REGION, rehearsed_aws

pytestmark = pytest.mark.integration

# Prints what it is told of its interruption, and stays until it is ended.
PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("begun", os.environ["AWS_REGION"], flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def aws(tmp_path_factory):
    program = tmp_path_factory.mktemp("program") / "program.py"
    program.write_text(PROGRAM)
    command = f"{sys.executable} -S -E {program}"
    with rehearsed_aws(tmp_path_factory.mktemp("aws"), instance_command=command) as aws:
        yield aws


@pytest.fixture
def instance(aws):
    """A running instance of spot; gone at the end."""
    ec2 = aws.client("ec2")
    told = ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {
                    "LaunchTemplateName": "spotline-p4d.24xlarge", "Version": "$Default",
                }
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot",
        },
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "job", "Value": "j-1"}]}
        ],
    )  # fmt: skip
    (instance_id,) = told["Instances"][0]["InstanceIds"]
    aws.advance(1)
    yield instance_id
    ec2.terminate_instances(InstanceIds=[instance_id])
    aws.advance(1)
    drain(aws)


def drain(aws, account="default"):
    """All messages that wait in an account's queue, deleted; each a dictionary."""
    sqs, url = aws.client("sqs", account), aws.served.queues[account][REGION]
    bodies = []
    while messages := sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=0
    ).get("Messages"):
        for message in messages:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            bodies.append(json.loads(message["Body"]))
    return bodies


def refusal(call, **params):
    with pytest.raises(ClientError) as refused:
        call(**params)
    error = refused.value.response
    return error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]


# --- who asks -----------------------------------------------------------------------------------


def test_stranger_and_wrong_secret_are_refused(aws):
    stranger = aws.client("sts", aws_access_key_id="AKIASTRANGER")
    guesser = aws.client("sts", aws_secret_access_key="guessed")

    assert refusal(stranger.get_caller_identity) == ("InvalidClientTokenId", 403)
    assert refusal(guesser.get_caller_identity) == ("SignatureDoesNotMatch", 403)


def test_role_of_another_account_is_assumed_with_its_external_id_only(aws):
    sts = aws.client("sts")
    other = next(one for one in aws.world.accounts if one.name == "other")
    role = other.roles[0]

    said = {"RoleArn": role.arn, "RoleSessionName": "spotline"}
    for wrong in (said, {**said, "ExternalId": "guessed"}, {**said, "RoleArn": role.arn + "2"}):
        assert refusal(sts.assume_role, **wrong) == ("AccessDenied", 403)
    told = sts.assume_role(**said, ExternalId=role.external_id)
    keys = told["Credentials"]
    session = {
        "aws_access_key_id": keys["AccessKeyId"],
        "aws_secret_access_key": keys["SecretAccessKey"],
        "aws_session_token": keys["SessionToken"],
    }

    who = aws.client("sts", **session).get_caller_identity()
    assert who["Account"] == other.account_id
    assert who["Arn"] == told["AssumedRoleUser"]["Arn"]
    assert 3500 < keys["Expiration"].timestamp() - time.time() <= 3600
    assert refusal(sts.assume_role, **said, ExternalId=role.external_id, DurationSeconds=7200) == (
        "ValidationError", 400,
    )  # fmt: skip


def test_queue_of_another_account_is_not_ours(aws):
    url = aws.served.queues["other"][REGION]

    assert refusal(aws.client("sqs").receive_message, QueueUrl=url)[0] == "AccessDenied"


def test_operation_that_is_not_rehearsed_is_refused(aws):
    assert refusal(aws.client("ec2").describe_vpn_gateways) == ("InvalidAction", 400)
    assert refusal(aws.client("events").list_archives)[1] == 400


def test_request_that_is_not_signed_is_refused(aws):
    request = urllib.request.Request(
        aws.served.endpoint_url, data=b"Action=GetCallerIdentity&Version=2011-06-15", method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    with refused.value as answer:
        assert answer.code == 403
        assert b"MissingAuthenticationToken" in answer.read()


# --- what is lost ---------------------------------------------------------------------------------


def test_lost_answer_is_a_lost_connection(aws):
    ec2 = aws.client("ec2")
    aws.faults.scripts.append(Script(operation="DescribeRegions", code="ConnectionLost"))

    with pytest.raises(botocore.exceptions.ConnectionClosedError):
        ec2.describe_regions()

    assert ec2.describe_regions()["Regions"]


def test_bug_of_the_rehearsal_is_an_internal_error_and_no_lost_server(aws, monkeypatch):
    sts = aws.client("sts")
    monkeypatch.setattr("spotline.rehearsal.aws.sts.Sts._who", lambda *_: {"Account": 3})

    assert refusal(sts.get_caller_identity) == ("InternalError", 500)
    monkeypatch.undo()
    assert sts.get_caller_identity()["Account"]


# --- how a notice arrives -------------------------------------------------------------------------


def test_notice_arrives_by_the_queue_and_by_the_instances_own_metadata(aws, instance):
    drain(aws)

    aws.do(lambda: aws.world.interrupt(instance, 120.0))

    (event,) = drain(aws)
    assert event["detail-type"] == "EC2 Spot Instance Interruption Warning"
    assert event["source"] == "aws.ec2"
    assert event["detail"] == {"instance-id": instance, "instance-action": "terminate"}
    assert event["account"] == "000000000001"
    action = json.loads(metadata(aws, instance, "latest/meta-data/spot/instance-action"))
    told = metadata(aws, instance, "latest/meta-data/spot/termination-time")
    assert action == {"action": "terminate", "time": told}
    assert event["time"] < told
    aws.advance(121)
    changes = [event["detail"].get("state") for event in drain(aws)]
    assert sorted(changes) == ["shutting-down", "terminated"]
    assert drain(aws, "other") == []


def test_two_readers_of_a_queue_steal_each_others_messages(aws, instance):
    sqs, url = aws.client("sqs"), aws.served.queues["default"][REGION]
    drain(aws)
    aws.do(lambda: aws.world.interrupt(instance, 120.0))

    mine = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=0).get("Messages", [])
    theirs = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=0).get("Messages", [])

    assert (len(mine), len(theirs)) == (1, 0)
    sqs.delete_message(QueueUrl=url, ReceiptHandle=mine[0]["ReceiptHandle"])


def test_poll_returns_as_soon_as_a_message_arrives(aws, instance):
    sqs, url = aws.client("sqs"), aws.served.queues["default"][REGION]
    drain(aws)
    with concurrent.futures.ThreadPoolExecutor(1) as readers:
        polled = readers.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        assert not polled.done()

        aws.do(lambda: aws.world.interrupt(instance, 120.0))

        (message,) = polled.result(15)["Messages"]
    assert instance in message["Body"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_queue_whose_policy_lets_nobody_in_gets_nothing(aws, instance):
    sqs, url = aws.client("sqs"), aws.served.queues["default"][REGION]
    drain(aws)
    policy = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    try:
        aws.do(lambda: aws.world.interrupt(instance, 120.0))
        assert drain(aws) == []
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes=policy)


def test_rule_is_found_with_its_queue(aws):
    events = aws.client("events")
    pattern = json.loads(events.describe_rule(Name=QUEUE)["EventPattern"])

    assert "EC2 Instance Rebalance Recommendation" in pattern["detail-type"]
    (target,) = events.list_targets_by_rule(Rule=QUEUE)["Targets"]
    assert target["Arn"] == f"arn:aws:sqs:{REGION}:000000000001:{QUEUE}"


def test_event_of_ones_own_goes_through_the_bus_into_the_queue(aws):
    drain(aws)
    mine = {
        "Source": "spotline.doctor",
        "DetailType": "Spotline Doctor",
        "Detail": '{"token": "t"}',
    }
    theirs = {**mine, "Source": "aws.ec2"}
    torn = {**mine, "Detail": "{"}

    told = aws.client("events").put_events(Entries=[mine, theirs, torn])

    assert told["FailedEntryCount"] == 2
    assert [one.get("ErrorCode") for one in told["Entries"]] == [
        None, "NotAuthorizedForSourceException", "MalformedDetail",
    ]  # fmt: skip
    (event,) = drain(aws)
    assert (event["source"], event["detail"]) == ("spotline.doctor", {"token": "t"})
    assert event["id"] == told["Entries"][0]["EventId"]
    arn = f"arn:aws:sqs:{REGION}:000000000001:{QUEUE}"
    assert aws.client("events").list_rule_names_by_target(TargetArn=arn)["RuleNames"] == [QUEUE]


def test_user_interrupts_an_instance_by_an_experiment(aws, instance):
    fis = aws.client("fis")
    drain(aws)
    template = fis.create_experiment_template(
        clientToken="t-1",
        description="interrupt",
        roleArn="arn:aws:iam::000000000001:role/fis",
        stopConditions=[{"source": "none"}],
        targets={
            "one": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceArns": [f"arn:aws:ec2:{REGION}:000000000001:instance/{instance}"],
                "selectionMode": "ALL",
            }
        },
        actions={
            "interrupt": {
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": "one"},
            }
        },
    )["experimentTemplate"]["id"]

    said = {"clientToken": "t-2", "experimentTemplateId": template}
    begun = fis.start_experiment(**said)["experiment"]
    again = fis.start_experiment(**said)["experiment"]

    assert (begun["id"], begun["state"]["status"]) == (again["id"], "completed")
    assert fis.get_experiment(id=begun["id"])["experiment"]["experimentTemplateId"] == template
    (event,) = drain(aws)
    assert event["detail"] == {"instance-id": instance, "instance-action": "terminate"}
    fis.delete_experiment_template(id=template)
    assert refusal(fis.start_experiment, **{**said, "clientToken": "t-3"}) == (
        "ResourceNotFoundException", 404,
    )  # fmt: skip


def test_account_has_the_role_without_which_there_is_no_spot(aws):
    iam = aws.client("iam")

    role = iam.get_role(RoleName="AWSServiceRoleForEC2Spot")["Role"]

    assert role["Path"] == "/aws-service-role/spot.amazonaws.com/"
    statement = role["AssumeRolePolicyDocument"]["Statement"][0]
    assert statement["Principal"] == {"Service": "spot.amazonaws.com"}
    assert iam.get_role(RoleName="spotline")["Role"]["Path"] == "/"
    assert refusal(iam.get_role, RoleName="nobody") == ("NoSuchEntity", 404)


# --- an instance's own metadata -------------------------------------------------------------------


def asked(aws, instance, path, *, method="GET", **headers):
    url = f"{aws.served.metadata_url(instance)}{path}"
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, method=method, headers=sent)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metadata(aws, instance, path):
    _, token = asked(
        aws, instance, "latest/api/token", method="PUT",
        X_aws_ec2_metadata_token_ttl_seconds="60",
    )  # fmt: skip
    status, text = asked(aws, instance, path, X_aws_ec2_metadata_token=token)
    return text if status == 200 else status


def test_metadata_are_told_with_a_token_only(aws, instance):
    path = "latest/meta-data/instance-id"

    assert asked(aws, instance, path)[0] == 401
    assert asked(aws, instance, path, X_aws_ec2_metadata_token="made-up")[0] == 401
    assert asked(aws, instance, "latest/api/token", method="PUT")[0] == 400
    for ttl in ("0", "21601", "long"):
        token = asked(
            aws, instance, "latest/api/token", method="PUT",
            X_aws_ec2_metadata_token_ttl_seconds=ttl,
        )  # fmt: skip
        assert token[0] == 400
    forwarded = asked(
        aws, instance, "latest/api/token", method="PUT",
        X_aws_ec2_metadata_token_ttl_seconds="60", X_Forwarded_For="10.0.0.1",
    )  # fmt: skip
    assert forwarded[0] == 403
    assert metadata(aws, instance, path) == instance


def test_metadata_say_what_and_where_an_instance_is(aws, instance):
    def told(path):
        return metadata(aws, instance, f"latest/meta-data/{path}")

    assert told("placement/region") == REGION
    assert told("placement/availability-zone-id") == "use1-az1"
    assert told("instance-type") == "p4d.24xlarge"
    assert told("instance-life-cycle") == "spot"
    assert told("tags/instance/job") == "j-1"
    assert "job" in told("tags/instance/").splitlines()
    assert told("spot/instance-action") == 404
    assert told("events/recommendations/rebalance") == 404
    assert "placement/" in told("").splitlines()
    assert metadata(aws, "i-0123456789abcdef0", "latest/meta-data/") == 404


def test_identity_document_is_what_an_agent_proves_itself_by(aws, instance):
    told = read_instance(Metadata(aws.served.metadata_url(instance)))
    rules = DocumentRules(
        certificates=aws.served.certificate, accounts=("000000000001",), regions=(REGION,)
    )

    read = IdentityDocuments(rules).read(told.document, told.signature)

    assert (read.instance_id, read.account_id, read.region) == (instance, "000000000001", REGION)
    with pytest.raises(ForgedStatement, match="not signed"):
        IdentityDocuments(rules).read(told.document.replace(instance, "i-1"), told.signature)


def test_botocore_finds_the_metadata_by_the_endpoint_of_the_environment(aws, instance):
    fetcher = InstanceMetadataFetcher(
        timeout=10,
        num_attempts=1,
        config={"ec2_metadata_service_endpoint": aws.served.metadata_url(instance)},
    )

    # The instance has no role: found, but without credentials.
    assert fetcher.retrieve_iam_role_credentials() == {}


def test_each_running_instance_is_a_process_that_ends_with_it(aws, instance):
    output = aws.folder / "state" / "instances" / instance / "output.log"
    until(lambda: output.exists() and output.read_text() == f"begun {REGION}\n")

    aws.client("ec2").terminate_instances(InstanceIds=[instance])
    aws.advance(1)

    until(lambda: not (output.parent / "pid").exists())


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_instance_has_the_user_data_of_its_own_request(aws):
    ec2 = aws.client("ec2")
    (told,) = ec2.run_instances(
        MinCount=1, MaxCount=1, UserData="echo mine", LaunchTemplate={"LaunchTemplateName": "spotline-g5.xlarge"}
    )["Instances"]  # fmt: skip
    try:
        aws.advance(1)
        assert metadata(aws, told["InstanceId"], "latest/user-data") == "echo mine"
    finally:
        ec2.terminate_instances(InstanceIds=[told["InstanceId"]])
        aws.advance(1)


# --- prices and quotas ----------------------------------------------------------------------------


def test_prices_and_quotas_are_of_the_world(aws):
    fields = {
        "regionCode": REGION, "instanceType": "p4d.24xlarge", "operatingSystem": "Linux",
        "tenancy": "Shared", "capacitystatus": "Used",
    }  # fmt: skip
    (text,) = aws.client("pricing").get_products(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": f, "Value": v} for f, v in fields.items()],
    )["PriceList"]
    quota = aws.client("service-quotas").get_service_quota(
        ServiceCode="ec2", QuotaCode="L-7212CCBC"
    )["Quota"]

    assert '"USD":"32.7726000000"' in text
    assert quota["Value"] > 0
    assert quota["QuotaName"] == "All P4, P3 and P2 Spot Instance Requests"


def test_image_and_way_out_of_a_subnet_are_described(aws):
    ec2 = aws.client("ec2")
    template = ec2.describe_launch_template_versions(
        LaunchTemplateName="spotline-g5.xlarge", Versions=["$Default"]
    )["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    vpc = ec2.describe_subnets()["Subnets"][0]["VpcId"]

    (image,) = ec2.describe_images(ImageIds=[template["ImageId"]])["Images"]
    (table,) = ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [vpc]}])[
        "RouteTables"
    ]

    assert image["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] > 0
    nat = next(one["NatGatewayId"] for one in table["Routes"] if "NatGatewayId" in one)
    (gateway,) = ec2.describe_nat_gateways(NatGatewayIds=[nat])["NatGateways"]
    assert gateway["VpcId"] == vpc
    assert refusal(ec2.describe_images, ImageIds=["ami-0123"])[0] == "InvalidAMIID.NotFound"
    assert refusal(ec2.describe_nat_gateways, NatGatewayIds=["nat-1"])[0] == "NatGatewayNotFound"


# --- the server -----------------------------------------------------------------------------------


async def test_server_lets_go_of_its_port_and_refuses_one_that_is_taken():
    keys = RehearsedKeys([], secret=b"")
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(OSError, match="in use"),
    ):
        async with serve(services=Registry(), keys=keys, port=taken.getsockname()[1]):
            pass
    async with serve(services=Registry(), keys=keys) as url:
        port = int(url.rpartition(":")[2])

    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


def requests():
    """The requests that are being answered."""
    return {task for task in asyncio.all_tasks() if "run_asgi" in repr(task.get_coro())}


def test_poll_ends_without_a_message_where_the_rehearsal_ends(tmp_path):
    with concurrent.futures.ThreadPoolExecutor(1) as readers, rehearsed_aws(tmp_path) as aws:
        sqs, url = aws.client("sqs"), aws.served.queues["default"][REGION]
        drain(aws)
        before = aws.do(requests)
        polled = readers.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        until(lambda: aws.do(requests) - before)

        aws.stop()

        assert "Messages" not in polled.result(60)
