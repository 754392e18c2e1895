"""Bugs that entries without sense bring out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from spotline.application.cloud_actuator import handler as cloud_actuator
from spotline.application.forecaster import handler as forecaster
from spotline.application.selector import fold as selector_fold
from spotline.application.selector import handler as selector
from spotline.application.spec import Context
from spotline.application.turn import Turn, Turns
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened


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


def _any_slot_is_gone_on_from() -> Sequence[Replacement]:
    def check(opened: SlotOpened, last_slot: int, last_ns: int) -> None:
        return None

    return (
        Replacement(where=cloud_actuator, name="check_slot", value=check),
        Replacement(where=selector_fold, name="check_slot", value=check),
        Replacement(where=selector, name="check_slot", value=check),
        Replacement(where=forecaster, name="check_slot", value=check),
    )


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
        seed=1,
    ),
    Plant(
        name="any_slot_is_gone_on_from",
        what="a slot far ahead is taken for the present one",
        replacements=_any_slot_is_gone_on_from,
        seed=3,
    ),
    Plant(
        name="nobody_is_told",
        what="an entry is left out, and the log does not say so",
        replacements=_nobody_is_told,
    ),
)
