"""An event of the log as the page folds it: what happened, where in the log, and when."""

from __future__ import annotations

from dataclasses import dataclass, field

from spotline.contracts.envelope import Envelope
from spotline.domain.events.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """An event at its place.

    Parameters
    ----------
    seq
        Its entry of the log; the events of a batch share one.
    kind
        Its name on the wire, such as `allocation.decided`.
    event_id, cause_id
        Its own id, and that of what it follows from.
    wall_ns
        When the log stored it, wall time; 0: not known.
    slot, market_ns
        The slot that was open, -1 before the first, and when it happened in the market's time. The
        fold says both; what comes from outside has neither.
    payload
        Its content as the log holds it; empty: it is written again where it is needed.
    """

    event: Event
    seq: int
    kind: str
    event_id: str
    cause_id: str = ""
    wall_ns: int = 0
    slot: int = -1
    market_ns: int = 0
    payload: bytes = field(default=b"", repr=False, compare=False)


def applied(event: Event, envelope: Envelope, seq: int, *, wall_ns: int = 0) -> Applied:
    """What a host applied, or a log holds; `wall_ns` is when that was stored."""
    return Applied(
        event=event,
        seq=seq,
        kind=envelope.kind,
        event_id=envelope.event_id,
        cause_id=envelope.causation_id,
        wall_ns=wall_ns or envelope.stored_ns,
        payload=envelope.payload,
    )
