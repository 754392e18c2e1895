"""One line of a log: an entry of the stream as JSON that people can read and edit."""

from __future__ import annotations

import base64
import json
from typing import Any

from spotline.adapters.eventlog.manifest import UnreadableLog
from spotline.contracts.codec import json_of, payload_of_json
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError

# Says again what ce-id says, for the broker's sake.
_DEDUPLICATION_HEADER = "Nats-Msg-Id"
_TYPE_PREFIX = "spotline.v1."


def line_of(entry: StoredEntry) -> str:
    """Write an entry as one line, with its newline.

    A payload that JSON carries without loss becomes `event`, any other `payload_b64`.
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
    event = json_of(_kind(headers), entry.payload)
    if event is None:
        line["payload_b64"] = base64.b64encode(entry.payload).decode("ascii")
    else:
        line["event"] = event
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
        if "event" in line:
            payload = payload_of_json(_kind(headers), line["event"])
        else:
            payload = base64.b64decode(line["payload_b64"], validate=True)
        return StoredEntry(
            seq=int(line["seq"]),
            stored_ns=int(line["stored_ns"]),
            subject=str(line["subject"]),
            headers=headers,
            payload=payload,
        )
    except KeyError as error:
        raise UnreadableLog(f"{where}: {error.args[0]} is missing") from error
    except (ValueError, TypeError, AttributeError, ContractError) as error:
        raise UnreadableLog(f"{where}: {error}") from error


def _kind(headers: dict[str, str]) -> str:
    return headers.get("ce-type", "").removeprefix(_TYPE_PREFIX)
