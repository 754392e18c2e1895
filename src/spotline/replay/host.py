"""Handlers in a loop: one process, one thread, the order and the ids that a stream would give."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.application.spec import Call, Context, Handler, Spec, derive_id
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened

Answer = Callable[[Call], Sequence[Event]]
"""Performs a call: returns what is recorded as its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    seq: int
    event: Event
    event_id: str
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hosted:
    spec: Spec
    handler: Handler[Any]
    state: Any


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
        self._hosted = [
            _Hosted(spec=handler.spec, handler=handler, state=handler.initial())
            for handler in handlers
        ]
        self._answers = answers or {}
        self._run = run
        self._record = record
        self._queue: deque[_Entry] = deque()
        self._seq = 0
        self._market_ns = 0

    def state_of(self, service: str) -> Any:
        """The state of the handler of a service.

        Raises
        ------
        KeyError
            Nobody here is called that.
        """
        for hosted in self._hosted:
            if hosted.spec.service == service:
                return hosted.state
        raise KeyError(f"no handler of {service} is hosted")

    def publish(self, event: Event, *, source: str) -> None:
        """Put an observation on the stream, and handle it and all that follows from it.

        Raises
        ------
        InvariantViolation
            A handler asks for a call that nobody performs.
        """
        event_id = derive_id(f"{self._run}:{source}", KINDS[type(event)], self._seq + 1)
        self._append(event, source=source, event_id=event_id)
        while self._queue:
            entry = self._queue.popleft()
            for hosted in self._hosted:
                if type(entry.event) in hosted.spec.consumes:
                    self._handle(hosted, entry)

    def _handle(self, hosted: _Hosted, entry: _Entry) -> None:
        service = hosted.spec.service
        ctx = Context(
            seq=entry.seq,
            now_ns=self._market_ns + entry.seq,
            event_id=entry.event_id,
            correlation_id=entry.correlation_id,
        )
        hosted.handler.evolve(hosted.state, entry.event)
        outcome = hosted.handler.decide(hosted.state, entry.event, ctx)
        for index, output in enumerate(outcome.events):
            hosted.handler.evolve(hosted.state, output)
            event_id = ctx.derive_id(KINDS[type(output)], index)
            self._append(output, source=service, event_id=event_id, cause=entry, index=index)
        for number, call in enumerate(outcome.calls):
            if call.name not in self._answers:
                raise InvariantViolation(f"{service} asks for {call.name}, which nobody performs")
            call_id = ctx.derive_id(f"call:{call.name}", number)
            for index, answer in enumerate(self._answers[call.name](call)):
                event_id = derive_id(call_id, "answer", index) if index else call_id
                self._append(answer, source=service, event_id=event_id, cause=entry, index=index)

    def _append(
        self,
        event: Event,
        *,
        source: str,
        event_id: str,
        cause: _Entry | None = None,
        index: int = 0,
    ) -> None:
        self._seq += 1
        if isinstance(event, SlotOpened):
            self._market_ns = event.ts_event_ns
        correlation_id = cause.correlation_id if cause else event_id
        self._queue.append(
            _Entry(seq=self._seq, event=event, event_id=event_id, correlation_id=correlation_id)
        )
        if self._record is None:
            return
        envelope = envelope_for(
            event,
            event_id=event_id,
            source=source,
            causation_id=cause.event_id if cause else "",
            correlation_id=correlation_id,
            index=index,
        )
        self._record(
            StoredEntry(
                seq=self._seq,
                stored_ns=self._market_ns + self._seq,
                subject=envelope.subject,
                headers=envelope.headers(),
                payload=envelope.payload,
            )
        )
