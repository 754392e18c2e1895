"""The queue in which interruptions are told, its rule and its policy; a test message's way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.calling import AwsReader
from spotline.adapters.clouds.aws.doctor.looking import Look, Unread
from spotline.application.cloud_checks import CloudCheck, failed, left_open, ok, warning

NOTICE = "EC2 Spot Instance Interruption Warning"
ADVICE = ("EC2 Instance Rebalance Recommendation", "EC2 Instance State-change Notification")
# What a test message says that it is from; AWS's own sources begin with "aws.".
TEST_SOURCE, TEST_TYPE = "spotline.doctor", "Spotline Doctor"
_SENDER = "events.amazonaws.com"
# So many that nobody seems to read them: a notice would be one of the last.
_MANY = 1000
_LOOKS = 15
_SET_UP = "set it up with deploy/aws/notices.yaml (CloudFormation)"


async def check_queue(reader: AwsReader, site: AwsPlace, url: str) -> list[CloudCheck]:
    """Whether notices of the site's instances come into its queue."""
    name, where = "queue", str(site)
    if not url:
        return [
            warning(
                name,
                where,
                "there is none: only instances themselves learn of interruptions there",
                f"{_SET_UP}, and state the queue's URL under queues of {site.account}",
            )
        ]
    look, checks = Look(reader, name, site), list[CloudCheck]()
    try:
        answer = await look.ask("sqs", "GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
        attributes = answer.get("Attributes", {})
        checks += _of_attributes(where, attributes)
        checks += await _of_rules(look, str(attributes.get("QueueArn", "")))
    except Unread as error:
        checks.append(error.check)
    return checks


def _of_attributes(where: str, attributes: Mapping[str, str]) -> list[CloudCheck]:
    name, checks = "queue", []
    if not _lets_send(str(attributes.get("Policy", "")), str(attributes.get("QueueArn", ""))):
        checks.append(
            failed(
                name,
                where,
                f"its policy does not let {_SENDER} send: notices are dropped, and nobody is told",
                _SET_UP,
            )
        )
    waiting = int(attributes.get("ApproximateNumberOfMessages", 0))
    if waiting > _MANY:
        checks.append(
            warning(
                name,
                where,
                f"{waiting} messages wait in it",
                "give each installation a queue and a rule of its own, and read it",
            )
        )
    return checks or [ok(name, where, f"events may be sent to it; {waiting} wait in it")]


async def _of_rules(look: Look, arn: str) -> list[CloudCheck]:
    name, where = "rule", str(look.site)
    names = await look.rows("events", "ListRuleNamesByTarget", "RuleNames", TargetArn=arn)
    told: set[str] = set()
    for rule in sorted(map(str, names)):
        described = await look.ask("events", "DescribeRule", Name=rule)
        if described.get("State", "ENABLED") == "ENABLED":
            told |= {
                kind
                for kind in (NOTICE, *ADVICE)
                if pattern_takes(str(described.get("EventPattern", "")), kind)
            }
    if NOTICE not in told:
        return [
            failed(name, where, f"no rule sends '{NOTICE}' into the queue", _SET_UP),
        ]
    missing = [kind for kind in ADVICE if kind not in told]
    if missing:
        return [warning(name, where, f"no rule sends {' nor '.join(map(repr, missing))}", _SET_UP)]
    return [ok(name, where, f"by {', '.join(sorted(map(str, names)))}")]


def pattern_takes(text: str, detail_type: str) -> bool:
    """Whether an event pattern takes events of EC2 of a kind; what is no pattern takes none."""
    try:
        pattern = json.loads(text)
    except ValueError:
        return False
    if not isinstance(pattern, dict):
        return False
    sources, kinds = pattern.get("source"), pattern.get("detail-type")
    return (sources is None or "aws.ec2" in sources) and (kinds is None or detail_type in kinds)


def _lets_send(text: str, queue_arn: str) -> bool:
    """Whether a queue's policy lets EventBridge send to it."""
    try:
        statements = json.loads(text)["Statement"]
    except (KeyError, TypeError, ValueError):
        return False
    return any(_allows(statement, queue_arn) for statement in _listed(statements))


def _allows(statement: Mapping[str, Any], queue_arn: str) -> bool:
    principal = statement.get("Principal", {})
    services = _listed(principal.get("Service", ())) if isinstance(principal, dict) else ["*"]
    actions = {str(action).lower() for action in _listed(statement.get("Action", ()))}
    resources = _listed(statement.get("Resource", ()))
    return (
        statement.get("Effect") == "Allow"
        and bool({_SENDER, "*"} & set(services))
        and bool({"sqs:sendmessage", "sqs:*", "*"} & actions)
        and bool({queue_arn, "*"} & set(resources))
    )


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


async def send_test_message(
    reader: AwsReader, site: AwsPlace, url: str, token: str, *, wait_s: int = 2
) -> CloudCheck:
    """Send an event of our own through EventBridge, and see whether it comes into the queue.

    Others' messages that are seen on the way stay in the queue. An actuator that runs may take the
    test message first, and leaves it alone.
    """
    name, where, look = "test message", str(site), Look(reader, "test message", site)
    try:
        sent = await look.ask(
            "events",
            "PutEvents",
            Entries=[
                {
                    "Source": TEST_SOURCE,
                    "DetailType": TEST_TYPE,
                    "Detail": json.dumps({"token": token}),
                }
            ],
        )
        if sent.get("FailedEntryCount"):
            entries = json.dumps(sent.get("Entries", ()))
            return failed(name, where, f"EventBridge took no event: {entries}", "ask AWS why")
        for _ in range(_LOOKS):
            if await _found(look, url, token, wait_s):
                return ok(name, where, "it came through EventBridge into the queue")
            await asyncio.sleep(0)
    except Unread as error:
        return error.check
    return left_open(
        name,
        where,
        f"it was not seen within {_LOOKS * wait_s} s",
        f"stop what else reads the queue and try again; else let its rule take {TEST_SOURCE}, "
        "as deploy/aws/notices.yaml does",
    )


async def _found(look: Look, url: str, token: str, wait_s: int) -> bool:
    received = await look.ask(
        "sqs",
        "ReceiveMessage",
        QueueUrl=url,
        MaxNumberOfMessages=10,
        WaitTimeSeconds=wait_s,
        # What is not ours is to be seen again at once by whom it is for.
        VisibilityTimeout=1,
    )
    for message in received.get("Messages", ()):
        if token in str(message.get("Body", "")):
            await look.ask(
                "sqs", "DeleteMessage", QueueUrl=url, ReceiptHandle=message["ReceiptHandle"]
            )
            return True
    return False
