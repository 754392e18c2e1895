"""What Acme says, read: rows of machines become instances, messages become events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotline.application.cloud_actuator.ports import (
    CloudEvent,
    CloudEventKind,
    Instance,
    InstanceState,
    LaunchRequest,
)
from spotline.contracts.errors import ContractError
from spotline.domain.events.capacity import InterruptionKind
from spotline.domain.market.offering import CapacityType

_STATES = {
    "booting": InstanceState.PENDING,
    "up": InstanceState.RUNNING,
    "closing": InstanceState.STOPPING,
    "gone": InstanceState.ENDED,
}


def tags_of(request: LaunchRequest) -> dict[str, str]:
    """What a machine carries from its creation on: whose it is, for whom, and by which token."""
    return {
        "owner": request.owner.name,
        "epoch": str(request.owner.epoch),
        "installation": request.installation_id,
        "job": request.job_id,
        "tenant": request.tenant,
        "token": request.token,
        "pool": request.quota_pool,
        "offering": request.offering_id,
        "bought": request.capacity_type.value,
    }


def instance_of(row: Mapping[str, Any]) -> Instance:
    """A machine.

    Raises
    ------
    ContractError
        It is none of ours, or not as Acme documents it; names the member.
    """
    try:
        tags = row["tags"]
        return Instance(
            instance_id=row["id"],
            token=tags["token"],
            job_id=tags["job"],
            tenant=tags["tenant"],
            quota_pool=tags["pool"],
            offering_id=tags["offering"],
            capacity_type=CapacityType(tags["bought"]),
            ready_ns=row["up_ns"],
            state=_STATES[row["state"]],
            installation_id=tags["installation"],
            hold="hold" in tags,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ContractError("machines[]", f"expected a machine of ours, found {error!r}") from error


def event_of(message: Mapping[str, Any]) -> CloudEvent:
    """A message; errors as `instance_of`."""
    instance = instance_of(message["machine"])
    taken = InterruptionKind.CAPACITY_RECLAIMED if message["by"] == "acme" else None
    kind = CloudEventKind.NOTICE if message["kind"] == "notice" else CloudEventKind.STATE
    return CloudEvent(
        event_id=message["id"],
        instance=instance,
        kind=kind,
        state=instance.state,
        at_ns=message["at_ns"],
        lead_s=message.get("lead_s", 0),
        interruption=taken,
    )
