"""Bugs that a cloud which tells badly brings out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from spotline.application.cloud_actuator import actuation
from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import CloudEvent, CloudEventKind, InstanceState
from spotline.application.cloud_actuator.reconciling import CloudNews, hear
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.contracts.errors import InvariantViolation


def _strangers_are_not_expected() -> Sequence[Replacement]:
    def strict(
        told: Sequence[CloudEvent],
        known: Collection[str],
        lives: LivesInHand,
        held: Iterable[str],
        at: Moment,
    ) -> CloudNews:
        for event in told:
            if event.instance.instance_id not in lives:
                raise InvariantViolation(f"{event.instance.instance_id} is nobody's")
        return hear(told, known, lives, held, at)

    return (Replacement(where=actuation, name="hear", value=strict),)


def _silent_losses_are_not_seen() -> Sequence[Replacement]:
    def is_gone(self: LivesInHand, instance_id: str) -> bool:
        return False

    return (Replacement(where=LivesInHand, name="is_gone", value=is_gone),)


def _a_notice_is_an_end() -> Sequence[Replacement]:
    def gloomy(
        told: Sequence[CloudEvent],
        known: Collection[str],
        lives: LivesInHand,
        held: Iterable[str],
        at: Moment,
    ) -> CloudNews:
        ended = [
            replace(event, kind=CloudEventKind.STATE, state=InstanceState.ENDED)
            if event.kind is CloudEventKind.NOTICE
            else event
            for event in told
        ]
        return hear(ended, known, lives, held, at)

    return (Replacement(where=actuation, name="hear", value=gloomy),)


PLANTS = (
    Plant(
        name="strangers_are_not_expected",
        what="a notice of an instance that nobody launched ends the actuator",
        replacements=_strangers_are_not_expected,
    ),
    Plant(
        name="silent_losses_are_not_seen",
        what="what vanishes without a word is held for ever",
        replacements=_silent_losses_are_not_seen,
        seed=1,
    ),
    Plant(
        name="a_notice_is_an_end",
        what="an instance is over as soon as it is noticed",
        replacements=_a_notice_is_an_end,
        seed=5,
    ),
)
