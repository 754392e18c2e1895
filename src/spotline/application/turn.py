"""One turn of a handler: apply an event, decide what follows, and apply that at once.

A host on the log, a loop without a broker and verification all take their turns here; they differ
only in where events come from and where outputs go. Ids depend on the cause alone, so a turn taken
again gives the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from spotline.application.spec import Call, CallSpec, Context, Handler, Timer, derive_id
from spotline.contracts.build import envelope_for, event_of
from spotline.contracts.envelope import Envelope, StoredEntry, answer_id
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event

StateT = TypeVar("StateT")

# The broker drops a repeated id for two minutes, a handler for as many events.
_RECENT_IDS = 1 << 17
# An answer is recognised by its distance from the last one; a search for it ends here.
_MOST_ANSWERS = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An event that a service made, with all that surrounds it on the log.

    `index` is its place among the outputs of its cause, or among the answers of its call.
    """

    event: Event
    event_id: str
    causation_id: str
    correlation_id: str
    index: int = 0

    def envelope(self, service: str) -> Envelope:
        """Wrap it as an event of `service`, ready to publish."""
        return envelope_for(
            self.event,
            event_id=self.event_id,
            source=service,
            causation_id=self.causation_id,
            correlation_id=self.correlation_id,
            index=self.index,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that a turn asks for, with the id and the cause that its answers get.

    The last answer has the call's own id: once it is stored, all are. Those before it are numbered
    by their distance from it.
    """

    call: Call
    spec: CallSpec
    call_id: str
    causation_id: str
    correlation_id: str

    def answers(self, events: Sequence[Event]) -> tuple[Output, ...]:
        """What to record as the answers, in order.

        Raises
        ------
        InvariantViolation
            The SPEC does not list an event as an answer to this call.
        """
        last = len(events) - 1
        for event in events:
            if type(event) not in self.spec.answers:
                raise InvariantViolation(
                    f"{self.call.name} was answered by {type(event).__name__}, "
                    "which the SPEC does not list among its answers"
                )
        return tuple(
            Output(
                event=event,
                event_id=answer_id(self.call_id, last - place),
                causation_id=self.causation_id,
                correlation_id=self.correlation_id,
                index=place,
            )
            for place, event in enumerate(events)
        )

    def left_after(self, event_id: str) -> int | None:
        """How many answers follow the one with this id; None where it is no answer to this call."""
        return next(
            (left for left in range(_MOST_ANSWERS) if answer_id(self.call_id, left) == event_id),
            None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What followed from an event: outputs that are applied already, and calls to make."""

    outputs: tuple[Output, ...] = ()
    calls: tuple[PendingCall, ...] = ()


_NO_TURN = Turn()


def context_of(entry: StoredEntry, envelope: Envelope) -> Context:
    """Time and identity of an event as the log holds it."""
    return Context(
        seq=entry.seq,
        now_ns=entry.stored_ns,
        event_id=envelope.event_id,
        correlation_id=envelope.correlation_id or envelope.event_id,
    )


def output_of(entry: StoredEntry) -> Output:
    """An output as the log holds it.

    Raises
    ------
    ContractError
        It cannot be read.
    """
    envelope = entry.envelope()
    return Output(
        event=event_of(entry),
        event_id=envelope.event_id,
        causation_id=envelope.causation_id,
        correlation_id=envelope.correlation_id,
        index=envelope.index,
    )


class RecentIds:
    """The latest ids, up to a limit; the same ones however often the log is folded."""

    def __init__(self, limit: int = _RECENT_IDS) -> None:
        self._limit = limit
        self._ids: dict[str, None] = {}

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids

    def add(self, event_id: str) -> bool:
        """Remember an id; False if it is known."""
        if event_id in self._ids:
            return False
        self._ids[event_id] = None
        if len(self._ids) > self._limit:
            del self._ids[next(iter(self._ids))]
        return True

    def latest(self) -> list[str]:
        """All that are remembered, oldest first."""
        return list(self._ids)


class Turns(Generic[StateT]):
    """The turns of one handler: its state, and what was applied to it.

    `state` may be read between turns, and is replaced only by `restore`. An event that was applied
    is not applied again, so an output of its own that comes round changes nothing.

    Raises
    ------
    InvariantViolation
        The SPEC consumes nothing, or decides or is answered by an event that it does not list
        under produces.
    """

    def __init__(self, handler: Handler[StateT]) -> None:
        spec = handler.spec
        self.spec = spec
        self.service = spec.service
        self.state = handler.initial()
        self._handler = handler
        self._consumes = frozenset(spec.consumes)
        self._decides = frozenset(spec.decides)
        self._produces = frozenset(spec.produces)
        self._calls = {call.name: call for call in spec.calls}
        self._applied = RecentIds()
        if not spec.consumes:
            raise InvariantViolation(f"the SPEC of {self.service} consumes nothing")
        for event_type in (*spec.decides, *(kind for call in spec.calls for kind in call.answers)):
            self._check_produced(event_type)

    def consumes(self, event: Event) -> bool:
        """Whether the SPEC lists this kind of event."""
        return type(event) in self._consumes

    def has_applied(self, event_id: str) -> bool:
        """Whether an event with this id was applied of late."""
        return event_id in self._applied

    def take(
        self, event: Event, ctx: Context, recorded: Mapping[int, Output] | None = None
    ) -> Turn:
        """Apply `event`, decide, and apply what was decided; nothing for an event applied before.

        Parameters
        ----------
        recorded
            Outputs of this event that the log holds already, by index: they stand for what would
            be decided now.

        Raises
        ------
        InvariantViolation
            The handler decides or calls what its SPEC does not list.
        """
        if not self._applied.add(ctx.event_id):
            return _NO_TURN
        self._handler.evolve(self.state, event)
        outcome = self._handler.decide(self.state, event, ctx)
        for decided in outcome.events:
            if type(decided) not in self._decides:
                raise InvariantViolation(
                    f"{self.service} decided {type(decided).__name__}, "
                    "which its SPEC does not list under decides"
                )
        outputs = dict(recorded or {})
        for index, decided in enumerate(outcome.events):
            if index not in outputs:
                outputs[index] = Output(
                    event=decided,
                    event_id=ctx.derive_id(KINDS[type(decided)], index),
                    causation_id=ctx.event_id,
                    correlation_id=ctx.correlation_id,
                    index=index,
                )
        return Turn(
            outputs=self._apply(outputs),
            calls=tuple(
                self._pending(call, number, ctx) for number, call in enumerate(outcome.calls)
            ),
        )

    def refold(self, event: Event, event_id: str, recorded: Mapping[int, Output]) -> Turn:
        """Apply `event` and the outputs that the log holds of it; decide nothing."""
        if not self._applied.add(event_id):
            return _NO_TURN
        self._handler.evolve(self.state, event)
        return Turn(outputs=self._apply(recorded))

    def due(self) -> Sequence[Timer]:
        """The timers that should be running now."""
        return self._handler.due(self.state)

    def observation(self, event: Event, *, event_id: str, correlation_id: str = "") -> Output:
        """What the service's shell saw; it has no cause.

        Raises
        ------
        InvariantViolation
            The SPEC does not list it under produces.
        """
        self._check_produced(type(event))
        return Output(
            event=event,
            event_id=event_id,
            causation_id="",
            correlation_id=correlation_id or event_id,
        )

    def timer_outputs(self, timer: Timer) -> tuple[Output, ...]:
        """What to record when a timer is due; the same ids however often it is.

        Raises
        ------
        InvariantViolation
            The SPEC does not list an event of it under produces.
        """
        outputs = []
        for index, event in enumerate(timer.events):
            self._check_produced(type(event))
            event_id = derive_id(self.service, timer.timer_id, index)
            outputs.append(
                Output(
                    event=event,
                    event_id=event_id,
                    causation_id="",
                    correlation_id=event_id,
                    index=index,
                )
            )
        return tuple(outputs)

    def applied_ids(self) -> list[str]:
        """The ids that were applied of late, oldest first."""
        return self._applied.latest()

    def restore(self, state: StateT, applied_ids: Iterable[str]) -> None:
        """Go on from a state that was kept, and the ids that were applied to it."""
        self.state = state
        for event_id in applied_ids:
            self._applied.add(event_id)

    def _apply(self, outputs: Mapping[int, Output]) -> tuple[Output, ...]:
        ordered = tuple(outputs[index] for index in sorted(outputs))
        for output in ordered:
            # A service may consume what it decides: it is applied here, not when it comes round.
            if self._applied.add(output.event_id):
                self._handler.evolve(self.state, output.event)
        return ordered

    def _pending(self, call: Call, number: int, ctx: Context) -> PendingCall:
        if call.name not in self._calls:
            raise InvariantViolation(
                f"{self.service} asks for {call.name}, which its SPEC does not list under calls"
            )
        return PendingCall(
            call=call,
            spec=self._calls[call.name],
            call_id=ctx.derive_id(f"call:{call.name}", number),
            causation_id=ctx.event_id,
            correlation_id=ctx.correlation_id,
        )

    def _check_produced(self, event_type: type[Event]) -> None:
        if event_type not in self._produces:
            raise InvariantViolation(
                f"{self.service} made {event_type.__name__}, "
                "which its SPEC does not list under produces"
            )
