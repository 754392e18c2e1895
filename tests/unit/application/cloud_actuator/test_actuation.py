"""The actuator on a real ledger file and the simulated cloud: laws of money, and sudden death."""

import asyncio
import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.cloud_actuator.ports import (
    LedgerEnd,
    LedgerEntry,
    OwnerFenced,
)
from spotline.domain.events.capacity import (
    CapacityLost,
    CostAccrued,
    InterruptionNoticed,
    LaunchRefused,
    SlotDecided,
)
from spotline.domain.jobs.lot import JobHolding
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.instance_life import LifeState
from tests.depth import every_third, examples
from tests.fakes.actuator import (
    SLOT_S,
    Killed,
    Rig,
    command,
    launch,
    lot,
    opened,
    quote,
    reported,
    running_in,
)


@pytest.fixture
def rig(tmp_path):
    made = Rig(tmp_path)
    yield made
    made.close()


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


async def running(rig):
    return [one.instance_id for one in await running_in(rig.cloud)]


async def test_a_slot_is_launched_reported_settled_and_billed(rig):
    assert await rig.feed(opened(0)) == ()
    answers = await rig.decide(0, 0, 0, [("j", lot(spot=3, on_demand=1))])
    bills = await rig.feed(opened(1))

    (report,) = answers
    assert (report.settled, report.offset_s) == (True, 0)
    held = tuple(await running(rig))
    lots = (lot(spot=3, on_demand=1),)
    assert report.holdings == (JobHolding(job_id="j", lots=lots, instance_ids=held),)
    assert [(bill.instances, bill.held_s, bill.cost_micro_usd) for bill in bills] == [
        (1, SLOT_S, 3_000_003),
        (3, SLOT_S, 3_000_003),
    ]


async def test_a_short_launch_is_refused_in_part_and_does_not_settle(rig):
    await rig.feed(opened(0, quote(spot=2)))

    refused, report = await rig.decide(0, 0, 0, [("j", lot(spot=4))])

    assert isinstance(refused, LaunchRefused)
    assert (refused.requested, refused.granted) == (4, 2)
    assert (report.settled, report.holdings[0].lots) == (False, (lot(spot=2),))


async def test_one_job_can_take_what_another_gives_back_whatever_the_order_of_commands(rig):
    await rig.run_slot(opened(0, quote(spot=4)), [("b", lot(spot=4))])
    await rig.feed(opened(1, quote(spot=4)))

    answers = await rig.decide(1, 0, 0, [("a", lot(spot=3)), ("b", lot(spot=1))])

    assert reported(answers).settled


async def test_falling_availability_is_noticed_and_costs_nothing_when_released_in_time(rig):
    await rig.run_slot(opened(0, quote(spot=4)), [("j", lot(spot=4))])

    opening = await rig.feed(opened(1, quote(spot=1)))
    answers = await rig.decide(1, 0, 0, [("j", lot(spot=1))])
    bills = await rig.feed(opened(2))

    (notice,) = of_kind(opening, InterruptionNoticed)
    assert (len(notice.instance_ids), notice.offset_s, notice.lead_s) == (3, 0, 120)
    assert len(answers) == 1
    assert answers[0].settled
    assert [(bill.instances, bill.held_s) for bill in bills] == [(1, SLOT_S)]


async def test_noticed_and_kept_is_taken_when_the_lead_is_over_and_billed_until_then(rig):
    await rig.run_slot(opened(0, quote(spot=4)), [("j", lot(spot=4))])
    (notice,) = of_kind(await rig.feed(opened(1, quote(spot=1))), InterruptionNoticed)

    lost, report = await rig.decide(1, 0, 0, [])
    again = await rig.decide(1, 1, report.offset_s, [])
    bills = await rig.feed(opened(2))

    assert (lost.instance_ids, lost.offset_s) == (notice.instance_ids, 120)
    assert (report.settled, report.offset_s) == (False, 120)
    assert reported(again).settled
    assert [(bill.instances, bill.held_s) for bill in bills] == [(4, 120), (1, SLOT_S - 120)]


async def test_chance_in_mid_slot_gives_notice_loss_and_an_unsettled_report(tmp_path):
    rig = Rig(tmp_path, settings=SimulatedCloudSettings(interruption_per_instance_hour=1.0))
    await rig.feed(opened(0))

    notice, lost, report = await rig.decide(0, 0, 0, [("j", lot(spot=2))])

    assert notice.instance_ids == lost.instance_ids
    assert notice.offset_s + notice.lead_s == lost.offset_s == report.offset_s > 0
    assert (report.settled, report.holdings[0].lots) == (False, (lot(spot=1),))
    rig.close()


async def test_the_last_slot_is_billed_when_it_settles(rig):
    await rig.feed(opened(0, last=True))

    report, bill = await rig.decide(0, 0, 0, [("j", lot(spot=2))])

    assert report.settled
    assert (bill.held_s, bill.cost_micro_usd) == (SLOT_S, 2_000_002)


async def test_performing_a_call_again_changes_nothing_and_answers_the_same(rig):
    await rig.feed(opened(0))
    rig.call(command("j", lot(spot=2), 0))
    call = rig.call(SlotDecided(slot=0, revision=0, offset_s=0, commands=1))

    first = await rig.perform(call)
    again = await rig.perform(call)

    assert list(first) == list(again)
    assert len(await running(rig)) == 2


async def test_launches_per_minute_are_capped_in_market_time(tmp_path):
    rig = Rig(tmp_path, caps=Caps(launches_per_minute=2))
    await rig.feed(opened(0))

    refused, _ = await rig.decide(0, 0, 0, [("j", lot(spot=3))])
    within_the_minute = await rig.decide(0, 1, 59, [("j", lot(spot=3))])
    after_it = await rig.decide(0, 2, 60, [("j", lot(spot=3))])

    assert (refused.granted, refused.detail) == (2, "cap launches per minute")
    assert of_kind(within_the_minute, LaunchRefused)[0].granted == 0
    assert reported(after_it).settled
    rig.close()


async def test_a_job_at_its_cap_is_dropped_at_the_slot_it_could_not_pay(tmp_path):
    cap = 5_000_000
    rig = Rig(tmp_path, caps=Caps(micro_usd_per_job=cap))
    await rig.run_slot(opened(0), [("j", lot(spot=2))])
    await rig.run_slot(opened(1))
    await rig.feed(opened(2))

    lost, report = await rig.decide(2, 0, 0, [])

    assert isinstance(lost, CapacityLost)
    assert (len(lost.instance_ids), lost.offset_s, report.settled) == (2, 0, False)
    assert (report.holdings, await running(rig)) == ((), [])
    assert rig.ledger.spend_micro_usd("j") == 4_000_004 <= cap
    rig.close()


async def test_what_nobody_ordered_is_looked_at_and_never_ended_by_a_look(rig):
    await rig.run_slot(opened(0), [("j", lot(spot=1))])
    ours = await running(rig)
    await rig.cloud.launch(launch("alien", 1))

    await rig.actuation.start()
    for slot in (1, 2, 3):
        await rig.run_slot(opened(slot))

    assert await running(rig) == [*ours, "sim-alien-0"]
    lives = await rig.lives_of("sim-alien-0")
    assert [(life.state, life.ours) for life in lives] == [(LifeState.UNKNOWN, False)]
    assert {found.reaped for found in rig.looks} == {()}


async def test_an_instance_ended_in_the_ledger_but_running_is_ended_again(rig):
    await rig.run_slot(opened(0), [("j", lot(spot=1))])
    (instance_id,) = await running(rig)
    end = LedgerEnd(instance_id=instance_id, slot=0, offset_s=9, reason="released")
    rig.ledger.record(LedgerEntry(ended=(end,)))

    await rig.actuation.start()

    assert await running(rig) == []


async def test_what_vanished_without_a_word_is_reported_lost(rig):
    await rig.run_slot(opened(0), [("j", lot(spot=2))])
    gone = (await running(rig))[0]
    await rig.cloud.terminate(rig.ledger.owner, [gone])

    assert (await rig.actuation.start()).gone == (gone,)
    await rig.feed(opened(1))
    lost, report = await rig.decide(1, 0, 0, [])

    assert (lost.instance_ids, report.settled) == ((gone,), False)
    assert report.holdings[0].lots == (lot(spot=1),)


async def test_a_stale_owner_can_neither_write_nor_launch(tmp_path, rig):
    await rig.feed(opened(0))
    rig.call(command("j", lot(spot=2), 0))
    call = rig.call(SlotDecided(slot=0, revision=0, offset_s=0, commands=1))
    newer = Rig(tmp_path)
    await newer.actuation.start()

    with pytest.raises(OwnerFenced):
        await rig.perform(call)

    assert await running(newer) == []
    with pytest.raises(OwnerFenced):
        await rig.cloud.launch(launch("t", 1, epoch=rig.ledger.owner.epoch))
    newer.close()


async def test_an_attempt_whose_decision_is_lost_from_the_log_is_billed_and_ended(rig):
    await rig.feed(opened(0))
    rig.call(command("j", lot(spot=2), 0))
    call = rig.call(SlotDecided(slot=0, revision=0, offset_s=0, commands=1))
    # Dies after the launch, before its result; the decision never comes again.
    rig.kill.at = {rig.kill.passed + 3}
    with pytest.raises(Killed):
        await rig.perform(call)
    await rig.restart()
    assert len(await running(rig)) == 2

    bills = await rig.feed(opened(1))

    assert [(bill.instances, bill.held_s) for bill in of_kind(bills, CostAccrued)] == [(2, SLOT_S)]
    assert (await running(rig), rig.ledger.held(), rig.ledger.pending()) == ([], [], [])


# --- laws -------------------------------------------------------------------------------------

FAULTS = SimulatedCloudSettings(seed=7, refusal_probability=0.1, interruption_per_instance_hour=0.2)
CAPS = Caps(micro_usd_per_job=12_000_000, micro_usd_per_hour=25_000_000, launches_per_minute=20)


async def story(rig, after=lambda report: None):
    """A few slots with every kind of trouble in them."""
    targets = [
        [("a", lot(spot=3)), ("b", lot(spot=2, on_demand=1))],
        [("a", lot(on_demand=2)), ("b", lot(spot=4))],
        [],
        [("c", lot(spot=9)), ("b", lot())],
    ]
    for slot, (available, slot_targets) in enumerate(zip([6, 5, 2, 8], targets, strict=True)):
        last = slot == len(targets) - 1
        await rig.run_slot(opened(slot, quote(spot=available), last=last), slot_targets, after)


async def end_of(rig):
    return rig.published, rig.ledger.comparable(), await running_in(rig.cloud)


async def test_killed_between_any_two_steps_the_run_ends_the_same(tmp_path):
    undisturbed = Rig(tmp_path / "undisturbed", settings=FAULTS, caps=CAPS)
    await story(undisturbed)
    expected = await end_of(undisturbed)
    points = undisturbed.kill.passed
    undisturbed.close()
    assert of_kind(expected[0], LaunchRefused)
    assert of_kind(expected[0], CapacityLost)
    assert points > 40

    for point in every_third(range(points)):
        rig = Rig(tmp_path / str(point), settings=FAULTS, caps=CAPS)
        # The second time it dies while it recovers, at a step that differs from run to run.
        rig.kill.at = {point, point + point % 4}
        await story(rig)
        assert rig.ledger.owner.epoch > 1
        assert await end_of(rig) == expected, f"killed at {sorted(rig.kill.at)}"
        rig.close()


SLOTS = st.lists(
    st.tuples(
        st.integers(0, 6),
        st.lists(
            st.tuples(
                st.sampled_from("xyz"), st.integers(0, 5), st.integers(0, 2), st.sampled_from("pq")
            ),
            max_size=3,
            unique_by=lambda target: (target[0], target[3]),
        ),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slots=SLOTS, seed=st.integers(0, 99), kill_at=st.sets(st.integers(0, 60), max_size=3))
def test_holdings_fit_the_stock_and_the_ledger_is_the_sum_of_costs(slots, seed, kill_at):
    faults = SimulatedCloudSettings(
        seed=seed, refusal_probability=0.1, interruption_per_instance_hour=0.3
    )

    async def run(directory):
        rig = Rig(directory, settings=faults)
        rig.kill.at = kill_at
        for slot, (available, targets) in enumerate(slots):
            last = slot == len(slots) - 1
            quotes = (quote("p", spot=available), quote("q", spot=3, on_demand=2))

            def fits(report, available=available):
                if not report.settled:
                    return  # what was noticed is held until its lead is over
                for offering_id, stock in (("p", available), ("q", 3)):
                    lots = [one for job in report.holdings for one in job.lots]
                    ours = [one for one in lots if one.offering_id == offering_id]
                    assert sum(one.spot for one in ours) <= stock
                    if offering_id == "q":
                        assert sum(one.on_demand for one in ours) <= 2

            wanted = [
                (job_id, lot(spot, on_demand, offering_id))
                for job_id, spot, on_demand, offering_id in targets
            ]
            await rig.run_slot(opened(slot, *quotes, last=last), wanted, fits)
        accrued = [one for one in rig.published if isinstance(one, CostAccrued)]
        assert rig.ledger.total_micro_usd() == sum(one.cost_micro_usd for one in accrued)
        held = [one.instance_id for one in rig.ledger.held()]
        assert held == await running(rig)
        instances = rig.ledger.comparable()["instances"]
        granted = rig.ledger.comparable()["results"]
        assert len(instances) == sum(
            row["granted_spot"] + row["granted_on_demand"] for row in granted
        )
        rig.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(slots=SLOTS)
def test_caps_hold_over_whole_runs(slots):
    caps = Caps(micro_usd_per_job=9_000_000, micro_usd_per_hour=8_000_000, launches_per_minute=3)

    async def run(directory):
        rig = Rig(directory, caps=caps)
        for slot, (available, targets) in enumerate(slots):
            quotes = (quote("p", spot=available), quote("q", spot=3))
            wanted = [
                (job_id, lot(spot, on_demand, offering_id))
                for job_id, spot, on_demand, offering_id in targets
            ]
            last = slot == len(slots) - 1
            await rig.run_slot(opened(slot, *quotes, last=last), wanted)
        accrued = [one for one in rig.published if isinstance(one, CostAccrued)]
        # Every segment is rounded by itself, by at most half a micro-dollar.
        assert all(
            spent <= caps.micro_usd_per_job + len(accrued)
            for spent in rig.ledger.spend_by_job().values()
        )
        starts = sorted(
            (row["start_slot"], row["start_offset_s"])
            for row in rig.ledger.comparable()["instances"]
        )
        for _, together in itertools.groupby(starts):
            assert len(list(together)) <= caps.launches_per_minute
        rig.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))
