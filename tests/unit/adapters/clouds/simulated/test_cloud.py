import sqlite3
from dataclasses import replace

import pytest

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import (
    EarlyFailures,
    SimulatedCloudSettings,
    interruption_s,
)
from spotline.application.cloud_actuator.ports import (
    CloudEventKind,
    InstanceState,
    Owner,
)
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import OWNER, SLOT_S, launch, moment, quote, running_in


@pytest.fixture
def open_cloud(tmp_path):
    opened = []

    def another(**settings):
        path = tmp_path / "cloud.sqlite"
        opened.append(SimulatedCloud(path, SimulatedCloudSettings(**settings)))
        return opened[-1]

    yield another
    for cloud in opened:
        cloud.close()


def ids(instances):
    return [one.instance_id for one in instances]


def words(grant):
    assert grant.refusal.refusal_class is RefusalClass.NO_CAPACITY
    return grant.refusal.detail


def of_kind(told, kind):
    return [event for event in told if event.kind is kind]


async def test_stock_is_the_quote_minus_what_everyone_holds(open_cloud):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote(spot=5)])

    first = await cloud.launch(launch("t1", 3))
    second = await cloud.launch(
        replace(launch("t2", 3, job_id="k"), owner=Owner(name="else", epoch=1))
    )
    third = await cloud.launch(launch("t3", 1))

    assert (len(first.instances), first.refusal) == (3, None)
    assert (len(second.instances), words(second)) == (2, "2 of 3 in stock")
    assert (len(third.instances), words(third)) == (0, "0 of 1 in stock")


async def test_an_unknown_count_is_no_bound_and_a_known_on_demand_stock_is(open_cloud):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote(spot=None, on_demand=1)])

    spot = await cloud.launch(launch("t1", 40))
    on_demand = await cloud.launch(replace(launch("t2", 2), capacity_type=CapacityType.ON_DEMAND))

    assert (len(spot.instances), len(on_demand.instances)) == (40, 1)


async def test_an_offering_without_a_quote_is_not_sold(open_cloud):
    grant = await open_cloud().launch(launch("t", 1))

    assert (grant.instances, words(grant)) == ((), "the offering is not quoted")


async def test_an_instance_is_ready_after_the_launch_delay(open_cloud):
    cloud = open_cloud(launch_delay_s=90)
    cloud.open_slot(moment(2), [quote()])

    grant = await cloud.launch(launch("t", 1, at=moment(2, 10)))

    assert grant.instances[0].ready_ns == (2 * SLOT_S + 100) * NS_PER_S


async def test_falling_availability_notices_the_latest_launched_and_then_takes_them(open_cloud):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote(spot=4)])
    old = await cloud.launch(launch("t1", 2))
    new = await cloud.launch(launch("t2", 2, job_id="k"))

    cloud.open_slot(moment(1), [quote(spot=1)])
    noticed = await cloud.events("o", moment(1))
    cloud.play_on(moment(1))
    taken = await cloud.events("s", moment(1))

    expected = [old.instances[1].instance_id, *ids(new.instances)]
    start_ns = moment(1).ts_ns
    for told, kind, state, at_ns, lead_s in (
        (noticed, CloudEventKind.NOTICE, InstanceState.RUNNING, start_ns, 120),
        (taken, CloudEventKind.STATE, InstanceState.ENDED, start_ns + 120 * NS_PER_S, 0),
    ):
        assert ids(event.instance for event in told) == expected
        assert {(event.kind, event.state, event.at_ns, event.lead_s) for event in told} == {
            (kind, state, at_ns, lead_s)
        }
    assert {event.interruption for event in taken} == {InterruptionKind.CAPACITY_RECLAIMED}
    assert ids(await running_in(cloud)) == ids(old.instances[:1])


async def test_only_what_releases_have_not_given_back_is_taken(open_cloud):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote(spot=4)])
    old = await cloud.launch(launch("t1", 2))
    await cloud.launch(launch("t2", 2, job_id="k"))
    cloud.open_slot(moment(1), [quote(spot=2)])

    await cloud.terminate(Owner(name=OWNER, epoch=1), ids(old.instances))

    cloud.play_on(moment(1))
    ended = await cloud.events("s", moment(1))

    assert ids(event.instance for event in ended) == ids(old.instances)
    assert {event.interruption for event in ended} == {None}


async def test_a_reclaim_never_comes_after_its_slot(open_cloud):
    cloud = open_cloud(notice_lead_s=7200)
    cloud.open_slot(moment(), [quote(spot=1)])
    await cloud.launch(launch("t", 1))
    cloud.open_slot(moment(1), [quote(spot=0)])

    (notice,) = await cloud.events("o", moment(1))
    cloud.play_on(moment(1))
    (end,) = await cloud.events("s", moment(1))

    assert notice.lead_s == 7200
    assert end.at_ns == moment(1, SLOT_S - 1).ts_ns


async def test_chance_interrupts_inside_the_slot_with_notice_and_the_same_way_every_time(
    open_cloud,
):
    hazard = {"interruption_per_instance_hour": 1.0, "seed": 3}
    cloud = open_cloud(**hazard)
    cloud.open_slot(moment(), [quote(spot=8)])
    running = ids((await cloud.launch(launch("t", 8))).instances)
    settings = SimulatedCloudSettings(**hazard)
    expected = sorted((interruption_s(settings, 0, SLOT_S, one), one) for one in running)

    seen, offset_s = [], 0
    cloud.play_on(moment())
    while told := await cloud.events(f"s{offset_s}", moment(0, offset_s)):
        notices = of_kind(told, CloudEventKind.NOTICE)
        ends = of_kind(told, CloudEventKind.STATE)
        for notice, end in zip(notices, ends, strict=True):
            lost_s = end.at_ns // NS_PER_S
            assert notice.instance.instance_id == end.instance.instance_id
            assert notice.at_ns + notice.lead_s * NS_PER_S == end.at_ns
            assert notice.lead_s == min(120, lost_s - offset_s)
            seen.append((lost_s, end.instance.instance_id))
        offset_s = ends[0].at_ns // NS_PER_S

    assert sorted(seen) == expected
    assert all(0 < lost_s < SLOT_S for lost_s, _ in seen)
    assert await running_in(cloud) == []


async def test_what_fails_ends_soon_after_its_start_as_a_whole_and_without_a_word(open_cloud):
    failing = EarlyFailures(probability=1.0, first_slot=1, end_slot=2, within_s=60)
    cloud = open_cloud(failing=failing)
    cloud.open_slot(moment(), [quote(spot=8)])
    before = ids((await cloud.launch(launch("before", 2))).instances)
    cloud.open_slot(moment(1), [quote(spot=8)])
    on_demand = replace(launch("t", 3, at=moment(1)), capacity_type=CapacityType.ON_DEMAND)
    gang = ids((await cloud.launch(on_demand)).instances)

    cloud.play_on(moment(1))
    told = await cloud.events("s", moment(1))

    assert ids(event.instance for event in told) == gang
    assert {event.kind for event in told} == {CloudEventKind.STATE}
    assert {event.interruption for event in told} == {InterruptionKind.INSTANCE_FAILED}
    (at_ns,) = {event.at_ns for event in told}
    assert 0 < at_ns - moment(1).ts_ns <= 60 * NS_PER_S
    assert ids(await running_in(cloud)) == before


@pytest.mark.parametrize("wrong", [{"probability": 1.5}, {"within_s": 0}])
def test_failures_out_of_range_are_refused(wrong):
    right = {"probability": 1.0, "first_slot": 0, "end_slot": 1, "within_s": 60}

    with pytest.raises(ValueError, match=next(iter(wrong))):
        EarlyFailures(**{**right, **wrong})


def test_interruptions_come_about_as_often_as_asked():
    settings = SimulatedCloudSettings(interruption_per_instance_hour=0.25)

    hits = [interruption_s(settings, slot, SLOT_S, "i") for slot in range(4000)]

    struck = [hit for hit in hits if hit is not None]
    assert 900 < len(struck) < 1100
    assert 1600 < sum(struck) / len(struck) < 2000


async def test_an_injected_refusal_grants_nothing(open_cloud):
    cloud = open_cloud(refusal_probability=1.0)
    cloud.open_slot(moment(), [quote()])

    grant = await cloud.launch(launch("t", 1))

    assert (grant.instances, words(grant)) == ((), "refused by an injected fault")


@pytest.mark.parametrize(
    "wrong",
    [
        {"launch_delay_s": -1},
        {"refusal_probability": 1.1},
        {"interruption_per_instance_hour": float("nan")},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SimulatedCloudSettings(**wrong)


async def test_an_ended_instance_is_shown_in_its_slot_and_the_next_and_then_no_more(open_cloud):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote()])
    (instance,) = (await cloud.launch(launch("t", 1))).instances
    await cloud.terminate(Owner(name=OWNER, epoch=1), [instance.instance_id])

    seen = []
    for slot in range(3):
        cloud.open_slot(moment(slot), [quote()])
        seen.append([shown.state for shown in await cloud.list(OWNER)])

    assert seen == [[InstanceState.ENDED], [InstanceState.ENDED], []]


async def test_a_loss_that_a_former_version_took_is_told_by_its_token(open_cloud, tmp_path):
    """It wrote what it took beside the instance, died, and asks again with the same token."""
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote()])
    first, second = (await cloud.launch(launch("t", 2))).instances
    store = sqlite3.connect(tmp_path / "cloud.sqlite")
    for instance, announced, noticed_s in ((first, 1, 0), (second, 0, 180)):
        store.execute(
            "UPDATE instances SET state = 'lost', signal_token = 'key', noticed_s = ?, "
            "lost_s = 300, announced = ? WHERE instance_id = ?",
            (noticed_s, announced, instance.instance_id),
        )
    store.commit()
    store.close()
    cloud.play_on(moment(0, 60))

    told = await cloud.events("key", moment(0, 60))

    assert [
        (event.instance.instance_id, event.kind, event.at_ns // NS_PER_S, event.lead_s)
        for event in told
    ] == [
        (first.instance_id, CloudEventKind.STATE, 300, 0),
        (second.instance_id, CloudEventKind.NOTICE, 180, 120),
        (second.instance_id, CloudEventKind.STATE, 300, 0),
    ]
    assert await cloud.events("key", moment(0, 60)) == told


async def test_a_grant_of_a_former_version_is_repeated_whatever_is_asked(open_cloud, tmp_path):
    cloud = open_cloud()
    cloud.open_slot(moment(), [quote()])
    granted = await cloud.launch(launch("t", 2))
    with sqlite3.connect(tmp_path / "cloud.sqlite") as store:
        store.execute("DELETE FROM requests")

    assert await cloud.launch(launch("t", 1)) == granted
