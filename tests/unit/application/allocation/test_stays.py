"""Bids for spot where a job has no value table, and spot that is yielded only for clearly more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.clearing import slot_bids
from spotline.application.allocation.messages import (
    AllocateRequest,
    Alternative,
    JobTask,
    SpotStay,
)
from spotline.application.allocation.parts import law_ids_of
from spotline.application.allocation.tasks import task_view, yield_margin_micro_usd
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from tests.fakes.allocator import EAST, SLOT_S, START_NS, WEST, job, offering, slot_opened
from tests.unit.application.allocation.test_seats import LAW, use_of

GANG = job("gang", deadline_slots=14, counts=(4,))


def stay(**other: int) -> Alternative:
    terms = {"migrate_s": 120, "move_cost_micro_usd": 280_000, **other}
    return Alternative(
        offering_id=WEST,
        instance_type=offering(WEST).instance_type,
        table_use=None,
        stay=SpotStay(law_id=LAW.law_id, run_state=1),
        **terms,
    )


def task(request_id: str = "gang", *, spot: int = 0, away: Alternative | None = None) -> JobTask:
    owner = replace(GANG, job_id=job(request_id).job_id, client_request_id=request_id)
    return JobTask(
        job=owner,
        policy_id="sdp",
        offering_id=EAST,
        instance_type=offering(EAST).instance_type,
        first_slot_start_ns=START_NS,
        elapsed_slots=2,
        progress_quanta=0,
        holding=Lot(offering_id=EAST, spot=spot),
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
        table_use=replace(use_of(owner, shared=False), run_state=0),
        alternatives=() if away is None else (away,),
    )


def request(*tasks: JobTask, east: int, west: int = 4, keeps: bool = True) -> AllocateRequest:
    quotes = (
        *slot_opened(0, spot=east, offering_ids=(EAST,)).quotes,
        *slot_opened(0, spot=west, offering_ids=(WEST,)).quotes,
    )
    return AllocateRequest(
        slot=0,
        revision=0,
        offset_s=0,
        slot_s=SLOT_S,
        quotes=quotes,
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=tasks,
        laws=(LAW,),
        clearing=True,
        keeps_spot=keeps,
    )


def test_a_job_goes_to_spot_where_it_has_no_table_if_there_is_none_at_home() -> None:
    (answer,) = allocate(request(task(away=stay()), east=0)).answers

    assert answer.lots == (Lot(offering_id=WEST, spot=4),)
    assert answer.move is not None
    assert answer.move.from_offering_id == EAST
    assert answer.move.cost_micro_usd == 280_000
    assert answer.memory == ()


def test_a_dear_way_keeps_it_at_home() -> None:
    dear = stay(move_cost_micro_usd=30_000_000)
    (answer,) = allocate(request(task(away=dear), east=0)).answers

    assert answer.move is None


def test_a_budget_that_the_way_and_the_slot_exceed_keeps_it_at_home() -> None:
    # A slot of four on spot costs USD 2, and the way USD 0.28.
    for budget_usd, goes in ((2, False), (3, True)):
        goer = task(away=stay())
        owner = replace(goer.job, budget_micro_usd=budget_usd * 1_000_000)
        use = replace(use_of(owner, shared=False), run_state=0)
        goer = replace(goer, job=owner, table_use=use)
        (answer,) = allocate(request(goer, east=0)).answers
        assert (answer.move is not None) is goes


def test_no_more_go_than_find_spot_there() -> None:
    crowd = [task(f"r{index}", away=stay()) for index in range(3)]
    answers = allocate(request(*crowd, east=0, west=9)).answers
    gone = [answer for answer in answers if answer.move is not None]

    assert len(gone) == 2
    assert sum(lot.spot for answer in gone for lot in answer.lots) == 8


def test_no_one_goes_where_fewer_are_left_than_a_gang_may_hold() -> None:
    (answer,) = allocate(request(task(away=stay()), east=0, west=3)).answers

    assert answer.move is None


def test_where_all_bid_what_has_neither_table_nor_stay_is_no_place() -> None:
    (answer,) = allocate(request(task(away=replace(stay(), stay=None)), east=0)).answers

    assert answer.move is None


def test_the_law_of_a_stay_must_be_in_the_request() -> None:
    asked = request(task(away=stay()), east=0)
    unknown = replace(
        asked.tasks[0],
        table_use=None,
        alternatives=(replace(stay(), stay=SpotStay(law_id="another", run_state=0)),),
    )

    assert LAW.law_id in set(law_ids_of(asked.tasks[0]))
    with pytest.raises(ValueError, match="laws must hold another"):
        allocate(
            replace(
                asked,
                tasks=(replace(unknown, table_use=asked.tasks[0].table_use),),
            )
        )


def test_an_alternative_has_not_both_a_table_and_a_stay() -> None:
    with pytest.raises(ValueError, match="not have both table_use and stay"):
        replace(stay(), table_use=use_of(GANG, shared=False))


def test_who_holds_spot_keeps_it_unless_others_gain_clearly_more() -> None:
    holds, comes = task("holds", spot=4), task("comes")
    view = task_view(
        request(holds, east=4),
        holds,
        slot_opened(0, spot=4).quotes[0].quote,
        ResidualCapacity(request(holds, east=4).quotes),
    )
    margin = yield_margin_micro_usd(view, 4)

    def options(keeps: bool) -> list[tuple[int, int]]:
        bid = slot_bids(request(holds, comes, east=4, keeps=keeps)).bids[0]
        return [(option.spot, option.value_micro_usd) for option in bid.options]

    plain, kept = options(False), options(True)

    assert margin > 0
    assert [spot for spot, _ in kept] == [spot for spot, _ in plain]
    for (spot, before), (_, after) in zip(plain, kept, strict=True):
        assert after == pytest.approx(before - margin * (4 - spot) / 4, abs=4)


def test_spot_that_the_market_took_is_no_yielding() -> None:
    holds, comes = task("holds", spot=4), task("comes")
    taken = replace(request(holds, comes, east=2), reclaimed_offering_ids=(EAST,))

    assert slot_bids(taken) == slot_bids(replace(taken, keeps_spot=False))
