"""The phases of jobs and pipelines as words: importing what has them would double `--help`'s time."""

# A test holds them equal to `JobPhase` and `PlacementPhase`.

from __future__ import annotations

from enum import Enum


class JobPhaseWord(Enum):
    """What a job may be doing, as an option says it."""

    WAITING = "waiting"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    MOVING = "moving"
    SAVING = "saving"
    FINISHING = "finishing"
    COMPLETED = "completed"
    LATE = "late"
    MISSED = "missed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED_BY_LIMIT = "stopped_by_limit"
    MARKET_ENDED = "market_ended"


class PipelinePhaseWord(Enum):
    """What a pipeline may be doing, as an option says it."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETED = "completed"
    RELEASED = "released"
    REFUSED = "refused"
    STARTING = "starting"
