"""Commands that are carried out when their slot is over: nothing is bought for the past."""

from __future__ import annotations

import pytest

from spotline.domain.events.capacity import (
    CapacityReported,
    LaunchRefused,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.limits.freezes import FreezeScope
from tests.fakes.actuator import SLOT_S, command, lot, opened, quote, submitted
from tests.fakes.nasty_cloud import CALM
from tests.fakes.nasty_rig import NastyRig, holdings_of


@pytest.fixture
async def rig():
    """An actuator whose job x holds two instances at a; slot 1 is open."""
    made = NastyRig(0, CALM)
    await made.start()
    await made.feed(submitted("x"))
    await made.open_slot(0)
    await made.decide([("x", 2, 0, "a")])
    await made.open_slot(1)
    return made


async def decide(rig: NastyRig, spot: int, *, wait_s: int, kill: int | None = None):
    """Slot 1 decides what x holds; by the time that it is carried out, `wait_s` have passed."""
    await rig.feed(command("x", lot(spot), 1))
    rig.wait(wait_s)
    if kill is not None:
        rig.kill.at = {rig.kill.passed + kill}
    answers = await rig.feed(SlotDecided(slot=1, revision=0, offset_s=0, commands=1))
    (report,) = [event for event in answers if isinstance(event, CapacityReported)]
    return report, [event for event in answers if isinstance(event, LaunchRefused)]


@pytest.mark.parametrize("late_s", [0, 60, 5 * 3600])
async def test_a_slot_that_is_over_launches_nothing_and_says_so(rig, late_s):
    report, refused = await decide(rig, 4, wait_s=SLOT_S + late_s)

    assert len(rig.cloud.launches) == 1
    (told,) = refused
    assert told.detail == f"slot 1 was over {late_s} s ago: nothing is bought for the past"
    # It says nothing of the cloud.
    assert (told.refusal_class, told.limit_scope) == (RefusalClass.LIMIT, FreezeScope.SYSTEM)
    assert holdings_of(report) == {("x", "a", "spot"): 2}
    rig.check_agreement()


async def test_until_its_last_second_a_slot_is_carried_out(rig):
    report, refused = await decide(rig, 4, wait_s=SLOT_S - 1)

    assert (holdings_of(report), refused) == ({("x", "a", "spot"): 4}, [])


async def test_what_a_slot_that_is_over_gives_up_is_released(rig):
    report, refused = await decide(rig, 0, wait_s=SLOT_S + 60)

    assert (holdings_of(report), refused) == ({}, [])


async def test_the_slot_after_it_buys_again(rig):
    await decide(rig, 4, wait_s=SLOT_S + 60)
    await rig.feed(opened(2, quote("a"), quote("b")))
    rig.slot, rig.revision = 2, -1

    report = await rig.decide([("x", 4, 0, "a")])

    assert holdings_of(report) == {("x", "a", "spot"): 4}
    assert len(rig.cloud.launches) == 2


@pytest.mark.parametrize("point", range(6))
async def test_what_was_sent_before_a_death_is_found_and_what_was_not_is_not_sent(rig, point):

    rig.kill.at = {rig.kill.passed + point}
    start, sent_before = rig.start, []

    async def too_late() -> None:
        # Whoever goes on does so when the slot is over.
        rig.wait(2 * SLOT_S)
        sent_before.append(len(rig.cloud.launches) - 1)
        await start()

    rig.start = too_late
    report, refused = await decide(rig, 4, wait_s=0)
    rig.start = start
    sent = len(rig.cloud.launches) - 1

    assert [sent] == sent_before
    assert holdings_of(report)["x", "a", "spot"] == 2 + 2 * sent
    assert bool(refused) is not bool(sent)
    for _ in range(3):
        rig.wait(60)
        await rig.signal()
    rig.check_agreement()
