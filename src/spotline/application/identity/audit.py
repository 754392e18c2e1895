"""The audit: who did what, from where, and what came of it, each record bound to the one before.

A chain is a sequence of records. Each has the SHA-256 of the record before and one of its own, over
a canonical text. So a record that was changed, lost or put in between is found by reading on; a tail
that is gone, or a chain that was written anew as a whole, only by a head that was kept elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from itertools import takewhile
from typing import Any

FORMAT = 1
"""Of a record's text; another one is another format."""

BEGUN = "BEGUN"
"""The outcome of what is about to be done: the record that refers to it says what came of it."""

DONE = "OK"
"""The outcome of what was done; gRPC's name for it at every door."""

ANONYMOUS = "anonymous"
"""The subject where nobody is asked who he is, or nobody has proved it."""

MOST_TEXT = 200
_TEXT_BYTES = 6 * MOST_TEXT  # each character, escaped
MOST_LINE_BYTES = 16 * _TEXT_BYTES + 2_048
"""No record's line is longer."""


class AuditDoor(Enum):
    """By what door something was done; the value is written."""

    GRPC = "gRPC"
    HTTP = "HTTP"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What somebody did, or tried to do.

    Longer texts than `MOST_TEXT` characters are cut: what callers write bounds no line.

    Parameters
    ----------
    ts_ns
        When, ns since the epoch.
    role, tenant, credential_id
        Of the caller, as far as he has proved them; never a credential.
    action
        A row of `contracts.access`, or the command.
    target
        What it was done to, as `job_id=...`.
    peer
        From where: the address of a connection, or the process of a command.
    outcome
        `BEGUN`, `DONE`, or the status with which it was refused or failed.
    reason
        Of a refusal, as `contracts.reasons.Reason` names it.
    request_id
        The caller's own, by which a repeated request is known.
    of_seq
        Of what came of something: the record that says that it was begun. 0: none.
    count, until_ns
        Of several alike: how many, and when the last.
    """

    ts_ns: int
    door: AuditDoor
    action: str
    outcome: str
    subject: str = ANONYMOUS
    role: str = ""
    tenant: str = ""
    credential_id: str = ""
    target: str = ""
    peer: str = ""
    reason: str = ""
    request_id: str = ""
    of_seq: int = 0
    count: int = 1
    until_ns: int = 0

    def __post_init__(self) -> None:
        for name in _TEXTS:
            said = getattr(self, name)
            if len(said) > MOST_TEXT:
                object.__setattr__(self, name, f"{said[: MOST_TEXT - 3]}...")
        if self.count < 1:
            raise ValueError(f"count must be >= 1, was {self.count}")


_TEXTS = tuple(each.name for each in fields(Act) if each.type == "str")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainHead:
    """The last record of a chain: how many there are, and its SHA-256."""

    seq: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An act in its place in a chain."""

    seq: int
    act: Act
    previous_sha256: str
    sha256: str

    @property
    def head(self) -> ChainHead:
        """The head of a chain that ends with it."""
        return ChainHead(seq=self.seq, sha256=self.sha256)


def origin_of(chain: str) -> ChainHead:
    """The head of an empty chain: another one for each name, so that none passes for another."""
    said = f"spotline audit {FORMAT} {chain}"
    return ChainHead(seq=0, sha256=hashlib.sha256(said.encode()).hexdigest())


def recorded(head: ChainHead, act: Act) -> AuditRecord:
    """The record of an act that goes on from a head."""
    content = _content(head.seq + 1, act, head.sha256)
    return AuditRecord(
        seq=head.seq + 1, act=act, previous_sha256=head.sha256, sha256=_sha256(content)
    )


def line_of(record: AuditRecord) -> str:
    """A record as its line is written, without the end of the line."""
    content = _content(record.seq, record.act, record.previous_sha256)
    return _canonical({**content, "sha256": record.sha256})


class LineUnreadable(ValueError):
    """A line is no record; `seq` is what it says of its place, 0 where it does not."""

    def __init__(self, detail: str, seq: int = 0) -> None:
        super().__init__(detail)
        self.seq = seq


def record_of(line: str) -> AuditRecord:
    """The record of a line, which is exactly what was written.

    Raises
    ------
    LineUnreadable
        It is another text, or its SHA-256 is not that of its content.
    """
    try:
        record = _parsed(json.loads(line))
        written = line_of(record)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise LineUnreadable(f"expected a record, found {type(error).__name__}: {error}") from error
    if written != line:
        raise LineUnreadable(
            "expected the text that is written of a record, found another", record.seq
        )
    content = _content(record.seq, record.act, record.previous_sha256)
    if _sha256(content) != record.sha256:
        raise LineUnreadable("its content has another SHA-256 than it states", record.seq)
    return record


_NUMBERS = ("seq", "ts_ns", "of_seq", "count", "until_ns")
_NAMES = tuple(each.name for each in fields(Act) if each.name != "door")


def _parsed(said: Any) -> AuditRecord:
    """What a line says, as far as it is of the right kinds."""
    if not isinstance(said, dict):
        raise TypeError("it must be a JSON object")
    for names, kind, expected in (
        (_NUMBERS, int, "a whole number"),
        ((*_TEXTS, "previous_sha256", "sha256"), str, "a text"),
    ):
        for name in names:
            if type(said[name]) is not kind:
                raise TypeError(f"{name} must be {expected}, was {said[name]!r:.40}")
    act = Act(**{name: said[name] for name in _NAMES}, door=AuditDoor(said["door"]))
    return AuditRecord(
        seq=said["seq"],
        act=act,
        previous_sha256=said["previous_sha256"],
        sha256=said["sha256"],
    )


def _content(seq: int, act: Act, previous_sha256: str) -> dict[str, Any]:
    content: dict[str, Any] = {name: getattr(act, name) for name in _NAMES}
    content |= {"v": FORMAT, "seq": seq, "previous_sha256": previous_sha256}
    content["door"] = act.door.value
    return content


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _canonical(content: Mapping[str, Any]) -> str:
    return _ENCODER.encode(content)


def _sha256(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode()).hexdigest()


# --- whether a chain is what was written --------------------------------------------------------


class BreakKind(Enum):
    """How a chain is not what was written; the value says it."""

    CHANGED = "was changed"
    LOST = "is lost"
    PUT_IN = "was put in"
    REWRITTEN = "is not what it was when its head was kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainBreak:
    """The first record that is not as it was written."""

    seq: int
    kind: BreakKind
    detail: str

    def __str__(self) -> str:
        return f"record {self.seq} {self.kind.value}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """What a chain was found to be: its head as far as it holds, and where it breaks, if it does."""

    chain: str
    head: ChainHead
    broken: ChainBreak | None = None


def verified_chain(chain: str, lines: Iterable[str], kept: Iterable[ChainHead] = ()) -> ChainReport:
    """Read a chain from its beginning, up to the first record that is not as it was written.

    Parameters
    ----------
    kept
        Heads that the chain had once, as they were kept elsewhere.
    """
    known = {head.seq: head.sha256 for head in kept}
    head = origin_of(chain)
    for line in lines:
        try:
            record = record_of(line)
        except LineUnreadable as error:
            broken = ChainBreak(
                seq=error.seq or head.seq + 1, kind=BreakKind.CHANGED, detail=str(error)
            )
            return ChainReport(chain=chain, head=head, broken=broken)
        broken_here = _break_at(head, record, known)
        if broken_here is not None:
            return ChainReport(chain=chain, head=head, broken=broken_here)
        head = record.head
    last = max(known, default=0)
    gone = None
    if last > head.seq:
        detail = f"the chain ends with record {head.seq}, and had {last} when its head was kept"
        gone = ChainBreak(seq=head.seq + 1, kind=BreakKind.LOST, detail=detail)
    return ChainReport(chain=chain, head=head, broken=gone)


def _break_at(head: ChainHead, record: AuditRecord, known: Mapping[int, str]) -> ChainBreak | None:
    expected = head.seq + 1
    if record.seq > expected:
        detail = f"record {record.seq} comes after record {head.seq}"
        return ChainBreak(seq=expected, kind=BreakKind.LOST, detail=detail)
    if record.seq < expected:
        detail = f"it comes after record {head.seq}"
        return ChainBreak(seq=record.seq, kind=BreakKind.PUT_IN, detail=detail)
    if record.previous_sha256 != head.sha256:
        # The one before holds by itself: it was written anew, or this one belongs elsewhere.
        if head.seq == 0:
            detail = "it does not follow from this chain's beginning"
            return ChainBreak(seq=record.seq, kind=BreakKind.PUT_IN, detail=detail)
        detail = f"record {record.seq} follows from another one of its number"
        return ChainBreak(seq=head.seq, kind=BreakKind.CHANGED, detail=detail)
    if known.get(record.seq, record.sha256) != record.sha256:
        detail = f"its SHA-256 was {known[record.seq]}, and is {record.sha256}"
        return ChainBreak(seq=record.seq, kind=BreakKind.REWRITTEN, detail=detail)
    return None


# --- many alike ---------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class _Window:
    began_ns: int
    written: int = 0
    held: Act | None = None


@dataclass(slots=True)
class ActTally:
    """Lets the first acts of a kind through in each window of time, and counts the rest.

    So a flood takes as much of the disk as its windows are many, and still says how large it was.

    Parameters
    ----------
    singles
        How many of a kind are written one by one in a window.
    window_ns
        How long a window is, from the first act in it.
    """

    singles: int
    window_ns: int
    _windows: dict[tuple[str, ...], _Window] = field(default_factory=dict)

    def note(self, kind: tuple[str, ...], act: Act) -> tuple[Act, ...]:
        """What is to be written now that this has happened; in the order of writing."""
        due = self.due(act.ts_ns)
        window = self._windows.setdefault(kind, _Window(began_ns=act.ts_ns))
        if window.written < self.singles:
            window.written += 1
            return (*due, act)
        held = window.held
        window.held = (
            replace(act, until_ns=act.ts_ns)
            if held is None
            else replace(act, ts_ns=held.ts_ns, until_ns=act.ts_ns, count=held.count + 1)
        )
        return due

    def due(self, now_ns: int) -> tuple[Act, ...]:
        """The sums of windows that are over by now; they are given once."""
        # The oldest is the first.
        over = takewhile(
            lambda each: now_ns - each[1].began_ns >= self.window_ns, self._windows.items()
        )
        return self._closed([kind for kind, _ in over])

    @property
    def open(self) -> bool:
        """Whether there is a window that is not over."""
        return bool(self._windows)

    def rest(self) -> tuple[Act, ...]:
        """All sums that were not given yet, at the end."""
        return self._closed(list(self._windows))

    def _closed(self, kinds: Iterable[tuple[str, ...]]) -> tuple[Act, ...]:
        windows = [self._windows.pop(kind) for kind in kinds]
        return tuple(window.held for window in windows if window.held is not None)


# --- as people read it --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedAct:
    """An act with its outcome; `seq` is where it begins in its chain."""

    chain: str
    seq: int
    act: Act


UNKNOWN_OUTCOME = "UNKNOWN_OUTCOME"
"""Of what was begun and never ended: the process died, or it is being done."""


def joined(chain: str, records: Iterable[AuditRecord]) -> list[AuditedAct]:
    """The acts of a chain, each once: what was begun with what came of it, by when it began."""
    acts: dict[int, Act] = {}
    for record in records:
        act = record.act
        if act.outcome == BEGUN:
            acts[record.seq] = replace(act, outcome=UNKNOWN_OUTCOME)
        elif act.of_seq in acts:
            began = acts[act.of_seq]
            acts[act.of_seq] = replace(act, ts_ns=began.ts_ns, until_ns=act.ts_ns, of_seq=0)
        else:
            acts[record.seq] = act
    return [AuditedAct(chain=chain, seq=seq, act=acts[seq]) for seq in sorted(acts)]
