"""A market laid over the machine: what falls below what runs is taken back, with notice or not."""

import asyncio
import json
import signal
import sys
import textwrap
import time
from dataclasses import replace

import pytest

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.cloud import STORE
from spotline.adapters.clouds.local.reclaims import launch_number, uniform
from spotline.adapters.clouds.local.store import LocalStore
from spotline.application.cloud_actuator.ports import CloudEventKind, InstanceState
from spotline.domain.events.capacity import InterruptionKind, RefusalClass
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.eventually import eventually
from tests.fakes.actuator import SLOT_S, launch, moment
from tests.fakes.local_cloud import US, Clouds, below, ended, shell, started


@pytest.fixture
def clouds(tmp_path):
    made = Clouds(tmp_path)
    yield made
    made.end()


def notice_of(cloud, instance_id):
    file = cloud.metadata(instance_id) / "notice.json"
    return json.loads(file.read_text()) if file.exists() else None


def of_kind(events, kind):
    return [event for event in events if event.kind is kind]


async def test_the_latest_launched_gets_a_notice(clouds):
    cloud = clouds.open(notice_lead_s=3600)
    first, second = await clouds.launch(cloud, 2)
    before_s = time.time()

    clouds.sell(cloud, 1)

    notice = notice_of(cloud, second)
    (event,) = await cloud.events("opening", moment(1))
    assert notice_of(cloud, first) is None
    assert notice.keys() == {"notice_id", "kind", "deadline_s"}
    assert notice["kind"] == "capacity_reclaimed"
    # A lead of 3600 market seconds is 36 of wall time.
    assert before_s + 36 <= notice["deadline_s"] <= time.time() + 36
    assert (event.kind, event.instance.instance_id) == (CloudEventKind.NOTICE, second)
    assert (event.event_id, event.lead_s) == (notice["notice_id"], 3600)


async def test_what_got_a_notice_is_killed_at_its_deadline(clouds, tmp_path):
    said = tmp_path / "said"
    script = f"trap 'echo term > {said}' TERM; while :; do sleep 0.05; done"
    # 0.6 s of wall time.
    cloud = clouds.open(command=shell(script), notice_lead_s=60)
    first, second = await clouds.launch(cloud, 2)
    await started(first, 2)
    await started(second, 2)
    began_s = time.monotonic()

    clouds.sell(cloud, 1)

    notice, end = await ended(cloud, second)
    assert time.monotonic() - began_s >= 0.6
    assert (notice.kind, notice.lead_s) == (CloudEventKind.NOTICE, 60)
    assert end.interruption is InterruptionKind.CAPACITY_RECLAIMED
    assert end.at_ns >= notice.at_ns + 60 * NS_PER_S
    # SIGKILL: it was not asked.
    assert not said.exists()
    assert below(second) == []
    assert len(below(first)) >= 2


async def test_when_the_market_has_enough_again_the_notice_is_withdrawn(clouds):
    cloud = clouds.open(notice_lead_s=3600)
    _, second = await clouds.launch(cloud, 2)
    clouds.sell(cloud, 1)
    notice = notice_of(cloud, second)
    await cloud.events("noticed", moment(1))

    clouds.sell(cloud, 2)

    (withdrawn,) = await cloud.events("withdrawn", moment(2))
    assert withdrawn.kind is CloudEventKind.WITHDRAWN
    assert (withdrawn.instance.instance_id, withdrawn.state) == (second, InstanceState.RUNNING)
    assert notice_of(cloud, second) == []
    assert not cloud.stopping()
    # Wanted back again, it gets another notice.
    clouds.sell(cloud, 1)
    assert notice_of(cloud, second)["notice_id"] != notice["notice_id"]


async def test_a_release_makes_the_notice_of_another_needless(clouds):
    cloud = clouds.open(notice_lead_s=3600)
    first, second = await clouds.launch(cloud, 2)
    clouds.sell(cloud, 1)

    await cloud.terminate(US, [first])

    told = await ended(cloud, first)
    (withdrawn,) = of_kind(told, CloudEventKind.WITHDRAWN)
    assert withdrawn.instance.instance_id == second


async def test_without_a_lead_what_is_wanted_back_is_killed_at_once(clouds):
    cloud = clouds.open(notice_lead_s=0)
    (instance_id,) = await clouds.launch(cloud)

    clouds.sell(cloud, 0)

    told = await cloud.events("opening", moment(1))
    assert of_kind(told, CloudEventKind.NOTICE) == []
    assert [event.interruption for event in told] == [InterruptionKind.CAPACITY_RECLAIMED]
    assert below(instance_id) == []


async def test_some_get_no_notice_and_then_none_is_guaranteed(clouds):
    cloud = clouds.open(notice_lead_s=3600, sudden_share=0.5)
    launched = await clouds.launch(cloud, 8)

    clouds.sell(cloud, 0)

    told = await cloud.events("opening", moment(1))
    noticed = {event.instance.instance_id for event in of_kind(told, CloudEventKind.NOTICE)}
    killed = {event.instance.instance_id for event in of_kind(told, CloudEventKind.STATE)}
    assert noticed | killed == set(launched)
    assert not noticed & killed
    # The seed fixes which ones, in every store.
    chosen = {each for each in launched if uniform(0, "sudden", 1, launch_number(each)) < 0.5}
    assert killed == chosen
    assert {bool(below(instance_id)) for instance_id in noticed} <= {True}
    assert cloud.notice_lead_s == 0


def moment_s(instance_id):
    """The second of slot 1 at which an instance is taken back, where reclaims are spread over it."""
    return uniform(0, "moment", 1, launch_number(instance_id)) * SLOT_S


async def test_reclaims_are_planned_all_over_the_slot(clouds):
    cloud = clouds.open(speed=1.0, notice_lead_s=0, reclaim_spread=1.0)
    launched = await clouds.launch(cloud, 8)
    before_ns = time.monotonic_ns()

    clouds.sell(cloud, 0)

    after_ns = time.monotonic_ns()
    due_ns = due_in(clouds)
    # What was due at once is gone with its plan.
    assert all(moment_s(gone) < 60 for gone in set(launched) - due_ns.keys())
    for instance_id, due in due_ns.items():
        wait_ns = int(moment_s(instance_id) * NS_PER_S)
        assert before_ns + wait_ns <= due <= after_ns + wait_ns


def due_in(clouds):
    """When instances are to be taken back, nanoseconds of the machine's clock."""
    store = LocalStore(clouds.folder / "local" / STORE)
    try:
        rows = store.rows("SELECT instance_id, due_ns FROM reclaims")
    finally:
        store.close()
    return {row["instance_id"]: row["due_ns"] for row in rows}


async def test_each_is_taken_back_when_its_moment_has_come(clouds):
    cloud = clouds.open(speed=SLOT_S / 1.0, notice_lead_s=0, reclaim_spread=1.0)
    launched = await clouds.launch(cloud, 8)

    clouds.sell(cloud, 0)
    gone_s = {}
    async with asyncio.timeout(60):
        while len(gone_s) < len(launched):
            await cloud.pushed()
            for event in await cloud.events(f"e{len(gone_s)}", moment(1)):
                gone_s[event.instance.instance_id] = event.at_ns / NS_PER_S - SLOT_S

    for instance_id, at_s in gone_s.items():
        # A report lies within its slot, in whose last second the clock stands.
        assert min(moment_s(instance_id), SLOT_S - 1) - 0.01 <= at_s < SLOT_S


async def test_what_was_taken_back_cannot_be_had_again_for_a_while(clouds):
    cloud = clouds.open(sold_out_s=2 * SLOT_S)
    first, _ = await clouds.launch(cloud, 2)
    cloud.take_back([first])
    await ended(cloud, first)

    def asked(token, **changes):
        return cloud.launch(replace(launch(token, 1), **changes))

    refused = await asked("at once")
    on_demand = await asked("on demand", capacity_type=CapacityType.ON_DEMAND)
    clouds.ids.update(instance.instance_id for instance in on_demand.instances)
    clouds.close(cloud)
    cloud = clouds.open(sold_out_s=2 * SLOT_S)
    still_refused = await asked("after a restart")
    for _ in range(3):
        clouds.sell(cloud, 8)

    assert refused.refusal.refusal_class is RefusalClass.NO_CAPACITY
    assert refused.refusal.detail == "0 of 1: spot was taken back a short time ago"
    assert (on_demand.refusal, len(on_demand.instances)) == (None, 1)
    assert still_refused.refusal.detail == refused.refusal.detail
    assert len(await clouds.launch(cloud, 1, "later")) == 1


async def test_chance_takes_spot_back_inside_the_slot_though_there_is_enough(clouds):
    cloud = clouds.open(speed=SLOT_S, notice_lead_s=0, interruption_per_instance_hour=1.0)
    launched = await clouds.launch(cloud, 4)

    clouds.sell(cloud, 8)

    await eventually(lambda: not cloud.alive())
    told = await cloud.events("all", moment(1))
    assert [event.interruption for event in told] == [InterruptionKind.CAPACITY_RECLAIMED] * 4
    assert {event.instance.instance_id for event in told} == set(launched)
    assert all(event.at_ns > SLOT_S * NS_PER_S for event in told)


async def test_what_chance_takes_is_not_given_back(clouds):
    cloud = clouds.open(speed=1.0, notice_lead_s=0, interruption_per_instance_hour=1.0)
    launched = await clouds.launch(cloud, 4)
    clouds.sell(cloud, 8)
    assert cloud.stopping()
    soon_ns = time.monotonic_ns() + 60 * NS_PER_S
    wanted = {one: due for one, due in due_in(clouds).items() if due > soon_ns}

    # Needless to the market as they are.
    await cloud.terminate(US, launched[:1])
    await ended(cloud, launched[0])

    wanted.pop(launched[0], None)
    assert due_in(clouds).items() >= wanted.items()


async def test_on_demand_is_not_taken_back(clouds):
    cloud = clouds.open(notice_lead_s=0, interruption_per_instance_hour=1.0)
    (instance_id,) = await clouds.launch(cloud, capacity_type=CapacityType.ON_DEMAND)

    clouds.sell(cloud, 0)

    assert not cloud.stopping()
    assert below(instance_id)


TAKES = """
    import sys
    from pathlib import Path
    from spotline.adapters.clouds.local.cloud import take_back
    take_back(Path(sys.argv[1]), sys.argv[2:])
"""


async def test_another_process_may_take_an_instance_back(clouds):
    cloud = clouds.open()
    first, second = await clouds.launch(cloud, 2)

    taking = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", textwrap.dedent(TAKES), str(clouds.folder / "local"), second)
    )

    assert await taking.wait() == 0
    (event,) = await ended(cloud, second)
    assert event.interruption is InterruptionKind.CAPACITY_RECLAIMED
    assert below(second) == []
    assert below(first)


async def test_what_was_to_be_killed_when_its_cloud_died_is_killed_by_the_next(clouds):
    cloud = clouds.open(notice_lead_s=3600)
    (instance_id,) = await clouds.launch(cloud)
    await started(instance_id, 2)
    clouds.sell(cloud, 0)
    clouds.close(cloud)
    assert below(instance_id)
    time_passes(clouds)

    cloud = clouds.open(notice_lead_s=3600)

    end = (await ended(cloud, instance_id))[-1]
    assert end.interruption is InterruptionKind.CAPACITY_RECLAIMED


def time_passes(clouds):
    """Let everything be due that is planned, as if time had passed while no cloud was open."""
    store = LocalStore(clouds.folder / "local" / STORE)
    try:
        with store.transaction() as connection:
            connection.execute("UPDATE reclaims SET due_ns = ?", (time.monotonic_ns(),))
    finally:
        store.close()


async def test_an_instance_that_dies_before_its_deadline_failed(clouds):
    cloud = clouds.open(notice_lead_s=3600)
    (instance_id,) = await clouds.launch(cloud)
    clouds.sell(cloud, 0)
    processes.send(cloud.first_process(instance_id), signal.SIGKILL)

    end = (await ended(cloud, instance_id))[-1]

    assert end.interruption is InterruptionKind.INSTANCE_FAILED
    assert end.at_ns < cloud.clock.now_ns() + NS_PER_S


async def test_stock_that_is_not_known_is_bounded_by_the_machine_alone(clouds):
    cloud = clouds.open(most_instances=3)
    clouds.sell(cloud, None)

    grant = await cloud.launch(launch("t", 9, at=moment(1)))

    assert len(grant.instances) == 3
    assert not cloud.stopping()


async def test_the_clock_goes_at_the_speed_of_the_market_and_stays_in_its_slot(clouds):
    cloud = clouds.open(speed=20 * SLOT_S)
    await eventually(lambda: cloud.clock.now_ns() == (SLOT_S - 1) * NS_PER_S)
    clouds.close(cloud)
    cloud = clouds.open(speed=1.0)
    assert cloud.clock.now_ns() == (SLOT_S - 1) * NS_PER_S
    clouds.sell(cloud, 8)
    read_ns = cloud.clock.now_ns()
    assert SLOT_S * NS_PER_S <= read_ns < (SLOT_S + 60) * NS_PER_S
    await eventually(lambda: cloud.clock.now_ns() > read_ns)
    cloud.open_slot(moment(0), [])
    assert cloud.clock.now_ns() > read_ns
