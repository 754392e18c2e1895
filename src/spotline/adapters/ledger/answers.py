"""A call's answers as text: each event's kind and its payload, as in the log."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from spotline.contracts.codec import decode, encode, payload_of_json
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event

# Schema 1 named the events and the members of enums otherwise, and wrote their fields in JSON.
_SCHEMA_1_KINDS = {
    "LaunchRefused": "capacity.refused",
    "InterruptionNoticed": "capacity.noticed",
    "CapacityLost": "capacity.lost",
    "CapacityReported": "capacity.report",
    "CostAccrued": "cost",
}
_SCHEMA_1_ENUMS = {"capacity_type": "CAPACITY_TYPE", "kind": "INTERRUPTION_KIND"}


def dump_answers(answers: Sequence[Event]) -> str:
    """Write events as a JSON list of [kind, payload in base64]."""
    return json.dumps(
        [[KINDS[type(event)], base64.b64encode(encode(event)).decode("ascii")] for event in answers]
    )


def load_answers(text: str) -> tuple[Event, ...]:
    """Read what `dump_answers` wrote, here or in a ledger of schema 1.

    Raises
    ------
    ContractError
        The text holds an event that this version cannot read.
    """
    return tuple(
        _load_schema_1(kind, payload)
        if isinstance(payload, dict)
        else decode(kind, base64.b64decode(payload))
        for kind, payload in json.loads(text)
    )


def _load_schema_1(name: str, fields: Mapping[str, Any]) -> Event:
    kind = _SCHEMA_1_KINDS[name]
    renamed = {
        field: f"{_SCHEMA_1_ENUMS[field]}_{value.upper()}" if field in _SCHEMA_1_ENUMS else value
        for field, value in fields.items()
    }
    return decode(kind, payload_of_json(kind, renamed))
