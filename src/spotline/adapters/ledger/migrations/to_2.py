"""From schema 1 to 2: answers become payloads, as in the log."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

from spotline.contracts.codec import payload_of_json

# Schema 1 named the events and the members of enums otherwise, and wrote their fields in JSON.
_KINDS = {
    "LaunchRefused": "capacity.refused",
    "InterruptionNoticed": "capacity.noticed",
    "CapacityLost": "capacity.lost",
    "CapacityReported": "capacity.report",
    "CostAccrued": "cost",
}
_ENUMS = {"capacity_type": "CAPACITY_TYPE", "kind": "INTERRUPTION_KIND"}


def migrate(connection: Connection) -> None:
    """Write the answers of schema 1 as payloads; those that are payloads stay as they are."""
    rows = connection.execute(text("SELECT owner, call_key, events FROM answers")).all()
    changed = []
    for owner, call_key, events in rows:
        answers = json.loads(events)
        if any(isinstance(fields, dict) for _, fields in answers):
            payloads = [_payload(name, fields) for name, fields in answers]
            changed.append({"o": owner, "k": call_key, "events": json.dumps(payloads)})
    if changed:
        connection.execute(
            text("UPDATE answers SET events = :events WHERE owner = :o AND call_key = :k"), changed
        )


def _payload(name: str, fields: Mapping[str, Any] | str) -> list[str]:
    if isinstance(fields, str):
        return [name, fields]
    kind = _KINDS[name]
    renamed = {
        field: f"{_ENUMS[field]}_{value.upper()}" if field in _ENUMS else value
        for field, value in fields.items()
    }
    payload = payload_of_json(kind, renamed)
    return [kind, base64.b64encode(payload).decode("ascii")]
