"""What verification found, and how two values differ, in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any

SAME, DIVERGED, UNREADABLE = 0, 1, 2
"""Exit codes."""

_LONGEST_VALUE = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class NowTaken:
    """An event that a service had left out, and could take now; it is left out all the same."""

    seq: int
    service: str
    kind: str
    event_id: str
    error: str

    def describe(self) -> str:
        """In one line, for people."""
        return (
            f"seq {self.seq}: {self.service} had parked {self.kind} ({self.error}) and could take it "
            f"now: spotline parked retry {self.service} {self.event_id}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDivergence:
    """A recorded decision that is not what its handler decides on the same inputs.

    `seq` is that of the recorded decision, or, where none was recorded, of the input that should
    have led to one (`cause_seq`, 0 where the input is not in the log). `recorded` or `recomputed`
    is empty where there is no such thing; `differences` names the fields.
    """

    seq: int
    handler: str
    kind: str
    cause_seq: int
    recorded: str
    recomputed: str
    differences: tuple[str, ...] = ()

    def describe(self) -> str:
        """What differs, for people: one line, then one per field."""
        head = f"seq {self.seq}: {self.handler} {self.kind} (cause: seq {self.cause_seq})"
        if self.differences:
            return "\n  ".join((head, *self.differences))
        return f"{head}\n  recorded: {self.recorded}\n  recomputed: {self.recomputed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What verification found.

    `divergences` are the first ones in the order of the log; with `complete` unset there may be
    more. `environment` says what differs between here and where the log was recorded, in which
    case nothing was replayed; `unreadable` says where the log broke off. `decisions` counts those
    recomputed by service, `answers` the answers to calls. `open_inputs` are the last ones,
    whose decisions the log does not hold yet. `decisions_sha256` is over all recomputed decisions,
    `sha256_by_service` over those of one service.
    `unverified` counts statistics that were not recomputed, for want of the analytics' settings;
    `parked` the events that a service left out, `now_taken` those of them that it could take now.
    """

    entries: int = 0
    decisions: dict[str, int] = field(default_factory=dict)
    answers: int = 0
    skipped: int = 0
    unverified: int = 0
    parked: int = 0
    now_taken: tuple[NowTaken, ...] = ()
    open_inputs: int = 0
    divergences: tuple[ReplayDivergence, ...] = ()
    complete: bool = True
    environment: tuple[str, ...] = ()
    unreadable: str = ""
    decisions_sha256: str = ""
    sha256_by_service: dict[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0 same, 1 diverged, 2 unreadable or recorded elsewhere."""
        if self.environment or self.unreadable:
            return UNREADABLE
        return DIVERGED if self.divergences else SAME

    def as_json(self) -> dict[str, object]:
        """The report for `spotline replay verify --json`."""
        return {
            "exit_code": self.exit_code,
            "entries": self.entries,
            "decisions": self.decisions,
            "answers": self.answers,
            "skipped": self.skipped,
            "unverified": self.unverified,
            "parked": self.parked,
            "parked_now_taken": [asdict(taken) for taken in self.now_taken],
            "open_inputs": self.open_inputs,
            "complete": self.complete,
            "environment": list(self.environment),
            "unreadable": self.unreadable,
            "decisions_sha256": self.decisions_sha256,
            "sha256_by_service": self.sha256_by_service,
            "divergences": [_plain(divergence) for divergence in self.divergences],
        }


def field_differences(recorded: Any, recomputed: Any, path: str = "") -> tuple[str, ...]:
    """Name the fields in which two values differ, such as `lots[0].spot: 4 recorded, 5 recomputed`."""
    if recorded == recomputed:
        return ()
    if type(recorded) is type(recomputed) and is_dataclass(recorded):
        return tuple(
            difference
            for field in fields(recorded)
            for difference in field_differences(
                getattr(recorded, field.name),
                getattr(recomputed, field.name),
                f"{path}.{field.name}" if path else field.name,
            )
        )
    both = (recorded, recomputed)
    if all(isinstance(value, tuple) for value in both) and len(recorded) == len(recomputed):
        return tuple(
            difference
            for index, (value, other) in enumerate(zip(recorded, recomputed, strict=True))
            for difference in field_differences(value, other, f"{path}[{index}]")
        )
    return (
        f"{path or 'event'}: {shortened(recorded)} recorded, {shortened(recomputed)} recomputed",
    )


def shortened(value: Any) -> str:
    """A value in words, cut where it is long."""
    text = str(value.value) if isinstance(value, Enum) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


def _plain(divergence: ReplayDivergence) -> dict[str, object]:
    return asdict(divergence) | {"differences": list(divergence.differences)}
