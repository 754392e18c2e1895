"""Work of turns that is done in a thread: the loop answers others meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Generic, TypeVar

import structlog

from spotline.application.spec import Context, Handler, Prepares
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import InvariantViolation
from spotline.domain.events.event import Event

_log = structlog.get_logger(__name__)

StateT = TypeVar("StateT")
TakenT = TypeVar("TakenT")


class TurnThreads(Generic[StateT]):
    """Takes long turns in a thread, and does there before a turn what its handler names.

    Turns of one handler follow each other, so a state is in one thread at a time, which is the handler's own: a
    turn never waits for what else is done in threads. No other code may read the state then. Without
    `threads`, on a loop that has none, every turn keeps the loop.

    Raises
    ------
    InvariantViolation
        The SPEC has long turns of what it does not consume.
    """

    def __init__(self, handler: Handler[StateT], *, threads: bool = True) -> None:
        spec = handler.spec
        if not set(spec.long) <= set(spec.consumes):
            raise InvariantViolation(f"the SPEC of {spec.service} must consume all that is long")
        self._service = spec.service
        self._handler = handler if threads and isinstance(handler, Prepares) else None
        self._long = frozenset(spec.long if threads else ())
        self._own_thread: ThreadPoolExecutor | None = None
        self._in_turn = False

    def at_rest(self, state: StateT) -> StateT:
        """The state, as nobody changes it now.

        Raises
        ------
        InvariantViolation
            A long turn does, in a thread.
        """
        if self._in_turn:
            raise InvariantViolation(f"{self._service} is in a turn: its state is not to be read")
        return state

    async def ahead(self, state: StateT, event: Event) -> None:
        """Do what the handler names of its next turn; what fails is left to the turn, which fails where it matters."""
        if self._handler is None:
            return
        try:
            work = self._handler.ahead(state, event)
            if work is not None:
                await asyncio.to_thread(work)
        except Exception as error:  # noqa: BLE001 - the turn does it again, and parks the event
            _log.warning("not_prepared", kind=type(event).__name__, error=str(error))

    async def taken(
        self,
        take: Callable[[Event, Context, Envelope], TakenT],
        event: Event,
        ctx: Context,
        envelope: Envelope,
    ) -> TakenT:
        """Take the turn of an event: a long one in a thread."""
        if type(event) not in self._long:
            return take(event, ctx, envelope)
        if self._own_thread is None:
            self._own_thread = ThreadPoolExecutor(1, thread_name_prefix=f"turns-{self._service}")

        def whole() -> TakenT:
            # A host that is ended with a turn under way waits no longer, and the turn goes on to its end.
            try:
                return take(event, ctx, envelope)
            finally:
                self._in_turn = False

        self._in_turn = True
        within = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._own_thread, within.run, whole)
