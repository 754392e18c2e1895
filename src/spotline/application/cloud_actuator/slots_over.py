"""Slots that were over before their commands could be carried out: nothing is bought for the past.

Only a cloud with a clock of its own tells it: time that is played stands until a call is done.
"""

from __future__ import annotations

from spotline.application.cloud_actuator.messages import ApplyRevisionRequest, Moment
from spotline.domain.ledger.caps import Permit, limited
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S


def why_over(at: Moment, now_ns: int) -> str:
    """Why nothing is bought by commands of a slot, empty while it lasts.

    Parameters
    ----------
    at
        When they were decided.
    now_ns
        The present in market time; `at` itself where time is played.
    """
    over_ns = at.ts_ns + (at.slot_s - at.offset_s) * NS_PER_S
    if now_ns == at.ts_ns or now_ns < over_ns:
        return ""
    late_s = (now_ns - over_ns) // NS_PER_S
    return f"slot {at.slot} was over {late_s} s ago: nothing is bought for the past"


def bars_of(request: ApplyRevisionRequest, why: str) -> dict[tuple[str, CapacityType], Permit]:
    """What is barred of a revision whose slot is over, by command and capacity type: all of it."""
    if not why:
        return {}
    return {
        (command.command_id, kind): limited(why)
        for command in request.commands
        for kind in CapacityType
    }
