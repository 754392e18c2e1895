"""Log, ledger and cloud compared: what was lost is mended or frozen, and nothing is bought twice."""

import shutil
from dataclasses import replace

import pytest

from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.domain.events.agreement import (
    AgreementChecked,
    DisagreementKind,
    OrphanFound,
    OrphanReapRequested,
    OrphanSettled,
)
from spotline.domain.events.capacity import CostAccrued, LaunchRefused
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.market import MarketOpened
from spotline.domain.ledger.caps import Caps
from spotline.domain.ledger.job_records import JobRecord
from spotline.domain.ledger.orphans import ANY_ACCOUNT, ReapMode, ReapRules
from spotline.domain.limits.freezes import FreezeReason, FreezeScope
from tests.fakes.actuator import (
    INSTALLATION,
    SLOT_S,
    Rig,
    launch,
    lot,
    opened,
    quote,
    reported,
    running_in,
    submitted,
)
from tests.fakes.renting import offering

ALIEN = "sim-alien-0"
REPORTS = ReapRules(installation_id=INSTALLATION, accounts=(ANY_ACCOUNT,))
REAPS = replace(REPORTS, mode=ReapMode.REAP, grace_s=0)


def rig_in(folder, reap=REPORTS):
    return Rig(folder, agreement=AgreementRules(every_slots=1, reap=reap))


@pytest.fixture
def rig(tmp_path):
    made = rig_in(tmp_path)
    yield made
    made.close()


def closed_record(slot):
    closed = JobClosed(
        job_id="j",
        tenant="acme",
        slot=slot,
        outcome=JobOutcome.COMPLETED,
        policy_id="p",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )
    return JobRecord(event_id="closed", correlation_id="j", job_id="j", event=closed)


def of_kind(events, kind):
    return [event for event in events if isinstance(event, kind)]


def kinds_of(events):
    checked = of_kind(events, AgreementChecked)
    return [one.kind for one in checked[-1].disagreements]


async def running(rig):
    return [instance.instance_id for instance in await running_in(rig.cloud)]


async def play(rig, slots, targets=None):
    """Slots from 0 on, the targets (three for j) decided in the first."""
    targets = targets or [("j", lot(spot=3))]
    for slot in range(slots):
        await rig.run_slot(opened(slot), targets if slot == 0 else ())


async def lose_ledger(rig, backup=None):
    """Start again with no ledger, or with a copy of one."""
    rig.close()
    ledger = rig.directory / "ledger.sqlite"
    for file in rig.directory.glob("ledger.sqlite*"):
        file.unlink()
    if backup is not None:
        shutil.copy(backup, ledger)
    rig.open()
    await rig.actuation.start()


def back_up(rig):
    rig.ledger.close()
    copy = rig.directory / "copy.sqlite"
    shutil.copy(rig.directory / "ledger.sqlite", copy)
    rig.close()
    rig.open()
    return copy


# --- nothing is wrong -------------------------------------------------------------------------


async def test_an_undisturbed_run_agrees_at_every_comparison(rig):
    await rig.feed(submitted())
    await play(rig, 4)
    await rig.restart()
    await rig.run_slot(opened(4), [("j", lot(spot=1))])

    checks = of_kind(rig.published, AgreementChecked)
    assert [check.slot for check in checks] == [0, 1, 2, 3, 4]
    assert [check.disagreements for check in checks] == [()] * 5
    assert of_kind(rig.published, BuyingFrozen) == []


async def test_comparisons_are_made_at_the_start_and_every_n_slots(tmp_path):
    rig = Rig(tmp_path, agreement=AgreementRules(every_slots=3))
    await rig.feed(submitted())
    await play(rig, 5)
    await rig.restart()
    await rig.run_slot(opened(5))

    assert [check.slot for check in of_kind(rig.published, AgreementChecked)] == [0, 3, 5]
    rig.close()


# --- row 9: the ledger is lost, or restored older ---------------------------------------------


async def test_with_the_ledger_lost_what_runs_is_adopted_and_nothing_is_bought_twice(rig):
    await rig.feed(submitted())
    await play(rig, 3)
    held, spent = await running(rig), rig.ledger.spend_micro_usd("j")

    await lose_ledger(rig)
    answers = await rig.feed(opened(3))
    report = reported(await rig.decide(3, 0, 0, [("j", lot(spot=3))]))

    assert DisagreementKind.LEDGER_LOST in kinds_of(answers)
    assert await running(rig) == held
    assert report.holdings[0].instance_ids == tuple(held)
    # Slot 2 is charged now, the two before it were accrued and are charged again.
    bills = sum(bill.cost_micro_usd for bill in of_kind(answers, CostAccrued))
    assert rig.ledger.spend_micro_usd("j") == spent + bills
    assert bills == 3_000_003
    assert rig.ledger.admitted_ids() == ["j"]
    await rig.run_slot(opened(4))
    assert kinds_of(rig.published) == []
    rig.ledger.audit()


async def test_with_the_ledger_lost_in_mid_slot_the_revision_goes_on_from_what_is_held(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    held = await running(rig)
    await rig.feed(opened(2))

    await lose_ledger(rig)
    answers = await rig.decide(2, 0, 0, [("j", lot(spot=4))])

    assert DisagreementKind.LEDGER_LOST in kinds_of(answers)
    assert [name for name in await running(rig) if name in held] == held
    assert len(await running(rig)) == 4
    await rig.feed(opened(3))
    assert rig.ledger.spend_micro_usd("j") == 2 * 3_000_003 + 4_000_004


async def test_a_launch_after_the_last_report_is_proved_by_its_token(rig):
    await rig.feed(submitted())
    await play(rig, 1, [("j", lot(spot=1))])
    await rig.feed(opened(1))
    rig.kill.at = {rig.kill.passed + 3}  # launched, and not recorded

    async def restart():
        await lose_ledger(rig)

    rig.restart = restart
    await rig.decide(1, 0, 0, [("j", lot(spot=3))])

    assert len(await running(rig)) == 3
    assert of_kind(rig.published, OrphanFound) == []


async def test_with_an_older_ledger_what_was_released_since_is_not_held_again(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    copy = back_up(rig)
    await rig.actuation.start()
    await rig.run_slot(opened(2), [("j", lot(spot=1, on_demand=1))])
    await rig.run_slot(opened(3))
    held = await running(rig)

    await lose_ledger(rig, copy)
    answers = await rig.feed(opened(4))
    report = reported(await rig.decide(4, 0, 0, ()))

    assert DisagreementKind.LEDGER_OLDER in kinds_of(answers)
    assert sorted(report.holdings[0].instance_ids) == sorted(held) == sorted(await running(rig))
    # 2 x 3 spot, then 2 x (1 spot and 1 on-demand at three times the price).
    await rig.feed(opened(5))
    assert rig.ledger.spend_micro_usd("j") == 2 * 3_000_003 + 3 * 4 * 1_000_001
    assert kinds_of(rig.published) == []
    rig.ledger.audit()


async def test_with_the_ledger_lost_what_ended_in_the_open_slot_is_charged_until_then(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    await rig.feed(opened(2))
    await rig.decide(2, 0, 0, ())
    await rig.decide(2, 1, SLOT_S // 4, [("j", lot(spot=1))])

    await lose_ledger(rig)
    await rig.run_slot(opened(3))

    ended = 2 * (1_000_001 // 4)
    assert rig.ledger.spend_micro_usd("j") == pytest.approx(
        2 * 3_000_003 + ended + 1_000_001, abs=3
    )
    rig.ledger.audit()


async def test_with_an_older_ledger_what_was_released_in_the_open_slot_is_charged_until_then(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    copy = back_up(rig)
    await rig.actuation.start()
    await rig.feed(opened(2))
    await rig.decide(2, 0, 0, ())
    await rig.decide(2, 1, SLOT_S // 4, [("j", lot(spot=1))])
    await rig.feed(opened(3))
    await rig.decide(3, 0, SLOT_S // 2, [("j", lot())])

    await lose_ledger(rig, copy)
    await rig.run_slot(opened(4))

    ended = 2 * (1_000_001 // 4)
    whole = 2 * 3_000_003 + ended + 1_000_001 + 1_000_001 // 2
    assert rig.ledger.spend_micro_usd("j") == pytest.approx(whole, abs=3)
    rig.ledger.audit()


async def test_a_ledger_that_is_older_by_a_revision_charges_nothing_that_the_log_says_ended(rig):
    """It ends in the slot that the log reports, so nothing showed that it was older."""
    await rig.feed(submitted())
    await play(rig, 2)
    await rig.feed(opened(2))
    await rig.decide(2, 0, 0, ())
    copy = back_up(rig)
    await rig.actuation.start()
    await rig.decide(2, 1, SLOT_S // 4, [("j", lot(spot=1))])

    await lose_ledger(rig, copy)
    await rig.run_slot(opened(3))

    ended = 2 * (1_000_001 // 4)
    assert rig.ledger.spend_micro_usd("j") == pytest.approx(
        2 * 3_000_003 + ended + 1_000_001, abs=3
    )
    rig.ledger.audit()


async def test_with_the_log_wiped_a_job_that_the_ledger_knows_ended_stops_nothing(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    await rig.run_slot(opened(2), [("j", lot())])
    rig.ledger.note_jobs([closed_record(2)])

    await wiped(rig)

    assert kinds_of(rig.published) == [DisagreementKind.LOG_WIPED]


async def test_with_the_log_wiped_what_a_job_that_ended_still_holds_is_released(rig):
    await rig.feed(submitted())
    await play(rig, 3)
    rig.ledger.note_jobs([closed_record(2)])
    spent = rig.ledger.spend_micro_usd("j")

    await wiped(rig)

    assert await running(rig) == []
    assert rig.ledger.held() == []
    assert of_kind(rig.published, OrphanFound) == []
    (checked,) = of_kind(rig.published, AgreementChecked)
    (mended,) = [one for one in checked.disagreements if one.key == "j"]
    assert (mended.kind, mended.continue_with) == (DisagreementKind.INSTANCE_WITHOUT_JOB, "")
    # What was charged stays so, and nothing that is to come is.
    assert rig.ledger.spend_micro_usd("j") == spent
    rig.ledger.audit()


async def test_with_the_log_wiped_what_is_withheld_from_us_is_told_and_left_alone(rig):
    await rig.feed(submitted())
    await play(rig, 3)
    kept, *others = await running(rig)
    rig.ledger.note_jobs([closed_record(2)])
    rig.cloud.protect([kept])

    await wiped(rig)

    assert others
    assert await running(rig) == [kept]
    assert [one.instance_id for one in of_kind(rig.published, OrphanFound)] == [kept]


async def test_caps_go_on_from_what_was_spent_before_the_ledger_was_lost(tmp_path):
    rig = Rig(
        tmp_path,
        caps=Caps(micro_usd_per_job=7_000_000),
        agreement=AgreementRules(every_slots=1, reap=REPORTS),
    )
    await rig.feed(submitted())
    await play(rig, 2)

    await lose_ledger(rig)
    await rig.feed(opened(2))
    answers = await rig.decide(2, 0, 0, [("j", lot(spot=3))])

    # 6.000006 are spent; three more for an hour would pass the cap.
    assert reported(answers).holdings == ()
    rig.close()


async def test_a_job_of_which_the_cloud_does_not_show_all_is_frozen_and_bought_for_later(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    gone = (await running(rig))[0]
    rig.close()
    rig.open()
    with rig.cloud._store.transaction() as connection:
        connection.execute("UPDATE instances SET owner = 'hidden' WHERE instance_id = ?", (gone,))

    await lose_ledger(rig)
    opening = await rig.feed(opened(2))
    answers = await rig.decide(2, 0, 0, [("j", lot(spot=3))])

    (frozen,) = of_kind(opening, BuyingFrozen)
    assert (frozen.freeze.scope, frozen.freeze.key) == (FreezeScope.JOB, "j")
    assert gone in frozen.freeze.detail
    assert of_kind(answers, LaunchRefused)[0].detail.startswith("buying is stopped (")
    assert len(await running(rig)) == 2
    await rig.run_slot(opened(3), [("j", lot(spot=3))])
    assert [event.freeze_id for event in of_kind(rig.published, BuyingUnfrozen)] == [
        frozen.freeze.freeze_id
    ]
    assert len(await running(rig)) == 3


# --- row 2: the log is wiped ------------------------------------------------------------------


async def wiped(rig):
    """The same ledger and cloud with a log that begins anew."""
    rig.state = rig.handler.initial()
    await rig.restart()
    rig.published.clear()
    await rig.feed(opened(0, quote(price=1_000_002)))


async def test_with_the_log_wiped_nothing_is_bought_and_what_bills_on_is_told(rig):
    await rig.feed(submitted())
    await play(rig, 5)
    held = await running(rig)

    await wiped(rig)
    told = list(rig.published)
    await rig.feed(submitted("k"))
    answers = await rig.decide(0, 0, 0, [("k", lot(spot=1))])

    assert set(kinds_of(told)) == {
        DisagreementKind.LOG_WIPED,
        DisagreementKind.JOB_NOT_IN_LOG,
        DisagreementKind.CHARGE_WITHOUT_DECISION,
        DisagreementKind.INSTANCE_WITHOUT_JOB,
    }
    scopes = {one.freeze.scope for one in of_kind(told, BuyingFrozen)}
    assert scopes == {FreezeScope.SYSTEM, FreezeScope.JOB}
    assert sorted(one.instance_id for one in of_kind(told, OrphanFound)) == sorted(held)
    assert await running(rig) == held
    assert of_kind(answers, LaunchRefused)[0].detail.startswith(
        "buying is stopped (undecided/system/log_wiped): the ledger has answered"
    )


async def test_a_freeze_says_which_deadlines_it_may_cost(rig):
    await rig.feed(submitted("soon", deadline_slot=9))
    await rig.feed(submitted("late", deadline_slot=90))
    await rig.feed(opened(0))
    await rig.cloud.launch(launch("alien", 1, job_id="late"))
    await rig.feed(opened(1))

    (alien,) = of_kind(rig.published, AgreementChecked)[-1].disagreements

    assert (alien.kind, alien.scope, alien.key) == (
        DisagreementKind.INSTANCE_WITHOUT_JOB,
        FreezeScope.JOB,
        "late",
    )
    assert alien.affected_job_ids == ("late",)
    assert alien.first_deadline_ns == 90 * 3600 * 10**9
    # Only the job that is undecided stops.
    answers = await rig.decide(1, 0, 0, [("soon", lot(spot=1)), ("late", lot(spot=1))])
    (refused,) = of_kind(answers, LaunchRefused)
    assert refused.job_id == "late"


async def test_what_a_person_accepts_is_not_frozen_again(rig):
    await rig.feed(submitted())
    await play(rig, 2)
    await wiped(rig)
    frozen = [one.freeze.freeze_id for one in of_kind(rig.published, BuyingFrozen)]
    for freeze_id in frozen:
        rig.handler.evolve(rig.state, BuyingUnfrozen(freeze_id=freeze_id, by="operator"))
    rig.published.clear()

    await rig.feed(submitted("k"))
    answers = await rig.decide(0, 0, 0, [("k", lot(spot=1))])
    await rig.feed(opened(1, quote(price=1_000_002)))

    assert reported(answers).settled
    assert of_kind(rig.published, BuyingFrozen) == []
    assert kinds_of(rig.published)


# --- orphans ----------------------------------------------------------------------------------


async def with_alien(rig, **tags):
    """An instance that carries our tag and that nobody ordered, seen for two slots."""
    await rig.feed(
        MarketOpened(offerings=(offering("a"),), slot_s=3600, first_slot_start_ns=0, source="")
    )
    await rig.feed(submitted())
    await rig.run_slot(opened(0), [("j", lot(spot=1))])
    ours = await running(rig)
    tags = {"installation_id": INSTALLATION, **tags}
    await rig.cloud.launch(replace(launch("alien", 1, job_id=""), **tags))
    for slot in (1, 2, 3):
        await rig.run_slot(opened(slot))
    return ours


async def test_an_orphan_is_reported_once_and_left_alone(rig):
    ours = await with_alien(rig)

    (found,) = of_kind(rig.published, OrphanFound)
    assert (found.instance_id, found.reap_after_ns) == (ALIEN, 0)
    assert "spotline orphans reap" in found.detail
    assert await running(rig) == [*ours, ALIEN]


async def test_promoted_rules_end_it_on_record_after_its_grace(tmp_path):
    rig = rig_in(tmp_path, replace(REAPS, grace_s=3600))
    ours = await with_alien(rig)

    (found,) = of_kind(rig.published, OrphanFound)
    (settled,) = of_kind(rig.published, OrphanSettled)
    assert (found.slot, settled.slot, settled.reaped, settled.by) == (2, 3, True, "")
    assert settled.ts_event_ns >= found.reap_after_ns > 0
    assert await running(rig) == ours
    assert [look.reaped for look in rig.looks if look.reaped] == [(ALIEN,)]
    rig.close()


@pytest.mark.parametrize(
    ("rules", "tags", "why"),
    [
        (REAPS, {"installation_id": "elsewhere"}, "its installation id is elsewhere"),
        (replace(REAPS, accounts=("aws/other",)), {}, "its account aws/ is not among"),
        (replace(REAPS, installation_id=""), {}, "this installation has no id"),
    ],
)
async def test_what_is_not_surely_ours_is_never_ended(tmp_path, rules, tags, why):
    rig = rig_in(tmp_path, rules)
    await with_alien(rig, **tags)

    await rig.feed(OrphanReapRequested(instance_ids=(ALIEN,), by="operator"))

    assert ALIEN in await running(rig)
    assert why in of_kind(rig.published, OrphanFound)[-1].detail
    rig.close()


async def test_a_hold_tag_stands_against_everybody(tmp_path):
    rig = rig_in(tmp_path, replace(REAPS, grace_s=2 * 3600))
    await rig.feed(opened(0))
    await rig.cloud.launch(replace(launch("alien", 1), installation_id=INSTALLATION))
    rig.cloud.protect([ALIEN])
    for slot in (1, 2, 3, 4, 5):
        await rig.run_slot(opened(slot))
    await rig.feed(OrphanReapRequested(instance_ids=(ALIEN,), by="operator"))

    assert await running(rig) == [ALIEN]
    assert "spotline-hold" in of_kind(rig.published, OrphanFound)[-1].detail
    rig.close()


async def test_so_many_are_ended_at_a_time(tmp_path):
    rig = rig_in(tmp_path, replace(REAPS, at_most=2))
    await rig.feed(opened(0, quote(spot=9)))
    await rig.cloud.launch(replace(launch("alien", 5), installation_id=INSTALLATION))

    counts = []
    for slot in range(1, 6):
        await rig.run_slot(opened(slot, quote(spot=9)))
        counts.append(len(await running(rig)))

    assert counts == [5, 5, 3, 1, 0]
    assert len(of_kind(rig.published, OrphanSettled)) == 5
    rig.close()


async def test_a_person_ends_one_before_the_rules_do(rig):
    ours = await with_alien(rig)

    answers = await rig.feed(OrphanReapRequested(instance_ids=(ALIEN, "never-was"), by="op"))

    assert [(one.instance_id, one.reaped, one.by) for one in answers] == [(ALIEN, True, "op")]
    assert await running(rig) == ours


async def test_what_a_closed_job_still_holds_is_an_orphan_after_a_slot(tmp_path):
    rig = rig_in(tmp_path, REAPS)
    await rig.feed(submitted())
    await play(rig, 2)
    await rig.feed(closed_record(1).event)
    held = await running(rig)

    await rig.run_slot(opened(2))
    assert of_kind(rig.published, OrphanFound) == []
    await rig.run_slot(opened(3))
    await rig.run_slot(opened(4))

    assert held
    assert {one.instance_id for one in of_kind(rig.published, OrphanFound)} == set(held)
    assert len(await running(rig)) == len(held) - REAPS.at_most
    await rig.run_slot(opened(5))
    assert await running(rig) == []
    rig.close()


async def test_an_orphan_that_is_gone_is_settled(rig):
    await with_alien(rig)
    await rig.cloud.terminate(rig.ledger.owner, [ALIEN])

    await rig.run_slot(opened(4))

    (settled,) = of_kind(rig.published, OrphanSettled)
    assert (settled.instance_id, settled.reaped) == (ALIEN, False)


async def test_a_freeze_ends_when_a_later_comparison_agrees(rig):
    await rig.feed(submitted())
    await rig.feed(opened(0))
    await rig.cloud.launch(launch("alien", 1, job_id="j"))
    await rig.feed(opened(1))
    (frozen,) = of_kind(rig.published, BuyingFrozen)
    assert frozen.freeze.reason is FreezeReason.UNDECIDED

    await rig.cloud.terminate(rig.ledger.owner, [ALIEN])
    await rig.feed(opened(2))

    assert [event.freeze_id for event in of_kind(rig.published, BuyingUnfrozen)] == [
        frozen.freeze.freeze_id
    ]
    assert reported(await rig.decide(2, 0, 0, [("j", lot(spot=1))])).settled


async def test_an_epoch_that_the_cloud_remembers_is_gone_on_from(rig):
    await rig.feed(submitted())
    for _ in range(3):
        await rig.restart()
    await play(rig, 1)
    epoch = rig.ledger.owner.epoch

    await lose_ledger(rig)

    assert rig.ledger.owner.epoch > epoch
