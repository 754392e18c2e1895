"""CloudTrail's event history: of the calls that it records, those that ended instances.

Told from what there is, so it survives a kill: one event for all that was ended by one call. A call that
changed nothing (an end asked for again, a dry run) is an event at AWS, and is none here.
https://docs.aws.amazon.com/awscloudtrail/latest/APIReference/API_LookupEvents.html
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.drawn import between, hexadecimal
from spotline.rehearsal.aws.ec2.described import state_of
from spotline.rehearsal.aws.pages import page_of
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.state import PENDING, RUNNING, SHUTTING_DOWN, Ec2Instance
from spotline.rehearsal.aws.world import BY_USER, RehearsedWorld

_ENDING = "TerminateInstances"
_MOST_IN_PAGE = 50
# "The rate of lookup requests is limited to two per second, per account, per Region."
_MOST_A_SECOND = 2
_KEPT_S = 90 * 86_400


class CloudTrail:
    """The service: `LookupEvents` by the name of an event or of an instance."""

    name = "cloudtrail"

    def __init__(self, world: RehearsedWorld) -> None:
        self._world = world
        # By account and region: a second of market time, and how many calls came in it.
        self._calls: dict[tuple[str, str], tuple[int, int]] = {}

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of CloudTrail."""
        if call.operation != "LookupEvents":
            raise AwsError("UnknownOperationException", f"{call.operation} is not rehearsed")
        now_ns = self._world.settle()
        self._throttle(call, now_ns)
        size = call.params.get("MaxResults", _MOST_IN_PAGE)
        if not 1 <= size <= _MOST_IN_PAGE:
            raise AwsError("InvalidMaxResultsException", "MaxResults must lie in 1..50")
        begin, end = call.params.get("StartTime"), call.params.get("EndTime")
        if begin and end and begin > end:
            raise AwsError("InvalidTimeRangeException", "StartTime must not be after EndTime")
        found = [
            event
            for event in self._events(call, now_ns)
            if (begin is None or event["EventTime"] >= begin)
            and (end is None or event["EventTime"] <= end)
        ]
        token = call.params.get("NextToken", "")
        page, following = page_of(found, size, token, refusal="InvalidNextTokenException")
        return {"Events": page, **({"NextToken": following} if following else {})}

    def _throttle(self, call: AwsCall, now_ns: int) -> None:
        where, second = (call.account_id, call.region), now_ns // NS_PER_S
        last, calls = self._calls.get(where, (second, 0))
        calls = calls + 1 if last == second else 1
        self._calls[where] = second, calls
        if self._world.weather.throttled and calls > _MOST_A_SECOND:
            raise AwsError("ThrottlingException", "Rate exceeded")

    def _events(self, call: AwsCall, now_ns: int) -> list[dict[str, Any]]:
        """What is recorded by now, the newest first."""
        attribute, value = _asked(call)
        ended: dict[int, list[Ec2Instance]] = defaultdict(list)
        for instance in self._world.state.instances.values():
            if (
                (instance.account_id, instance.region) == (call.account_id, call.region)
                and instance.reason == BY_USER
                and self._shown(instance.ended_ns, now_ns)
            ):
                ended[instance.ended_ns].append(instance)
        return [
            self._event(call, at_ns, instances)
            for at_ns, instances in sorted(ended.items(), reverse=True)
            if attribute == "EventName" or any(each.instance_id == value for each in instances)
        ]

    def _shown(self, at_ns: int, now_ns: int) -> bool:
        late_s = between(*self._world.weather.recorded_s, self._world.seed, "recorded", at_ns)
        return at_ns + late_s * NS_PER_S <= now_ns <= at_ns + _KEPT_S * NS_PER_S

    def _event(self, call: AwsCall, at_ns: int, instances: Sequence[Ec2Instance]) -> dict[str, Any]:
        where = call.account_id, call.region, at_ns
        event_id = str(uuid.UUID(hexadecimal(32, self._world.seed, "event", *where)))
        request_id = str(uuid.UUID(hexadecimal(32, self._world.seed, "request", *where)))
        at = datetime.datetime.fromtimestamp(at_ns // NS_PER_S, tz=datetime.UTC)
        names = [{"instanceId": each.instance_id} for each in instances]
        record = {
            "eventVersion": "1.10",
            "userIdentity": {"type": "Root", "accountId": call.account_id},
            "eventTime": f"{at:%Y-%m-%dT%H:%M:%SZ}",
            "eventSource": "ec2.amazonaws.com",
            "eventName": _ENDING,
            "awsRegion": call.region,
            "requestParameters": {"instancesSet": {"items": names}},
            "responseElements": {
                "requestId": request_id,
                "instancesSet": {"items": [_change(each) for each in instances]},
            },
            "requestID": request_id,
            "eventID": event_id,
            "readOnly": False,
            "eventType": "AwsApiCall",
            "managementEvent": True,
            "recipientAccountId": call.account_id,
            "eventCategory": "Management",
        }
        return {
            "EventId": event_id,
            "EventName": _ENDING,
            "ReadOnly": "false",
            "EventTime": at,
            "EventSource": "ec2.amazonaws.com",
            "Username": "root",
            "Resources": [
                {"ResourceType": "AWS::EC2::Instance", "ResourceName": each.instance_id}
                for each in instances
            ],
            "CloudTrailEvent": json.dumps(record),
        }


def _asked(call: AwsCall) -> tuple[str, str]:
    """By what events are looked up: one attribute, as AWS takes no more."""
    attributes = call.params.get("LookupAttributes") or [
        {"AttributeKey": "EventName", "AttributeValue": _ENDING}
    ]
    if len(attributes) != 1:
        raise AwsError("InvalidLookupAttributesException", "There can be one lookup attribute")
    key, value = attributes[0]["AttributeKey"], attributes[0]["AttributeValue"]
    if key != "ResourceName" and (key, value) != ("EventName", _ENDING):
        raise AwsError("InvalidLookupAttributesException", f"{key} {value} is not rehearsed")
    return key, value


def _change(instance: Ec2Instance) -> dict[str, Any]:
    ran = instance.running_ns <= instance.ended_ns
    before, after = state_of(RUNNING if ran else PENDING), state_of(SHUTTING_DOWN)
    return {
        "instanceId": instance.instance_id,
        "currentState": {"code": after["Code"], "name": after["Name"]},
        "previousState": {"code": before["Code"], "name": before["Name"]},
    }
