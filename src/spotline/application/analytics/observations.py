"""The events that count as observations, as far as they count."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.contracts.codec import decode, encode
from spotline.contracts.subjects import KINDS
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.placement import PlacementDecided, PlacementOutcome
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.statistics.windows import S_PER_DAY

REALISED = -1
"""`rehearsed_slot` of feedback from a job that ended."""

LONGEST_SLOT_S = 7 * S_PER_DAY
"""A slot that claims to be longer, or no time at all, is no observation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """An event that counts, as far as it counts, and the watermark it met."""

    event_id: str
    seq: int
    stored_ns: int
    watermark_s: int
    causation_id: str
    event: Event
    # Among the events of the entry.
    place: int = 0

    def dump(self) -> bytes:
        """Write it down, without its id."""
        kind = KINDS[type(self.event)]
        at = f"{self.seq}.{self.place}" if self.place else str(self.seq)
        head = f"{at} {self.stored_ns} {self.watermark_s} {kind} {self.causation_id}\n"
        return head.encode() + encode(self.event)

    @classmethod
    def load(cls, event_id: str, dumped: bytes) -> Observation:
        """Read what `dump` wrote."""
        head, _, payload = dumped.partition(b"\n")
        # The cause is whatever a header said.
        at, stored_ns, watermark_s, kind, causation_id = head.decode().split(" ", 4)
        seq, place = _seq_and_place(at)
        return cls(
            event_id=event_id,
            seq=seq,
            place=place,
            stored_ns=int(stored_ns),
            watermark_s=int(watermark_s),
            causation_id=causation_id,
            event=decode(kind, payload),
        )


def place_of(dumped: bytes) -> tuple[int, int]:
    """Where in the log a dumped observation is: its entry's `seq`, its place in that entry."""
    return _seq_and_place(dumped.partition(b" ")[0].decode())


def _seq_and_place(at: str) -> tuple[int, int]:
    seq, _, place = at.partition(".")
    return int(seq), int(place or 0)


def counts(event: Event) -> bool:
    """Whether an event that is consumed is an observation: rehearsals and later revisions of a slot are none.

    Of a pipeline only its beginning and its end count: they tell whose its bills are.
    """
    match event:
        case PolicyWeightsUpdated():
            return event.rehearsed_slot == REALISED
        case AllocationDecided() | SlotDecided():
            return event.revision == 0
        case PlacementDecided():
            return event.outcome is PlacementOutcome.REFUSED
        case SlotOpened():
            return 0 < event.slot_s <= LONGEST_SLOT_S
    return True


def essence(event: Event) -> Event:
    """The event without what does not count and may be large."""
    match event:
        case ForecastIssued():
            return replace(event, forecasts=(), scores=())
        case AllocationDecided():
            return replace(event, lots=(), explanation="", move=None)
        case JobSubmitted():
            return replace(event, job=replace(event.job, configuration=None))
        case PlacementDecided():
            return replace(event, placement=None, reason="")
    return event
