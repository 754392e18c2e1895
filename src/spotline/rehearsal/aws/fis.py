"""FIS: experiments that interrupt spot instances, as a user may do to rehearse on AWS itself.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/initiate-a-spot-instance-interruption.html
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping
from typing import Any

from spotline.rehearsal.aws.drawn import hexadecimal
from spotline.rehearsal.aws.service import AwsCall, AwsError

ACTION = "aws:ec2:send-spot-instance-interruptions"
_RESOURCES = "aws:ec2:spot-instance"
# "The duration ... from 2 minutes to 15 minutes" (FIS actions reference), as ISO 8601 writes it.
_DURATION = re.compile(r"PT(?P<minutes>[2-9]|1[0-5])M")
_NOTICE_S = 120

Where = tuple[str, str]
Interrupt = Callable[[Where, str, float], bool]
"""Interrupts an instance of an account and region after so many seconds; False: it is no spot."""


class Fis:
    """The service.

    Parameters
    ----------
    interrupt
        Does what an experiment is for.
    now_ns
        Market time.
    """

    name = "fis"

    def __init__(self, interrupt: Interrupt, *, now_ns: Callable[[], int], seed: int = 0) -> None:
        self._interrupt = interrupt
        self._now_ns = now_ns
        self._seed = seed
        self._templates: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._experiments: dict[tuple[str, str, str], dict[str, Any]] = {}
        # What was made by a client token, which is made once.
        self._by_token: dict[tuple[str, str, str, str], str] = {}

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of FIS."""
        answering = {
            "CreateExperimentTemplate": self._create,
            "DeleteExperimentTemplate": self._delete,
            "GetExperimentTemplate": self._get_template,
            "StartExperiment": self._start,
            "GetExperiment": self._get,
        }.get(call.operation)
        if answering is None:
            raise AwsError("UnknownOperationException", f"{call.operation} is not rehearsed")
        return answering(call)

    def _create(self, call: AwsCall) -> Mapping[str, Any]:
        params = call.params
        for name, action in params["actions"].items():
            if action["actionId"] != ACTION:
                raise _invalid(f"{name}: {action['actionId']} is not rehearsed, {ACTION} is")
            duration = action.get("parameters", {}).get("durationBeforeInterruption", "")
            if not _DURATION.fullmatch(duration):
                raise _invalid(f"{name}: durationBeforeInterruption must be PT2M to PT15M")
            target = action.get("targets", {}).get("SpotInstances", "")
            found = params.get("targets", {}).get(target)
            if found is None or found["resourceType"] != _RESOURCES:
                raise _invalid(f"{name}: SpotInstances must name a target of {_RESOURCES}")
            if not found.get("resourceArns"):
                raise _invalid(
                    f"{target}: resourceArns must name instances; tags are not rehearsed"
                )
        key = self._key(call, "EXT", len(self._templates))
        if key not in self._templates:
            at = self._now()
            said = {
                name: params[name]
                for name in (
                    "description",
                    "targets",
                    "actions",
                    "stopConditions",
                    "roleArn",
                    "tags",
                )
                if name in params
            }
            self._templates[key] = {
                "id": key[2], "creationTime": at, "lastUpdateTime": at, **said
            }  # fmt: skip
        return {"experimentTemplate": self._templates[key]}

    def _delete(self, call: AwsCall) -> Mapping[str, Any]:
        told = self._get_template(call)
        del self._templates[call.account_id, call.region, call.params["id"]]
        return told

    def _get_template(self, call: AwsCall) -> Mapping[str, Any]:
        return {"experimentTemplate": self._template(call, call.params["id"])}

    def _template(self, call: AwsCall, name: str) -> dict[str, Any]:
        template = self._templates.get((call.account_id, call.region, name))
        if template is None:
            raise _missing(f"Experiment template {name} was not found")
        return template

    def _start(self, call: AwsCall) -> Mapping[str, Any]:
        name = call.params["experimentTemplateId"]
        template = self._template(call, name)
        key = self._key(call, "EXP", len(self._experiments))
        if key not in self._experiments:
            reason = self._run(call, template)
            at = self._now()
            status = "failed" if reason else "completed"
            self._experiments[key] = {
                "id": key[2],
                "experimentTemplateId": name,
                "roleArn": template["roleArn"],
                "state": {"status": status, "reason": reason or "Experiment completed."},
                "creationTime": at,
                "startTime": at,
                "endTime": at,
            }
        return {"experiment": self._experiments[key]}

    def _run(self, call: AwsCall, template: Mapping[str, Any]) -> str:
        """Interrupt what the template names; says why it could not, empty: it did."""
        for action in template["actions"].values():
            found = _DURATION.fullmatch(action["parameters"]["durationBeforeInterruption"])
            # Two minutes before the end comes the notice, whatever the duration.
            lasts_s = int(found["minutes"]) * 60 if found else _NOTICE_S
            target = template["targets"][action["targets"]["SpotInstances"]]
            for arn in target["resourceArns"]:
                instance_id = arn.rpartition("/")[2]
                if not self._interrupt((call.account_id, call.region), instance_id, lasts_s):
                    return f"Target resolution returned empty set: {arn} is no spot instance here"
        return ""

    def _get(self, call: AwsCall) -> Mapping[str, Any]:
        name = call.params["id"]
        experiment = self._experiments.get((call.account_id, call.region, name))
        if experiment is None:
            raise _missing(f"Experiment {name} was not found")
        return {"experiment": experiment}

    def _key(self, call: AwsCall, kind: str, number: int) -> tuple[str, str, str]:
        """Where a thing is that is made by this call, or was made by its client token before."""
        token = (call.account_id, call.region, kind, call.params["clientToken"])
        drawn = hexadecimal(15, self._seed, "fis", kind, number)
        name = self._by_token.setdefault(token, kind + drawn)
        return (call.account_id, call.region, name)

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._now_ns() // 10**9, tz=datetime.UTC)


def _invalid(sentence: str) -> AwsError:
    return AwsError("ValidationException", sentence)


def _missing(sentence: str) -> AwsError:
    return AwsError("ResourceNotFoundException", sentence, status=404)
