"""One line of a log: an entry of the stream as JSON that people can read and edit."""

from __future__ import annotations

import base64
import json
from typing import Any

from spotline.adapters.eventlog.manifest import UnreadableLog
from spotline.contracts.batch import is_batch, repacked, unpacked
from spotline.contracts.codec import json_of, payload_of_json
from spotline.contracts.envelope import CarriedHeaders, Envelope, StoredEntry
from spotline.contracts.errors import ContractError

# Says again what ce-id says, for the broker's sake.
_DEDUPLICATION_HEADER = "Nats-Msg-Id"
_TYPE_PREFIX = "spotline.v1."
# What a line that somebody edited, or nobody wrote, comes to.
_UNREADABLE = (
    *(ArithmeticError, AttributeError, ContractError, LookupError, RecursionError),
    *(TypeError, ValueError),
)


def line_of(entry: StoredEntry) -> str:
    """Write an entry as one line, with its newline.

    A payload that JSON carries without loss becomes `event`, any other `payload_b64`; a batch that
    can be read becomes `events`.
    """
    headers = {
        name: value for name, value in entry.headers.items() if name != _DEDUPLICATION_HEADER
    }
    line: dict[str, Any] = {
        "seq": entry.seq,
        "stored_ns": entry.stored_ns,
        "subject": entry.subject,
        "headers": headers,
    }
    events = _events_of(entry)
    if events is None:
        line |= _content(_kind(headers), entry.payload)
    else:
        line["events"] = events
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


def entry_of(text: bytes, where: str) -> StoredEntry:
    """Read a line back; `where` names file and line in errors.

    Raises
    ------
    UnreadableLog
        The line is not JSON, lacks a field, or its event is not of the kind its headers state.
    """
    try:
        line = json.loads(text)
        headers = {str(name): str(value) for name, value in line["headers"].items()}
        entry = StoredEntry(
            seq=int(line["seq"]),
            stored_ns=int(line["stored_ns"]),
            subject=str(line["subject"]),
            headers=headers,
            payload=b"" if "events" in line else _payload(_kind(headers), line),
        )
        if "events" not in line:
            return entry
        return repacked(entry, [_event_of(entry, event) for event in line["events"]])
    except KeyError as error:
        raise UnreadableLog(f"{where}: {error.args[0]} is missing") from error
    except _UNREADABLE as error:
        raise UnreadableLog(f"{where}: {error}") from error


def _content(kind: str, payload: bytes) -> dict[str, Any]:
    event = json_of(kind, payload)
    if event is None:
        return {"payload_b64": base64.b64encode(payload).decode("ascii")}
    return {"event": event}


def _payload(kind: str, content: dict[str, Any]) -> bytes:
    if "event" in content:
        return payload_of_json(kind, content["event"])
    return base64.b64decode(content["payload_b64"], validate=True)


def _events_of(entry: StoredEntry) -> list[dict[str, Any]] | None:
    """What a line says of the events of a batch; None where it is none, or would not come back."""
    if not is_batch(entry):
        return None
    try:
        events = unpacked(entry)
        if unpacked(repacked(entry, events)) != events:
            return None
    except ContractError:
        return None
    said = []
    for envelope in [event.envelope() for event in events]:
        one: dict[str, Any] = {
            "id": envelope.event_id,
            "kind": envelope.kind,
            "index": envelope.index,
            "ts_event_ns": envelope.ts_event_ns,
        }
        if not envelope.causation_id and envelope.correlation_id == envelope.event_id:
            one["own_chain"] = True
        if envelope.trace_headers:
            one["trace_headers"] = dict(envelope.trace_headers)
        said.append(one | _content(envelope.kind, envelope.payload))
    return said


def _event_of(entry: StoredEntry, said: dict[str, Any]) -> StoredEntry:
    around = entry.envelope()
    envelope = Envelope(
        event_id=str(said["id"]),
        kind=str(said["kind"]),
        source=around.source,
        subject="",
        causation_id=around.causation_id,
        correlation_id=str(said["id"]) if said.get("own_chain") else around.correlation_id,
        index=int(said["index"]),
        ts_event_ns=int(said["ts_event_ns"]),
        payload=_payload(str(said["kind"]), said),
        trace_headers=dict(said.get("trace_headers", {})),
    )
    return StoredEntry(
        seq=entry.seq,
        stored_ns=entry.stored_ns,
        subject=entry.subject,
        headers=CarriedHeaders(envelope),
        payload=envelope.payload,
    )


def _kind(headers: dict[str, str]) -> str:
    return headers.get("ce-type", "").removeprefix(_TYPE_PREFIX)
