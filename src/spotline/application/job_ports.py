"""What serving jobs needs from the allocator's host, as a small protocol."""

from __future__ import annotations

from typing import Protocol

from spotline.application.jobs import JobsState
from spotline.domain.events import Event


class JobsHost(Protocol):
    """The running allocator: its read model, and a way to record what a platform said."""

    @property
    def state(self) -> JobsState:
        """The read model, as of the last applied event; only the host changes it."""
        ...

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        """Store an observation and return its `seq`.

        Idempotent by `event_id`: repeated, it returns the `seq` of the first. Returns when it is
        stored, which may be before it is applied.

        Raises
        ------
        ProviderUnavailable
            The bus did not take it in time.
        """
        ...
