"""What an agent and the control plane say to each other, as values of the agent's side."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from spotline.domain.events.training import CheckpointFault, CheckpointKind, NoticeAction
from spotline.domain.jobs.run import Run

# A piece of output is stored as one message.
MOST_PIECE_BYTES = 64 * 1024


class OrderState(Enum):
    """What an instance is to do with a generation: `AllocationState` in `agent_service.proto`."""

    WAIT = "wait"
    RUN = "run"
    STOP = "stop"
    ABORT = "abort"
    LEAVE = "leave"
    OVER = "over"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTask:
    """What of a job its agents need: what is run, and where its checkpoints are (may be empty).

    `checkpoint_interval_s` are market seconds between two of them, 0 where that is not said.
    """

    job_id: str
    tenant: str
    run: Run
    checkpoint_location: str = ""
    checkpoint_interval_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketMoment:
    """Market time as it was said: when the open `slot` opened, ns since the epoch."""

    market_ns: int
    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrolled:
    """What a token was traded for.

    `market_s_per_s` are market seconds in a second of wall time; `lease_s`, `heartbeat_s` and
    `session_s`, for which the session is good, are wall seconds. Of 0 seconds it does not end.
    """

    session: str
    task: AgentTask
    market_s_per_s: float
    lease_s: float
    heartbeat_s: float
    session_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("market_s_per_s", "lease_s", "heartbeat_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A member of a generation; others reach it at `host`."""

    instance_id: str
    node_rank: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldNotice:
    """A notice as the platform tells it; the deadline is in market time, ns since the epoch."""

    notice_id: str
    instance_ids: tuple[str, ...]
    deadline_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What this instance is to do now; `peers` in the order of their ranks."""

    job_id: str
    generation: int
    state: OrderState
    peers: tuple[Peer, ...] = ()
    notices: tuple[ToldNotice, ...] = ()
    detail: str = ""

    def node_rank(self, instance_id: str) -> int | None:
        """The rank of an instance among the members; None where it is none of them."""
        for peer in self.peers:
            if peer.instance_id == instance_id:
                return peer.node_rank
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksNews:
    """The program's processes were started (`exit_code` None), or have ended with it."""

    generation: int
    exit_code: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartNews:
    """How a generation came to its first progress; market seconds, work in the job's own unit."""

    restart_s: int
    load_s: int = 0
    resumed_done: float = 0.0
    resumed_sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkNews:
    """Work done, in the job's own unit; `rate_per_hour` per market hour, 0 if not measured."""

    generation: int
    done: float
    step: int = 0
    rate_per_hour: float = 0.0
    checkpointed: float | None = None
    restart: RestartNews | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointNews:
    """A checkpoint is complete, or is not: `fault`. `save_s` are market seconds."""

    generation: int
    step: int
    done: float
    uri: str
    sha256: str
    size_bytes: int
    kind: CheckpointKind
    save_s: int
    fault: CheckpointFault | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeNews:
    """What was done on a notice, `after_s` market seconds after it came."""

    notice_id: str
    action: NoticeAction
    after_s: int


News = RanksNews | WorkNews | CheckpointNews | NoticeNews


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPiece:
    """A piece of what one rank wrote, at most `MOST_PIECE_BYTES` of UTF-8; `ts_ns` wall time."""

    generation: int
    rank: int
    index: int
    text: str
    ts_ns: int
    size_bytes: int = field(init=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", len(self.text.encode()))
        if self.size_bytes > MOST_PIECE_BYTES:
            raise ValueError(f"text must have <= {MOST_PIECE_BYTES} bytes, had {self.size_bytes}")
