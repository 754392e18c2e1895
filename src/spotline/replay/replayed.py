"""A handler on its way through a recorded log: what it decided, and what of that was met so far."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from spotline.application.spec import Handler, Spec
from spotline.application.turn import Output, PendingCall, Turns
from spotline.contracts.envelope import Envelope
from spotline.domain.events.event import Event
from spotline.domain.events.parking import EntryParked

LogPlace = tuple[int, int]
"""`seq` and the place among the events of that entry; (0, 0) where there is none."""
NOWHERE: LogPlace = (0, 0)


@dataclass(slots=True)
class ExpectedDecision:
    """A decision recomputed and not met yet, and the place in the log of what led to it."""

    output: Output
    cause: LogPlace


@dataclass(frozen=True, slots=True)
class UnrecordedParking:
    """An event that is parked here, of which the log does not say that it was."""

    reason: EntryParked
    cause: LogPlace


@dataclass(slots=True)
class OpenCall:
    """A call of which not all answers were met yet; `answered` counts those that were."""

    pending: PendingCall
    cause_seq: int
    answered: int = 0


@dataclass(slots=True)
class ReplayedHandler:
    """One handler on its way through the log.

    `seen` is where the inputs are, by event id, `last_met` the place (cause, index) of the last
    decision that was recorded, `calls` are open by the id of their cause. `last_cause` is the place
    of the last input that anything recorded followed from, `unrecorded` what was parked here alone.
    What `may_be_lost` need not have been recorded: the log was cut behind its cause.
    """

    turns: Turns[Any]
    recomputed_answers: frozenset[type[Event]]
    expected: dict[tuple[str, int], ExpectedDecision] = field(default_factory=dict)
    calls: dict[str, list[OpenCall]] = field(default_factory=dict)
    seen: dict[str, LogPlace] = field(default_factory=dict)
    last_met: tuple[LogPlace, int] = (NOWHERE, 0)
    last_cause: LogPlace = NOWHERE
    unrecorded: list[UnrecordedParking] = field(default_factory=list)
    may_be_lost: set[tuple[str, int]] = field(default_factory=set)
    digest: Any = field(default_factory=hashlib.sha256)
    decided: int = 0

    @property
    def spec(self) -> Spec:
        """The handler's."""
        return self.turns.spec

    def note_loss(self) -> None:
        """Of what follows and was not met yet, all may be among the entries that were lost."""
        unmet = ((each.cause, key[1], key) for key, each in self.expected.items())
        self.may_be_lost |= {key for cause, index, key in unmet if (cause, index) > self.last_met}


def replayed(handler: Handler[Any]) -> ReplayedHandler:
    """A handler before the first entry."""
    recomputed = [call for call in handler.spec.calls if call.recompute is not None]
    return ReplayedHandler(
        turns=Turns(handler),
        recomputed_answers=frozenset(kind for call in recomputed for kind in call.answers),
    )


def call_answered(hosted: ReplayedHandler, envelope: Envelope) -> OpenCall | None:
    """The call that this is the next answer to."""
    calls = hosted.calls.get(envelope.causation_id, [])
    for call in calls:
        left = call.pending.left_after(envelope.event_id)
        if left is None or envelope.index != call.answered:
            continue
        call.answered += 1
        if not left:
            calls.remove(call)
        return call
    return None
