"""Bugs that entries without sense bring out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from spotline.application.spec import Context
from spotline.application.turn import Turn, Turns
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.domain.events.event import Event


def _what_fails_ends_the_service() -> Sequence[Replacement]:
    def parked(self: Any, event: Event, ctx: Context, error: Exception) -> Turn:
        raise error

    return (Replacement(where=Turns, name="_parked", value=parked),)


def _half_a_turn_is_kept() -> Sequence[Replacement]:
    def tried(self: Any, event: Event, ctx: Context, turn_of: Any) -> Turn:
        if not self._applied.add(ctx.event_id):
            return Turn()
        before = self.state
        try:
            turn, evolved = turn_of()
        except Exception as error:  # noqa: BLE001 - as the one that this replaces
            self.state = before
            return cast("Turn", self._parked(event, ctx, error))
        for output in turn.outputs:
            self._applied.add(output.event_id)
        self._rollback.note(self.state, evolved)
        return cast("Turn", turn)

    return (Replacement(where=Turns, name="_tried", value=tried),)


def _nobody_is_told() -> Sequence[Replacement]:
    def parked(self: Any, event: Event, ctx: Context, error: Exception) -> Turn:
        return Turn(error=error)

    return (Replacement(where=Turns, name="_parked", value=parked),)


PLANTS = (
    Plant(
        name="what_fails_ends_the_service",
        what="an entry that cannot be taken is tried again for ever",
        replacements=_what_fails_ends_the_service,
    ),
    Plant(
        name="half_a_turn_is_kept",
        what="a turn that fails leaves what it had changed",
        replacements=_half_a_turn_is_kept,
    ),
    Plant(
        name="nobody_is_told",
        what="an entry is left out, and the log does not say so",
        replacements=_nobody_is_told,
    ),
)
