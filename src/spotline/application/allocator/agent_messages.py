"""What agents ask and are told, as frozen values; the messages are in `agent_service.proto`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from spotline.application.market_view import ClockReading
from spotline.domain.events.training import CheckpointFault, CheckpointKind, NoticeAction
from spotline.domain.jobs.job import Job
from spotline.domain.problems import refuse_any

# What an agent may send, in characters; a store's address and a program's last words are long.
LONGEST_NAME = 200
LONGEST_TOKEN = 4_000
LONGEST_URI = 2_000
LONGEST_DETAIL = 4_000
_SHORTEST_NONCE = 32
_HEX_DIGITS = 64


class AllocationState(Enum):
    """What an instance is to do with a generation."""

    WAIT = "wait"
    RUN = "run"
    STOP = "stop"
    ABORT = "abort"
    LEAVE = "leave"
    OVER = "over"


class RanksState(Enum):
    """What became of a program's processes on an instance."""

    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMember:
    """A member of a generation; others reach it at `host`."""

    instance_id: str
    node_rank: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNotice:
    """Members that are taken back, at `deadline_ns` of market time."""

    notice_id: str
    instance_ids: tuple[str, ...]
    deadline_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAllocation:
    """What an instance is to do now; `detail` says why, for people."""

    job_id: str
    generation: int
    state: AllocationState
    members: tuple[TrainingMember, ...] = ()
    notices: tuple[OpenNotice, ...] = ()
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """A session, and the job that is to be run; see `agent_service.proto`."""

    message_name: ClassVar[str] = "JoinResponse"

    session: str = field(repr=False)
    job: Job
    market_s_per_s: float
    lease_s: int
    heartbeat_s: float
    session_s: float
    clock: ClockReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAsked:
    """A token, or the signed document of an instance, that is to be traded for a session."""

    message_name: ClassVar[str] = "JoinRequest"

    join_token: str = field(default="", repr=False)
    instance_id: str
    nonce: str = field(repr=False)
    host: str = ""
    release: str = ""
    identity_document: str = field(default="", repr=False)
    identity_signature: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    @property
    def shown_as(self) -> str:
        """The field of what it shows."""
        return "identity_document" if self.identity_document else "join_token"

    @property
    def shown(self) -> str:
        """What it shows."""
        return self.identity_document or self.join_token

    def _problems(self) -> Iterator[str]:
        document = bool(self.identity_document)
        yield from _too_long("join_token", self.join_token, LONGEST_TOKEN, empty=document)
        yield from _too_long("identity_document", self.identity_document, LONGEST_TOKEN)
        yield from _too_long(
            "identity_signature", self.identity_signature, LONGEST_TOKEN, empty=not document
        )
        if document and self.join_token:
            yield "join_token must be empty beside an identity_document"
        yield from _too_long("instance_id", self.instance_id, LONGEST_NAME, empty=False)
        yield from _too_long("nonce", self.nonce, LONGEST_NAME)
        yield from _too_long("host", self.host, LONGEST_NAME)
        yield from _too_long("release", self.release, LONGEST_NAME)
        if len(self.nonce) < _SHORTEST_NONCE:
            yield f"nonce must have at least {_SHORTEST_NONCE} characters, had {len(self.nonce)}"
        if any(character.isspace() or not character.isprintable() for character in self.host):
            yield f"host must be a name or an address, was {self.host[:80]!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksReport:
    """What became of a generation's processes on an instance."""

    message_name: ClassVar[str] = "ReportRanksRequest"

    generation: int
    state: RanksState
    exit_code: int = 0
    detail: str = ""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from _below("generation", self.generation, 1)
        yield from _too_long("detail", self.detail, LONGEST_DETAIL)
        if not -(1 << 31) <= self.exit_code < 1 << 31:
            yield f"exit_code must have 32 bits, was {self.exit_code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """How much work is done; with the first of a generation, how it came to be running again."""

    message_name: ClassVar[str] = "ReportWorkRequest"

    generation: int
    step: int = 0
    done: float = 0.0
    rate_per_hour: float = 0.0
    checkpointed: float | None = None
    restart_s: int = 0
    load_s: int = 0
    resumed_done: float = 0.0
    resumed_sha256: str = ""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from _below("generation", self.generation, 1)
        for name in ("step", "done", "rate_per_hour", "restart_s", "load_s", "resumed_done"):
            yield from _below(name, getattr(self, name), 0)
        if self.checkpointed is not None:
            yield from _below("checkpointed", self.checkpointed, 0)
        yield from _no_digest("resumed_sha256", self.resumed_sha256, empty=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """A checkpoint is complete, or, with a `fault`, is not."""

    message_name: ClassVar[str] = "ReportCheckpointRequest"

    generation: int
    step: int = 0
    done: float = 0.0
    uri: str = ""
    sha256: str = ""
    size_bytes: int = 0
    kind: CheckpointKind | None = None
    save_s: int = 0
    fault: CheckpointFault | None = None
    detail: str = ""

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from _below("generation", self.generation, 1)
        for name in ("step", "done", "size_bytes", "save_s"):
            yield from _below(name, getattr(self, name), 0)
        yield from _too_long("detail", self.detail, LONGEST_DETAIL)
        yield from _too_long("uri", self.uri, LONGEST_URI, empty=self.fault is not None)
        yield from _no_digest("sha256", self.sha256, empty=self.fault is not None)
        if self.fault is None and self.kind is None:
            known = ", ".join(f"CHECKPOINT_KIND_{kind.name}" for kind in CheckpointKind)
            yield f"kind must be one of {known} where no fault is stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeReport:
    """What was done on a notice."""

    message_name: ClassVar[str] = "AcknowledgeNoticeRequest"

    notice_id: str
    action: NoticeAction
    after_s: int = 0

    def __post_init__(self) -> None:
        refuse_any(self._problems())

    def _problems(self) -> Iterator[str]:
        yield from _too_long("notice_id", self.notice_id, LONGEST_NAME, empty=False)
        yield from _below("after_s", self.after_s, 0)


def _too_long(name: str, text: str, longest: int, *, empty: bool = True) -> Iterator[str]:
    if len(text) > longest:
        yield f"{name} must have at most {longest} characters, had {len(text)}"
    if not text and not empty:
        yield f"{name} must not be empty"


def _below(name: str, value: float, least: float) -> Iterator[str]:
    if not (math.isfinite(value) and value >= least):
        yield f"{name} must be >= {least:g}, was {value:g}"


def _no_digest(name: str, text: str, *, empty: bool) -> Iterator[str]:
    if not text and empty:
        return
    if len(text) != _HEX_DIGITS or set(text) - set("0123456789abcdef"):
        yield f"{name} must be {_HEX_DIGITS} hexadecimal digits, was {text[:80]!r}"
