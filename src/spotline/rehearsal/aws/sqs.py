"""SQS: the service in front of the queues."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from spotline.rehearsal.aws.messaging import Messaging
from spotline.rehearsal.aws.queues import (
    QueuedMessage,
    QueueMoment,
    RehearsedQueue,
    check_attribute,
)
from spotline.rehearsal.aws.service import AwsCall, AwsError

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_MOST_MESSAGES = 10
_MOST_WAIT_S = 20
_MOST_HIDDEN_S = 43_200
# A poll looks again at least so often: a clock that is moved by hand wakes nobody.
_LOOK_S = 0.05


class Sqs:
    """The service.

    Parameters
    ----------
    messaging
        The queues that there are.
    now_ns, wall_ns
        Market time and wall time.
    base_url
        What URLs of queues begin with; may be known only once the server listens.
    """

    name = "sqs"

    def __init__(
        self,
        messaging: Messaging,
        *,
        now_ns: Callable[[], int],
        wall_ns: Callable[[], int] = time.time_ns,
        base_url: str = "",
    ) -> None:
        self.messaging = messaging
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self.base_url = base_url
        self._arrived = asyncio.Event()
        self._closed = False
        self._answers: Mapping[str, Callable[[AwsCall], Mapping[str, Any]]] = {
            "CreateQueue": self._create,
            "DeleteQueue": self._delete_queue,
            "GetQueueUrl": self._url,
            "ListQueues": self._list,
            "GetQueueAttributes": self._get_attributes,
            "SetQueueAttributes": self._set_attributes,
            "SendMessage": self._send,
            "DeleteMessage": self._delete,
            "DeleteMessageBatch": self._delete_batch,
            "ChangeMessageVisibility": self._change_visibility,
            "PurgeQueue": self._purge,
        }

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of SQS."""
        if call.operation == "ReceiveMessage":
            return await self._receive(call)
        answering = self._answers.get(call.operation)
        if answering is None:
            raise AwsError("UnsupportedOperation", f"{call.operation} is not rehearsed")
        return answering(call)

    def close(self) -> None:
        """Let those who wait for messages go without: the rehearsal ends."""
        self._closed = True
        self._arrived.set()

    def create(
        self, account_id: str, region: str, name: str, attributes: Mapping[str, str]
    ) -> RehearsedQueue:
        """Have a queue; one of the same name is it, if its attributes are the same.

        Raises
        ------
        AwsError
            A name or an attribute is wrong, or the attributes differ.
        """
        if not _NAME.fullmatch(name):
            raise AwsError(
                "InvalidParameterValue",
                "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in "
                f"length; first-in-first-out queues are not rehearsed. Was {name!r}",
            )
        checked = {key: check_attribute(key, value) for key, value in attributes.items()}
        there = self.messaging.queues.get((account_id, region, name))
        if there is not None:
            known = there.described(checked, self.moment())
            if known != checked:
                raise AwsError(
                    "QueueNameExists", f"A queue already exists with other attributes: {name}"
                )
            return there
        key = account_id, region, name
        self.messaging.record("queue", key, self.moment(), attributes=checked)
        return self.messaging.queues[key]

    def set_policy(self, queue: RehearsedQueue, policy: str) -> None:
        """Say who may send to a queue; raises AwsError if it is no policy."""
        given = {"Policy": check_attribute("Policy", policy)}
        self.messaging.record("attributes", queue.key, self.moment(), attributes=given)

    def url(self, queue: RehearsedQueue) -> str:
        """The URL of a queue."""
        return f"{self.base_url}/{queue.account_id}/{queue.name}"

    def by_arn(self, arn: str) -> RehearsedQueue | None:
        """The queue of an ARN; None: there is none."""
        return next((queue for queue in self.messaging.queues.values() if queue.arn == arn), None)

    def deliver(self, queue: RehearsedQueue, body: str, sender: str) -> None:
        """Put a message of another service into a queue."""
        self._take(queue, body, sender, None)

    def _take(
        self, queue: RehearsedQueue, body: str, sender: str, delay_s: int | None
    ) -> QueuedMessage:
        queue.check_body(body)
        said = {"body": body, "sender": sender, "delay_s": delay_s}
        self.messaging.record("sent", queue.key, self.moment(), **said)
        self._arrived.set()
        return queue.messages[-1]

    def _forget(self, queue: RehearsedQueue, handle: str) -> None:
        message = queue.received_with(handle)
        if message is not None:
            said = {"message_id": message.message_id, "is_copy": message.is_copy}
            self.messaging.record("deleted", queue.key, self.moment(), **said)

    def moment(self) -> QueueMoment:
        """Now."""
        return QueueMoment(market_ns=self._now_ns(), wall_ns=self._wall_ns())

    def _queue(self, call: AwsCall) -> RehearsedQueue:
        """The queue that a call's URL names; its region is that of the call's signature."""
        url: str = call.params["QueueUrl"]
        account_id, name = url.split("/")[-2:] if url.count("/") >= 2 else ("", url)
        if account_id != call.account_id:
            raise AwsError(
                "AccessDenied",
                f"Access to the resource {url} is denied: it is not of account {call.account_id}",
                status=403,
            )
        return self._named(call, name)

    def _named(self, call: AwsCall, name: str) -> RehearsedQueue:
        queue = self.messaging.queues.get((call.account_id, call.region, name))
        if queue is None:
            raise AwsError("QueueDoesNotExist", "The specified queue does not exist.")
        return queue

    def _create(self, call: AwsCall) -> Mapping[str, Any]:
        given = call.params.get("Attributes", {})
        return {
            "QueueUrl": self.url(
                self.create(call.account_id, call.region, call.params["QueueName"], given)
            )
        }

    def _delete_queue(self, call: AwsCall) -> Mapping[str, Any]:
        queue = self._queue(call)
        self.messaging.record("queue_deleted", queue.key, self.moment())
        return {}

    def _url(self, call: AwsCall) -> Mapping[str, Any]:
        return {"QueueUrl": self.url(self._named(call, call.params["QueueName"]))}

    def _list(self, call: AwsCall) -> Mapping[str, Any]:
        prefix = call.params.get("QueueNamePrefix", "")
        urls = [
            self.url(queue)
            for (account_id, region, name), queue in sorted(self.messaging.queues.items())
            if (account_id, region) == (call.account_id, call.region) and name.startswith(prefix)
        ]
        return {"QueueUrls": urls} if urls else {}

    def _get_attributes(self, call: AwsCall) -> Mapping[str, Any]:
        described = self._queue(call).described(
            call.params.get("AttributeNames", ()), self.moment()
        )
        return {"Attributes": described} if described else {}

    def _set_attributes(self, call: AwsCall) -> Mapping[str, Any]:
        queue = self._queue(call)
        given = {
            name: check_attribute(name, value) for name, value in call.params["Attributes"].items()
        }
        self.messaging.record("attributes", queue.key, self.moment(), attributes=given)
        return {}

    def _send(self, call: AwsCall) -> Mapping[str, Any]:
        for name in ("MessageAttributes", "MessageSystemAttributes", "MessageGroupId"):
            if name in call.params:
                raise AwsError("UnsupportedOperation", f"{name} are not rehearsed")
        delay = call.params.get("DelaySeconds")
        if delay is not None:
            check_attribute("DelaySeconds", str(delay))
        body = call.params["MessageBody"]
        message = self._take(self._queue(call), body, call.access_key, delay)
        return {"MessageId": message.message_id, "MD5OfMessageBody": _md5(body)}

    async def _receive(self, call: AwsCall) -> Mapping[str, Any]:
        queue = self._queue(call)
        most = _within(call, "MaxNumberOfMessages", 1, _MOST_MESSAGES, 1)
        wait_s = _within(
            call, "WaitTimeSeconds", 0, _MOST_WAIT_S, queue.setting("ReceiveMessageWaitTimeSeconds")
        )
        hidden_s = call.params.get("VisibilityTimeout")
        if hidden_s is not None:
            _within(call, "VisibilityTimeout", 0, _MOST_HIDDEN_S, 0)
        ends_ns = self._wall_ns() + wait_s * 10**9
        while True:
            self._arrived.clear()
            taken = queue.receive(most, hidden_s, self.moment())
            left_s = (ends_ns - self._wall_ns()) / 1e9
            if taken or left_s <= 0 or self._closed:
                break
            try:
                async with asyncio.timeout(min(left_s, _LOOK_S)):
                    await self._arrived.wait()
            except TimeoutError:
                continue
        wanted = {
            *call.params.get("MessageSystemAttributeNames", ()),
            *call.params.get("AttributeNames", ()),
        }
        # Of nothing there is no member at all, not an empty list.
        return {"Messages": [_told(message, wanted) for message in taken]} if taken else {}

    def _delete(self, call: AwsCall) -> Mapping[str, Any]:
        self._forget(self._queue(call), call.params["ReceiptHandle"])
        return {}

    def _delete_batch(self, call: AwsCall) -> Mapping[str, Any]:
        queue = self._queue(call)
        entries = call.params["Entries"]
        ids = [entry["Id"] for entry in entries]
        if not entries:
            raise AwsError(
                "EmptyBatchRequest", "There should be at least one entry in the request."
            )
        if len(entries) > _MOST_MESSAGES:
            raise AwsError(
                "TooManyEntriesInBatchRequest",
                f"Maximum number of entries per request are {_MOST_MESSAGES}. You have sent {len(ids)}.",
            )
        if len(set(ids)) != len(ids):
            raise AwsError("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id")
        done, failed = [], []
        for entry in entries:
            try:
                self._forget(queue, entry["ReceiptHandle"])
                done.append({"Id": entry["Id"]})
            except AwsError as error:
                failed.append(
                    {
                        "Id": entry["Id"],
                        "SenderFault": True,
                        "Code": error.code,
                        "Message": error.message,
                    }
                )
        return {"Successful": done, "Failed": failed}

    def _change_visibility(self, call: AwsCall) -> Mapping[str, Any]:
        seconds = _within(call, "VisibilityTimeout", 0, _MOST_HIDDEN_S, 0)
        queue = self._queue(call)
        queue.change_visibility(call.params["ReceiptHandle"], seconds, self.moment())
        return {}

    def _purge(self, call: AwsCall) -> Mapping[str, Any]:
        queue = self._queue(call)
        queue.check_purge(self.moment())
        self.messaging.record("purged", queue.key, self.moment())
        return {}


def _within(call: AwsCall, name: str, least: int, most: int, default: int) -> int:
    value: int = call.params.get(name, default)
    if not least <= value <= most:
        raise AwsError(
            "InvalidParameterValue",
            f"Value {value} for parameter {name} is invalid. Reason: Must be >= {least} and <= {most}, "
            "if provided.",
        )
    return value


def _told(message: QueuedMessage, wanted: set[str]) -> dict[str, Any]:
    attributes = {
        "SenderId": message.sender,
        "SentTimestamp": str(message.sent_ns // 10**6),
        "ApproximateReceiveCount": str(message.received),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_ns // 10**6),
    }
    told: dict[str, Any] = {
        "MessageId": message.message_id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": _md5(message.body),
        "Body": message.body,
    }
    shown = {key: value for key, value in attributes.items() if {"All", key} & wanted}
    if shown:
        told["Attributes"] = shown
    return told


def _md5(body: str) -> str:
    # SQS's checksum of a body, no secret.
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
