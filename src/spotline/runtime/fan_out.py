"""Publishes what plain clients follow beside the log: one message per event, with its own id."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import Envelope, StoredEntry
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.contracts.publishers import why_forged
from spotline.contracts.subjects import (
    BATCH_KIND,
    ONLY_IN_BATCHES,
    PREFIX,
    filter_of,
)
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S
from spotline.runtime.stream import EventStream

_log = structlog.get_logger(__name__)

LOG_SEQ, LOG_PLACE, SLOT_S = "ce-logseq", "ce-logplace", "ce-slotseconds"
"""Headers: which entry of the log, which of its events, and how long the slot is, seconds."""

_NAME = "fan_out"
_SUBJECTS = (f"{PREFIX}{BATCH_KIND}.*", filter_of(SlotOpened))
_FETCH_LIMIT = 32
_FETCH_TIMEOUT_S = 0.5
# Published in one go: those that decide share the loop.
_SLICE = 50
_RETRY_S = 1.0
# A slot's decisions come right behind its opening.
_SLOTS_KEPT = 16
_LOOK_BACK = 5_000

_Place = tuple[int, int]
_NOWHERE: _Place = (0, 0)


class FanOut:
    """Follows a log and publishes decisions and what became of them on their own subjects.

    At least once, and in the log's order. Where to go on is behind the last message that is there:
    the stream beside the log may lose its end in a crash of the server, and gets it again.

    Parameters
    ----------
    log
        A partition's log.
    beside
        The stream that takes what is published.
    """

    def __init__(self, log: EventStream, beside: EventStream) -> None:
        self._log = log
        self._beside = beside
        self._slots: dict[int, SlotOpened] = {}
        self._published: _Place = _NOWHERE
        self._next_seq = 1
        # Where the stream lost its end, and up to where it may hold already what it gets again.
        self._lost_from = 0
        self._repeated_until: _Place = _NOWHERE

    async def run(self) -> None:
        """Publish until cancelled; waits where the server does not answer."""
        while True:
            try:
                await self._follow()
            except ProviderUnavailable as error:
                _log.warning("fan_out_waits", error=str(error))
                await asyncio.sleep(_RETRY_S)

    async def _follow(self) -> None:
        """Publish what is missing, then what comes; returns when the stream has lost its end."""
        self._published, self._next_seq = await self._last_published()
        seq = self._published[0]
        subscription = await self._log.subscribe(_NAME, _SUBJECTS, first_seq=max(seq, 1))
        try:
            if subscription.rebased:
                # What was published of entries that are gone says nothing of those in their place.
                self._published = min(self._published, (subscription.floor_seq + 1, 0))
            await self._learn_slots(subscription.floor_seq)
            if subscription.floor_seq >= seq > 0 or self._repeated_until > (seq, 0):
                async for entry in self._log.read(
                    _SUBJECTS, first_seq=max(seq, 1), last_seq=subscription.floor_seq
                ):
                    if not await self._publish(self._messages_of(entry)):
                        return
            while True:
                entries = await subscription.fetch(limit=_FETCH_LIMIT, timeout_s=_FETCH_TIMEOUT_S)
                for entry in entries:
                    if not await self._publish(self._messages_of(entry)):
                        return
                if entries:
                    await subscription.ack(entries[-1])
        finally:
            await subscription.close()

    async def _last_published(self) -> tuple[_Place, int]:
        """Which event of the log was published last, and the `seq` that the next one gets."""
        last_seq = await self._beside.last_seq()
        known_seq = self._lost_from - 1 if self._lost_from else last_seq
        self._lost_from = 0
        if known_seq < 1:
            return _NOWHERE, last_seq + 1
        async for entry in self._beside.read((), first_seq=known_seq, last_seq=known_seq):
            return _place_in(entry.headers), last_seq + 1
        return _NOWHERE, last_seq + 1

    async def _learn_slots(self, until_seq: int) -> None:
        """Know the slots that were open shortly before an entry."""
        for first_seq in (max(1, until_seq - _LOOK_BACK), 1):
            async for entry in self._log.read(
                _SUBJECTS[1:], first_seq=first_seq, last_seq=until_seq
            ):
                self._note_slot(entry)
            if self._slots or first_seq == 1:
                return

    def _note_slot(self, entry: StoredEntry) -> None:
        try:
            event = event_of(entry)
        except ContractError:
            return
        if isinstance(event, SlotOpened):
            self._slots[event.slot] = event
            for slot in sorted(self._slots)[:-_SLOTS_KEPT]:
                del self._slots[slot]

    def _messages_of(self, entry: StoredEntry) -> list[Envelope]:
        if entry.subject == _SUBJECTS[1]:
            self._note_slot(entry)
            return []
        try:
            events = unpacked(entry, ONLY_IN_BATCHES)
        except ContractError:
            return []  # those who consume it have said so
        return [
            self._message(event)
            for event in events
            if (event.seq, event.place) > self._published and _is_believed(event)
        ]

    def _message(self, entry: StoredEntry) -> Envelope:
        envelope = entry.envelope()
        headers = {LOG_SEQ: str(entry.seq), LOG_PLACE: str(entry.place)}
        ts_event_ns = envelope.ts_event_ns
        try:
            event = event_of(entry)
        except ContractError:
            event = None
        opened = self._slots.get(getattr(event, "slot", -1))
        if opened is not None:
            headers[SLOT_S] = str(opened.slot_s)
            if not ts_event_ns:
                offset_s = getattr(event, "offset_s", 0)
                ts_event_ns = opened.ts_event_ns + offset_s * NS_PER_S
        return replace(
            envelope,
            ts_event_ns=ts_event_ns,
            trace_headers={**envelope.trace_headers, **headers},
        )

    async def _publish(self, envelopes: Sequence[Envelope]) -> bool:
        """Publish in slices; False where the stream turns out to have lost its end."""
        for first in range(0, len(envelopes), _SLICE):
            part = envelopes[first : first + _SLICE]
            seqs = await self._beside.publish(part)
            is_new = _place_in(part[0].trace_headers) > self._repeated_until
            self._published = _place_in(part[-1].trace_headers)
            if is_new and seqs[0] < self._next_seq:
                _log.warning("fan_out_repeats", lost_from=seqs[0], expected=self._next_seq)
                self._lost_from, self._repeated_until = seqs[0], self._published
                return False
            self._next_seq = max(self._next_seq, seqs[-1] + 1)
        return True


def _place_in(headers: Mapping[str, str]) -> _Place:
    return int(headers.get(LOG_SEQ, "0")), int(headers.get(LOG_PLACE, "0"))


def _is_believed(entry: StoredEntry) -> bool:
    """Whether plain clients may take it for what its services say; what cannot be read is told."""
    try:
        event, envelope = event_of(entry), entry.envelope()
    except ContractError:
        return True
    return why_forged(event, envelope) is None
