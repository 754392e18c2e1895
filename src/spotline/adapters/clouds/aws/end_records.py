"""In which state an instance was as its end was asked for, by CloudTrail's record of that answer.

EC2 says it once, in the answer to `TerminateInstances` (`PreviousState`). What it describes of a
terminated instance is the same whether that ever ran or not, and AWS bills from running on. Where the
answer was lost, the event history still has it: management events of 90 days, in every account, for
nothing (https://docs.aws.amazon.com/awscloudtrail/latest/userguide/view-cloudtrail-events.html).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import structlog

from spotline.adapters.clouds.aws.calling import AwsReader, CallRefused, pages
from spotline.adapters.clouds.aws.errors import refusal_class_of
from spotline.contracts.errors import ContractError, ProviderUnavailable, Throttled
from spotline.domain.events.capacity import RefusalClass

_log = structlog.get_logger(__name__)

RECORDED_WITHIN_S = 3600
"""So long after an end its record is waited for: CloudTrail has most within about five minutes, and
promises nothing."""

_ENDING = "TerminateInstances"
_PENDING = "pending"
# The answer to an end that was asked for once more says nothing of what was before the first.
_ENDED_BEFORE = frozenset({"shutting-down", "terminated"})


class EndRecords:
    """Asks CloudTrail, by one call for an instance: it answers two in a second."""

    def __init__(self, api: AwsReader) -> None:
        self._api = api

    async def never_ran(
        self, where: tuple[str, str], ended_s: Mapping[str, int], now_s: int
    ) -> Mapping[str, bool]:
        """Whether each of these was pending as its end was asked for; who is not known yet is left out.

        What CloudTrail does not say within an hour, or may not be asked, counts as having run: what is
        settled is then up to a minute's price above the bill, and never below it.

        Parameters
        ----------
        where
            Account by its name, and region.
        ended_s
            When each ended, seconds of market time since the epoch.
        """
        known: dict[str, bool] = {}
        for instance_id, at_s in sorted(ended_s.items()):
            said = None
            try:
                said = await self._said(where, instance_id)
            except Throttled:
                break
            except CallRefused as error:
                if refusal_class_of(error.code) is RefusalClass.UNAUTHORISED:
                    _log.warning(
                        "end_record_refused",
                        error=str(error),
                        continue_with="allow cloudtrail:LookupEvents (deploy/aws/act-policy.json)",
                    )
                    return {**dict.fromkeys(ended_s, False), **known}
                _say_unread(instance_id, error)
            except (ProviderUnavailable, ContractError) as error:
                _say_unread(instance_id, error)
            if said is None and now_s - at_s >= RECORDED_WITHIN_S:
                _log.warning("end_not_recorded", instance_id=instance_id)
                said = False
            if said is not None:
                known[instance_id] = said
        return known

    async def _said(self, where: tuple[str, str], instance_id: str) -> bool | None:
        rows = await pages(
            self._api,
            (*where, "cloudtrail"),
            "LookupEvents",
            "Events",
            LookupAttributes=[{"AttributeKey": "ResourceName", "AttributeValue": instance_id}],
        )
        states = [state for row in rows for state in states_before(row, instance_id)]
        first = next((state for state in states if state not in _ENDED_BEFORE), None)
        return None if first is None else first == _PENDING


def _say_unread(instance_id: str, error: Exception) -> None:
    _log.warning("end_record_not_read", instance_id=instance_id, error=str(error))


def states_before(row: Mapping[str, Any], instance_id: str) -> list[str]:
    """The states that an event says an instance was in as its end was asked for; of others, none.

    Raises
    ------
    ContractError
        It is an end, and what CloudTrail says of it cannot be read.
    """
    if row.get("EventName") != _ENDING:
        return []
    try:
        # Of a call that was refused there is no answer.
        answer = json.loads(row["CloudTrailEvent"]).get("responseElements") or {}
        return [
            str(item["previousState"]["name"])
            for item in answer.get("instancesSet", {}).get("items", ())
            if item["instanceId"] == instance_id
        ]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ContractError(
            "Events[].CloudTrailEvent", f"expected the record of an end: {error!r}"
        ) from error
