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
from dataclasses import dataclass, field
from typing import Any

from spotline.rehearsal.aws.patterns import PatternError, matches, read_pattern
from spotline.rehearsal.aws.policies import AccessRequest
from spotline.rehearsal.aws.service import AwsError, Call
from spotline.rehearsal.aws.sqs import Sqs

_SENDER = "events.amazonaws.com"
_BUS = "default"
_NAME = re.compile(r"[.\-_A-Za-z0-9]{1,64}")
_MOST_TARGETS = 5


@dataclass(slots=True, kw_only=True)
class BusRule:
    """A rule of an account in a region."""

    name: str
    account_id: str
    region: str
    pattern: str
    state: str = "ENABLED"
    description: str = ""
    targets: dict[str, str] = field(default_factory=dict)

    @property
    def arn(self) -> str:
        """Its ARN."""
        return f"arn:aws:events:{self.region}:{self.account_id}:rule/{self.name}"

    def described(self) -> dict[str, Any]:
        """As DescribeRule says it."""
        said = {
            "Name": self.name,
            "Arn": self.arn,
            "EventPattern": self.pattern,
            "State": self.state,
            "EventBusName": _BUS,
            "CreatedBy": self.account_id,
        }
        return {**said, "Description": self.description} if self.description else said


class EventBridge:
    """The service, and the bus behind it."""

    name = "events"

    def __init__(self, sqs: Sqs) -> None:
        self._sqs = sqs
        self._rules: dict[tuple[str, str, str], BusRule] = {}
        self._answers: Mapping[str, Callable[[Call], Mapping[str, Any]]] = {
            "PutRule": self._put_rule,
            "DescribeRule": self._describe,
            "ListRules": self._list_rules,
            "DeleteRule": self._delete,
            "PutTargets": self._put_targets,
            "RemoveTargets": self._remove_targets,
            "ListTargetsByRule": self._list_targets,
        }

    async def answer(self, call: Call) -> Mapping[str, Any]:
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
        key = (rule.account_id, rule.region, rule.name)
        there = self._rules.get(key)
        if there is not None:
            rule.targets = there.targets
        self._rules[key] = rule
        return rule

    def emit(self, event: Mapping[str, Any]) -> None:
        """Deliver an event's envelope to the queues of all rules that are for it."""
        body = json.dumps(event)
        for rule in list(self._rules.values()):
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
        context = {"aws:sourcearn": rule.arn, "aws:sourceaccount": rule.account_id}
        request = AccessRequest(
            principal=_SENDER, action="sqs:SendMessage", resource=queue.arn, context=context
        )
        if queue.lets_send(request):
            self._sqs.deliver(queue, body, _SENDER)

    def _rule(self, call: Call, name: str) -> BusRule:
        rule = self._rules.get((call.account_id, call.region, name))
        if rule is None:
            raise AwsError(
                "ResourceNotFoundException", f"Rule {name} does not exist on EventBus {_BUS}."
            )
        return rule

    def _put_rule(self, call: Call) -> Mapping[str, Any]:
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

    def _describe(self, call: Call) -> Mapping[str, Any]:
        return self._rule(call, call.params["Name"]).described()

    def _list_rules(self, call: Call) -> Mapping[str, Any]:
        prefix = call.params.get("NamePrefix", "")
        rules = []
        for (account_id, region, name), rule in sorted(self._rules.items()):
            if (account_id, region) == (call.account_id, call.region) and name.startswith(prefix):
                told = rule.described()
                del told["CreatedBy"]
                rules.append(told)
        return {"Rules": rules}

    def _delete(self, call: Call) -> Mapping[str, Any]:
        rule = self._rules.get((call.account_id, call.region, call.params["Name"]))
        if rule is not None and rule.targets:
            raise AwsError(
                "ValidationException", "Rule can't be deleted since it has targets.", status=400
            )
        self._rules.pop((call.account_id, call.region, call.params["Name"]), None)
        return {}

    def _put_targets(self, call: Call) -> Mapping[str, Any]:
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
        rule.targets.update(after)
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def _remove_targets(self, call: Call) -> Mapping[str, Any]:
        rule = self._rule(call, call.params["Rule"])
        for name in call.params["Ids"]:
            rule.targets.pop(name, None)
        return {"FailedEntryCount": 0, "FailedEntries": []}

    def _list_targets(self, call: Call) -> Mapping[str, Any]:
        rule = self._rule(call, call.params["Rule"])
        return {"Targets": [{"Id": name, "Arn": arn} for name, arn in sorted(rule.targets.items())]}


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
