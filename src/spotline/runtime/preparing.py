"""Work of a turn that is done before it, in a thread: the loop answers others meanwhile."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

import structlog

from spotline.application.spec import Handler, Prepares
from spotline.domain.events.event import Event

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")


class Preparing(Generic[StateT]):
    """Does what a handler names of its next turn; nothing for one that names nothing."""

    def __init__(self, handler: Handler[StateT]) -> None:
        self._handler = handler if isinstance(handler, Prepares) else None

    async def ahead(self, state: StateT, event: Event) -> None:
        """Do it, if there is any; what fails is left to the turn, which fails where it matters."""
        if self._handler is None:
            return
        try:
            work = self._handler.ahead(state, event)
            if work is not None:
                await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 - the turn does it again, and parks the event
            _log.warning("not_prepared", kind=type(event).__name__, error=str(error))
