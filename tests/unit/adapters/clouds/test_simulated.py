from dataclasses import replace

import pytest

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings, interruption_s
from spotline.application.cloud_actuator.ports import Owner
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import OWNER, SLOT_S, launch, moment, quote


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


async def test_stock_is_the_quote_minus_what_everyone_holds(open_cloud):
    cloud = open_cloud()
    await cloud.observe(moment(), [quote(spot=5)])

    first = await cloud.launch(launch("t1", 3))
    second = await cloud.launch(
        replace(launch("t2", 3, job_id="k"), owner=Owner(name="else", epoch=1))
    )
    third = await cloud.launch(launch("t3", 1))

    assert (len(first.instances), first.detail) == (3, "")
    assert (len(second.instances), second.detail) == (2, "2 of 3 in stock")
    assert (len(third.instances), third.detail) == (0, "0 of 1 in stock")


async def test_an_unknown_count_is_no_bound_and_a_known_on_demand_stock_is(open_cloud):
    cloud = open_cloud()
    await cloud.observe(moment(), [quote(spot=None, on_demand=1)])

    spot = await cloud.launch(launch("t1", 40))
    on_demand = await cloud.launch(replace(launch("t2", 2), capacity_type=CapacityType.ON_DEMAND))

    assert (len(spot.instances), len(on_demand.instances)) == (40, 1)


async def test_an_offering_without_a_quote_is_not_sold(open_cloud):
    grant = await open_cloud().launch(launch("t", 1))

    assert (grant.instances, grant.detail) == ((), "the offering is not quoted")


async def test_an_instance_is_ready_after_the_launch_delay(open_cloud):
    cloud = open_cloud(launch_delay_s=90)
    await cloud.observe(moment(2), [quote()])

    grant = await cloud.launch(launch("t", 1, at=moment(2, 10)))

    assert grant.instances[0].ready_ns == (2 * SLOT_S + 100) * NS_PER_S


async def test_falling_availability_notices_the_latest_launched_and_then_takes_them(open_cloud):
    cloud = open_cloud()
    await cloud.observe(moment(), [quote(spot=4)])
    old = await cloud.launch(launch("t1", 2))
    new = await cloud.launch(launch("t2", 2, job_id="k"))

    noticed = await cloud.observe(moment(1), [quote(spot=1)])
    signals = await cloud.signals("s", moment(1))

    expected = [old.instances[1].instance_id, *ids(new.instances)]
    assert ids(noticed) == expected
    assert ids(signal.instance for signal in signals) == expected
    assert {(one.noticed_s, one.lost_s, one.announced) for one in signals} == {(0, 120, True)}
    assert ids(await cloud.list_instances(OWNER)) == ids(old.instances[:1])


async def test_only_what_releases_have_not_given_back_is_taken(open_cloud):
    cloud = open_cloud()
    await cloud.observe(moment(), [quote(spot=4)])
    old = await cloud.launch(launch("t1", 2))
    await cloud.launch(launch("t2", 2, job_id="k"))
    await cloud.observe(moment(1), [quote(spot=2)])

    await cloud.terminate(Owner(name=OWNER, epoch=1), ids(old.instances))

    assert await cloud.signals("s", moment(1)) == ()


async def test_a_reclaim_never_comes_after_its_slot(open_cloud):
    cloud = open_cloud(notice_lead_s=7200)
    await cloud.observe(moment(), [quote(spot=1)])
    await cloud.launch(launch("t", 1))
    await cloud.observe(moment(1), [quote(spot=0)])

    (signal,) = await cloud.signals("s", moment(1))

    assert signal.lost_s == SLOT_S - 1


async def test_chance_interrupts_inside_the_slot_with_notice_and_the_same_way_every_time(
    open_cloud,
):
    hazard = {"interruption_per_instance_hour": 1.0, "seed": 3}
    cloud = open_cloud(**hazard)
    await cloud.observe(moment(), [quote(spot=8)])
    running = ids((await cloud.launch(launch("t", 8))).instances)
    settings = SimulatedCloudSettings(**hazard)
    expected = sorted((interruption_s(settings, 0, SLOT_S, one), one) for one in running)

    seen, offset_s = [], 0
    while running_signals := await cloud.signals(f"s{offset_s}", moment(0, offset_s)):
        for signal in running_signals:
            lead_s = signal.lost_s - signal.noticed_s
            assert lead_s == min(120, signal.lost_s - offset_s)
            seen.append((signal.lost_s, signal.instance.instance_id))
        offset_s = running_signals[0].lost_s

    assert sorted(seen) == expected
    assert all(0 < lost_s < SLOT_S for lost_s, _ in seen)
    assert await cloud.list_instances(OWNER) == ()


def test_interruptions_come_about_as_often_as_asked():
    settings = SimulatedCloudSettings(interruption_per_instance_hour=0.25)

    hits = [interruption_s(settings, slot, SLOT_S, "i") for slot in range(4000)]

    struck = [hit for hit in hits if hit is not None]
    assert 900 < len(struck) < 1100
    assert 1600 < sum(struck) / len(struck) < 2000


async def test_an_injected_refusal_grants_nothing(open_cloud):
    cloud = open_cloud(refusal_probability=1.0)
    await cloud.observe(moment(), [quote()])

    grant = await cloud.launch(launch("t", 1))

    assert (grant.instances, grant.detail) == ((), "refused by an injected fault")


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
