"""Each trouble of a cloud by itself, on a real ledger file: in the end ledger, log and cloud agree."""

import sqlite3
from contextlib import closing

import pytest

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CapacitySignalled,
    CostAccrued,
    InstancesEnded,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
    RefusalClass,
)
from spotline.domain.ledger.instance_life import LifeState
from tests.fakes.actuator import OWNER, Rig, lot, moment, opened, quote, reported, running_in
from tests.fakes.troubled_cloud import (
    Answer,
    Fate,
    Lag,
    RefusalRule,
    TroubledCloud,
    TroubleMemory,
    Troubles,
    notice_of,
    withdrawal_of,
)

# Our own verdicts: no cloud answers so.
OURS = {RefusalClass.LIMIT, RefusalClass.UNKNOWN_OUTCOME}
EVERY = range(0, 400, 3)

TROUBLES = {
    "launches are shown late": Troubles(launch_lag=Lag(listings=3, seconds=600)),
    "ends are shown late": Troubles(end_lag=Lag(listings=3, seconds=600)),
    "answers are lost after the launch": Troubles(
        answers=dict.fromkeys(EVERY, Answer.LOST_AFTER), launch_lag=Lag(listings=1)
    ),
    "requests never arrive": Troubles(answers=dict.fromkeys(EVERY, Answer.LOST_BEFORE)),
    "notices and ends come late": Troubles(notices=(Fate.LATE,), ends=(Fate.LATE,)),
    "notices and ends come twice": Troubles(notices=(Fate.DOUBLE,), ends=(Fate.DOUBLE,)),
    "notices and ends never come": Troubles(notices=(Fate.NEVER,), ends=(Fate.NEVER,)),
    "strangers are told of, newest first": Troubles(strangers=True, newest_first=True),
    "calls are throttled": Troubles(throttled=frozenset(EVERY)),
    "calls are not answered": Troubles(unavailable=frozenset(EVERY)),
    **{
        f"refused: {refusal_class.value}": Troubles(
            refusals=(RefusalRule(refusal_class=refusal_class, launches=2, retry_after_s=5),)
        )
        for refusal_class in RefusalClass
        if refusal_class not in OURS
    },
}
# What an offering does not support is not asked for again before the actuator starts anew.
BARRED = {"refused: unsupported"}


class TroubledActuator(Rig):
    """The actuator on a cloud that has its troubles, started again as often as it gives up."""

    def __init__(self, directory, troubles):
        self.memory = TroubleMemory(troubles=troubles)
        super().__init__(directory)

    def open(self):
        self.cloud = SimulatedCloud(self.directory / "cloud.sqlite")
        self.ledger = SqlLedger(ledger_url(self.directory / "ledger.sqlite"), OWNER)
        troubled = TroubledCloud(self.cloud, self.cloud.now_ns, self.memory)
        self.actuation = CloudActuation(troubled, ThreadedLedger(self.ledger), ActuationOptions())
        drive = SimulatedCloudDriver(self.cloud, self.actuation.perform)

        async def perform(call):
            while True:
                try:
                    return await drive(call)
                except ProviderUnavailable:
                    continue

        self.perform = perform


async def started(rig):
    """Start as often as a process that ends while its cloud does not answer."""
    while True:
        try:
            return await rig.actuation.start()
        except ProviderUnavailable:
            rig.close()
            rig.open()


async def story(rig):
    """Launches, moves, reclaimed capacity, releases; then quiet slots in which all comes out."""
    targets = [
        [("a", lot(spot=3)), ("b", lot(spot=2, on_demand=1))],
        [("a", lot(spot=3)), ("b", lot(spot=4))],
        [],
        [("c", lot(spot=2)), ("b", lot(spot=1))],
    ]
    for slot, (available, wanted) in enumerate(zip([6, 8, 3, 8], targets, strict=True)):
        await run_slot(rig, opened(slot, quote(spot=available)), wanted)
    rig.memory.troubles = Troubles()
    for slot in range(4, 8):
        wanted = [("c", lot(spot=2))] if slot == 5 else []
        await run_slot(rig, opened(slot, quote(spot=8), last=slot == 7), wanted)


def taken_back(directory):
    """What the cloud took of its own accord, by its own books."""
    with closing(sqlite3.connect(directory / "cloud.sqlite")) as store:
        rows = store.execute("SELECT instance_id FROM instances WHERE state = 'lost'").fetchall()
    return {instance_id for (instance_id,) in rows}


async def run_slot(rig, slot, targets):
    revisions = []
    await rig.run_slot(slot, targets, revisions.append)
    assert len(revisions) < 12, "it does not settle"


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_after_a_trouble_ledger_log_and_cloud_agree(trouble, tmp_path):
    rig = TroubledActuator(tmp_path, TROUBLES[trouble])
    try:
        await started(rig)
        await story(rig)

        running = {instance.instance_id for instance in await running_in(rig.cloud)}
        held = {instance.instance_id for instance in rig.ledger.held()}
        accrued = [event for event in rig.published if isinstance(event, CostAccrued)]
        report = [event for event in rig.published if isinstance(event, CapacityReported)][-1]
        booked = {row["instance_id"] for row in rig.ledger.comparable()["instances"]}
        assert running == held
        assert rig.memory.fresh.keys() == booked, "sold and never booked"
        assert bool(held) == (trouble not in BARRED)
        assert sum(one.spot + one.on_demand for job in report.holdings for one in job.lots) == len(
            held
        )
        assert rig.ledger.total_micro_usd() == sum(event.cost_micro_usd for event in accrued)
        lost = [
            name
            for event in rig.published
            if isinstance(event, CapacityLost)
            for name in event.instance_ids
        ]
        assert len(lost) == len(set(lost)), "lost twice"
        assert set(lost) == taken_back(tmp_path), "lost is what the cloud took, all and only"
    finally:
        rig.close()


@pytest.mark.parametrize(
    "refusal_class", sorted(set(RefusalClass) - OURS, key=lambda refusal_class: refusal_class.value)
)
async def test_a_refusal_reaches_the_log_with_its_class(refusal_class, tmp_path):
    rule = RefusalRule(refusal_class=refusal_class)
    rig = TroubledActuator(tmp_path, Troubles(refusals=(rule,)))
    try:
        await rig.actuation.start()
        await rig.feed(opened(0, quote(spot=8)))
        refused = [
            event
            for event in await rig.decide(0, 0, 0, [("a", lot(spot=3))])
            if isinstance(event, LaunchRefused)
        ]
        assert [event.refusal_class for event in refused] == [refusal_class]
        assert refusal_class.value in refused[0].detail
    finally:
        rig.close()


@pytest.fixture
async def two_held(tmp_path):
    """An actuator whose job holds two instances since slot 0, and the instances."""
    rig = TroubledActuator(tmp_path, Troubles())
    await started(rig)
    await run_slot(rig, opened(0), [("j", lot(spot=2))])
    yield rig, await running_in(rig.cloud)
    rig.close()


async def test_a_report_names_what_is_held_in_launch_order(two_held):
    rig, held = two_held

    (holding,) = [event for event in rig.published if isinstance(event, CapacityReported)][
        -1
    ].holdings

    assert holding.instance_ids == tuple(instance.instance_id for instance in held)


async def test_a_notice_that_is_withdrawn_is_reported_and_the_instance_runs_again(two_held):
    rig, (first, second) = two_held
    for instance in (first, second):
        rig.memory.push(notice_of(instance, moment(0, 10).ts_ns, 600))
    await rig.feed(CapacitySignalled(slot=0, offset_s=10))
    rig.memory.push(withdrawal_of(first, moment(0, 20).ts_ns))

    answers = await rig.feed(CapacitySignalled(slot=0, offset_s=20))

    (withdrawn,) = [event for event in answers if isinstance(event, InterruptionWithdrawn)]
    assert (withdrawn.job_id, withdrawn.instance_ids) == ("j", (first.instance_id,))
    assert (withdrawn.slot, withdrawn.offset_s) == (0, 20)
    # The rest of the slot is decided with it.
    assert not reported(answers).settled
    lives = await rig.lives_of(first.instance_id, second.instance_id)
    assert [life.state for life in lives] == [LifeState.RUNNING, LifeState.NOTICED]


async def test_the_end_of_a_released_instance_is_told_once_when_it_is_seen(two_held):
    rig, (first, second) = two_held
    # The cloud is slow to end it, and to tell of that.
    rig.memory.troubles = Troubles(end_lag=Lag(listings=2), ends=(Fate.NEVER,))
    await run_slot(rig, opened(1), [("j", lot(spot=1))])
    (left,) = {first.instance_id, second.instance_id} - {
        instance.instance_id for instance in rig.ledger.held()
    }
    assert await rig.feed(CapacitySignalled(slot=1, offset_s=10)) == ()

    seen = await rig.feed(CapacitySignalled(slot=1, offset_s=20))
    later = await rig.feed(CapacitySignalled(slot=1, offset_s=30))

    # Nothing is to be decided anew, and nothing was lost.
    (ended,) = seen
    assert isinstance(ended, InstancesEnded)
    assert (ended.job_id, ended.instance_ids) == ("j", (left,))
    assert (ended.slot, ended.offset_s) == (1, 20)
    assert later == ()


@pytest.mark.parametrize("noticed_before", [False, True])
async def test_what_came_to_nothing_is_not_withdrawn_twice(two_held, noticed_before):
    rig, (first, _) = two_held
    if noticed_before:
        rig.memory.push(notice_of(first, moment(0, 5).ts_ns, 600))
        rig.memory.push(withdrawal_of(first, moment(0, 6).ts_ns))
        told = await rig.feed(CapacitySignalled(slot=0, offset_s=6))
        assert not [event for event in told if isinstance(event, InterruptionNoticed)]
    rig.memory.push(withdrawal_of(first, moment(0, 20).ts_ns))

    answers = await rig.feed(CapacitySignalled(slot=0, offset_s=20))

    assert answers == ()
