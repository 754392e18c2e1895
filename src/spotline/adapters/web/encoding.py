"""Values as JSON: the one form that the HTTP answers and the commands' `--json` share.

Keys are the fields' names, as in the protos. Of them, `..._ns` becomes a text of ISO 8601 in UTC
under the name without `_ns`; `..._micro_usd`, `..._s` and `..._ppm` stay integers under their
names; an enum is its value in lower case; what is not known yet is null. `docs/http.md` says it
for readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from spotline.application.allocator.messages import JobStatus
from spotline.application.board.messages import JobMoney, JobView
from spotline.application.market_view import ClockReading
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, Job
from spotline.domain.units import rfc3339_of_ns

_TIME = "_ns"

# Numbers of which 0 says that there is none, or that it is not known. An empty text, and a time of
# 0, always say so.
_NONE_AT_ZERO: Mapping[type, frozenset[str]] = {
    Deadline: frozenset({"after_s", "expires_after_s"}),
    Job: frozenset({"budget_micro_usd", "egress_budget_micro_usd", "on_demand_quote_micro_usd"}),
    JobDraft: frozenset({"budget_micro_usd", "value_micro_usd"}),
    JobMoney: frozenset({"on_demand_micro_usd", "msu_micro_usd", "budget_micro_usd"}),
    JobStatus: frozenset({"deadline_slot", "seq"}),
}


def encoded(value: Any) -> Any:
    """Turn a value of ours into what `json` writes: objects, lists, texts, numbers, null.

    Raises
    ------
    TypeError
        There is something in it that has no form here.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return _word(value)
        case JobStatus():
            return _encoded_status(value)
        case JobView():
            return _encoded_view(value)
        case ClockReading():
            return _encoded_clock(value)
        case Mapping():
            return {str(key): encoded(part) for key, part in value.items()}
        case tuple() | list():
            return [encoded(part) for part in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _encoded_fields(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def iso_of_ns(ts_ns: int) -> str | None:
    """Write a time, ns since the epoch, as ISO 8601 in UTC with the decimals it has; 0 is None."""
    if not ts_ns:
        return None
    whole, _, decimals = rfc3339_of_ns(ts_ns).rstrip("Z").partition(".")
    decimals = decimals.rstrip("0")
    return f"{whole}.{decimals}Z" if decimals else f"{whole}Z"


def answer(clock: ClockReading | None, **parts: Any) -> dict[str, Any]:
    """Put an answer together: the market's clock (null before a market is known), then its parts."""
    return {"clock": encoded(clock), **{name: encoded(part) for name, part in parts.items()}}


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Write what `encoded` made; NaN and infinity have no form in JSON.

    Raises
    ------
    ValueError
        A number is not finite.
    """
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)


def _encoded_fields(value: Any) -> dict[str, Any]:
    unknown = _NONE_AT_ZERO.get(type(value), frozenset())
    made: dict[str, Any] = {}
    for name in (part.name for part in fields(value)):
        part = getattr(value, name)
        if name.endswith(_TIME):
            made[name.removesuffix(_TIME)] = _encoded_time(part)
        elif part == "" or (part == 0 and name in unknown):
            made[name] = None
        else:
            made[name] = encoded(part)
    return made


def _encoded_time(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [iso_of_ns(ts_ns) for ts_ns in value]
    return None if value is None else iso_of_ns(value)


def _encoded_status(status: JobStatus) -> dict[str, Any]:
    """A status; what the job was worth is not known before it is over."""
    made = _encoded_fields(status)
    if not status.state.over:
        made["value_micro_usd"] = None
    if not status.deadline_slot:
        # Slots count from 0: only a job that was taken up has a last one.
        made["last_slot"] = None
    return made


def _encoded_view(view: JobView) -> dict[str, Any]:
    """A view; there is no slack where the latest safe start is not known."""
    made = _encoded_fields(view)
    if not view.latest_on_demand_start_ns:
        made["slack_s"] = None
    return made


def _encoded_clock(clock: ClockReading) -> dict[str, Any]:
    """Market and wall time; no slot is open before the first."""
    made = _encoded_fields(replace(clock, slot=max(clock.slot, 0)))
    if clock.slot < 0:
        made["slot"] = None
    return {name: made[name] for name in ("market", "wall", "slot", "slot_s", "mode")}


def _word(member: Enum) -> str:
    return member.value.lower() if isinstance(member.value, str) else member.name.lower()
