"""Handlers in a loop: one process, one thread, the order and the ids that a stream would give."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spotline.application.spec import Call, Context, Handler, derive_id
from spotline.application.turn import Output, Turns
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened

Answer = Callable[[Call], Sequence[Event]]
"""Performs a call: returns what is recorded as its answer."""


class LocalHost:
    """Runs handlers as services would run them on one stream, without any of it.

    Each handler gets what it consumes in `seq` order; its outputs apply to it at once and follow
    on the stream. Nothing waits: between two calls of `publish` everything has been handled. Time
    is the opening of the last slot, plus a nanosecond per entry.

    Parameters
    ----------
    handlers
        In the order in which they see an entry.
    answers
        Who performs the calls of each name.
    run
        Enters every id: what is drawn differs from run to run, and not within one.
    record
        Gets every entry as the stream would hold it; without it nothing is encoded.
    """

    def __init__(
        self,
        handlers: Sequence[Handler[Any]],
        *,
        answers: Mapping[str, Answer] | None = None,
        run: str = "",
        record: Callable[[StoredEntry], None] | None = None,
    ) -> None:
        self._hosted: list[Turns[Any]] = [
            Turns(handler, seals=record is not None) for handler in handlers
        ]
        self._answers = answers or {}
        self._run = run
        self._record = record
        # Outputs in the order of their `seq`.
        self._queue: deque[tuple[int, Output]] = deque()
        self._seq = 0
        self._market_ns = 0

    def state_of(self, service: str) -> Any:
        """The state of the handler of a service.

        Raises
        ------
        KeyError
            No service here is called that.
        """
        for turns in self._hosted:
            if turns.service == service:
                return turns.state
        raise KeyError(f"no handler of {service} is hosted")

    @property
    def hosted(self) -> Sequence[Turns[Any]]:
        """The turns of each handler, in the order in which they see an entry."""
        return self._hosted

    def publish(self, event: Event, *, source: str, cause_id: str = "", event_id: str = "") -> None:
        """Put an observation on the stream, and handle it and all that follows from it.

        With `cause_id` it is what a service that is not here decided on that entry. `event_id` is its
        id where another one than any is wanted.

        Raises
        ------
        InvariantViolation
            A handler asks for a call that is not performed, or makes what its SPEC does not list.
        """
        kind = KINDS[type(event)]
        if not event_id and cause_id:
            event_id = derive_id(cause_id, kind)
        event_id = event_id or derive_id(f"{self._run}:{source}", kind, self._seq + 1)
        self._append(
            Output(event=event, event_id=event_id, causation_id=cause_id, correlation_id=event_id),
            source,
        )
        while self._queue:
            seq, output = self._queue.popleft()
            ctx = Context(
                seq=seq,
                now_ns=self._market_ns + seq,
                event_id=output.event_id,
                correlation_id=output.correlation_id,
            )
            for turns in self._hosted:
                if turns.consumes(output.event):
                    self._handle(turns, output.event, ctx)

    def _handle(self, turns: Turns[Any], event: Event, ctx: Context) -> None:
        turn = turns.take(event, ctx)
        for output in turn.outputs:
            self._append(output, turns.service)
        for pending in turn.calls:
            call = pending.call
            if call.name not in self._answers:
                raise InvariantViolation(
                    f"{turns.service} asks for {call.name}, which nobody performs"
                )
            for answer in pending.answers(self._answers[call.name](call)):
                self._append(answer, turns.service)

    def _append(self, output: Output, source: str) -> None:
        self._seq += 1
        if isinstance(output.event, SlotOpened):
            self._market_ns = output.event.ts_event_ns
        self._queue.append((self._seq, output))
        if self._record is None:
            return
        envelope = output.envelope(source)
        self._record(
            StoredEntry(
                seq=self._seq,
                stored_ns=self._market_ns + self._seq,
                subject=envelope.subject,
                headers=envelope.headers(),
                payload=envelope.payload,
            )
        )
