"""A crowd served in turn: who keeps spot, who goes where it is idle, who waits and who buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocation import slot as allocation_slot
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.clearing import slot_bids
from spotline.application.allocation.messages import (
    AllocateRequest,
    Alternative,
    JobTask,
    PoolQuota,
)
from spotline.domain.crowd.tenants import TenantWeight
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import Count, Provenance
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.ladder import can_climb
from tests.depth import examples
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job, offering, slot_opened
from tests.unit.application.allocation.test_seats import request_of_two

NORTH = "aws/eu-north/eu-north-1a/p4d"


def quote(
    at: str, spot: int, *, spot_price: int = 3_000_000, on_demand: int = 10_000_000, stock: int = 99
) -> SlotQuote:
    """What is quoted of an offering; prices are micro-USD."""
    (quoted,) = slot_opened(
        0, spot=spot, spot_price=spot_price, on_demand_price=on_demand, offering_ids=(at,)
    ).quotes
    left = Count(instances=stock, provenance=Provenance.OBSERVED)
    return replace(quoted, quote=replace(quoted.quote, on_demand_available=left))


def way_to(*places: str, **more: int) -> tuple[Alternative, ...]:
    terms = {"migrate_s": 120, "move_cost_micro_usd": 280_000, **more}
    return tuple(
        Alternative(
            offering_id=at, instance_type=offering(at).instance_type, table_use=None, **terms
        )
        for at in places
    )


def task(
    name: str,
    *,
    spot: int = 0,
    on_demand: int = 0,
    elapsed: int = 2,
    ways: tuple[Alternative, ...] = (),
    policy: str = "msu",
    **of_job: Any,
) -> JobTask:
    """A gang of four with three slots of work, and a deadline after fourteen."""
    budget_usd = of_job.pop("budget_usd", 0)
    owner = job(name, **{"deadline_slots": 14, "counts": (4,), "instance_hours": 2.0, **of_job})
    owner = replace(owner, budget_micro_usd=budget_usd * 1_000_000)
    return JobTask(
        job=owner,
        policy_id=policy,
        offering_id=EAST,
        instance_type=offering(EAST).instance_type,
        first_slot_start_ns=START_NS,
        elapsed_slots=elapsed,
        progress_quanta=0,
        holding=Lot(offering_id=EAST, spot=spot, on_demand=on_demand),
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
        alternatives=ways,
    )


def asked(*tasks: JobTask, quotes: Sequence[SlotQuote], **more: Any) -> AllocateRequest:
    return AllocateRequest(
        slot=0,
        revision=0,
        offset_s=0,
        slot_s=SLOT_S,
        quotes=tuple(quotes),
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=tasks,
        clearing=True,
        serves_in_turn=True,
        **more,
    )


def served(*tasks: JobTask, quotes: Sequence[SlotQuote], **more: Any) -> list[JobAnswer]:
    return list(allocate(asked(*tasks, quotes=quotes, **more)).answers)


def lots(answers: Sequence[JobAnswer]) -> list[tuple[Lot, ...]]:
    return [answer.lots for answer in answers]


ON_SPOT = (Lot(offering_id=EAST, spot=4),)
ON_DEMAND = (Lot(offering_id=EAST, on_demand=4),)


def test_who_comes_first_is_served_first() -> None:
    first, second = served(task("a"), task("b"), quotes=[quote(EAST, 5)])

    assert (first.lots, second.lots) == (ON_SPOT, ())


def test_who_holds_spot_keeps_it_before_who_comes_first() -> None:
    needy, holds = task("a"), task("b", spot=4)
    answers = served(needy, holds, quotes=[quote(EAST, 5)])

    assert lots(answers) == [(), ON_SPOT]
    assert [answer.yielded for answer in answers] == [None, None]


def test_of_spot_taken_back_in_part_those_served_first_keep_theirs_whole() -> None:
    crowd = [task(name, spot=4) for name in "abc"]
    answers = served(*crowd, quotes=[quote(EAST, 9)], reclaimed_offering_ids=(EAST,))

    assert lots(answers) == [ON_SPOT, ON_SPOT, ()]


def test_who_finds_none_at_home_goes_to_idle_spot_the_first_named() -> None:
    east, west, north = quote(EAST, 3), quote(WEST, 4), quote(NORTH, 4)
    ways = way_to(WEST, NORTH)
    answers = served(*(task(name, ways=ways) for name in "abc"), quotes=[east, west, north])

    assert [[lot.offering_id for lot in answer.lots] for answer in answers] == [
        [WEST],
        [NORTH],
        [],
    ]
    first = answers[0].move
    assert first is not None
    assert (first.from_offering_id, first.overhead_s, first.cost_micro_usd) == (EAST, 120, 280_000)


def test_nobody_goes_where_fewer_are_idle_than_they_may_hold_at_most() -> None:
    elastic = task("a", counts=(1, 2, 4), ways=way_to(WEST))
    (answer,) = served(elastic, quotes=[quote(EAST, 0), quote(WEST, 3)])

    assert answer.lots == ()


def test_who_holds_a_part_at_home_goes_where_all_is_idle() -> None:
    elastic = task("a", counts=(1, 2, 4), spot=1, ways=way_to(WEST))
    (stays,) = served(elastic, quotes=[quote(EAST, 1), quote(WEST, 3)])
    (goes,) = served(elastic, quotes=[quote(EAST, 1), quote(WEST, 4)])

    assert stays.lots == (Lot(offering_id=EAST, spot=1),)
    assert goes.lots == (Lot(offering_id=WEST, spot=4),)


@pytest.mark.parametrize("late_slots", [0, 6])
def test_a_way_after_which_the_deadline_is_not_sure_is_not_taken(late_slots: int) -> None:
    # Three slots of work and four to go: two slots on the way are too many.
    quotes = [quote(EAST, 0), quote(WEST, 4)]
    near = task("a", elapsed=10, late_slots=late_slots, ways=way_to(WEST))
    far = replace(near, alternatives=way_to(WEST, migrate_s=2 * SLOT_S))
    (goes,) = served(near, quotes=quotes)
    (stays,) = served(far, quotes=quotes)

    assert goes.move is not None
    assert stays.move is None


def test_who_has_slack_waits_and_who_has_none_buys() -> None:
    waits, buys = served(task("a", elapsed=2), task("b", elapsed=11), quotes=[quote(EAST, 0)])

    assert waits.lots == ()
    assert buys.lots == (Lot(offering_id=EAST, on_demand=4),)


def test_a_soft_deadline_is_guarded_too() -> None:
    (answer,) = served(task("a", elapsed=11, late_slots=8), quotes=[quote(EAST, 0)])

    assert answer.lots == (Lot(offering_id=EAST, on_demand=4),)


def test_who_must_buy_for_a_hard_deadline_takes_what_soft_ones_hold() -> None:
    # All there is in stock is held by jobs that may be late, and who holds it has less slack.
    soft = [task(name, elapsed=12, late_slots=8, on_demand=4) for name in "ab"]
    hard = task("c", elapsed=10)
    answers = served(*soft, hard, quotes=[quote(EAST, 0, stock=8)])

    # The last to be served gives up what it holds.
    assert lots(answers) == [ON_DEMAND, (), ON_DEMAND]


@pytest.mark.parametrize("in_turn", [True, False])
def test_a_hard_deadline_comes_before_soft_ones_also_where_launches_may_wait(
    *, in_turn: bool
) -> None:
    # Stock is known to run out: who holds some keeps it, but for a hard deadline.
    soft, hard = (
        replace(one, on_demand_reserve_slots=1)
        for one in (task("a", elapsed=12, late_slots=8, on_demand=4), task("b", elapsed=9))
    )
    early = replace(hard, elapsed_slots=2, policy_id="on_demand_only")
    quotes = [quote(EAST, 0, stock=4)]

    def answers(*tasks: JobTask) -> list[JobAnswer]:
        request = replace(asked(*tasks, quotes=quotes), serves_in_turn=in_turn)
        return list(allocate(request).answers)

    assert lots(answers(hard, soft)) == [ON_DEMAND, ()]
    assert answers(hard, soft)[1].reason is DecisionReason.NO_CAPACITY
    assert lots(answers(early, soft)) == [(), ON_DEMAND]
    # Of hard ones who holds some keeps it.
    other = replace(task("c", elapsed=9), on_demand_reserve_slots=1, holding=soft.holding)
    assert lots(answers(hard, other)) == [(), ON_DEMAND]


def test_who_has_slack_takes_nothing_that_others_hold() -> None:
    soft = task("a", elapsed=12, late_slots=8, on_demand=4)
    early = task("b", elapsed=2, policy="on_demand_only")
    also_hard = task("c", elapsed=12, on_demand=4)

    assert lots(served(soft, early, quotes=[quote(EAST, 0, stock=4)])) == [ON_DEMAND, ()]
    assert lots(served(also_hard, early, quotes=[quote(EAST, 0, stock=4)])) == [ON_DEMAND, ()]


def test_on_demand_is_bought_where_it_is_cheapest() -> None:
    quotes = [quote(EAST, 0), quote(WEST, 0, on_demand=5_000_000)]
    buys = task("a", elapsed=10, ways=way_to(WEST, migrate_s=60))
    (answer,) = served(buys, quotes=quotes)
    (empty,) = served(buys, quotes=[quotes[0], quote(WEST, 0, on_demand=5_000_000, stock=3)])

    assert answer.lots == (Lot(offering_id=WEST, on_demand=4),)
    assert empty.lots == (Lot(offering_id=EAST, on_demand=4),)


def test_who_holds_on_demand_does_not_move_it() -> None:
    holds = task("a", elapsed=10, on_demand=4, ways=way_to(WEST))
    (answer,) = served(holds, quotes=[quote(EAST, 0), quote(WEST, 0, on_demand=5_000_000)])

    assert answer.lots == (Lot(offering_id=EAST, on_demand=4),)


def test_dear_spot_is_no_bargain_while_there_is_slack() -> None:
    quotes = [quote(EAST, 0), quote(WEST, 4, spot_price=8_000_000)]
    slack = task("a", elapsed=2, ways=way_to(WEST, migrate_s=60))
    none = task("b", elapsed=10, ways=way_to(WEST, migrate_s=60))

    assert served(slack, quotes=quotes)[0].lots == ()
    # With none left it costs less than on-demand, and the deadline stays sure.
    assert served(none, quotes=quotes)[0].lots == (Lot(offering_id=WEST, spot=4),)


def test_who_may_buy_no_more_goes_nowhere() -> None:
    quotes = [quote(EAST, 0), quote(WEST, 4, on_demand=5_000_000)]
    frozen = replace(task("a", ways=way_to(WEST)), most_spot=0, most_on_demand=0)
    needy = replace(task("b", elapsed=10, ways=way_to(WEST, migrate_s=60)), most_spot=0)
    broke = task("c", ways=way_to(WEST), budget_usd=2)
    rich = task("d", ways=way_to(WEST), budget_usd=3)

    # A slot of four on spot costs USD 2, and the way USD 0.28.
    assert lots(served(frozen, quotes=quotes)) == [()]
    assert lots(served(needy, quotes=quotes)) == [(Lot(offering_id=WEST, on_demand=4),)]
    assert lots(served(broke, quotes=quotes)) == [()]
    assert lots(served(rich, quotes=quotes)) == [(Lot(offering_id=WEST, spot=4),)]


def test_inside_a_slot_nobody_moves() -> None:
    request = asked(task("a", ways=way_to(WEST)), quotes=[quote(EAST, 0), quote(WEST, 4)])
    (answer,) = allocate(replace(request, revision=1, offset_s=60)).answers

    assert answer.lots == ()


def test_who_is_late_stays_where_it_is() -> None:
    late = task("a", elapsed=14, late_slots=8, ways=way_to(WEST))
    (answer,) = served(late, quotes=[quote(EAST, 0), quote(WEST, 4)])

    assert answer.move is None


def test_nobody_bid_and_spot_has_no_price() -> None:
    request = asked(task("a"), task("b"), quotes=[quote(EAST, 4)])
    slot = slot_bids(request)

    assert slot.in_turn
    assert not slot_bids(replace(request, serves_in_turn=False)).in_turn
    assert allocate(request).spot_worth == ()


def test_what_a_quota_does_not_allow_is_cleared() -> None:
    pool = PoolQuota(quota_pool="pool", instances=4, offering_ids=(EAST,))
    request = asked(task("a"), task("b"), quotes=[quote(EAST, 8)], quotas=(pool,))

    assert not slot_bids(request).in_turn
    assert sum(bool(answer.lots) for answer in allocate(request).answers) == 1
    roomy = replace(request, quotas=(replace(pool, instances=8),))
    assert slot_bids(roomy).in_turn
    assert lots(allocate(roomy).answers) == [ON_SPOT, ON_SPOT]


def test_where_tenants_weigh_unlike_bids_are_cleared() -> None:
    weights = (TenantWeight(tenant="research", weight_milli=2_000),)
    request = asked(task("a"), quotes=[quote(EAST, 4)], tenant_weights=weights)

    assert not slot_bids(request).in_turn


# Two soft deadlines whose tables would rather wait for spot than buy what just meets them.
PATIENT = replace(request_of_two(spot=0, priced=False, nets=False), serves_in_turn=True)


def test_bids_that_are_cleared_after_all_are_those_of_a_smaller_crowd() -> None:
    pool = PoolQuota(quota_pool="pool", instances=4, offering_ids=(EAST,))
    request = replace(PATIENT, quotas=(pool,))
    bids = slot_bids(request)

    assert not bids.in_turn
    assert bids == slot_bids(replace(request, serves_in_turn=False))
    assert lots(allocate(request).answers) == [(), ()]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_soft_deadline_is_guarded_whatever_its_table_waits_for(*, compiled: bool) -> None:
    climbs = can_climb if compiled else lambda policy, view: False
    with patch.object(allocation_slot, "can_climb", climbs):
        in_turn = lots(allocate(PATIENT).answers)
        bid = lots(allocate(replace(PATIENT, serves_in_turn=False)).answers)

    assert in_turn == [ON_DEMAND, ON_DEMAND]
    assert bid == [(), ()]


# --- laws -------------------------------------------------------------------------------------


@st.composite
def crowds(draw: st.DrawFn) -> AllocateRequest:
    spot = {at: draw(st.integers(0, 12)) for at in (EAST, WEST, NORTH)}
    tasks = []
    held = {"spot": 0}
    for index in range(draw(st.integers(1, 6))):
        counts = draw(st.sampled_from([(4,), (1, 2, 4), (2,)]))
        holds = draw(st.sampled_from([0, counts[-1]]))
        held["spot"] += holds
        tasks.append(
            task(
                f"r{index}",
                spot=holds,
                counts=counts,
                elapsed=draw(st.integers(0, 13)),
                late_slots=draw(st.sampled_from([0, 6])),
                policy=draw(st.sampled_from(["msu", "uniform_progress", "on_demand_only"])),
                ways=way_to(*draw(st.permutations([WEST, NORTH]))),
            )
        )
    price = draw(st.integers(1_000_000, 9_000_000))
    stock = draw(st.integers(0, 12))
    quotes = [quote(at, instances, spot_price=price, stock=stock) for at, instances in spot.items()]
    reclaimed = (EAST,) if held["spot"] > spot[EAST] else ()
    return asked(*tasks, quotes=quotes, reclaimed_offering_ids=reclaimed)


@settings(max_examples=examples(60), deadline=None)
@given(crowds())
def test_no_more_is_held_than_there_is_and_every_count_is_allowed(request: AllocateRequest) -> None:
    taken: dict[str, int] = {}
    bought: dict[str, int] = {}
    for one, answer in zip(request.tasks, allocate(request).answers, strict=True):
        assert len(answer.lots) <= 1
        for lot in answer.lots:
            taken[lot.offering_id] = taken.get(lot.offering_id, 0) + lot.spot
            bought[lot.offering_id] = bought.get(lot.offering_id, 0) + lot.on_demand
            assert lot.spot + lot.on_demand in one.job.allowed_counts
    for quoted in request.quotes:
        there = quoted.quote.spot_available.instances
        assert taken.get(quoted.quote.offering_id, 0) <= there
        # Nobody held any before.
        stock = quoted.quote.on_demand_available.instances
        assert bought.get(quoted.quote.offering_id, 0) <= stock


@settings(max_examples=examples(60), deadline=None)
@given(crowds())
def test_where_nothing_is_taken_back_nobody_loses_spot_to_another(request: AllocateRequest) -> None:
    if request.reclaimed_offering_ids:
        return
    alone = [
        allocate(replace(request, tasks=(replace(one, alternatives=()),))).answers[0]
        for one in request.tasks
    ]
    for one, own, answer in zip(request.tasks, alone, allocate(request).answers, strict=True):
        wishes = sum(lot.spot for lot in own.lots)
        if one.holding.spot and wishes == one.holding.spot:
            assert answer.lots == own.lots


@settings(max_examples=examples(30), deadline=None)
@given(crowds())
def test_who_comes_later_changes_nothing_for_who_came_before(request: AllocateRequest) -> None:
    # What a later one holds is kept for it: one that holds nothing is nobody's business.
    *before, last = request.tasks
    if not before or last.holding.spot:
        return
    whole = allocate(request).answers
    assert allocate(replace(request, tasks=tuple(before))).answers == whole[:-1]


@settings(max_examples=examples(60), deadline=None)
@given(
    before=st.lists(st.tuples(st.integers(0, 13), st.booleans()), max_size=3),
    after=st.lists(st.tuples(st.integers(0, 13), st.booleans()), max_size=3),
    stock=st.integers(4, 20),
)
def test_a_hard_deadline_never_waits_for_on_demand_that_soft_ones_hold(
    before: list[tuple[int, bool]], after: list[tuple[int, bool]], stock: int
) -> None:
    left, soft = stock, []
    for number, (elapsed, holds) in enumerate([*before, *after]):
        held = 4 if holds and left >= 4 else 0
        left -= held
        soft.append(task(f"s{number}", elapsed=elapsed, late_slots=8, on_demand=held))
    hard = task("h", elapsed=10)
    crowd = [*soft[: len(before)], hard, *soft[len(before) :]]

    answers = served(*crowd, quotes=[quote(EAST, 0, stock=stock)])

    assert answers[len(before)].lots == ON_DEMAND
    assert sum(lot.on_demand for answer in answers for lot in answer.lots) <= stock
