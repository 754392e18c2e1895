"""Events of running programs, as their agents tell them: `training.proto`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.domain.jobs.run import OnStall


class CheckpointKind(Enum):
    """What a checkpoint was written for; the final one is the result."""

    PERIODIC = "periodic"
    PREEMPTION = "preemption"
    FINAL = "final"


class CheckpointFault(Enum):
    """Why there is no checkpoint where one was to be."""

    SKIPPED = "skipped"
    NOT_WRITTEN = "not_written"
    INCOMPLETE = "incomplete"
    DAMAGED = "damaged"


class NoticeAction(Enum):
    """What was done on a notice."""

    FORWARDED = "forwarded"
    SAVED = "saved"
    SKIPPED = "skipped"
    NOT_SAVED = "not_saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentJoined:
    """The agent of an instance traded its token, which is used up, for a session.

    With the nonce of this digest the same agent may ask for it again. Others reach it at `host`.
    """

    job_id: str
    tenant: str
    instance_id: str
    token_sha256: str
    nonce_sha256: str
    host: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFormed:
    """The members of a start of the program are complete, `instance_ids` in rank order."""

    job_id: str
    tenant: str
    generation: int
    instance_ids: tuple[str, ...]
    detail: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRestarted:
    """A generation makes progress: `restart_s` market seconds after its members were complete.

    `load_s` of them loaded the checkpoint of digest `resumed_sha256` (empty: none), which held
    `resumed_done` in the job's own unit.
    """

    job_id: str
    tenant: str
    generation: int
    restart_s: int
    load_s: int
    resumed_done: float
    resumed_sha256: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """A checkpoint is complete; writing it took `save_s` market seconds.

    `done` is what it holds, in the job's own unit; `sha256` that of its files' names and digests.
    """

    job_id: str
    tenant: str
    generation: int
    step: int
    done: float
    uri: str
    sha256: str
    size_bytes: int
    kind: CheckpointKind
    save_s: int
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """A checkpoint that was to be is not, or is broken: the one before counts."""

    job_id: str
    tenant: str
    generation: int
    step: int
    fault: CheckpointFault
    detail: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeAcknowledged:
    """An agent has dealt with a notice, `after_s` market seconds after it came."""

    job_id: str
    tenant: str
    instance_id: str
    notice_id: str
    action: NoticeAction
    after_s: int
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSilent:
    """An agent has not been heard of since `since_ns`, which is too long."""

    job_id: str
    tenant: str
    instance_id: str
    since_ns: int
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeard:
    """A silent agent is there again."""

    job_id: str
    tenant: str
    instance_id: str
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStalled:
    """Nothing was reported of a program since `since_ns`, which is too long: `on_stall` follows.

    Its agents are there: it is the program that says nothing.
    """

    job_id: str
    tenant: str
    generation: int
    since_ns: int
    on_stall: OnStall
    ts_event_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStallEnded:
    """A program that was stalled since `since_ns` reports again.

    A new start of it, or its end, ends a stall without this.
    """

    job_id: str
    tenant: str
    generation: int
    since_ns: int
    ts_event_ns: int
