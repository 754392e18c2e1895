"""A probe is launched within all limits, ended before anything is said of it, and paid."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.cloud_actuator.probing import PROBED
from spotline.application.unfit import Unproven
from spotline.domain.events.agreement import AgreementChecked
from spotline.domain.events.capacity import (
    CostAccrued,
    LaunchRefused,
    OfferingProbed,
    ProbeCommanded,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.orphans import ANY_ACCOUNT, ReapRules
from spotline.domain.limits.spending import Spending
from spotline.domain.market.offering import CapacityType
from tests.fakes.actuator import (
    INSTALLATION,
    SLOT_S,
    Killed,
    Rig,
    command,
    lot,
    opened,
    quote,
    reported,
    running_in,
    submitted,
)
from tests.fakes.renting import offering
from tests.unit.application.cloud_actuator.test_proof import ADMITTED, JOB, MARKET, TENANT

PRICE = 6_000_000


def probe(instances=4, slot=0, revision=0, offering_id="b", **changes):
    made = ProbeCommanded(
        command_id=f"probe-{slot}-{revision}-{offering_id}",
        job_id="j",
        tenant="acme",
        quota_pool="pool",
        slot=slot,
        revision=revision,
        offset_s=0,
        offering_id=offering_id,
        instances=instances,
        gain_micro_usd=3_100_000,
        price_micro_usd=400_000,
    )
    return replace(made, **changes)


@pytest.fixture
def make_rig(tmp_path):
    rigs = []

    async def make(name="rig", **settings):
        folder = tmp_path / name
        folder.mkdir()
        rig = Rig(folder, **settings)
        rigs.append(rig)
        await rig.actuation.start()
        await rig.feed(
            MarketOpened(
                offerings=(offering("a"), offering("b")),
                slot_s=SLOT_S,
                first_slot_start_ns=0,
                source="test",
            )
        )
        return rig

    yield make
    for rig in rigs:
        rig.close()


async def probed(rig, *probes, there=8, commands=()):
    await rig.feed(opened(0, quote("a"), quote("b", spot=there, price=PRICE)))
    for each in (*commands, *probes):
        await rig.feed(each)
    return await rig.feed(SlotDecided(slot=0, revision=0, offset_s=0, commands=len(commands)))


def answer_in(answers) -> OfferingProbed:
    (answer,) = [event for event in answers if isinstance(event, OfferingProbed)]
    return answer


async def billed(rig) -> list[CostAccrued]:
    """What slot 0 is charged once the next one opens."""
    answers = await rig.feed(opened(1, quote("a"), quote("b", price=PRICE)))
    return [event for event in answers if isinstance(event, CostAccrued)]


async def test_what_is_granted_is_ended_and_paid_for_a_minute(make_rig):
    rig = await make_rig()

    answers = await probed(rig, probe(4))
    bills = await billed(rig)

    answer = answer_in(answers)
    assert (answer.requested, answer.granted, answer.refusal_class) == (4, 4, None)
    assert answer.cost_micro_usd == 4 * PRICE // 60
    (bill,) = bills
    assert (bill.instances, bill.held_s, bill.capacity_type) == (4, 60, CapacityType.SPOT)
    assert bill.cost_micro_usd == answer.cost_micro_usd
    assert reported(answers).settled
    assert reported(answers).holdings == ()
    assert await running_in(rig.cloud) == []
    assert not rig.ledger.held()


@pytest.mark.parametrize("there", [0, 3])
async def test_fewer_are_told_as_an_answer_and_not_as_a_refusal(make_rig, there):
    rig = await make_rig()

    answers = await probed(rig, probe(4), there=there)

    answer = answer_in(answers)
    assert (answer.granted, answer.refusal_class) == (there, RefusalClass.NO_CAPACITY)
    assert not [event for event in answers if isinstance(event, LaunchRefused)]
    assert reported(answers).settled
    assert await running_in(rig.cloud) == []
    assert sum(bill.cost_micro_usd for bill in await billed(rig)) == there * PRICE // 60
    assert answer.cost_micro_usd == there * PRICE // 60


async def test_what_jobs_hold_is_launched_before_a_probe_and_stays(make_rig):
    caps = Caps(spending=Spending(launches_per_minute=5))
    rig = await make_rig(caps=caps)

    answers = await probed(rig, probe(4), commands=(command("j", lot(spot=3), 0),))

    answer = answer_in(answers)
    # A limit counts it: of five launches in a minute three were the job's.
    assert (answer.granted, answer.refusal_class) == (2, RefusalClass.LIMIT)
    assert [holding.lots for holding in reported(answers).holdings] == [(lot(spot=3),)]
    assert len(await running_in(rig.cloud)) == 3


async def test_nothing_is_asked_where_the_job_holds_something_by_now(make_rig):
    rig = await make_rig()
    held = command("j", lot(spot=2, offering_id="b"), 0)
    await probed(rig, commands=(held,))

    await rig.feed(probe(4, revision=1))
    answers = await rig.feed(SlotDecided(slot=0, revision=1, offset_s=0, commands=0))

    assert not [event for event in answers if isinstance(event, OfferingProbed)]
    assert len(await running_in(rig.cloud)) == 2


async def test_killed_between_launch_and_end_it_ends_what_it_launched(make_rig):
    rig = await make_rig()
    await rig.feed(opened(0, quote("a"), quote("b", price=PRICE)))
    await rig.feed(probe(4))
    ending, before = [], rig.kill.passed
    terminate = rig.cloud.terminate

    async def dies(*args):
        ending.append(len(await running_in(rig.cloud)))
        if len(ending) == 1:
            raise Killed
        return await terminate(*args)

    rig.cloud.terminate = dies
    answers = await rig.feed(SlotDecided(slot=0, revision=0, offset_s=0, commands=0))

    assert ending[0] == 4
    assert rig.kill.passed > before
    assert answer_in(answers).granted == 4
    assert await running_in(rig.cloud) == []


@pytest.mark.slow
async def test_a_process_killed_anywhere_ends_the_same_and_leaves_nothing(make_rig):
    whole = await make_rig("whole")
    before = whole.kill.passed
    expected = await probed(whole, probe(4))
    points = whole.kill.passed - before
    bills = await billed(whole)
    for point in range(points):
        rig = await make_rig(f"killed-{point}")
        rig.kill.at = {rig.kill.passed + point}

        answers = await probed(rig, probe(4))

        assert answers == expected, f"killed at {point}"
        assert await running_in(rig.cloud) == [], f"killed at {point}"
        assert not rig.ledger.held()
        assert await billed(rig) == bills, f"killed at {point}"


async def test_log_ledger_and_cloud_agree_after_a_probe(make_rig):
    reap = ReapRules(installation_id=INSTALLATION, accounts=(ANY_ACCOUNT,))
    rig = await make_rig(agreement=AgreementRules(every_slots=1, reap=reap))
    await rig.feed(submitted())
    await probed(rig, probe(4), commands=(command("j", lot(spot=3), 0),))
    told = []
    for slot in (1, 2):
        told += await rig.feed(opened(slot, quote("a"), quote("b", price=PRICE)))
        told += await rig.feed(SlotDecided(slot=slot, revision=0, offset_s=0, commands=0))

    checked = [event for event in told if isinstance(event, AgreementChecked)]

    assert checked
    assert [each.disagreements for each in checked] == [()] * len(checked)


async def test_a_probe_of_an_earlier_revision_is_never_made(make_rig):
    rig = await make_rig()
    await rig.feed(opened(0, quote("a"), quote("b", price=PRICE)))
    await rig.feed(probe(4))

    await rig.feed(probe(2, revision=1))
    answers = await rig.feed(SlotDecided(slot=0, revision=1, offset_s=0, commands=0))

    assert answer_in(answers).requested == 2


def test_the_ledger_says_what_they_were_for():
    assert PROBED == "probed"


# --- what proves one ----------------------------------------------------------------------------


@pytest.fixture
async def proving(tmp_path):
    rig = Rig(tmp_path)
    await rig.actuation.start()
    for event in (
        MARKET,
        opened(0, quote("a"), quote("b"), quote("c")),
        JobSubmitted(job=JOB, ts_event_ns=0),
        ADMITTED,
    ):
        await rig.feed(event)
    yield rig
    rig.close()


def test_a_probe_is_of_an_admitted_job_where_it_can_run(proving):
    proving.handler.check(proving.state, probe(4, tenant=TENANT))


@pytest.mark.parametrize(
    "changed",
    [
        {"job_id": "another"},
        {"offering_id": "nowhere"},
        {"instances": 5},
        {"instances": 0},
        {"slot": 7},
    ],
)
def test_no_other_is_believed(proving, changed):
    with pytest.raises(Unproven):
        proving.handler.check(proving.state, replace(probe(4, tenant=TENANT), **changed))
