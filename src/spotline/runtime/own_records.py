"""What a service has stored itself: read back after a restart, and never stored twice."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.spec import Spec
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.contracts.subjects import KINDS, batch_subject, dead_letter_subject, filters_of
from spotline.domain.events.parking import EntryParked
from spotline.runtime.stream import EventStream
from spotline.runtime.watched import HostCounters


class OwnRecords:
    """Stores a service's events on its stream, in order and each once."""

    def __init__(self, spec: Spec, stream: EventStream, counters: HostCounters) -> None:
        self._service = spec.service
        self._stream = stream
        self._counters = counters
        self._subjects = [
            *(
                subject
                for event_type in dict.fromkeys((*spec.produces, EntryParked))
                for subject in filters_of(event_type)
            ),
            batch_subject(spec.service),
            dead_letter_subject(spec.service),
        ]
        self._decided_kinds = {KINDS[event_type] for event_type in spec.decides}
        # Decisions by cause and index, parkings by cause, and the seq of everything behind the acknowledged inputs.
        self._decisions: dict[str, dict[int, StoredEntry]] = {}
        self._parked: dict[str, StoredEntry] = {}
        self._seqs: dict[str, int] = {}

    async def read_back(self, first_seq: int, last_seq: int, floor_seq: int) -> None:
        """Read what this service stored in a range of the log; `floor_seq` is acknowledged."""
        async for entry in self._stream.read(
            self._subjects, first_seq=first_seq, last_seq=last_seq
        ):
            try:
                events = [(event, event.envelope()) for event in unpacked(entry)]
            except ContractError:
                continue  # somebody else's garbage on one of our subjects
            for event, envelope in events:
                if envelope.source == self._service:
                    self._note(event, envelope, is_acknowledged=entry.seq <= floor_seq)

    def _note(self, event: StoredEntry, envelope: Envelope, *, is_acknowledged: bool) -> None:
        if envelope.kind == KINDS[EntryParked]:
            self._parked.setdefault(envelope.causation_id, event)
        elif envelope.kind in self._decided_kinds:
            by_index = self._decisions.setdefault(envelope.causation_id, {})
            by_index.setdefault(envelope.index, event)
        # Of what was not caused by an input, none is ever recorded a second time.
        if not is_acknowledged or not envelope.causation_id:
            self._seqs.setdefault(envelope.event_id, event.seq)

    def take_decisions(self, event_id: str) -> dict[int, StoredEntry]:
        """The stored decisions of an input, by index; they are given once."""
        return self._decisions.pop(event_id, {})

    def take_parked(self, event_id: str) -> StoredEntry | None:
        """Where an input was said to be parked, None where it is not; it is given once."""
        return self._parked.pop(event_id, None)

    def forget_decisions(self) -> None:
        """Forget what followed from inputs that did not come again."""
        self._decisions.clear()
        self._parked.clear()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._seqs

    async def store(self, envelopes: Sequence[Envelope]) -> list[int]:
        """Store what is not stored yet, in order, what belongs together in batches; the seq of each.

        Raises
        ------
        ProviderUnavailable
            It could not be stored in time.
        """
        missing = [envelope for envelope in envelopes if envelope.event_id not in self._seqs]
        fresh: dict[str, int] = {}
        if missing:
            entries = packed(missing, most_events=self._stream.most_events)
            seqs = await self._stream.publish([entry.envelope for entry in entries])
            self._counters.published += len(missing)
            each = (
                seq for entry, seq in zip(entries, seqs, strict=True) for _ in range(entry.events)
            )
            fresh = {envelope.event_id: seq for envelope, seq in zip(missing, each, strict=True)}
        return [
            fresh.get(envelope.event_id) or self._seqs[envelope.event_id] for envelope in envelopes
        ]
