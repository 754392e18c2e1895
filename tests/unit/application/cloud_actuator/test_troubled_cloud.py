"""Each trouble of a cloud by itself, on a real ledger file: in the end ledger, log and cloud agree."""

import sqlite3
from contextlib import closing

import pytest

from spotline.adapters.clouds.simulated.cloud import SimulatedCloud
from spotline.adapters.clouds.simulated.driver import SimulatedCloudDriver
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.actuation import ActuationOptions, CloudActuation
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    RefusalClass,
)
from tests.fakes.actuator import OWNER, Rig, lot, opened, quote, running_in
from tests.fakes.troubled_cloud import (
    Answer,
    Fate,
    Lag,
    RefusalRule,
    TroubledCloud,
    TroubleMemory,
    Troubles,
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
