"""What a program that uses our library says: the lines of `events.jsonl`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain.events.training import CheckpointFault, CheckpointKind

_WHERE = "events.jsonl"
_KIND_OF_SUFFIX = {"-p": CheckpointKind.PREEMPTION, "-f": CheckpointKind.FINAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSaid:
    """Work done, in the job's own unit."""

    generation: int
    at_s: float
    step: int
    done: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaid:
    """A checkpoint is complete, or is not: `fault`. `save_s` are wall seconds."""

    generation: int
    at_s: float
    step: int
    done: float
    uri: str
    sha256: str
    size_bytes: int
    kind: CheckpointKind
    save_s: float
    fault: CheckpointFault | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedSaid:
    """A program goes on from a checkpoint, which it loaded in `load_s` wall seconds."""

    generation: int
    at_s: float
    sha256: str
    load_s: float
    done: float


EventSaid = ProgressSaid | CheckpointSaid | ResumedSaid


def read_event(line: str) -> EventSaid | None:
    """Read a line; None for an empty one, and for a kind that a newer library says.

    Raises
    ------
    ContractError
        It is no JSON object, or a field of it is not what it must be.
    """
    if not line.strip():
        return None
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ContractError(_WHERE, f"expected a JSON object, found {line[:80]!r}") from error
    if not isinstance(fields, dict):
        raise ContractError(_WHERE, f"expected a JSON object, found {line[:80]!r}")
    match fields.get("kind"):
        case "progress":
            return ProgressSaid(
                generation=_whole(fields, "generation"),
                at_s=_number(fields, "at_s"),
                step=_whole(fields, "step", 0),
                done=_number(fields, "done"),
            )
        case "checkpoint":
            return _checkpoint(fields)
        case "resumed":
            return ResumedSaid(
                generation=_whole(fields, "generation"),
                at_s=_number(fields, "at_s"),
                sha256=_text(fields, "sha256"),
                load_s=_number(fields, "load_s", 0.0),
                done=_number(fields, "done", 0.0),
            )
        case _:
            return None


def _checkpoint(fields: Mapping[str, Any]) -> CheckpointSaid:
    uri = _text(fields, "uri")
    return CheckpointSaid(
        generation=_whole(fields, "generation"),
        at_s=_number(fields, "at_s"),
        step=_whole(fields, "step", 0),
        done=_number(fields, "done", 0.0),
        uri=uri,
        sha256=_text(fields, "sha256"),
        size_bytes=_size(fields),
        kind=_checkpoint_kind(fields, uri),
        save_s=_number(fields, "save_s", 0.0),
        fault=_fault(fields),
        detail=_text(fields, "detail"),
    )


def _checkpoint_kind(fields: Mapping[str, Any], uri: str) -> CheckpointKind:
    """What it was written for: as said, else as the name of its folder says."""
    said = fields.get("checkpoint_kind")
    if said is not None:
        try:
            return CheckpointKind(said)
        except ValueError as error:
            known = ", ".join(kind.value for kind in CheckpointKind)
            problem = f"expected one of {known}, found {said!r}"
            raise ContractError(f"{_WHERE}: checkpoint_kind", problem) from error
    return _KIND_OF_SUFFIX.get(uri.rstrip("/")[-2:], CheckpointKind.PERIODIC)


def _fault(fields: Mapping[str, Any]) -> CheckpointFault | None:
    said = fields.get("fault")
    if not said:
        return None
    try:
        return CheckpointFault(said)
    except ValueError as error:
        known = ", ".join(fault.value for fault in CheckpointFault)
        raise ContractError(
            f"{_WHERE}: fault", f"expected one of {known}, found {said!r}"
        ) from error


def _size(fields: Mapping[str, Any]) -> int:
    files = fields.get("files")
    if isinstance(files, dict):
        return sum(_whole(file, "bytes") for file in files.values() if isinstance(file, dict))
    return _whole(fields, "size_bytes", 0)


def _number(fields: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ContractError(f"{_WHERE}: {name}", f"expected a finite number, found {value!r}")
    return float(value)


def _whole(fields: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ContractError(f"{_WHERE}: {name}", f"expected a whole number >= 0, found {value!r}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ContractError(f"{_WHERE}: {name}", f"expected a text, found {value!r}")
    return value
