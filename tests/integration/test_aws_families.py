"""Families of faults in short, a whole actuator before the rehearsal of AWS in one process.

With processes of their own: `test_aws_fault_families.py`; kills: `test_aws_killed.py`; notices, lost
answers, quotas and throttling: `tests/unit/adapters/clouds/aws/test_cloud.py`. Which family is met where
stands in `docs/clouds/rehearsal.md`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.application.cloud_actuator.ports import OwnerFenced
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.rehearsal.aws.control import launch_foreign
from tests.fakes.aws_actuator import OFFERING_ID, AwsActuator
from tests.integration.test_aws_killed import check, settled, story

pytestmark = pytest.mark.integration

CHANGING = ("CreateFleet", "TerminateInstances")


@pytest.fixture
def opened(tmp_path):
    """Open actuators that are closed at the end."""
    rigs = []

    def rig(**said) -> AwsActuator:
        rigs.append(AwsActuator(tmp_path / str(len(rigs)), **said))
        return rigs[-1]

    yield rig
    for one in rigs:
        one.close()


def changes(rig: AwsActuator) -> int:
    """How many calls that change anything AWS has had."""
    return sum(rig.aws.ec2.calls.count(operation) for operation in CHANGING)


def lose_store(folder: Path) -> None:
    for path in folder.glob("aws.sqlite*"):
        path.unlink()


# --- duplicates ---------------------------------------------------------------------------------


async def test_duplicates_of_all_calls_get_their_first_answers_and_change_nothing(opened):
    """The bus delivers again, to a process that never saw them: the ledger has what was answered."""
    rig = opened()
    await story(rig)
    before, performed = changes(rig), tuple(rig.performed)
    rig.open()
    await rig.start()

    for call, answers in performed:
        assert tuple(await rig.actuation.perform(call)) == answers

    assert changes(rig) == before
    check(rig)


# --- owners -------------------------------------------------------------------------------------


async def test_owners_one_that_was_taken_over_makes_no_call_that_changes_anything(opened):
    rig = opened()
    await rig.begin()
    await rig.open_slot(0)
    await settled(rig, [("j", 2, 0)])
    former = rig.actuation
    rig.open()
    await rig.start()
    before, successor = changes(rig), rig.actuation

    rig.actuation = former
    with pytest.raises(OwnerFenced):
        await rig.decide([("j", 4, 0)])

    assert changes(rig) == before
    rig.actuation = successor
    await settled(rig, [("j", 0, 0)])
    rig.aws.pass_s(40)
    await rig.signal()
    assert rig.alive() == rig.held() == set()


@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"Name": "a person's"},
        {"spotline-owner": "another", "spotline-token": "t", "spotline-epoch": "9"},
        # A copy of our tag, but for what says which launch it came of.
        {"spotline-owner": "test"},
    ],
    ids=["untagged", "named", "another installation's", "with our name"],
)
async def test_owners_instances_of_others_are_left_alone_and_take_their_share(opened, tags):
    rig = opened()
    world = rig.aws.world
    theirs = set(rig.aws.do(lambda: launch_foreign(world, OFFERING_ID, "spot", 7, tags)))
    await rig.begin()
    await rig.open_slot(0)
    await rig.decide([("j", 2, 0)])
    refused = [event for event in rig.published if isinstance(event, LaunchRefused)]
    ours = rig.alive() - theirs

    # Eight are there: one is left.
    assert len(ours) <= 1
    assert refused[0].refusal_class is RefusalClass.NO_CAPACITY
    await settled(rig, [("j", 0, 0)])
    rig.aws.pass_s(40)
    await rig.signal()
    assert rig.alive() == theirs
    assert rig.booked() & theirs == set()


# --- clocks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead_s", [-240, 240], ids=["behind", "ahead"])
async def test_clock_that_is_minutes_off_buys_nothing_twice_and_leaves_nothing(opened, ahead_s):
    rig = opened(ahead_s=ahead_s)

    await story(rig)

    check(rig)


@pytest.mark.parametrize("jump_s", [-1800, 1800], ids=["back", "on"])
async def test_clock_that_jumps_between_a_lost_launch_and_its_answer(opened, jump_s):
    rig = opened()
    await rig.begin()
    await rig.open_slot(0)
    rig.kill.at = {point for point in range(rig.kill.passed + 1, rig.kill.passed + 9, 2)}
    died = rig.deaths
    report = await rig.decide([("j", 2, 0)])
    rig.ahead_s = jump_s
    for _ in range(3):
        rig.aws.pass_s(60)
        await rig.signal()
    await settled(rig, [("j", 2, 0)])

    assert rig.deaths > died, report
    assert len(rig.alive()) == 2
    assert rig.alive() == rig.held()
    rig.ahead_s = 0
    await settled(rig, [("j", 0, 0)])
    rig.aws.pass_s(40)
    await rig.signal()
    assert rig.alive() == rig.held() == set()


async def test_clock_a_pause_of_hours_ends_with_what_aws_has_left(opened):
    """Nobody looks for five hours, and all that was held is taken: each loss is told, once."""
    rig = opened()
    await rig.begin()
    await rig.open_slot(0)
    await settled(rig, [("j", 3, 0)])
    held = rig.held()
    rig.aws.do(lambda: rig.aws.world.set_count(OFFERING_ID, "spot", 0))
    rig.aws.pass_s(5 * 3600)

    rig.open()
    await rig.start()
    for _ in range(3):
        await rig.signal()
        rig.aws.pass_s(40)

    assert rig.alive() == rig.held() == set()
    told = [
        name
        for event in rig.published
        for name in getattr(event, "instance_ids", ())
        if type(event).__name__ == "CapacityLost"
    ]
    assert sorted(told) == sorted(held)


# --- what is kept is lost -----------------------------------------------------------------------


async def test_kept_the_adapters_store_is_lost_between_processes(opened):
    """The ledger knows what was bought, and AWS whose it is: nothing is bought twice, nothing is left."""
    rig = opened()
    await rig.begin()
    await rig.open_slot(0)
    await settled(rig, [("j", 3, 0)])
    before = rig.alive()
    lose_store(rig.folder)
    rig.open()
    await rig.start()
    await settled(rig, [("j", 3, 0)])

    assert rig.alive() == rig.held() == before
    await settled(rig, [("j", 0, 0)])
    rig.aws.pass_s(40)
    await rig.signal()
    assert rig.alive() == rig.held() == set()
