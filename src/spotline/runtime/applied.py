"""What a host applies, for callers that wait until something is applied."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spotline.contracts.envelope import Envelope
from spotline.domain.events.event import Event

KeyOf = Callable[[Event], str | None]
"""Names what an event is about; None for an event that is not waited for."""


class AppliedFeed:
    """Wakes the callers that wait for events about something: a job, a pipeline, measured runs.

    Give `on_applied` to the host; its state shows an event before the feed tells of it.
    """

    def __init__(self, key_of: KeyOf) -> None:
        self._key_of = key_of
        self._waiting: dict[str, asyncio.Event] = {}

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host. Never waits."""
        key = self._key_of(event)
        if key is not None and key in self._waiting:
            self._waiting.pop(key).set()

    async def until(self, key: str, condition: Callable[[], bool]) -> None:
        """Wait until events about `key` have made `condition` true; at once where it is."""
        while not condition():
            await self._waiting.setdefault(key, asyncio.Event()).wait()
