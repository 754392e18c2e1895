"""What is needed of the log to deal with parked entries."""

from __future__ import annotations

from typing import Protocol

from spotline.contracts.envelope import StoredEntry


class ParkedLog(Protocol):
    """Reads single events of the log, and publishes them again for one service."""

    async def event_at(self, seq: int, place: int) -> StoredEntry | None:
        """The event at that place of the log, None where it is no longer kept.

        Raises
        ------
        ProviderUnavailable
            The log does not answer.
        """
        ...

    async def publish_again(self, stored: StoredEntry, service: str) -> str:
        """Publish an event again, for `service` alone; the id that it has now.

        Idempotent: the same event has the same id then.

        Raises
        ------
        ProviderUnavailable
            The log did not take it in time.
        """
        ...
