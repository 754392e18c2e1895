"""From when until when AWS bills an instance, read from what DescribeInstances says of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import CapacityType

# "User initiated (2026-11-23 06:54:58 GMT)": the reason and time of the last state transition. Of an
# instance that has ended it is the moment at which it began to shut down, where billing stops.
_TRANSITION = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")

TAKEN_BACK = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})
"""Codes of `StateReason` of spot that EC2 itself has ended."""

_BILLED_NO_MORE = frozenset({"shutting-down", "terminated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedLife:
    """An instance that has ended, with what it is billed by."""

    instance_id: str
    life: BilledLife


def described_life(row: Mapping[str, Any]) -> DescribedLife | None:
    """Read one row of `Reservations[].Instances[]`; None where AWS does not say yet when it ended.

    Raises
    ------
    ContractError
        A member is missing or is none of its kind; names it.
    """
    instance_id = row.get("InstanceId")
    if not instance_id:
        raise ContractError("Instances[].InstanceId", "expected an id, found none")
    where = f"Instances[{instance_id}]"
    if (row.get("State") or {}).get("Name") not in _BILLED_NO_MORE:
        return None
    said = _TRANSITION.search(str(row.get("StateTransitionReason") or ""))
    if said is None:
        return None
    began = row.get("LaunchTime")
    if not isinstance(began, datetime) or began.tzinfo is None:
        raise ContractError(
            f"{where}.LaunchTime", f"expected a time with its zone, found {began!r}"
        )
    ended = datetime.strptime(said[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    begin_s = int(began.timestamp())
    spot = row.get("InstanceLifecycle") == "spot"
    return DescribedLife(
        instance_id=str(instance_id),
        life=BilledLife(
            capacity_type=CapacityType.SPOT if spot else CapacityType.ON_DEMAND,
            begin_s=begin_s,
            end_s=max(begin_s, int(ended.timestamp())),
            taken_back=(row.get("StateReason") or {}).get("Code") in TAKEN_BACK,
        ),
    )
