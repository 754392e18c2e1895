"""What a launch of unknown outcome has started: looked for before its job is launched again."""

from collections import Counter

import pytest

from spotline.domain.events.capacity import CapacityReported, LaunchRefused, RefusalClass
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import SLOT_S, opened, quote, submitted
from tests.fakes.nasty_cloud import CALM
from tests.fakes.nasty_rig import NastyRig, holdings_of

SHOWN_AFTER_S = 60


@pytest.fixture
async def rig():
    """An actuator whose launch for job x at a was never answered, and is not shown yet."""
    made = NastyRig(0, CALM)
    await made.start()
    await made.feed(submitted("x"))
    await made.open_slot(0)
    start = made.cloud._start

    def unlisted(request, index):
        instance = start(request, index)
        truth = made.cloud.truths[instance.instance_id]
        truth.shown_ns = made.cloud.now_ns + SHOWN_AFTER_S * NS_PER_S
        return instance

    made.cloud._start = unlisted
    made.cloud.lose_answers = 1
    report = await made.decide([("x", 3, 0, "a")])
    made.cloud._start = start
    (refused,) = [event for event in made.published if isinstance(event, LaunchRefused)]
    assert refused.refusal_class is RefusalClass.UNKNOWN_OUTCOME
    assert not report.settled
    assert holdings_of(report) == {}
    assert len(made.cloud.running()) == 3
    return made


def running_at(rig):
    """What truly runs, by offering."""
    return Counter(
        rig.cloud.truths[instance_id].instance.offering_id for instance_id in rig.cloud.running()
    )


async def comes_out(rig):
    """What was asked to end is seen to have ended; then all agree."""
    for _ in range(3):
        rig.wait(120)
        await rig.signal()
    rig.check_agreement()


async def test_what_shows_by_then_is_ended_before_its_job_is_launched_elsewhere(rig):
    rig.wait(SHOWN_AFTER_S)
    most = []
    launch = rig.cloud.launch

    async def launching(request):
        grant = await launch(request)
        most.append(len(rig.cloud.running()))
        return grant

    rig.cloud.launch = launching

    report = await rig.decide([("x", 0, 0, "a"), ("x", 3, 0, "b")])

    assert most == [3]
    assert running_at(rig) == {"b": 3}
    assert (holdings_of(report), report.settled) == ({("x", "b", "spot"): 3}, True)
    await comes_out(rig)


async def test_what_shows_by_then_is_counted_before_more_is_launched_there(rig):
    rig.wait(SHOWN_AFTER_S)

    report = await rig.decide([("x", 3, 0, "a")])

    assert len(rig.cloud.launches) == 1
    assert (holdings_of(report), running_at(rig)) == ({("x", "a", "spot"): 3}, {"a": 3})
    # It was not known when this was decided.
    assert not report.settled
    assert (await rig.decide()).settled
    await comes_out(rig)


async def test_what_shows_and_nothing_was_commanded_of_is_reported_for_the_next_decision(rig):
    rig.wait(SHOWN_AFTER_S)

    report = await rig.decide([("x", 3, 0, "b")])

    assert not report.settled
    assert holdings_of(report) == {("x", "a", "spot"): 3, ("x", "b", "spot"): 3}
    report = await rig.decide([("x", 0, 0, "a")])
    assert (holdings_of(report), report.settled) == ({("x", "b", "spot"): 3}, True)
    await comes_out(rig)


async def test_what_turned_up_at_an_opening_is_told_to_whoever_decides_the_slot(rig):
    await rig.decide([("x", 3, 0, "b")])
    rig.wait(SLOT_S)
    await rig.open_slot(1)
    assert running_at(rig) == {"a": 3, "b": 3}

    report = await rig.decide()

    assert not report.settled
    assert holdings_of(report) == {("x", "a", "spot"): 3, ("x", "b", "spot"): 3}
    assert (await rig.decide([("x", 0, 0, "a")])).settled
    await comes_out(rig)


@pytest.mark.parametrize("restarted", [False, True])
async def test_what_a_signal_has_told_of_is_not_told_again(rig, restarted):
    await rig.decide([("x", 3, 0, "b")])
    rig.wait(SHOWN_AFTER_S)
    (*_, told) = await rig.signal()
    assert isinstance(told, CapacityReported)
    assert not told.settled
    if restarted:
        rig.open()
        await rig.start()

    report = await rig.decide([("x", 0, 0, "a")])

    assert (holdings_of(report), report.settled) == ({("x", "b", "spot"): 3}, True)


async def test_nobody_is_looked_for_where_no_job_in_question_is_launched(rig):
    looked = 0
    shown = rig.cloud.list

    async def listing(owner_name):
        nonlocal looked
        looked += 1
        return await shown(owner_name)

    rig.cloud.list = listing

    await rig.decide([("y", 1, 0, "b")])
    of_another = looked
    await rig.decide([("x", 1, 0, "b")])

    # Each revision looks once when it is done.
    assert (of_another, looked - of_another) == (1, 2)


@pytest.mark.parametrize("point", range(14))
async def test_killed_anywhere_on_the_way_it_ends_the_same(rig, point):
    rig.wait(SHOWN_AFTER_S)
    rig.kill.passed, rig.kill.at = 0, {point}

    report = await rig.decide([("x", 0, 0, "a"), ("x", 3, 0, "b")])

    assert (holdings_of(report), running_at(rig)) == ({("x", "b", "spot"): 3}, {"b": 3})
    started = {truth.instance.instance_id for truth in rig.cloud.truths.values()}
    booked = {row["held"].instance_id for row in rig.memory.instances}
    assert started == booked
    await comes_out(rig)


async def test_an_undisturbed_opening_is_settled_at_once(rig):
    calm = NastyRig(0, CALM)
    await calm.start()
    await calm.open_slot(0)
    await calm.decide([("x", 2, 0, "a")])
    calm.wait(SLOT_S)
    await calm.feed(opened(1, quote("a"), quote("b")))
    calm.slot, calm.revision = 1, -1

    assert (await calm.decide()).settled


async def test_a_launch_is_not_given_up_where_nobody_answers_and_held_once_somebody_does(rig):
    rig.cloud.silent = frozenset({"a"})
    for _ in range(8):
        rig.wait(60)
        await rig.signal()
    rig.cloud.silent = frozenset()

    report = await rig.decide([("x", 3, 0, "a")])

    assert (holdings_of(report), running_at(rig)) == ({("x", "a", "spot"): 3}, {"a": 3})
    assert len(rig.cloud.launches) == 1
    await comes_out(rig)


async def test_what_was_granted_is_not_too_slow_where_nobody_can_say(rig):
    rig.cloud.silent = frozenset({"b"})
    await rig.decide([("y", 2, 0, "b")])
    for _ in range(12):
        rig.wait(60)
        await rig.signal()
    rig.wait(SLOT_S)
    await rig.open_slot(1)
    for _ in range(3):
        rig.wait(60)
        await rig.signal()
    rig.cloud.silent = frozenset()

    report = await rig.decide([("y", 2, 0, "b")])

    assert holdings_of(report)["y", "b", "spot"] == 2
    assert len(rig.cloud.launches) == 2
