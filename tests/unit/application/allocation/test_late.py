"""Jobs whose soft deadline has passed: on spot that no other job has use for, in bids and in turn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocation.slot import Slot
from spotline.application.allocation.tasks import program_of
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.contention import ResidualCapacity
from tests.depth import examples
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST
from tests.unit.application.allocation.test_turns import asked, quote, task, way_to

# A slot late of eight, three slots of work and one to launch: it would be done with three eighths of its value.
LATE = {"elapsed": 15, "late_slots": 8}
IN_TURN = [False, True]


def late(name: str = "a", **more: object) -> JobTask:
    return task(name, **{**LATE, **more})


def answers(
    *tasks: JobTask, quotes: list[SlotQuote], in_turn: bool, on_spot: bool = True
) -> list[JobAnswer]:
    request: AllocateRequest = asked(*tasks, quotes=quotes)
    request = replace(request, serves_in_turn=in_turn, late_on_spot=on_spot)
    return list(allocate(request).answers)


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_spot_at_home_is_taken_where_on_demand_was_bought_before(*, in_turn: bool) -> None:
    (before,) = answers(late(), quotes=[quote(EAST, 4)], in_turn=in_turn, on_spot=False)
    (now,) = answers(late(), quotes=[quote(EAST, 4)], in_turn=in_turn)

    assert before.lots == (Lot(offering_id=EAST, on_demand=4),)
    assert now.lots == (Lot(offering_id=EAST, spot=4),)
    assert {before.reason, now.reason} == {DecisionReason.AFTER_DEADLINE}


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_a_deadline_that_lies_ahead_changes_nothing(*, in_turn: bool) -> None:
    early, quotes = late(elapsed=2), [quote(EAST, 4)]

    assert answers(early, quotes=quotes, in_turn=in_turn) == answers(
        early, quotes=quotes, in_turn=in_turn, on_spot=False
    )


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_spot_that_is_no_cheaper_is_not_worth_it(*, in_turn: bool) -> None:
    (answer,) = answers(late(), quotes=[quote(EAST, 4, spot_price=10_000_000)], in_turn=in_turn)

    assert answer.lots == (Lot(offering_id=EAST, on_demand=4),)


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_what_on_demand_is_too_dear_for_is_done_on_spot(*, in_turn: bool) -> None:
    dear = quote(EAST, 4, on_demand=100_000_000)
    (before,) = answers(late(), quotes=[dear], in_turn=in_turn, on_spot=False)
    (now,) = answers(late(), quotes=[dear], in_turn=in_turn)

    assert before.lots == ()
    assert now.lots == (Lot(offering_id=EAST, spot=4),)


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_what_is_worth_nothing_by_then_is_not_done(*, in_turn: bool) -> None:
    (answer,) = answers(late(elapsed=20), quotes=[quote(EAST, 4)], in_turn=in_turn)

    assert answer.lots == ()


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_who_is_late_stays_where_it_is(*, in_turn: bool) -> None:
    job = late(ways=way_to(WEST))
    (answer,) = answers(job, quotes=[quote(EAST, 0), quote(WEST, 4)], in_turn=in_turn)

    assert answer.lots == (Lot(offering_id=EAST, on_demand=4),)


@pytest.mark.parametrize("in_turn", IN_TURN)
@pytest.mark.parametrize("held", [0, 4])
def test_spot_goes_to_a_job_whose_deadline_lies_ahead(held: int, *, in_turn: bool) -> None:
    # By slack, what is late comes first.
    crowd = late("a", spot=0 if in_turn else held), late("b", elapsed=2)
    first, second = answers(*crowd, quotes=[quote(EAST, 4)], in_turn=in_turn)

    assert first.lots == (Lot(offering_id=EAST, on_demand=4),)
    assert second.lots == (Lot(offering_id=EAST, spot=4),)


@pytest.mark.parametrize("in_turn", IN_TURN)
def test_of_two_that_are_late_one_has_the_spot(*, in_turn: bool) -> None:
    found = answers(late("a"), late("b"), quotes=[quote(EAST, 4)], in_turn=in_turn)

    assert {answer.lots for answer in found} == {
        (Lot(offering_id=EAST, spot=4),),
        (Lot(offering_id=EAST, on_demand=4),),
    }


@pytest.mark.parametrize("reclaimed", [False, True])
def test_what_the_market_takes_back_costs_the_work_that_is_not_saved(*, reclaimed: bool) -> None:
    # Half of its work is done, and none of that is saved.
    half = program_of(late().job, EAST, "", SLOT_S, START_NS, None).work_quanta // 2
    job = replace(late(spot=4), progress_quanta=half, unsaved_quanta=half)
    request = replace(
        asked(job, quotes=[quote(EAST, 4)]),
        serves_in_turn=False,
        late_on_spot=True,
        reclaimed_offering_ids=(EAST,) if reclaimed else (),
    )
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in request.quotes}
    slot = Slot(request, ResidualCapacity(request.quotes))
    home = slot.home(job, quotes)
    left = slot.seat(home, 0, 99).option

    assert left.on_demand == 4
    # With a launch two slots for half of three, four for all: each is USD 6.67, and an eighth of 200.
    slots = 4 if reclaimed else 2
    assert left.value_micro_usd == 200_000_000 * (7 - slots) // 8 - slots * 6_666_667


@given(
    spot=st.integers(0, 12),
    stock=st.integers(0, 12),
    elapsed=st.lists(st.integers(0, 23), min_size=1, max_size=4),
    budget_usd=st.sampled_from([0, 1, 3, 50]),
    in_turn=st.booleans(),
)
@settings(max_examples=examples(60), deadline=None)
def test_all_together_hold_no_more_than_there_is_and_keep_their_budgets(
    spot: int, stock: int, elapsed: list[int], budget_usd: int, *, in_turn: bool
) -> None:
    crowd = [
        late(f"job-{number}", elapsed=slots, budget_usd=budget_usd)
        for number, slots in enumerate(elapsed)
    ]
    found = answers(*crowd, quotes=[quote(EAST, spot, stock=stock)], in_turn=in_turn)
    held = [lot for answer in found for lot in answer.lots]

    assert sum(lot.spot for lot in held) <= spot
    assert sum(lot.on_demand for lot in held) <= stock
    # Ten minutes of an instance are USD 0.50 on spot and 1.67 on demand.
    cost_usd = [lot.spot / 2 + lot.on_demand * 5 / 3 for lot in held]
    assert not budget_usd or all(cost <= budget_usd for cost in cost_usd)
