"""What is refused, in whose words, and that an answer not of AWS's model is a bug of ours."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from botocore.parsers import create_parser

from spotline.rehearsal.aws.service import AwsError
from spotline.rehearsal.aws.wire.models import SERVICES, describe
from spotline.rehearsal.aws.wire.protocols import (
    AnswerNotOfModel,
    read_call,
    write_answer,
    write_error,
)
from spotline.rehearsal.aws.wire.rest import WireRequest

EC2 = {"Version": "2016-11-15"}
STS = {"Version": "2011-06-15"}


def refused(service, target="", **params):
    body = urllib.parse.urlencode(params).encode() if not target else json.dumps(params).encode()
    with pytest.raises(AwsError) as refusal:
        read_call(describe(service), WireRequest(target=target, body=body))
    return refusal.value.code, refusal.value.message


@pytest.mark.parametrize(
    ("params", "code", "named"),
    [
        ({"Action": "LaunchEverything", **EC2}, "InvalidAction", "LaunchEverything"),
        ({"Action": "DescribeInstances", "Version": "2006-01-01"}, "InvalidAction", "2006-01-01"),
        ({"Action": "TerminateInstances", **EC2}, "MissingParameter", "InstanceId"),
        (
            {"Action": "CreateFleet", "TargetCapacitySpecification.Spot": "1", **EC2},
            "UnknownParameter",
            "TargetCapacitySpecification.Spot",
        ),
        ({"Action": "DescribeInstances", "Instances.1": "i-1", **EC2}, "UnknownParameter", "Instances"),
        ({"Action": "DescribeInstances", "MaxResults": "many", **EC2}, "InvalidParameterValue", "many"),
        ({"Action": "DescribeInstances", "DryRun": "perhaps", **EC2}, "InvalidParameterValue", "DryRun"),
        ({"Action": "DescribeInstances", "InstanceId.a": "i-1", **EC2}, "MalformedQueryString", "numbered"),
        ({"Action": "DescribeInstances", "InstanceId": "i-1", **EC2}, "MalformedQueryString", "numbered"),
        ({"Action": "DescribeInstances", "DryRun.1": "true", **EC2}, "UnknownParameter", "DryRun.1"),
        (
            {"Action": "CreateFleet", "Type": "soon", "LaunchTemplateConfigs.1.Overrides.1.Priority": "1",
             "TargetCapacitySpecification.TotalTargetCapacity": "1", **EC2},
            "InvalidParameterValue",
            "instant",
        ),
        ({"Version": "2016-11-15"}, "MissingParameter", "Action"),
    ],
)  # fmt: skip
def test_ec2_refuses_in_its_own_words(params, code, named):
    found, message = refused("ec2", **params)

    assert found == code
    assert named in message


def test_sts_refuses_what_is_too_short_and_what_it_does_not_know():
    role = {"Action": "AssumeRole", "RoleArn": "arn:aws:iam::000000000001:role/a", **STS}

    assert refused("sts", **role)[0] == "ValidationError"  # no RoleSessionName
    assert refused("sts", **role, RoleSessionName="me", ExternalId="1")[0] == "ValidationError"
    assert refused("sts", **role, RoleSessionName="me", Colour="red")[0] == "ValidationError"


@pytest.mark.parametrize(
    ("service", "target", "params", "code"),
    [
        ("sqs", "AmazonSQS.Shout", {}, "UnknownOperationException"),
        ("sqs", "AWSEvents.PutRule", {}, "UnknownOperationException"),
        ("sqs", "AmazonSQS.ReceiveMessage", {}, "MissingParameter"),
        ("sqs", "AmazonSQS.ReceiveMessage", {"QueueUrl": 3}, "SerializationException"),
        ("sqs", "AmazonSQS.ReceiveMessage", {"QueueUrl": "u", "WaitTimeSeconds": True}, "SerializationException"),
        ("events", "AWSEvents.PutRule", {"Name": "r", "Pattern": "{}"}, "SerializationException"),
        ("events", "AWSEvents.PutRule", {}, "ValidationException"),
        ("events", "AWSEvents.PutRule", {"Name": "r", "State": "HALF"}, "ValidationException"),
        ("pricing", "AWSPriceListService.GetProducts", {}, "InvalidParameterException"),
        ("service-quotas", "ServiceQuotasV20190624.GetServiceQuota", {"ServiceCode": "ec2"}, "IllegalArgumentException"),
    ],
)  # fmt: skip
def test_json_services_refuse_in_their_own_words(service, target, params, code):
    assert refused(service, target, **params)[0] == code


def test_body_that_is_no_json_object_is_refused():
    for body in (b"[]", b"{", b"\xff"):
        with pytest.raises(AwsError, match="SerializationException"):
            read_call(describe("sqs"), WireRequest(target="AmazonSQS.ListQueues", body=body))


def test_parameter_that_is_said_twice_is_refused():
    with pytest.raises(AwsError, match="already been specified"):
        read_call(
            describe("ec2"),
            WireRequest(body=b"Action=DescribeRegions&Version=2016-11-15&DryRun=true&DryRun=false"),
        )


@pytest.mark.parametrize("service", SERVICES)
def test_botocore_reads_each_services_errors(service):
    described = describe(service)
    error = AwsError("NoLuck", "not <today> & not tomorrow", status=418)

    answer = write_error(described, error, "id-of-this-call")

    response = {"body": answer.body, "headers": answer.headers, "status_code": answer.status}
    parsed = create_parser(described.protocol).parse(response, None)
    assert parsed["Error"]["Code"] == "NoLuck"
    assert parsed["Error"]["Message"] == "not <today> & not tomorrow"
    assert parsed["ResponseMetadata"]["RequestId"] == "id-of-this-call"
    assert parsed["ResponseMetadata"]["HTTPStatusCode"] == 418


def test_queue_that_is_missing_has_the_code_of_the_old_protocol():
    described = describe("sqs")

    answer = write_error(described, AwsError("QueueDoesNotExist", "none"), "id")

    response = {"body": answer.body, "headers": answer.headers, "status_code": answer.status}
    error = create_parser("json").parse(response, None)["Error"]
    assert error["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert error["QueryErrorCode"] == "QueueDoesNotExist"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"Fleet": "fleet-1"}, "Fleet"),
        ({"FleetId": 3}, "FleetId"),
        ({"Instances": [{"Lifecycle": "spots"}]}, r"Instances\[0\].Lifecycle"),
        ({"Instances": {"InstanceIds": []}}, "Instances"),
        ({"FleetId": "a\x00b"}, "U\\+0000"),
    ],
)
def test_answer_that_is_not_of_the_model_is_never_sent(value, said):
    service = describe("ec2")

    with pytest.raises(AnswerNotOfModel, match=said):
        write_answer(service, service.operation("CreateFleet"), value, "id")


def test_instance_type_that_no_sdk_knows_may_be_answered_and_asked_for():
    service = describe("ec2")
    body = urllib.parse.urlencode(
        {"Action": "DescribeInstanceTypes", "InstanceType.1": "z99.mega", **EC2}
    ).encode()

    operation, params = read_call(service, WireRequest(body=body))
    answer = write_answer(
        service, operation, {"InstanceTypes": [{"InstanceType": "z99.mega"}]}, "id"
    )

    assert params == {"InstanceTypes": ["z99.mega"]}
    assert b"z99.mega" in answer.body
