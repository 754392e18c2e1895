"""One turn of a handler: apply an event, decide what follows, and apply that at once.

A turn that fails changes nothing: its event is parked, with the reason as its only output. For this
service it is then as if the event were not there, whatever later code could do with it.

A host on the log, a loop without a broker and verification all take their turns here; they differ
only in where events come from and where outputs go. Ids depend on the cause alone, so a turn taken
again gives the same ids.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from spotline.application.rollback import Rollback
from spotline.application.set_aside import SetAside
from spotline.application.spec import Call, CallSpec, Context, Handler, Timer, derive_id
from spotline.application.unfit import Forged, Unfit
from spotline.contracts.build import envelope_for, event_of, job_of
from spotline.contracts.envelope import Envelope, StoredEntry, answer_id
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.events.parking import EntryParked

StateT = TypeVar("StateT")

# The broker drops a repeated id for two minutes, a handler for as many events.
_RECENT_IDS = 1 << 17
# An answer is recognised by its distance from the last one; a search for it ends here.
_MOST_ANSWERS = 1 << 12
_LONGEST_REASON = 500
_PARKED = KINDS[EntryParked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An event that a service made, with all that surrounds it on the log.

    `index` is its place among the outputs of its cause, or among the answers of its call. `sealed`
    is its envelope, where that was made already.
    """

    event: Event
    event_id: str
    causation_id: str
    correlation_id: str
    index: int = 0
    sealed: Envelope | None = field(default=None, compare=False, repr=False)

    def envelope(self, service: str) -> Envelope:
        """Wrap it as an event of `service`, ready to publish.

        Raises
        ------
        ContractError
            A routing field of the event is empty.
        InvariantViolation
            The event holds what the wire cannot carry.
        """
        if self.sealed is not None:
            return self.sealed
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
    """What followed from an event: outputs that are applied already, and calls to make.

    `parked` says why the event was left out; it is then the only output. `error` is what was
    raised, None where the log had said already that the event is parked.
    """

    outputs: tuple[Output, ...] = ()
    calls: tuple[PendingCall, ...] = ()
    parked: EntryParked | None = None
    error: Exception | None = field(default=None, compare=False)


_NO_TURN = Turn()


class SpecBroken(InvariantViolation):
    """A handler does what its SPEC does not list: nothing that an event could cause."""


def context_of(entry: StoredEntry, envelope: Envelope) -> Context:
    """Time and identity of an event as the log holds it."""
    return Context(
        seq=entry.seq,
        place=entry.place,
        now_ns=entry.stored_ns,
        event_id=envelope.event_id,
        correlation_id=envelope.correlation_id or envelope.event_id,
        envelope=envelope,
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
        self._ids: set[str] = set()
        # A dict that forgets its oldest looks for it among all that it forgot before.
        self._order: deque[str] = deque()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids

    def add(self, event_id: str) -> bool:
        """Remember an id; False if it is known."""
        if event_id in self._ids:
            return False
        self._ids.add(event_id)
        self._order.append(event_id)
        if len(self._order) > self._limit:
            self._ids.remove(self._order.popleft())
        return True

    def latest(self) -> list[str]:
        """All that are remembered, oldest first."""
        return list(self._order)


class Turns(Generic[StateT]):
    """The turns of one handler: its state, and what was applied to it.

    `state` may be read between turns; `restore` and a turn that fails replace it. An event that was
    applied is not applied again, so an output of its own that comes round changes nothing.
    `EntryParked` alone is never applied by the one that made it: a service that consumes it gets it
    from the stream.

    Parameters
    ----------
    seals
        Whether outputs are encoded in their turn, so that one that cannot be parks its cause.

    Raises
    ------
    InvariantViolation
        The SPEC consumes nothing or a kind twice, or decides or is answered by an event that it
        does not list under produces.
    """

    def __init__(self, handler: Handler[StateT], *, seals: bool = True) -> None:
        spec = handler.spec
        self.spec = spec
        self.service = spec.service
        self.state = handler.initial()
        self._handler = handler
        self._check = _check_of(handler)
        self._seals = seals
        self._rollback = Rollback(self.state, spec.weight)
        self._consumes = frozenset(spec.consumes)
        self._decides = frozenset(spec.decides)
        self._produces = frozenset(spec.produces)
        self._calls = {call.name: call for call in spec.calls}
        self._applied = RecentIds()
        self._set_aside = SetAside(self.service)
        if not spec.consumes:
            raise InvariantViolation(f"the SPEC of {self.service} consumes nothing")
        if len(self._consumes) != len(spec.consumes):
            # The broker refuses a consumer that names a subject twice.
            raise InvariantViolation(f"the SPEC of {self.service} consumes a kind twice")
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

        Whatever `evolve` or `decide` raises parks the event; so does an output that cannot be
        applied or encoded. The state is then as it was.

        Parameters
        ----------
        recorded
            Outputs of this event that the log holds already, by index: they stand for what would
            be decided now.

        Raises
        ------
        SpecBroken
            The handler decides or calls what its SPEC does not list.
        """
        return self._tried(event, ctx, lambda: self._taken(event, ctx, recorded or {}))

    def refold(self, event: Event, ctx: Context, recorded: Mapping[int, Output]) -> Turn:
        """Apply `event` and the outputs that the log holds of it; decide nothing.

        It is parked as by `take` where it cannot be applied any more.
        """
        return self._tried(event, ctx, lambda: self._refolded(event, recorded))

    def leave_out(self, ctx: Context, parked: Output) -> Turn:
        """Take no turn on an event: the log says that it is parked."""
        if not self._applied.add(ctx.event_id):
            return _NO_TURN
        reason = parked.event
        if not isinstance(reason, EntryParked):
            raise InvariantViolation(f"expected EntryParked, found {type(reason).__name__}")
        if ctx.envelope is not None and reason.error_type != Forged.__name__:
            self._set_aside.keep(ctx.envelope)
        return Turn(outputs=(parked,), parked=reason)

    def attempt(self, event: Event, ctx: Context) -> Turn:
        """The turn that `event` would lead to; nothing is changed by it."""
        try:
            self._check_origin(event, ctx)
            self._check(self.state, event)
            turn, _ = self._taken(event, ctx, {})
        except SpecBroken:
            raise
        except Exception as error:  # noqa: BLE001 - as in `_tried`
            turn = self._parked(event, ctx, error)
        self.state = self._rollback.back(self._handler.evolve)
        return turn

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
        """The ids that were applied of late, oldest first, and a note of each event set aside."""
        return [*self._applied.latest(), *self._set_aside.noted()]

    def restore(self, state: StateT, applied_ids: Iterable[str]) -> None:
        """Go on from a state that was kept, and the ids that were applied to it."""
        self.state = state
        self._rollback.restart(state)
        for event_id in applied_ids:
            if not self._set_aside.take_note(event_id):
                self._applied.add(event_id)

    def _tried(
        self, event: Event, ctx: Context, turn_of: Callable[[], tuple[Turn, list[Event]]]
    ) -> Turn:
        """Take a turn whole, or not at all."""
        if not self._applied.add(ctx.event_id):
            return _NO_TURN
        try:
            self._check_origin(event, ctx)
            self._check(self.state, event)
        except Unfit as unfit:
            return self._set(event, ctx, unfit)
        try:
            turn, evolved = turn_of()
        except SpecBroken:
            raise
        except Exception as error:  # noqa: BLE001 - nobody foresees what fails: recorded, told, counted
            self.state = self._rollback.back(self._handler.evolve)
            return self._set(event, ctx, error)
        for output in turn.outputs:
            self._applied.add(output.event_id)
        self._rollback.note(self.state, evolved)
        return turn

    def _taken(
        self, event: Event, ctx: Context, recorded: Mapping[int, Output]
    ) -> tuple[Turn, list[Event]]:
        self._handler.evolve(self.state, event)
        outcome = self._handler.decide(self.state, event, ctx)
        for decided in outcome.events:
            if type(decided) not in self._decides:
                raise SpecBroken(
                    f"{self.service} decided {type(decided).__name__}, "
                    "which its SPEC does not list under decides"
                )
        if not (outcome.events or outcome.calls or recorded):
            # Of most events nothing follows.
            return _NO_TURN, [event]
        outputs = dict(recorded)
        for index, decided in enumerate(outcome.events):
            if index not in outputs:
                event_id = ctx.derive_id(KINDS[type(decided)], index)
                outputs[index] = self._made(decided, event_id, ctx, index)
        calls = tuple(self._pending(call, number, ctx) for number, call in enumerate(outcome.calls))
        ordered, evolved = self._apply(outputs)
        return Turn(outputs=ordered, calls=calls), [event, *evolved]

    def _refolded(self, event: Event, recorded: Mapping[int, Output]) -> tuple[Turn, list[Event]]:
        self._handler.evolve(self.state, event)
        ordered, evolved = self._apply(recorded)
        return Turn(outputs=ordered), [event, *evolved]

    def _made(self, event: Event, event_id: str, ctx: Context, index: int = 0) -> Output:
        """An output that follows from the event of `ctx`, sealed where outputs are."""
        about: dict[str, Any] = {
            "event_id": event_id,
            "causation_id": ctx.event_id,
            "correlation_id": ctx.correlation_id,
            "index": index,
        }
        sealed = envelope_for(event, source=self.service, **about) if self._seals else None
        return Output(event=event, sealed=sealed, **about)

    def _apply(self, outputs: Mapping[int, Output]) -> tuple[tuple[Output, ...], list[Event]]:
        ordered = tuple(outputs[index] for index in sorted(outputs))
        # A service may consume what it decides: it is applied here, not when it comes round.
        fresh = [output.event for output in ordered if output.event_id not in self._applied]
        for event in fresh:
            self._handler.evolve(self.state, event)
        return ordered, fresh

    def _check_origin(self, event: Event, ctx: Context) -> None:
        """Refuse what nobody has published who may."""
        if ctx.envelope is not None:
            own = self.service if type(event) in self._produces else ""
            self._set_aside.check(event, ctx.envelope, own)

    def _set(self, event: Event, ctx: Context, error: Exception) -> Turn:
        """Set an event aside for good, and say so."""
        if ctx.envelope is not None and not isinstance(error, Forged):
            self._set_aside.keep(ctx.envelope)
        return self._parked(event, ctx, error)

    def _parked(self, event: Event, ctx: Context, error: Exception) -> Turn:
        """Say that `event` is left out, and why."""
        if isinstance(event, EntryParked) and event.kind == _PARKED:
            # Its own parking is what could not be taken, twice: to tell it again would never end.
            return Turn(error=error)
        about = job_of(event)
        reason = EntryParked(
            service=self.service,
            seq=ctx.seq,
            place=ctx.place,
            event_id=ctx.event_id,
            kind=KINDS[type(event)],
            error=_one_line(str(error)) or "no reason is given",
            error_type=type(error).__name__,
            job_id=about.job_id,
            tenant=about.tenant,
            slot=_slot_of(event),
        )
        # Several services may park the same event, each says so with an id of its own.
        output = self._made(reason, ctx.derive_id(f"{_PARKED}:{self.service}"), ctx)
        return Turn(outputs=(output,), parked=reason, error=error)

    def _pending(self, call: Call, number: int, ctx: Context) -> PendingCall:
        if call.name not in self._calls:
            raise SpecBroken(
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
            raise SpecBroken(
                f"{self.service} made {event_type.__name__}, "
                "which its SPEC does not list under produces"
            )


def _slot_of(event: Event) -> int:
    slot = getattr(event, "slot", -1)
    return slot if isinstance(slot, int) else -1


def _one_line(text: str) -> str:
    """Text that any terminal, log and wire carries: printable, one line, not too long."""
    line = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(line.encode("utf-8", "backslashreplace").decode().split())
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."


def _check_of(handler: Handler[StateT]) -> Callable[[StateT, Event], None]:
    check: Callable[[StateT, Event], None] | None = getattr(handler, "check", None)
    return (lambda state, event: None) if check is None else check
