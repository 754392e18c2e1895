"""An alert: something that began, ended or happened, with an id that every fold gives it again."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum


class AlertKind(Enum):
    """What an alert is about: the names of rules."""

    AT_RISK = "at_risk"
    MISSED = "missed"
    LIMIT_NEAR = "limit_near"
    FEED_DEAD = "feed_dead"
    DONE = "done"


class AlertState(Enum):
    """Whether something goes on from here, is over, or happened once."""

    BEGAN = "began"
    ENDED = "ended"
    HAPPENED = "happened"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something to tell.

    Parameters
    ----------
    alert_id, began_id
        Its own id; and, of an end, that of its beginning, empty otherwise.
    subject, name
        The id of the job, limit or feed that it is about, and what people call it.
    tenant
        Whose job or limit it is; empty: the system's.
    says, next
        What is so, in a sentence with its numbers; and what to do about it, empty for nothing.
    path
        Where pages show it.
    slot, entry, market_ns, logged_ns
        Where it was seen: the open slot, the entry of the log, its market time, and when the log
        stored the entry (wall time).
    """

    alert_id: str
    kind: AlertKind
    state: AlertState
    subject: str
    name: str
    says: str
    began_id: str = ""
    tenant: str = ""
    next: str = ""
    path: str = ""
    slot: int = -1
    entry: int = 0
    market_ns: int = 0
    logged_ns: int = 0


def alert_id_of(
    source: str, kind: AlertKind, state: AlertState, subject: str, event_id: str
) -> str:
    """The id of what the event `event_id` of the installation `source` showed: 32 hex digits."""
    parts = (source, kind.value, state.value, subject, event_id)
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]
