"""What has ended is settled once its biller knows what it cost, whatever happens on the way."""

import asyncio

import pytest

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.actuation import CloudActuation
from spotline.application.cloud_actuator.options import ActuationOptions
from spotline.application.cloud_actuator.ports import BilledInstance, InstanceState, OwnerFenced
from spotline.application.cloud_actuator.settling import Settling
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import OWNER, Killed, Rig, lot, opened, quote
from tests.fakes.billers import ListedBiller

HOUR_NS = 3600 * NS_PER_S


def ended(*instance_ids):
    return [
        BilledInstance(
            instance_id=instance_id, offering_id="a", capacity_type=CapacityType.ON_DEMAND
        )
        for instance_id in instance_ids
    ]


@pytest.fixture
def ledger(tmp_path):
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)
    yield ledger
    ledger.close()


def settle(settling, instances, now_ns=0):
    settling.note(instances, now_ns)
    return asyncio.run(settling.settle())


def settled_in(ledger):
    return {bill.instance_id: bill.micro_usd for bill in ledger.bills() if bill.settled}


def test_what_has_ended_is_settled_once(ledger):
    biller = ListedBiller({"i-1": 10, "i-2": 20})
    settling = Settling(biller, ThreadedLedger(ledger))

    found = settle(settling, ended("i-1", "i-2"))
    again = settle(settling, ended("i-1", "i-2"), HOUR_NS)

    assert settled_in(ledger) == {"i-1": 10, "i-2": 20}
    assert (found.settled, found.waiting, bool(again)) == (("i-1", "i-2"), 0, False)
    assert biller.asked == [("i-1", "i-2")]
    assert settling.next_look_ns is None


def test_what_was_settled_by_another_process_is_not_asked_about(ledger):
    settle(Settling(ListedBiller({"i-1": 10}), ThreadedLedger(ledger)), ended("i-1"))
    biller = ListedBiller({"i-1": 11, "i-2": 5})

    settle(Settling(biller, ThreadedLedger(ledger)), ended("i-1", "i-2"))

    assert biller.asked == [("i-2",)]
    assert settled_in(ledger) == {"i-1": 10, "i-2": 5}


def test_a_biller_that_does_not_answer_is_asked_again(ledger):
    biller = ListedBiller({"i-1": 10}, unavailable=1)
    settling = Settling(biller, ThreadedLedger(ledger))

    found = settle(settling, ended("i-1"), 5 * NS_PER_S)

    assert (found.waiting, found.problem) == (1, "the bills are closed")
    assert settling.next_look_ns == 65 * NS_PER_S
    # The cloud no longer shows it by then.
    assert settle(settling, [], 65 * NS_PER_S).settled == ("i-1",)
    assert settled_in(ledger) == {"i-1": 10}


def test_what_is_not_known_in_time_keeps_its_estimate(ledger):
    biller = ListedBiller({})
    settling = Settling(biller, ThreadedLedger(ledger))

    assert settle(settling, ended("i-1"), 0).waiting == 1
    assert settle(settling, ended("i-1"), 3 * HOUR_NS).given_up == ("i-1",)
    assert not settle(settling, ended("i-1"), 4 * HOUR_NS)
    assert len(biller.asked) == 2
    assert settled_in(ledger) == {}


def test_nothing_is_settled_by_a_process_that_was_replaced(tmp_path, ledger):
    settling = Settling(ListedBiller({"i-1": 10}), ThreadedLedger(ledger))
    newer = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), OWNER)

    with pytest.raises(OwnerFenced):
        settle(settling, ended("i-1"))

    assert settled_in(newer) == {}
    newer.close()


async def a_life(rig):
    """Two instances, one of them released, then the other."""
    for slot, spot in enumerate((2, 1, 0, 0)):
        targets = [("a", lot(spot=spot))] if slot < 3 else []
        await rig.run_slot(opened(slot, quote(spot=8), last=slot == 3), targets)
        await settled(rig)


async def settled(rig):
    """Settle as the shell does beside the calls; a process killed on the way is started again."""
    while True:
        try:
            return await rig.actuation.settle()
        except Killed:
            await rig.restart()


@pytest.mark.parametrize("unavailable", [0, 1])
def test_instances_are_settled_as_their_ends_are_seen(tmp_path, unavailable):
    rig = Rig(tmp_path, biller=ListedBiller(unavailable=unavailable))

    asyncio.run(a_life(rig))

    bills = rig.ledger.bills()
    assert [bill.micro_usd for bill in bills] == [7, 7]
    assert all(bill.estimate_micro_usd > 7 for bill in bills)
    rig.close()


class ForgetfulCloud:
    """Shows nothing of what has ended: an hour has passed."""

    def __init__(self, cloud):
        self._cloud = cloud

    def __getattr__(self, name):
        return getattr(self._cloud, name)

    async def list(self, owner_name):
        shown = await self._cloud.list(owner_name)
        return [one for one in shown if one.state is not InstanceState.ENDED]


def test_what_waits_for_its_bill_is_settled_by_the_next_process_though_its_cloud_forgot(tmp_path):
    rig = Rig(tmp_path, biller=ListedBiller({}))
    asyncio.run(a_life(rig))
    assert settled_in(rig.ledger) == {}
    rig.biller = ListedBiller()
    forgetful = CloudActuation(
        ForgetfulCloud(rig.cloud), ThreadedLedger(rig.ledger), ActuationOptions(biller=rig.biller)
    )

    async def again():
        await forgetful.start()
        await forgetful.settle()

    asyncio.run(again())

    assert list(settled_in(rig.ledger).values()) == [7, 7]
    assert [len(asked) for asked in rig.biller.asked] == [2]
    rig.close()


def test_what_ended_long_before_or_is_settled_is_not_taken_up(tmp_path):
    rig = Rig(tmp_path, biller=(biller := ListedBiller({})))
    asyncio.run(a_life(rig))
    first, second = (one.instance_id for one in rig.ledger.unsettled(0))
    over_ns = max(rig.ledger.lives_of([first])[first].since_ns, HOUR_NS)

    assert [one.instance_id for one in rig.ledger.unsettled(over_ns + 24 * HOUR_NS)] == []
    biller.costs = {first: 9}
    asyncio.run(settled(rig))
    assert [one.instance_id for one in rig.ledger.unsettled(0)] == [second]
    rig.close()


class NotingBiller(ListedBiller):
    """Notes how many kill points were passed as it was asked: settling is the next step."""

    def __init__(self):
        super().__init__()
        self.at = []

    async def final_costs(self, instances):
        self.at.append(self.rig.kill.passed)
        return await super().final_costs(instances)


@pytest.mark.parametrize("after", [0, 1])
def test_killed_before_or_after_a_bill_is_recorded_each_is_settled_once(tmp_path, after):
    (whole := tmp_path / "whole").mkdir()
    biller = NotingBiller()
    biller.rig = rig = Rig(whole, biller=biller)
    asyncio.run(a_life(rig))
    expected = rig.ledger.bills()
    rig.close()
    assert len(biller.at) == 2

    for number, point in enumerate(biller.at):
        (folder := tmp_path / str(number)).mkdir()
        rig = Rig(folder, biller=(restarted := ListedBiller()))
        rig.kill.at = {point + after}
        asyncio.run(a_life(rig))
        assert rig.ledger.bills() == expected
        # What was written before it died is not asked about again.
        assert len(restarted.asked) == (2 if after else 3)
        rig.close()
