from dataclasses import replace

import pytest

from spotline.application.cloud_actuator.handler import (
    ADMIT,
    APPLY_REVISION,
    OPEN_SLOT,
    SIGNALLED,
    SPEC,
    ActuateHandler,
)
from spotline.application.unfit import Unfit
from spotline.contracts.mapping import digest
from spotline.domain.events.capacity import CapacitySignalled, SlotDecided
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import CTX, SLOT_S, command, lot, opened, quote
from tests.fakes.renting import offering
from tests.samples.events import SAMPLES


def run(*events):
    handler = ActuateHandler()
    state = handler.initial()
    calls = []
    for event in events:
        handler.evolve(state, event)
        outcome = handler.decide(state, event, CTX)
        assert outcome.events == ()
        calls += outcome.calls
    assert handler.due(state) == ()
    return calls


def decided(slot, revision=0, commands=0, offset_s=0):
    return SlotDecided(slot=slot, revision=revision, offset_s=offset_s, commands=commands)


def test_it_decides_no_events():
    assert SPEC.decides == ()


def test_the_first_slot_bills_nothing_and_the_next_bills_it_at_its_own_prices():
    first, second = run(opened(0, quote(price=10)), opened(1, quote(price=20)))

    assert (first.name, first.request.unbilled) == (OPEN_SLOT, ())
    (unbilled,) = second.request.unbilled
    assert (unbilled.slot, unbilled.slot_s) == (0, SLOT_S)
    assert unbilled.by_offering()["a"].spot_micro_usd == 10


def test_a_slot_that_is_told_again_under_another_id_is_not_billed_again():
    calls = run(opened(0), opened(1), replace(opened(1)))

    assert [call.request.at.slot for call in calls] == [0, 1]


def test_skipped_slots_are_billed_at_the_last_known_prices():
    *_, call = run(opened(0, quote(price=10)), opened(3, quote(price=20)))

    assert [(one.slot, one.prices[0].spot_micro_usd) for one in call.request.unbilled] == [
        (0, 10),
        (1, 10),
        (2, 10),
    ]


def test_an_offering_missing_from_a_snapshot_keeps_its_last_price():
    *_, call = run(
        opened(0, quote("a", price=10), quote("b", price=30)), opened(1, quote("a")), opened(2)
    )

    assert call.request.unbilled[0].by_offering()["b"].spot_micro_usd == 30


def test_a_slot_after_the_last_is_not_billed_twice():
    *_, call = run(opened(0, last=True), opened(1))

    assert call.request.unbilled == ()


def test_commands_wait_for_their_revision_and_go_together():
    commands = [command("j", lot(spot=2), 0), command("k", lot(spot=1), 0)]

    _, call = run(opened(0), *commands, decided(0, commands=2))

    assert call.name == APPLY_REVISION
    assert call.request.commands == tuple(commands)
    assert (call.request.at.offset_s, call.request.last) == (0, False)


def test_commands_of_an_earlier_revision_are_not_carried_out_again():
    later = command("j", lot(spot=1), 0, revision=1, offset_s=900)

    *_, call = run(
        opened(0),
        command("j", lot(spot=2), 0),
        decided(0, commands=1),
        later,
        decided(0, revision=1, commands=1, offset_s=900),
    )

    assert call.request.commands == (later,)
    assert call.request.at.ts_ns == 900 * 10**9


def test_a_revision_of_a_slot_that_is_over_is_not_carried_out():
    calls = run(opened(0), command("j", lot(spot=2), 0), opened(1), decided(0, commands=1))

    assert [call.name for call in calls] == [OPEN_SLOT, OPEN_SLOT]


def test_a_decision_before_its_slot_or_without_its_commands_does_not_fit():
    with pytest.raises(Unfit, match=r"slot must be one that has opened \(<= 0\), was 1"):
        run(opened(0), decided(1))
    with pytest.raises(Unfit, match="commands must be 0, as many as came of revision 0"):
        run(opened(0), decided(0, commands=1))


def test_calls_are_identified_by_their_content():
    one, same, other = (run(opened(0, quote(price=price)))[0].digest for price in (1, 1, 2))

    assert one == same != other


def test_a_submitted_job_is_admitted_by_its_digest_and_another_text_is_another_call():
    submitted = next(one for one in SAMPLES if isinstance(one, JobSubmitted))
    other = replace(submitted, job=replace(submitted.job, value_micro_usd=12345))

    (call,), (again,), (changed,) = run(submitted), run(submitted), run(other)

    assert (call.name, call.request.job_id) == (ADMIT, submitted.job.job_id)
    assert call.request.job_digest == digest(submitted.job)
    assert call == again != changed


def test_a_signal_is_taken_up_within_its_slot_and_after_its_last_revision():
    signal = CapacitySignalled(slot=1, offset_s=77)

    before = run(opened(0), opened(1), signal)[-1]
    after = run(opened(0), opened(1), decided(1), decided(1, revision=1, offset_s=9), signal)[-1]

    assert (before.name, before.request.revision) == (SIGNALLED, -1)
    assert (after.request.revision, after.request.at.offset_s) == (1, 77)
    assert after.request.at.ts_ns == (SLOT_S + 77) * NS_PER_S


@pytest.mark.parametrize("slot", [0, 2])
def test_a_signal_of_another_slot_is_left_to_that_slots_own_calls(slot):
    calls = run(opened(0), opened(1), CapacitySignalled(slot=slot, offset_s=1))

    assert [call.name for call in calls] == [OPEN_SLOT, OPEN_SLOT]


def test_where_offerings_are_goes_with_a_revision_and_is_no_part_of_its_identity():
    market = MarketOpened(
        offerings=(offering("a"), offering("b")), slot_s=SLOT_S, first_slot_start_ns=0, source="t"
    )
    commanded = [opened(0), command("j", lot(spot=1), 0), decided(0, commands=1)]

    blind, knowing = run(*commanded)[-1], run(market, *commanded)[-1]

    (place,) = knowing.request.places
    assert (place.offering_id, place.account) == ("a", "aws/")
    assert (place.zone, blind.request.places) == ("aws//region-a/zone-a", ())
    assert knowing.digest == blind.digest


def test_what_comes_after_a_markets_end_is_not_billed_again():
    whole = SlotDecided(slot=0, revision=0, offset_s=0, commands=0)
    late = SlotDecided(slot=0, revision=1, offset_s=SLOT_S, commands=0)

    _, settled, released = run(opened(0, last=True), whole, late)

    assert settled.request.last
    assert not released.request.last
