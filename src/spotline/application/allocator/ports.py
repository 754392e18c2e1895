"""What serving jobs needs: the allocator's host, and somebody who completes drafts."""

from __future__ import annotations

from typing import Protocol

from spotline.application.allocator.handler import JobsState
from spotline.application.configurator.messages import Completion, CompletionRequest
from spotline.domain.events.event import Event


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


class ConfiguratorPort(Protocol):
    """Makes whole jobs of drafts; the configurator's client is one."""

    async def complete(self, request: CompletionRequest, *, timeout_s: float = ...) -> Completion:
        """Complete a draft within `timeout_s`.

        Raises
        ------
        SpotlineError
            It is refused, or no answer comes in time; says which.
        """
        ...
