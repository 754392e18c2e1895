"""What AWS answers, as values: instances by their tags, fleets, and the messages of a queue."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from spotline.adapters.clouds.aws import tags
from spotline.adapters.clouds.aws.api import AwsPlace, Reply
from spotline.adapters.clouds.aws.errors import refusal_class_of
from spotline.application.cloud_actuator.ports import Instance, InstanceState, Refusal
from spotline.contracts.errors import ContractError
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "stopping": InstanceState.STOPPING,
    "shutting-down": InstanceState.STOPPING,
    "stopped": InstanceState.ENDED,
    "terminated": InstanceState.ENDED,
}
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html
_RECLAIMED = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")
_BY_USER = ("Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown")

_WHEN = re.compile(r"\((\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}) GMT\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An instance as EC2 describes it, with what the port does not know of it.

    `changed_ns` is when it came into its state, where EC2 says so.
    """

    instance: Instance
    owner: str
    place: AwsPlace
    zone: str
    reason: str = ""
    stopped: bool = False
    changed_ns: int | None = None


def shown_in(pages: Iterable[Reply], place: AwsPlace) -> list[Shown]:
    """The instances of a description that carry our tags, in launch order; others are foreign."""
    found = []
    for page in pages:
        for reservation in page.get("Reservations", ()):
            for described in reservation.get("Instances", ()):
                shown = _shown(described, place)
                if shown is not None:
                    found.append((described.get("AmiLaunchIndex", 0), shown))
    found.sort(key=lambda one: (one[1].instance.ready_ns, one[0], one[1].instance.instance_id))
    return [shown for _, shown in found]


def _shown(described: Reply, place: AwsPlace) -> Shown | None:
    stated = {tag.get("Key", ""): tag.get("Value", "") for tag in described.get("Tags", ())}
    owner, token = stated.get(tags.OWNER, ""), stated.get(tags.TOKEN, "")
    if not owner or not token:
        return None
    state = described["State"]["Name"]
    if state not in STATES:
        raise ContractError("State.Name", f"must be one of {', '.join(STATES)}, was {state!r}")
    instance = Instance(
        instance_id=described["InstanceId"],
        token=token,
        job_id=stated.get(tags.JOB, ""),
        tenant=stated.get(tags.TENANT, ""),
        quota_pool=stated.get(tags.QUOTA_POOL, ""),
        offering_id=stated.get(tags.OFFERING, ""),
        capacity_type=_capacity_type(described, stated),
        ready_ns=ns_of(described["LaunchTime"]),
        state=STATES[state],
        installation_id=stated.get(tags.INSTALLATION, ""),
        hold=tags.HOLD in stated,
    )
    placement = described.get("Placement", {})
    return Shown(
        instance=instance,
        owner=owner,
        place=place,
        zone=placement.get("AvailabilityZoneId") or placement.get("AvailabilityZone", ""),
        reason=described.get("StateReason", {}).get("Code", ""),
        stopped=state == "stopped",
        changed_ns=_changed_ns(described.get("StateTransitionReason", "")),
    )


def _changed_ns(said: str) -> int | None:
    """The time in words such as "User initiated (2016-01-20 17:20:53 GMT)"."""
    found = _WHEN.search(said)
    if found is None:
        return None
    return ns_of(datetime.fromisoformat(f"{found[1]}+00:00"))


def _capacity_type(described: Reply, stated: dict[str, str]) -> CapacityType:
    """As it is tagged, for a capacity block is also bought on demand; else as AWS says."""
    try:
        return CapacityType(stated.get(tags.CAPACITY_TYPE, ""))
    except ValueError:
        spot = described.get("InstanceLifecycle") == "spot"
        return CapacityType.SPOT if spot else CapacityType.ON_DEMAND


def ns_of(moment: datetime) -> int:
    """Nanoseconds of a time that AWS states, to the microsecond."""
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * NS_PER_S + moment.microsecond * 1000


def interruption_by(reason: str) -> InterruptionKind | None:
    """Why the cloud ended an instance, by the code of its reason; None where it did not."""
    if reason in _RECLAIMED:
        return InterruptionKind.CAPACITY_RECLAIMED
    if not reason or reason in _BY_USER:
        return None
    return InterruptionKind.INSTANCE_FAILED


# --- fleets ---------------------------------------------------------------------------------------


def granted_ids(fleet: Reply) -> tuple[str, ...]:
    """The ids that a fleet launched."""
    return tuple(
        instance_id
        for group in fleet.get("Instances", ())
        for instance_id in group.get("InstanceIds", ())
    )


def refusal_in(fleet: Reply, *, wanted: int, granted: int) -> Refusal | None:
    """Why a fleet launched fewer than were wanted: its first error; None where all came.

    A fleet is "fulfilled" whatever it launched. One that says nothing lacked capacity.
    """
    if granted >= wanted:
        return None
    errors = [
        (error.get("ErrorCode", ""), error.get("ErrorMessage", ""))
        for error in fleet.get("Errors", ())
    ]
    if not errors:
        return Refusal(
            refusal_class=RefusalClass.NO_CAPACITY,
            detail=f"the fleet launched {granted} of {wanted} and named no error",
        )
    return Refusal(
        refusal_class=refusal_class_of(errors[0][0]),
        detail="; ".join(dict.fromkeys(f"{code}: {said}" for code, said in errors)),
    )


# --- messages -------------------------------------------------------------------------------------


class MessageKind(Enum):
    """What a message of EventBridge is about, of what we follow."""

    NOTICE = "EC2 Spot Instance Interruption Warning"
    REBALANCE = "EC2 Instance Rebalance Recommendation"
    STATE = "EC2 Instance State-change Notification"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What EventBridge delivered: `message_id` is the same each time it does so."""

    message_id: str
    kind: MessageKind
    instance_id: str
    at_ns: int
    state: InstanceState | None = None


_ENVELOPE = ("id", "detail-type", "time", "detail")
_INSTANCE_ID = re.compile(r"i-[0-9a-zA-Z-]{1,64}")
# Nanoseconds of later ones are more than a store's integer holds.
_FIRST, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2262, 1, 1, tzinfo=UTC)


def message_of(body: str) -> Message | None:
    """Read a message's body; None for an event that is none of ours.

    Raises
    ------
    ContractError
        It is no event of EventBridge; names what is wrong.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ContractError("body", f"must be JSON: {error}") from error
    if not isinstance(event, dict):
        raise ContractError("body", "must be an object of JSON")
    for name in _ENVELOPE:
        if name not in event:
            raise ContractError(name, "is missing")
    kinds = {kind.value: kind for kind in MessageKind}
    kind = kinds.get(str(event["detail-type"]))
    if kind is None:
        return None
    detail = event["detail"]
    instance_id = detail.get("instance-id") if isinstance(detail, dict) else None
    if not isinstance(instance_id, str) or not _INSTANCE_ID.fullmatch(instance_id):
        raise ContractError("detail.instance-id", f"must be i-..., was {instance_id!r:.100}")
    state = None
    if kind is MessageKind.STATE:
        state = STATES.get(str(detail.get("state")))
        if state is None:
            known = ", ".join(STATES)
            raise ContractError(
                "detail.state", f"must be one of {known}, was {detail.get('state')!r}"
            )
    return Message(
        message_id=str(event["id"]),
        kind=kind,
        instance_id=instance_id,
        at_ns=_moment_of(str(event["time"])),
        state=state,
    )


def _moment_of(said: str) -> int:
    try:
        moment = datetime.fromisoformat(said)
    except ValueError as error:
        raise ContractError("time", f"must be a time: {error}") from error
    if moment.tzinfo is None or not _FIRST <= moment < _LAST:
        raise ContractError("time", f"must be a time of our days with its zone, was {said!r:.100}")
    return ns_of(moment)


def bodies(received: Reply) -> Sequence[tuple[str, str, str]]:
    """Messages as SQS hands them out: id of the message, what deletes it, its body."""
    return [
        (message["MessageId"], message["ReceiptHandle"], message["Body"])
        for message in received.get("Messages", ())
    ]
