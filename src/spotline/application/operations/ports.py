"""What is needed of the log to deal with parked entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
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


class LogReading(Protocol):
    """Reads the log as it is stored."""

    async def last_seq(self) -> int:
        """The last entry's place, 0 where there is none.

        Raises
        ------
        ProviderUnavailable
            The log does not answer.
        """
        ...

    def read(
        self, subjects: Sequence[str], *, first_seq: int = 1, last_seq: int
    ) -> AsyncIterator[StoredEntry]:
        """The entries from one place to another, in order; errors as above."""
        ...
