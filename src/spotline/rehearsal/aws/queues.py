"""Queues as SQS has them: at least once, in no order, each reader hiding what it took from the rest.

Pure but for what it holds. Messages are dated in market time; how long they stay hidden is wall time,
which is the time of those who read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spotline.rehearsal.aws.drawn import hexadecimal, uniform
from spotline.rehearsal.aws.policies import AccessRequest, PolicyError, allows, read_policy
from spotline.rehearsal.aws.service import AwsError

_NS_PER_S = 10**9
_POLICY = "Policy"
# SetQueueAttributes: least, most and default of each; of those that a rehearsal has a use for.
_LIMITS: Mapping[str, tuple[int, int, int]] = {
    "VisibilityTimeout": (0, 43_200, 30),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "DelaySeconds": (0, 900, 0),
    "MaximumMessageSize": (1_024, 1_048_576, 1_048_576),
}
_FLAGS = ("SqsManagedSseEnabled",)
# "The maximum number of in flight messages is 120,000": OverLimit beyond.
_MOST_IN_FLIGHT = 120_000


@dataclass(slots=True, kw_only=True)
class QueuedMessage:
    """A message, or the copy of one: SQS keeps several, and forgets of one now and then."""

    message_id: str
    body: str
    sender: str
    sent_ns: int
    hidden_until_wall_ns: int
    received: int = 0
    first_received_ns: int = 0
    handle: str = ""
    is_copy: bool = False

    def visible(self, wall_ns: int) -> bool:
        """Whether a reader may have it."""
        return wall_ns >= self.hidden_until_wall_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMoment:
    """When something is done: in market time, and by the wall."""

    market_ns: int
    wall_ns: int


@dataclass(slots=True)
class RehearsedQueue:
    """One queue.

    Parameters
    ----------
    copied_share
        Messages of which a copy is left behind as they are taken: they come twice.
    """

    name: str
    account_id: str
    region: str
    created_ns: int
    seed: int = 0
    copied_share: float = 0.0
    attributes: dict[str, str] = field(default_factory=dict)
    changed_ns: int = 0
    messages: list[QueuedMessage] = field(default_factory=list)
    purged_wall_ns: int | None = None
    _sent: int = 0
    _taken: int = 0

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:sqs:{self.region}:{self.account_id}:{self.name}"

    @property
    def key(self) -> tuple[str, str, str]:
        """Account, region and name."""
        return (self.account_id, self.region, self.name)

    def setting(self, name: str) -> int:
        """A numeric attribute, or its default."""
        return int(self.attributes.get(name, _LIMITS[name][2]))

    def set_attributes(self, given: Mapping[str, str], at: QueueMoment) -> None:
        """Change attributes; an empty policy takes it away.

        Raises
        ------
        AwsError
            One is unknown, or not what it should be.
        """
        checked = {name: check_attribute(name, value) for name, value in given.items()}
        self.attributes.update(checked)
        if not self.attributes.get(_POLICY):
            self.attributes.pop(_POLICY, None)
        self.changed_ns = at.market_ns

    def described(self, names: Iterable[str], at: QueueMoment) -> dict[str, str]:
        """The attributes of those names."""
        visible = [m for m in self.messages if m.visible(at.wall_ns)]
        delayed = [m for m in self.messages if not m.visible(at.wall_ns) and not m.received]
        everything = {
            **{name: str(limits[2]) for name, limits in _LIMITS.items()},
            "SqsManagedSseEnabled": "true",
            **self.attributes,
            "QueueArn": self.arn,
            "CreatedTimestamp": str(self.created_ns // _NS_PER_S),
            "LastModifiedTimestamp": str((self.changed_ns or self.created_ns) // _NS_PER_S),
            "ApproximateNumberOfMessages": str(len(visible)),
            "ApproximateNumberOfMessagesDelayed": str(len(delayed)),
            "ApproximateNumberOfMessagesNotVisible": str(
                len(self.messages) - len(visible) - len(delayed)
            ),
        }
        wanted = set(names)
        if "All" in wanted:
            return everything
        return {name: value for name, value in everything.items() if name in wanted}

    def lets_send(self, request: AccessRequest) -> bool:
        """Whether its policy lets somebody who is not of its account send."""
        policy = self.attributes.get(_POLICY)
        return policy is not None and allows(read_policy(policy), request)

    def check_body(self, body: str) -> None:
        """Refuse what is no message.

        Raises
        ------
        AwsError
            It is empty or too long.
        """
        most = self.setting("MaximumMessageSize")
        if not body or len(body.encode()) > most:
            raise AwsError(
                "InvalidParameterValue",
                f"One or more parameters are invalid. Reason: Message must have 1 to {most} bytes.",
            )

    def send(self, body: str, sender: str, at: QueueMoment, delay_s: int | None = None) -> None:
        """Take a message in that was checked; what is too old is forgotten, read or not."""
        self._forget_old(at)
        delay = self.setting("DelaySeconds") if delay_s is None else delay_s
        self._sent += 1
        message = QueuedMessage(
            message_id=_uuid("message", self.seed, self.arn, self._sent),
            body=body,
            sender=sender,
            sent_ns=at.market_ns,
            hidden_until_wall_ns=at.wall_ns + delay * _NS_PER_S,
        )
        self.messages.append(message)

    def receive(self, most: int, visibility_s: int | None, at: QueueMoment) -> list[QueuedMessage]:
        """Take up to `most` messages, which nobody else sees until their time is over.

        Raises
        ------
        AwsError
            Too many are in the hands of readers.
        """
        self._forget_old(at)
        hidden_s = self.setting("VisibilityTimeout") if visibility_s is None else visibility_s
        visible = [message for message in self.messages if message.visible(at.wall_ns)]
        if visible and len(self.messages) - len(visible) >= _MOST_IN_FLIGHT:
            raise AwsError(
                "OverLimit", f"more than {_MOST_IN_FLIGHT} messages are in flight", status=403
            )
        visible.sort(key=lambda message: uniform("order", self.seed, message.message_id))
        taken = visible[:most]
        for message in taken:
            if self._leaves_copy(message):
                self.messages.append(_copy_of(message))
            self._taken += 1
            message.received += 1
            message.first_received_ns = message.first_received_ns or at.market_ns
            message.hidden_until_wall_ns = at.wall_ns + hidden_s * _NS_PER_S
            message.handle = _uuid("handle", self.seed, self.arn, self._taken)
        return taken

    def _leaves_copy(self, message: QueuedMessage) -> bool:
        drawn = uniform("copy", self.seed, message.message_id)
        return not message.is_copy and not message.received and drawn < self.copied_share

    def received_with(self, handle: str) -> QueuedMessage | None:
        """The message that was received last with that handle; None: it is gone, or in other hands.

        Raises
        ------
        AwsError
            It is no handle at all.
        """
        _check_handle(handle)
        return next((one for one in self.messages if one.handle == handle), None)

    def forget(self, message_id: str, *, is_copy: bool) -> None:
        """Forget a message, or the copy of one, but not the other."""
        self.messages = [
            message
            for message in self.messages
            if (message.message_id, message.is_copy) != (message_id, is_copy)
        ]

    def change_visibility(self, handle: str, visibility_s: int, at: QueueMoment) -> None:
        """Hide a received message for that long from now.

        Raises
        ------
        AwsError
            It is no handle, or its message is not in flight.
        """
        message = self.received_with(handle)
        if message is None or message.visible(at.wall_ns):
            raise AwsError("MessageNotInflight", "the message is not in flight")
        message.hidden_until_wall_ns = at.wall_ns + visibility_s * _NS_PER_S

    def check_purge(self, at: QueueMoment) -> None:
        """Refuse a second purge within 60 seconds.

        Raises
        ------
        AwsError
            There was one.
        """
        if self.purged_wall_ns is not None and at.wall_ns < self.purged_wall_ns + 60 * _NS_PER_S:
            raise AwsError(
                "PurgeQueueInProgress",
                f"Only one PurgeQueue operation on {self.name} is allowed every 60 seconds.",
                status=403,
            )

    def purge(self, at: QueueMoment) -> None:
        """Forget all messages."""
        self.purged_wall_ns = at.wall_ns
        self.messages.clear()

    def _forget_old(self, at: QueueMoment) -> None:
        oldest_ns = at.market_ns - self.setting("MessageRetentionPeriod") * _NS_PER_S
        self.messages = [message for message in self.messages if message.sent_ns >= oldest_ns]


def check_attribute(name: str, value: str) -> str:
    """An attribute's value, once it is known to be one.

    Raises
    ------
    AwsError
        It is unknown, or its value is not what it should be.
    """
    if name in _LIMITS:
        least, most, _ = _LIMITS[name]
        if not value.isdecimal() or not least <= int(value) <= most:
            raise _bad_attribute(name, f"must be {least} to {most}, was {value!r}")
    elif name in _FLAGS:
        if value not in ("true", "false"):
            raise _bad_attribute(name, f"must be true or false, was {value!r}")
    elif name == _POLICY:
        try:
            read_policy(value or '{"Statement": []}')
        except PolicyError as error:
            raise _bad_attribute(name, str(error)) from error
    else:
        raise AwsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    return value


def _bad_attribute(name: str, sentence: str) -> AwsError:
    return AwsError("InvalidAttributeValue", f"Invalid value for the parameter {name}: {sentence}")


def _check_handle(handle: str) -> None:
    parts = handle.split("-")
    if [len(part) for part in parts] != [8, 4, 4, 4, 12]:
        raise AwsError("ReceiptHandleIsInvalid", "The input receipt handle is invalid.", status=404)


def _copy_of(message: QueuedMessage) -> QueuedMessage:
    return QueuedMessage(
        message_id=message.message_id,
        body=message.body,
        sender=message.sender,
        sent_ns=message.sent_ns,
        hidden_until_wall_ns=message.hidden_until_wall_ns,
        is_copy=True,
    )


def _uuid(*names: object) -> str:
    drawn = hexadecimal(32, *names)
    return "-".join((drawn[:8], drawn[8:12], drawn[12:16], drawn[16:20], drawn[20:]))
