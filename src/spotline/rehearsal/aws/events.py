"""EventBridge: rules on the default bus, and delivery of EC2's events to queues.

How late EC2 says something, and whether twice or never, is drawn where it says it; a queue adds its
own copies. A queue whose policy does not let `events.amazonaws.com` send gets nothing, and nobody is
told, as in reality.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from spotline.rehearsal.aws.messaging import BusRule
from spotline.rehearsal.aws.patterns import PatternError, matches, read_pattern
from spotline.rehearsal.aws.policies import AccessRequest
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.sqs import Sqs

_SENDER = "events.amazonaws.com"
_BUS = "default"
_NAME = re.compile(r"[.\-_A-Za-z0-9]{1,64}")
_MOST_TARGETS = 5


class EventBridge:
    """The service, and the bus behind it."""

    name = "events"

    def __init__(self, sqs: Sqs) -> None:
        self._sqs = sqs
        self._messaging = sqs.messaging
        self._answers: Mapping[str, Callable[[AwsCall], Mapping[str, Any]]] = {
            "PutRule": self._put_rule,
            "DescribeRule": self._describe,
            "ListRules": self._list_rules,
            "DeleteRule": self._delete,
            "PutTargets": self._put_targets,
            "RemoveTargets": self._remove_targets,
            "ListTargetsByRule": self._list_targets,
            "ListRuleNamesByTarget": self._rules_of,
            "PutEvents": self._put_events,
        }

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of EventBridge."""
        answering = self._answers.get(call.operation)
        if answering is None:
            raise AwsError("OperationDisabledException", f"{call.operation} is not rehearsed")
        if call.params.get("EventBusName", _BUS) != _BUS:
            raise AwsError(
                "ResourceNotFoundException",
                f"Event bus {call.params['EventBusName']} does not exist.",
            )
        return answering(call)

    def put_rule(self, rule: BusRule) -> BusRule:
        """Have a rule, or change the one of that name; its targets stay.

        Raises
        ------
        AwsError
            Its name or pattern is wrong.
        """
        if not _NAME.fullmatch(rule.name):
            raise AwsError(
                "ValidationException", f"Value '{rule.name}' at 'name' is no rule's name"
            )
        try:
            read_pattern(rule.pattern)
        except PatternError as error:
            raise AwsError("InvalidEventPatternException", str(error)) from error
        there = self._messaging.rules.get(rule.key)
        if there is not None and not rule.targets:
            rule = replace(rule, targets=there.targets)
        self._messaging.put_rule(rule, self._sqs.moment())
        return rule

    def emit(self, event: Mapping[str, Any]) -> None:
        """Deliver an event's envelope to the queues of all rules that are for it."""
        body = json.dumps(event)
        for rule in list(self._messaging.rules.values()):
            of_here = (rule.account_id, rule.region) == (event["account"], event["region"])
            if not of_here or rule.state != "ENABLED":
                continue
            if matches(read_pattern(rule.pattern), event):
                for arn in rule.targets.values():
                    self._deliver(rule, arn, body)

    def _deliver(self, rule: BusRule, arn: str, body: str) -> None:
        queue = self._sqs.by_arn(arn)
        if queue is None:
            return
        context = {
            "aws:sourcearn": rule.arn,
            "aws:sourceaccount": rule.account_id,
            "aws:securetransport": "true",
        }
        request = AccessRequest(
            principal=_SENDER, action="sqs:SendMessage", resource=queue.arn, context=context
        )
        if queue.lets_send(request):
            self._sqs.deliver(queue, body, _SENDER)

    def _rule(self, call: AwsCall, name: str) -> BusRule:
        rule = self._messaging.rules.get((call.account_id, call.region, name))
        if rule is None:
            raise AwsError(
                "ResourceNotFoundException", f"Rule {name} does not exist on EventBus {_BUS}."
            )
        return rule

    def _put_rule(self, call: AwsCall) -> Mapping[str, Any]:
        params = call.params
        if "EventPattern" not in params:
            raise AwsError(
                "ValidationException",
                "Parameter EventPattern must be specified: schedules are not rehearsed",
            )
        rule = self.put_rule(
            BusRule(
                name=params["Name"],
                account_id=call.account_id,
                region=call.region,
                pattern=params["EventPattern"],
                state=params.get("State", "ENABLED"),
                description=params.get("Description", ""),
            )
        )
        return {"RuleArn": rule.arn}

    def _describe(self, call: AwsCall) -> Mapping[str, Any]:
        return _described(self._rule(call, call.params["Name"]))

    def _list_rules(self, call: AwsCall) -> Mapping[str, Any]:
        prefix = call.params.get("NamePrefix", "")
        rules = []
        for (account_id, region, name), rule in sorted(self._messaging.rules.items()):
            if (account_id, region) == (call.account_id, call.region) and name.startswith(prefix):
                told = _described(rule)
                del told["CreatedBy"]
                rules.append(told)
        return {"Rules": rules}

    def _delete(self, call: AwsCall) -> Mapping[str, Any]:
        rule = self._messaging.rules.get((call.account_id, call.region, call.params["Name"]))
        if rule is None:
            return {}
        if rule.targets:
            raise AwsError("ValidationException", "Rule can't be deleted since it has targets.")
        self._messaging.record("rule_deleted", rule.key, self._sqs.moment())
        return {}

    def _put_targets(self, call: AwsCall) -> Mapping[str, Any]:
        rule = self._rule(call, call.params["Rule"])
        given = call.params["Targets"]
        for target in given:
            beyond = set(target) - {"Id", "Arn"}
            if beyond:
                raise AwsError(
                    "ValidationException",
                    f"Parameter(s) {', '.join(sorted(beyond))} are not rehearsed",
                )
            if not target["Arn"].startswith("arn:aws:sqs:"):
                raise AwsError(
                    "ValidationException", f"Parameter {target['Arn']} is not valid. Reason: Provided "
                    "Arn is not in correct format; only queues are rehearsed",
                )  # fmt: skip
        after = {**rule.targets, **{target["Id"]: target["Arn"] for target in given}}
        if len(after) > _MOST_TARGETS:
            raise AwsError(
                "LimitExceededException",
                "The requested resource exceeds the maximum number allowed.",
            )
        self._messaging.put_rule(replace(rule, targets=after), self._sqs.moment())
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def _remove_targets(self, call: AwsCall) -> Mapping[str, Any]:
        rule = self._rule(call, call.params["Rule"])
        gone = set(call.params["Ids"])
        left = {name: arn for name, arn in rule.targets.items() if name not in gone}
        self._messaging.put_rule(replace(rule, targets=left), self._sqs.moment())
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def _list_targets(self, call: AwsCall) -> Mapping[str, Any]:
        rule = self._rule(call, call.params["Rule"])
        return {"Targets": [{"Id": name, "Arn": arn} for name, arn in sorted(rule.targets.items())]}

    def _rules_of(self, call: AwsCall) -> Mapping[str, Any]:
        names = [
            name
            for (account_id, region, name), rule in sorted(self._messaging.rules.items())
            if (account_id, region) == (call.account_id, call.region)
            and call.params["TargetArn"] in rule.targets.values()
        ]
        return {"RuleNames": names}

    def _put_events(self, call: AwsCall) -> Mapping[str, Any]:
        at_ns = self._sqs.moment().market_ns
        told: list[dict[str, str]] = []
        for number, entry in enumerate(call.params["Entries"]):
            wrong = _wrong_entry(entry)
            if wrong:
                told.append(wrong)
                continue
            event = envelope(
                call.account_id,
                call.region,
                entry["DetailType"],
                json.loads(entry["Detail"]),
                resources=tuple(entry.get("Resources", ())),
                at_ns=at_ns,
            )
            event = {
                **event,
                "source": entry["Source"],
                "id": f"{call.request_id[:-2]}{number:02d}",
            }
            told.append({"EventId": event["id"]})
            self.emit(event)
        return {"FailedEntryCount": sum("ErrorCode" in one for one in told), "Entries": told}


def _wrong_entry(entry: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with an event that somebody puts on the bus; empty: nothing."""
    for name in ("Source", "DetailType", "Detail"):
        if not entry.get(name):
            return {
                "ErrorCode": "InvalidArgument",
                "ErrorMessage": f"Parameter {name} is not valid. Reason: {name} is a required argument.",
            }
    if entry["Source"].startswith("aws."):
        said = "Not authorized for the source."
        return {"ErrorCode": "NotAuthorizedForSourceException", "ErrorMessage": said}
    try:
        whole = isinstance(json.loads(entry["Detail"]), dict)
    except ValueError:
        whole = False
    if not whole:
        return {"ErrorCode": "MalformedDetail", "ErrorMessage": "Detail is malformed."}
    return {}


def _described(rule: BusRule) -> dict[str, Any]:
    """As DescribeRule says it."""
    said = {
        "Name": rule.name,
        "Arn": rule.arn,
        "EventPattern": rule.pattern,
        "State": rule.state,
        "EventBusName": _BUS,
        "CreatedBy": rule.account_id,
    }
    return {**said, "Description": rule.description} if rule.description else said


def envelope(
    account_id: str,
    region: str,
    detail_type: str,
    detail: Mapping[str, Any],
    *,
    resources: tuple[str, ...],
    at_ns: int,
) -> dict[str, Any]:
    """An event of EC2 as EventBridge hands it on; `time` has whole seconds, as there."""
    said = [account_id, region, detail_type, detail, resources, at_ns]
    drawn = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    moment = datetime.datetime.fromtimestamp(at_ns // 10**9, tz=datetime.UTC)
    return {
        "version": "0",
        "id": "-".join((drawn[:8], drawn[8:12], drawn[12:16], drawn[16:20], drawn[20:32])),
        "detail-type": detail_type,
        "source": "aws.ec2",
        "account": account_id,
        "time": f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        "region": region,
        "resources": list(resources),
        "detail": dict(detail),
    }
