"""What the services of a recorded run had parked: it is left out by them in every replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spotline.adapters.eventlog.manifest import UnreadableLog
from spotline.application.turn import Output, output_of
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS, on_subject
from spotline.domain.events.parking import EntryParked
from spotline.replay.recorded import RecordedEvent

ParkedBy = tuple[str, str]
"""A service, and the id of an event that it left out."""

_PARKED = KINDS[EntryParked]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedParking:
    """What a service recorded of an event that it left out, and where the log holds that."""

    reason: EntryParked
    output: Output
    seq: int


def recorded_parkings(entries: Iterable[StoredEntry]) -> Mapping[ParkedBy, RecordedParking]:
    """All that the log says of parked events; where it breaks off is for its next reader to say."""
    found: dict[ParkedBy, RecordedParking] = {}
    try:
        for entry in entries:
            if on_subject(_PARKED, entry.subject):
                _note(found, entry)
    except UnreadableLog:
        pass
    return found


def _note(found: dict[ParkedBy, RecordedParking], entry: StoredEntry) -> None:
    try:
        envelope, event = entry.envelope(), event_of(entry)
        output = output_of(entry)
    except ContractError:
        return
    if isinstance(event, EntryParked):
        parking = RecordedParking(reason=event, output=output, seq=entry.seq)
        found.setdefault((envelope.source, envelope.causation_id), parking)


def parked_by(service: str, events: Iterable[RecordedEvent]) -> frozenset[str]:
    """Ids of the events that a service left out."""
    return frozenset(
        recorded.envelope.causation_id
        for recorded in events
        if isinstance(recorded.event, EntryParked) and recorded.envelope.source == service
    )
