"""Bugs that a cloud which answers badly brings out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotline.application.cloud_actuator import reconciling
from spotline.application.cloud_actuator.launching import Launching
from spotline.application.cloud_actuator.lives import LivesInHand
from spotline.application.cloud_actuator.ports import Grant, Instance, LaunchRequest
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.ledger.instance_life import LifeInput
from spotline.domain.ledger.intents import Launch


def _no_answer_means_no() -> Sequence[Replacement]:
    launch_once = Launching._launch

    async def hasty(self: Launching, request: LaunchRequest, launch: Launch) -> Grant:
        grant = await launch_once(self, request, launch)
        refusal = grant.refusal
        if refusal is None or refusal.refusal_class is not RefusalClass.UNKNOWN_OUTCOME:
            return grant
        return Grant(
            instances=(),
            refusal=replace(refusal, refusal_class=RefusalClass.NO_CAPACITY, retry_after_s=0),
        )

    return (Replacement(where=Launching, name="_launch", value=hasty),)


def _absence_is_an_end() -> Sequence[Replacement]:
    def miss(lives: LivesInHand, shown: Mapping[str, Instance]) -> None:
        for life in lives.all():
            if not life.is_launch and life.instance_id not in shown:
                lives.learn(life.instance_id, LifeInput.SEEN_ENDED)

    return (Replacement(where=reconciling, name="_miss", value=miss),)


def _a_part_is_taken_for_nothing() -> Sequence[Replacement]:
    launch_once = Launching._launch

    async def all_or_nothing(self: Launching, request: LaunchRequest, launch: Launch) -> Grant:
        grant = await launch_once(self, request, launch)
        return grant if grant.refusal is None else replace(grant, instances=())

    return (Replacement(where=Launching, name="_launch", value=all_or_nothing),)


def _every_try_has_a_token_of_its_own() -> Sequence[Replacement]:
    launch_once = Launching._launch
    tries = 0

    async def renamed(self: Launching, request: LaunchRequest, launch: Launch) -> Grant:
        nonlocal tries
        tries += 1
        grant = await launch_once(self, request, launch)
        if grant.refusal is None or grant.refusal.refusal_class is RefusalClass.NO_CAPACITY:
            return grant
        token = f"{launch.token[:20]}-{tries:04d}"
        again = replace(launch, token=token)
        return await launch_once(self, replace(request, token=token), again)

    return (Replacement(where=Launching, name="_launch", value=renamed),)


PLANTS = (
    Plant(
        name="no_answer_means_no",
        what="a launch without an answer counts as refused",
        replacements=_no_answer_means_no,
    ),
    Plant(
        name="absence_is_an_end",
        what="an instance that a listing does not show has ended",
        replacements=_absence_is_an_end,
    ),
    Plant(
        name="a_part_is_taken_for_nothing",
        what="instances of a launch that was granted in part are not booked",
        replacements=_a_part_is_taken_for_nothing,
    ),
    Plant(
        name="every_try_has_a_token_of_its_own",
        what="a launch that went wrong is sent again under another token",
        replacements=_every_try_has_a_token_of_its_own,
    ),
)
