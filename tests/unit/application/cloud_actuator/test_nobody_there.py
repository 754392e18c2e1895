"""The control plane is gone for an hour or a day: what ran is billed as the cloud bills it."""

import pytest

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.domain.events.agreement import AgreementChecked
from spotline.domain.events.capacity import CapacityLost, CostAccrued
from spotline.domain.units import NS_PER_S, cost_micro_usd
from tests.fakes.actuator import SLOT_S, Rig, lot, opened, quote, reported, running_in, submitted

HOUR, DAY = 1, 24
PRICE = quote().spot_price_micro_usd


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def billed_by(cloud, until_slot):
    """What the cloud itself bills: every instance from its launch to its end, by the second."""
    with cloud._store.transaction() as connection:
        rows = connection.execute(
            "SELECT ready_ns, capacity_type, at_ns FROM instances LEFT JOIN events "
            "ON events.instance_id = instances.instance_id AND kind = 'state'"
        ).fetchall()
    total = 0
    for row in rows:
        start_ns = row["ready_ns"] - 120 * NS_PER_S
        end_ns = until_slot * SLOT_S * NS_PER_S if row["at_ns"] is None else row["at_ns"]
        price = PRICE if row["capacity_type"] == "spot" else 3 * PRICE
        total += cost_micro_usd(price, 1, (end_ns - start_ns) // NS_PER_S)
    return total


async def away(rig, slots):
    """Two slots, then nobody for a while, then the next opening by another process."""
    await rig.feed(submitted())
    await rig.run_slot(opened(0), [("j", lot(spot=2, on_demand=1))])
    await rig.run_slot(opened(1))
    await rig.restart()
    back = 2 + slots
    return back, await rig.feed(opened(back))


@pytest.mark.parametrize("slots", [HOUR, DAY])
@pytest.mark.parametrize("lease_s", [0, 1800, 5400])
async def test_bills_after_an_absence_equal_what_the_cloud_billed(tmp_path, slots, lease_s):
    settings = SimulatedCloudSettings(lease_s=lease_s)
    rig = Rig(tmp_path, settings=settings, agreement=AgreementRules(every_slots=1))

    back, answers = await away(rig, slots)
    again = await rig.decide(back, 0, 0, [("j", lot(spot=2, on_demand=1))])
    await rig.run_slot(opened(back + 1))

    expected = billed_by(rig.cloud, back + 1)
    # One rounding for each lot and slot, where the cloud's account here has one for each instance.
    assert rig.ledger.spend_micro_usd("j") == pytest.approx(expected, abs=3 * (slots + 4))
    rig.ledger.audit()
    told = sum(one.cost_micro_usd for one in of_kind(rig.published, CostAccrued))
    assert told == rig.ledger.spend_micro_usd("j")
    assert not any(one.estimated for one in of_kind(answers, CostAccrued))
    # What ended is told lost and launched again; what runs on is not bought twice.
    ended = bool(lease_s) and lease_s < slots * SLOT_S
    assert sum(len(one.instance_ids) for one in of_kind(again, CapacityLost)) == (3 if ended else 0)
    assert len(reported(again).holdings[0].instance_ids) == 3
    assert len(await running_in(rig.cloud)) == 3
    assert of_kind(rig.published, AgreementChecked)[-1].disagreements == ()
    rig.close()


async def test_what_nobody_saw_end_is_charged_until_its_lease_and_said_to_be_estimated(tmp_path):
    rig = Rig(tmp_path, settings=SimulatedCloudSettings(lease_s=1800))
    await rig.feed(submitted())
    await rig.run_slot(opened(0), [("j", lot(spot=2))])
    await rig.run_slot(opened(1))
    await rig.restart()
    # Gone, and the cloud has forgotten that they ever were.
    with rig.cloud._store.transaction() as connection:
        connection.execute("DELETE FROM instances")
    await rig.actuation.start()

    answers = await rig.feed(opened(2 + DAY))

    bills = of_kind(answers, CostAccrued)
    assert [(one.slot, one.held_s, one.estimated) for one in bills] == [
        (1, SLOT_S, True),
        (2, 1800, True),
    ]
    rig.close()


async def test_an_actuator_killed_while_it_comes_back_ends_with_the_same_bill(tmp_path):
    spends = set()
    for number in range(14):
        folder = tmp_path / str(number)
        rig = Rig(
            folder,
            settings=SimulatedCloudSettings(lease_s=1800),
            agreement=AgreementRules(every_slots=1),
        )
        await rig.feed(submitted())
        await rig.run_slot(opened(0), [("j", lot(spot=2))])
        rig.kill.at = {rig.kill.passed + number} if number else set()
        await rig.run_slot(opened(DAY), [("j", lot(spot=2))])
        await rig.run_slot(opened(DAY + 1))
        spends.add(rig.ledger.spend_micro_usd("j"))
        assert len(await running_in(rig.cloud)) == 2
        rig.close()

    assert len(spends) == 1
