"""The log as those need it who deal with parked entries."""

from __future__ import annotations

from dataclasses import replace

from spotline.contracts.batch import packed_for, unpacked
from spotline.contracts.envelope import OPERATOR, StoredEntry, retry_id
from spotline.runtime.stream import EventStream


class StreamParkedLog:
    """See `ParkedLog`."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    async def event_at(self, seq: int, place: int) -> StoredEntry | None:
        """The event at that place of the log, None where it is no longer kept."""
        async for entry in self._stream.read((), first_seq=seq, last_seq=seq):
            for event in unpacked(entry):
                if event.place == place:
                    return event
        return None

    async def publish_again(self, stored: StoredEntry, service: str) -> str:
        """Publish an event again, for `service` alone; the id that it has now."""
        before = stored.envelope()
        again = replace(
            before,
            event_id=retry_id(before.event_id, service),
            source=OPERATOR,
            causation_id=before.event_id,
            correlation_id=before.correlation_id or before.event_id,
            index=0,
            trace_headers={},
        )
        # Of a source of its own, so in batches of its own: no other subject has to admit it.
        await self._stream.publish([packed_for(OPERATOR, again)])
        return again.event_id
