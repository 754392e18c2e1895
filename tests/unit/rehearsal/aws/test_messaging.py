"""Queues, rules and messages outlive the process that served them."""

from __future__ import annotations

import asyncio

import pytest

from spotline.rehearsal.aws.events import EventBridge
from spotline.rehearsal.aws.messaging import Messaging
from spotline.rehearsal.aws.service import AwsCall
from spotline.rehearsal.aws.sqs import Sqs
from spotline.rehearsal.aws.state_log import BrokenLog, StateLog, records_of

URL = "http://127.0.0.1/000000000001/q"


class Served:
    """SQS and EventBridge over a log, as one process has them."""

    def __init__(self, path):
        before = list(records_of(path))
        self.log = StateLog(path)
        messaging = Messaging(self.log, seed=1)
        messaging.restore(before)
        self.sqs = Sqs(messaging, now_ns=lambda: 5, wall_ns=lambda: 7, base_url="http://127.0.0.1")
        self.services = {"sqs": self.sqs, "events": EventBridge(self.sqs)}

    def ask(self, service, operation, **params):
        call = AwsCall(
            service=service, operation=operation, params=params, region="us-east-1",
            account_id="000000000001", access_key="AKIA", request_id="id",
        )  # fmt: skip
        return asyncio.run(self.services[service].answer(call))

    def bodies(self):
        got = self.ask("sqs", "ReceiveMessage", QueueUrl=URL, MaxNumberOfMessages=10)
        return sorted(message["Body"] for message in got.get("Messages", ()))


@pytest.fixture
def started(tmp_path):
    """Serves the same log as often as it is called; the one before was killed."""
    logs = []

    def start():
        served = Served(tmp_path / "messaging.jsonl")
        logs.append(served.log)
        return served

    yield start
    for log in logs:
        log.close()


def test_what_was_sent_and_not_deleted_is_there_after_a_restart(started):
    before = started()
    before.ask("sqs", "CreateQueue", QueueName="q", Attributes={"VisibilityTimeout": "77"})
    for body in ("one", "two", "three"):
        before.ask("sqs", "SendMessage", QueueUrl=URL, MessageBody=body)
    got = before.ask("sqs", "ReceiveMessage", QueueUrl=URL)["Messages"][0]
    before.ask("sqs", "DeleteMessage", QueueUrl=URL, ReceiptHandle=got["ReceiptHandle"])
    assert len(before.bodies()) == 2

    after = started()

    # Those that were in a reader's hands come again.
    assert after.bodies() == sorted({"one", "two", "three"} - {got["Body"]})
    told = after.ask(
        "sqs", "GetQueueAttributes", QueueUrl=URL, AttributeNames=["VisibilityTimeout"]
    )
    assert told == {"Attributes": {"VisibilityTimeout": "77"}}


def test_rules_are_there_after_a_restart(started):
    before = started()
    before.ask("events", "PutRule", Name="r", EventPattern='{"source": ["aws.ec2"]}')
    targets = [{"Id": "a", "Arn": "arn:aws:sqs:x:1:q"}, {"Id": "b", "Arn": "arn:aws:sqs:x:1:p"}]
    before.ask("events", "PutTargets", Rule="r", Targets=targets)
    before.ask("events", "RemoveTargets", Rule="r", Ids=["a"])
    before.ask("events", "PutRule", Name="gone", EventPattern='{"source": ["aws.ec2"]}')
    before.ask("events", "DeleteRule", Name="gone")

    after = started()

    assert after.ask("events", "ListTargetsByRule", Rule="r")["Targets"] == targets[1:]
    assert [one["Name"] for one in after.ask("events", "ListRules")["Rules"]] == ["r"]


def test_queue_that_was_purged_or_deleted_is_so_after_a_restart(started):
    before = started()
    before.ask("sqs", "CreateQueue", QueueName="q")
    before.ask("sqs", "CreateQueue", QueueName="gone")
    before.ask("sqs", "SendMessage", QueueUrl=URL, MessageBody="one")
    before.ask("sqs", "PurgeQueue", QueueUrl=URL)
    before.ask("sqs", "DeleteQueue", QueueUrl="http://127.0.0.1/000000000001/gone")

    after = started()

    assert after.bodies() == []
    assert after.ask("sqs", "ListQueues")["QueueUrls"] == [URL]


def test_record_that_is_none_is_refused():
    with pytest.raises(BrokenLog, match="no record of queues"):
        Messaging().restore([{"kind": "sung", "key": ["1", "r", "q"], "at_ns": 1, "wall_ns": 1}])
