"""Instances of a launch without an answer that turn up later: kept where wanted, else released."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Outcome
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.capacity import (
    CapacityReported,
    LaunchRefused,
    ProvisioningCommanded,
    RefusalClass,
    SlotDecided,
)
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.jobs.lot import JobHolding, Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move
from tests.unit.application.selector.test_revisions import MARKET, Driver, refusing_driver

OTHER = next(offering.offering_id for offering in reversed(MARKET.offerings))


def started() -> tuple[Driver, int, Outcome]:
    """A slot in which one job is to be decided."""
    driver, slot = refusing_driver(SelectorOptions(rehearsals=0))
    outcome = driver.feed(ForecastOverdue(slot=slot, waited_ms=1))
    return driver, slot, outcome


def only_run(driver: Driver):
    (run,) = driver.state.runs.values()
    return run


def answer(driver: Driver, outcome: Outcome, lots: tuple[Lot, ...], move=None) -> Outcome:
    """The allocator says what the job is to hold."""
    run = only_run(driver)
    return driver.feed(
        AllocationAnswered(
            slot=driver.state.slot,
            revision=driver.state.revision,
            request_digest=outcome.calls[0].digest,
            outcome=CallOutcome.ANSWERED,
            answers=(
                JobAnswer(
                    job_id=run.job.job_id,
                    policy_id=run.policy_id,
                    lots=lots,
                    reason=DecisionReason.POLICY,
                    memory=run.memory,
                    move=move,
                ),
            ),
        )
    )


def refuse(driver: Driver, refusal_class: RefusalClass, granted: int = 0) -> None:
    run = only_run(driver)
    driver.feed(
        LaunchRefused(
            command_id="c",
            job_id=run.job.job_id,
            tenant=run.job.tenant,
            offering_id=run.offering_id,
            capacity_type=CapacityType.SPOT,
            slot=driver.state.slot,
            requested=4,
            granted=granted,
            detail="test",
            refusal_class=refusal_class,
        )
    )


def report(driver: Driver, *lots: Lot, settled: bool = False, offset_s: int = 0) -> Outcome:
    """The cloud says what the job holds."""
    holdings = (JobHolding(job_id=only_run(driver).job.job_id, lots=lots),) if lots else ()
    return driver.feed(
        CapacityReported(
            slot=driver.state.slot,
            revision=driver.state.revision,
            offset_s=offset_s,
            settled=settled,
            holdings=holdings,
        )
    )


def commanded(outcome: Outcome) -> list[Lot]:
    commands = [event for event in outcome.events if isinstance(event, ProvisioningCommanded)]
    (decided,) = [event for event in outcome.events if isinstance(event, SlotDecided)]
    assert decided.commands == len(commands)
    return [command.target for command in commands]


def test_what_a_job_holds_beside_its_target_is_released_by_the_next_revision() -> None:
    driver, _, outcome = started()
    home = only_run(driver).offering_id
    answer(driver, outcome, (Lot(offering_id=home, spot=4),))

    after = report(driver, Lot(offering_id=home, spot=4), Lot(offering_id=OTHER, spot=3))

    assert not after.calls
    assert commanded(after) == [Lot(offering_id=OTHER)]
    # No fault of the job's: it uses up none of the revisions that its refusals may take.
    assert driver.state.job_revisions == 0


def test_what_is_held_beside_the_target_is_released_where_revisions_are_used_up_too() -> None:
    driver, _ = refusing_driver(SelectorOptions(rehearsals=0, most_revisions=0))
    outcome = driver.feed(ForecastOverdue(slot=driver.state.slot, waited_ms=1))
    home = only_run(driver).offering_id
    answer(driver, outcome, (Lot(offering_id=home, spot=4),))
    refuse(driver, RefusalClass.NO_CAPACITY, granted=2)

    after = report(driver, Lot(offering_id=home, spot=2), Lot(offering_id=OTHER, spot=3))

    assert commanded(after) == [Lot(offering_id=OTHER)]


def test_what_turns_up_for_a_job_that_is_over_is_released_in_the_slot() -> None:
    driver, slot, outcome = started()
    run = only_run(driver)
    answer(driver, outcome, (Lot(offering_id=run.offering_id, spot=4),))
    report(driver, Lot(offering_id=run.offering_id, spot=4), settled=True)
    ended = driver.state.current.ts_event_ns + 60 * 10**9
    cancelled = JobCancelled(job_id=run.job.job_id, tenant=run.job.tenant, ts_event_ns=ended)
    assert commanded(driver.feed(cancelled)) == [Lot(offering_id=run.offering_id)]

    after = report(driver, Lot(offering_id=run.offering_id, spot=2), offset_s=60)

    assert driver.state.slot == slot
    assert commanded(after) == [Lot(offering_id=run.offering_id)]


def test_a_job_that_goes_elsewhere_gives_up_what_may_still_turn_up() -> None:
    driver, _, outcome = started()
    home = only_run(driver).offering_id
    answer(driver, outcome, (Lot(offering_id=home, spot=4),))
    refuse(driver, RefusalClass.UNKNOWN_OUTCOME)
    again = report(driver)

    move = Move(from_offering_id=home, overhead_s=0, cost_micro_usd=0)
    after = answer(driver, again, (Lot(offering_id=OTHER, spot=4),), move)

    # The release first: what it frees may be what the other launches.
    assert commanded(after) == [Lot(offering_id=home), Lot(offering_id=OTHER, spot=4)]


def test_a_job_that_was_refused_for_good_gives_up_nothing_that_it_does_not_hold() -> None:
    driver, _, outcome = started()
    home = only_run(driver).offering_id
    answer(driver, outcome, (Lot(offering_id=home, spot=4),))
    refuse(driver, RefusalClass.NO_CAPACITY)
    again = report(driver)

    move = Move(from_offering_id=home, overhead_s=0, cost_micro_usd=0)
    after = answer(driver, again, (Lot(offering_id=OTHER, spot=4),), move)

    assert commanded(after) == [Lot(offering_id=OTHER, spot=4)]


def test_a_set_that_turns_up_while_its_job_waits_may_be_kept() -> None:
    driver, _, outcome = started()
    home = only_run(driver).offering_id
    answer(driver, outcome, (Lot(offering_id=home, spot=4),))
    refuse(driver, RefusalClass.UNKNOWN_OUTCOME)
    waiting = answer(driver, report(driver), ())
    assert commanded(waiting) == []
    assert driver.state.residual().spot(home) == 0

    again = report(driver, Lot(offering_id=home, spot=4))

    # The refusal has shown that there are none; four have turned up since.
    assert driver.state.residual().spot(home) == 4
    assert commanded(answer(driver, again, (Lot(offering_id=home, spot=4),))) == []


def test_a_doubt_of_a_slot_long_over_gives_nothing_up() -> None:
    driver, slot, outcome = started()
    run = only_run(driver)
    answer(driver, outcome, (Lot(offering_id=run.offering_id, spot=4),))
    refuse(driver, RefusalClass.UNKNOWN_OUTCOME)
    answer(driver, report(driver), ())
    report(driver, settled=True)

    opened = driver.state.current
    for later in (slot + 1, slot + 2):
        start_ns = opened.ts_event_ns + (later - slot) * opened.slot_s * 10**9
        driver.feed(replace(opened, slot=later, ts_event_ns=start_ns))
        driver.feed(ForecastOverdue(slot=later, waited_ms=1))

    assert run.in_doubt == {}
