"""The shape every service has: a SPEC, and a handler that decides and evolves.

`evolve` alone changes state; `decide` looks at the state *after* its event was applied and returns
what follows. The outputs of `decide` are applied right after their cause, before the next input:
live, on restart and in verification alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from spotline.contracts.envelope import Envelope
from spotline.contracts.envelope import derive_id as derive_id
from spotline.domain.events.event import Event

StateT = TypeVar("StateT")
TakenT = TypeVar("TakenT", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """An outside call that `decide` asks for; its answer comes back as a recorded observation.

    `request` is a domain value of the handler's port, `digest` its content hash.
    """

    name: str
    digest: str
    request: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """The answer that a call must have got; `performed` is False where no answer came."""

    answer: Event
    performed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """A call that a service makes, and the events that its answers are.

    `recompute` gives, for a call and an answer recorded for it, the answer that it must have got;
    None where only the outside knows.
    """

    name: str
    answers: tuple[type[Event], ...]
    recompute: Callable[[Call, Event], Recomputed] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a service consumes, produces, and is called.

    `decides` are the produced events that `decide` returns, and that verification recomputes; the
    rest of `produces` are observations the service's shell makes (timers, RPC, a cloud), among
    them the answers to its `calls`. A type that is decided and also consumed may be both: as an
    observation it has no cause. `weight` is how long an event takes to be applied, in units of
    100 us: what is kept for a way back goes by it (`rollback.py`).

    `long` are consumed events whose turns may take tens of milliseconds and more: a host takes them in a
    thread, and its loop serves others meanwhile. Only its turns may touch the state then.
    """

    service: str
    consumes: tuple[type[Event], ...]
    produces: tuple[type[Event], ...]
    decides: tuple[type[Event], ...] = ()
    calls: tuple[CallSpec, ...] = ()
    weight: int = 1
    long: tuple[type[Event], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Time, identity and chance of the event being handled: equal on every redelivery.

    `place` tells the events of one entry apart. `envelope` is what it came in, by which it is told
    whether it is believed; None where it was made in this process.
    """

    seq: int
    now_ns: int
    event_id: str
    correlation_id: str
    place: int = 0
    envelope: Envelope | None = field(default=None, repr=False)

    def derive_id(self, kind: str, index: int = 0) -> str:
        """An id that depends on the handled event, `kind` and `index` alone."""
        return derive_id(self.event_id, kind, index)

    def uniform(self, purpose: str) -> float:
        """A number in [0, 1), drawn from the event's id and `purpose`; 53 bits."""
        digest = hashlib.sha256(f"{self.event_id}\x1funiform\x1f{purpose}".encode()).digest()
        return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What follows from an event: events to record, then calls to make."""

    events: tuple[Event, ...] = ()
    calls: tuple[Call, ...] = ()


NOTHING = Outcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """Record `events` after `after_s` seconds, unless the handler stops asking for it.

    Not before wall time is `not_before_ns` (ns since the epoch; 0: at any), however that is set.

    `timer_id` names it across calls of `due`; the event's id derives from it, so firing twice is
    firing once. `needs_gate` marks a timer the host may hold back (a replayed market's clock).
    `late` says, by wall time, what is recorded in its place as it is due: what was asked for may be
    over by then. None: what was asked for, however late.
    """

    timer_id: str
    after_s: float
    events: tuple[Event, ...]
    needs_gate: bool = False
    not_before_ns: int = 0
    late: Callable[[int], Timer] | None = field(default=None, compare=False)

    def at_wall_ns(self, now_ns: int) -> Timer:
        """What to record at a moment of wall time."""
        return self if self.late is None else self.late(now_ns)


class Checks(Protocol[TakenT]):
    """What a handler may offer beside: to refuse an event before anything has changed."""

    def check(self, state: TakenT, event: Event) -> None:
        """Look whether `event` can be applied to `state`; change nothing.

        Nothing has to be put back then, so whoever sends such events costs little.

        Raises
        ------
        Unfit
            It cannot: it is parked with that reason.
        """
        ...


class Handler(Protocol[StateT]):
    """One service's deciding half. Pure: equal inputs give equal outputs."""

    spec: Spec

    def initial(self) -> StateT:
        """The state before any event."""
        ...

    def evolve(self, state: StateT, event: Event) -> None:
        """Apply `event` to `state`, in place: the same event to an equal state, with equal result.

        Raises
        ------
        Exception
            The event cannot be applied: it is parked, and the state is put back.
        """
        ...

    def decide(self, state: StateT, event: Event, ctx: Context) -> Outcome:
        """What follows from `event`, which `state` already reflects. Changes nothing."""
        ...

    def due(self, state: StateT) -> Sequence[Timer]:
        """The timers that should be running in `state`."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A handler that can name work of its next turn which anybody may do before, at any time."""

    def ahead(self, state: Any, event: Event) -> Callable[[], object] | None:
        """What `decide` will look up and would otherwise work out itself, None where nothing is.

        The work reads no state and changes nothing but what is at hand: a host may do it in a
        thread before the turn, or not at all; the decision is the same.
        """
        ...
