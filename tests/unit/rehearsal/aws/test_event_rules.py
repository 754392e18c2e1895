"""Which events a rule is for, and who may send to a queue."""

from __future__ import annotations

import asyncio
import json

import pytest

from spotline.rehearsal.aws.events import EventBridge, envelope
from spotline.rehearsal.aws.messaging import BusRule, Messaging
from spotline.rehearsal.aws.patterns import PatternError, matches, read_pattern
from spotline.rehearsal.aws.policies import AccessRequest, allows, read_policy
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.sqs import Sqs

WARNING = envelope(
    "000000000001",
    "us-east-1",
    "EC2 Spot Instance Interruption Warning",
    {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"},
    resources=("arn:aws:ec2:use1-az1:instance/i-0123456789abcdef0",),
    at_ns=1_700_000_000 * 10**9 + 5,
)


def test_envelope_is_eventbridges():
    assert WARNING["version"] == "0"
    assert WARNING["source"] == "aws.ec2"
    assert WARNING["time"] == "2023-11-14T22:13:20Z"
    assert set(WARNING) == {
        "version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.s3", "aws.ec2"]}, True),
        ({"source": ["aws.s3"]}, False),
        ({"source": [{"prefix": "aws."}]}, True),
        ({"source": [{"prefix": "ec2"}]}, False),
        ({"detail-type": ["EC2 Spot Instance Interruption Warning"], "account": ["2"]}, False),
        ({"detail": {"instance-action": ["terminate", "stop"]}}, True),
        ({"detail": {"instance-action": ["hibernate"]}}, False),
        ({"detail": {"state": ["running"]}}, False),
        ({"detail": {"state": [{"exists": False}]}}, True),
        ({"detail": {"instance-action": [{"anything-but": ["stop"]}]}}, True),
        ({"detail": {"instance-action": [{"anything-but": "terminate"}]}}, False),
        ({"resources": [{"suffix": "abcdef0"}]}, True),
        ({"source": [{"equals-ignore-case": "AWS.EC2"}]}, True),
        ({"source": {"nested": ["x"]}}, False),
    ],
)
def test_pattern_is_for_events_that_have_one_of_its_values_in_each_field(pattern, fits):
    assert matches(read_pattern(json.dumps(pattern)), WARNING) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "[]",
        "{}",
        '{"source": "aws.ec2"}',
        '{"source": []}',
        '{"source": [["a"]]}',
        '{"source": [{"wildcard": "a*"}]}',
        '{"source": [{"prefix": 3}]}',
        '{"detail": {"state": [{"exists": "no"}]}}',
    ],
)
def test_what_is_no_pattern_is_refused(pattern):
    with pytest.raises(PatternError, match="Event pattern is not valid"):
        read_pattern(pattern)


QUEUE_ARN = "arn:aws:sqs:us-east-1:000000000001:q"
RULE_ARN = "arn:aws:events:us-east-1:000000000001:rule/r"
ALLOW = {
    "Effect": "Allow",
    "Principal": {"Service": "events.amazonaws.com"},
    "Action": "sqs:SendMessage",
    "Resource": QUEUE_ARN,
}
DENY = {**ALLOW, "Effect": "Deny", "Principal": "*"}


@pytest.mark.parametrize(
    ("statements", "allowed"),
    [
        ([ALLOW], True),
        ([], False),
        ([{**ALLOW, "Principal": "*"}], True),
        (
            [{**ALLOW, "Principal": {"Service": ["sns.amazonaws.com", "events.amazonaws.com"]}}],
            True,
        ),
        ([{**ALLOW, "Principal": {"Service": "sns.amazonaws.com"}}], False),
        ([{**ALLOW, "Principal": {"AWS": "*"}}], False),
        ([{**ALLOW, "Action": ["SQS:*"]}], True),
        ([{**ALLOW, "Action": "sqs:ReceiveMessage"}], False),
        ([{**ALLOW, "Resource": "arn:aws:sqs:*:000000000001:*"}], True),
        ([{**ALLOW, "Resource": QUEUE_ARN + "2"}], False),
        ([{**ALLOW, "Condition": {"ArnEquals": {"aws:SourceArn": RULE_ARN}}}], True),
        (
            [{**ALLOW, "Condition": {"ArnLike": {"AWS:SourceArn": ["x", RULE_ARN[:-1] + "*"]}}}],
            True,
        ),
        ([{**ALLOW, "Condition": {"ArnEquals": {"aws:SourceArn": RULE_ARN + "2"}}}], False),
        ([{**ALLOW, "Condition": {"StringEquals": {"aws:SourceAccount": "000000000001"}}}], True),
        ([{**ALLOW, "Condition": {"NumericLessThan": {"aws:Age": "3"}}}], False),
        ([ALLOW, DENY], False),
        ([ALLOW, {**DENY, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}], True),
        ([ALLOW, {**DENY, "Condition": {"Bool": {"aws:SecureTransport": True}}}], False),
        ([ALLOW, {**DENY, "Condition": {"NumericLessThan": {"aws:Age": "3"}}}], False),
    ],
)
def test_policy_lets_send_whom_it_names_and_denies_nobody_else(statements, allowed):
    request = AccessRequest(
        principal="events.amazonaws.com",
        action="sqs:SendMessage",
        resource=QUEUE_ARN,
        context={
            "aws:sourcearn": RULE_ARN,
            "aws:sourceaccount": "000000000001",
            "aws:securetransport": "true",
        },
    )

    assert allows(read_policy(json.dumps({"Statement": statements})), request) is allowed


def bus_with(policy, **rule):
    sqs = Sqs(Messaging(), now_ns=lambda: 0, wall_ns=lambda: 0, base_url="http://127.0.0.1")
    queue = sqs.create("000000000001", "us-east-1", "q", policy)
    bridge = EventBridge(sqs)
    said = {"name": "r", "account_id": "000000000001", "region": "us-east-1", **rule}
    targets = {"queue": queue.arn}
    bridge.put_rule(BusRule(pattern='{"source": ["aws.ec2"]}', targets=targets, **said))
    return bridge, queue


POLICY = {"Policy": json.dumps({"Statement": [ALLOW]})}


def test_event_goes_to_the_queue_of_its_rule():
    bridge, queue = bus_with(POLICY)

    bridge.emit(WARNING)

    assert [json.loads(message.body) for message in queue.messages] == [WARNING]


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        ({}, {}),  # a common mistake: the queue lets nobody in
        (POLICY, {"state": "DISABLED"}),
        (POLICY, {"region": "us-west-2"}),
        (POLICY, {"account_id": "000000000002"}),
    ],
)
def test_event_goes_nowhere_else(policy, rule):
    bridge, queue = bus_with(policy, **rule)

    bridge.emit(WARNING)

    assert queue.messages == []


def asked(bridge, operation, **params):
    call = AwsCall(
        service="events", operation=operation, params=params, region="us-east-1",
        account_id="000000000001", access_key="AKIA", request_id="id",
    )  # fmt: skip
    return asyncio.run(bridge.answer(call))


def test_rule_is_changed_without_losing_its_targets_and_deleted_only_without_them():
    bridge, queue = bus_with(POLICY)

    asked(bridge, "PutRule", Name="r", EventPattern='{"source": ["aws.s3"]}', State="DISABLED")

    assert asked(bridge, "DescribeRule", Name="r")["State"] == "DISABLED"
    assert asked(bridge, "ListTargetsByRule", Rule="r")["Targets"] == [
        {"Id": "queue", "Arn": queue.arn}
    ]
    with pytest.raises(AwsError, match="has targets"):
        asked(bridge, "DeleteRule", Name="r")
    asked(bridge, "RemoveTargets", Rule="r", Ids=["queue"])
    asked(bridge, "DeleteRule", Name="r")
    with pytest.raises(AwsError, match="ResourceNotFoundException"):
        asked(bridge, "DescribeRule", Name="r")


def test_rules_of_a_target_are_named():
    bridge, queue = bus_with(POLICY)

    assert asked(bridge, "ListRuleNamesByTarget", TargetArn=queue.arn) == {"RuleNames": ["r"]}
    assert asked(bridge, "ListRuleNamesByTarget", TargetArn="arn:other") == {"RuleNames": []}


def test_own_events_take_the_way_of_all_others():
    bridge, queue = bus_with(POLICY)
    asked(bridge, "PutRule", Name="r", EventPattern='{"source": ["mine"]}')
    own = {"Source": "mine", "DetailType": "Test", "Detail": '{"token": "t"}'}

    answer = asked(bridge, "PutEvents", Entries=[own, {**own, "Source": "another's"}])

    assert answer["FailedEntryCount"] == 0
    (message,) = [json.loads(message.body) for message in queue.messages]
    assert (message["source"], message["detail"]) == ("mine", {"token": "t"})
    assert message["id"] == answer["Entries"][0]["EventId"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"Source": "aws.ec2"}, "NotAuthorizedForSourceException"),
        ({"Detail": "["}, "MalformedDetail"),
        ({"Detail": "[]"}, "MalformedDetail"),
        ({"DetailType": ""}, "InvalidArgument"),
    ],
)
def test_an_event_that_is_none_fails_by_itself(changed, code):
    bridge, queue = bus_with(POLICY)
    entry = {"Source": "mine", "DetailType": "Test", "Detail": "{}", **changed}

    answer = asked(bridge, "PutEvents", Entries=[entry])

    assert [told["ErrorCode"] for told in answer["Entries"]] == [code]
    assert (answer["FailedEntryCount"], queue.messages) == (1, [])
