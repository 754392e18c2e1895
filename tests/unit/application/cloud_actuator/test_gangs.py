"""A launch says which counts are of use to its job; what makes none is released and still booked."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.cloud_actuator.gangs import GangCounts
from spotline.application.cloud_actuator.ports import Refusal
from spotline.domain.events.capacity import LaunchRefused, RefusalClass
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.instance_life import LifeState
from spotline.domain.ledger.intents import Intent, Launch
from spotline.domain.market.offering import CapacityType
from tests.fakes.actuator import launch, lot, submitted
from tests.fakes.nasty_cloud import CALM
from tests.fakes.nasty_rig import NastyRig, holdings_of
from tests.fakes.renting import SLOT_S, offering

COUNTS = st.lists(st.integers(1, 12), unique=True).map(lambda counts: tuple(sorted(counts)))


def intent(*asked):
    launches = tuple(
        Launch(capacity_type=kind, requested=count, permitted=count, token=kind.value)
        for kind, count in zip(CapacityType, asked, strict=False)
    )
    return Intent(
        command_id="c",
        attempt=0,
        job_id="j",
        tenant="acme",
        quota_pool="pool",
        offering_id="a",
        slot=0,
        revision=0,
        offset_s=0,
        ts_ns=0,
        target=lot(spot=1),
        release=(),
        launches=launches,
    )


def of_use(allowed, kept, *asked, granted=0, number=0):
    gangs = GangCounts(allowed={"j": allowed}, kept={("j", "a"): kept})
    stated = intent(*asked)
    return gangs.counts_of_use(stated, stated.launches[number], granted)


def test_what_is_held_already_counts():
    assert of_use((4, 6, 8), 0, 8) == (4, 6, 8)
    assert of_use((4, 6, 8), 5, 3) == (1, 3)
    assert of_use((8,), 0, 8) == (8,)


def test_what_comes_after_it_may_come_or_not():
    assert of_use((4, 8), 0, 6, 2) == (2, 4, 6)
    assert of_use((4, 8), 0, 6, 4, granted=4, number=1) == (4,)


def test_of_a_job_that_nobody_knows_any_count_is_of_use():
    assert GangCounts().counts_of_use(intent(3), intent(3).launches[0], 0) == ()


@given(allowed=COUNTS, kept=st.integers(0, 12), asked=st.integers(1, 12))
def test_all_that_is_asked_for_is_of_use_and_nothing_beyond_it(allowed, kept, asked):
    counts = of_use(allowed, kept, asked)

    if allowed:
        assert counts[-1] == asked
        assert all(count > 0 for count in counts)
        assert list(counts) == sorted(set(counts))
        assert all(kept + count in allowed for count in counts[:-1])


@given(allowed=COUNTS, asked=st.integers(1, 12))
def test_a_request_knows_its_useful_counts(allowed, asked):
    request = replace(launch("t", asked), allowed_counts=allowed)

    assert request.useful_counts[-1] == asked
    assert set(request.useful_counts) - {asked} <= set(allowed or range(1, asked))


@pytest.fixture
async def rig():
    made = NastyRig(0, CALM)
    await made.start()
    market = MarketOpened(
        offerings=(offering("a"), offering("b")), slot_s=SLOT_S, first_slot_start_ns=0, source="t"
    )
    await made.feed(market)
    await made.feed(replace(submitted(), job=replace(submitted().job, allowed_counts=(2, 4))))
    await made.open_slot(0)
    return made


async def test_the_cloud_is_told_which_counts_are_of_use(rig):
    await rig.decide([("j", 4, 0, "a")])

    assert [request.allowed_counts for request in rig.cloud.launches] == [(2, 4)]


async def test_what_was_released_at_once_is_booked_for_no_time_and_watched_until_it_ends(rig):
    cloud_launch = rig.cloud.launch

    async def short(request):
        grant = await cloud_launch(replace(request, instances=3))
        await rig.cloud.terminate(request.owner, [grant.instances[2].instance_id])
        refusal = Refusal(refusal_class=RefusalClass.NO_CAPACITY, detail="1 of 3 released")
        return replace(
            grant, instances=grant.instances[:2], released=grant.instances[2:], refusal=refusal
        )

    rig.cloud.launch = short
    rig.cloud.nasty = replace(CALM, ignored_stop=1.0)

    report = await rig.decide([("j", 4, 0, "a")])

    assert holdings_of(report) == {("j", "a", "spot"): 2}
    (extra,) = set(rig.cloud.truths) - {one.instance_id for one in await rig.ledger.held()}
    lives = await rig.ledger.lives_of([extra])
    assert lives[extra].state is LifeState.STOPPING
    assert rig.memory.instances[-1]["held"].instance_id == extra
    assert rig.memory.instances[-1]["start"] == rig.memory.instances[-1]["end"]
    (refused,) = [event for event in rig.published if isinstance(event, LaunchRefused)]
    assert (refused.requested, refused.granted) == (4, 2)
