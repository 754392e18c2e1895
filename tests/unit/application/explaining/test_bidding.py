"""What a job bid for is listed, with what kept it from what it wanted more."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.explaining.bidding import bids_of
from spotline.application.explaining.facts import DecidedTurn, MarketFacts
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.market.offering import Count, Provenance
from spotline.domain.policies.answer import DecisionReason
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, offering, slot_opened


def asked(names: tuple[str, ...], *, spot: int, clearing: bool = True) -> AllocateRequest:
    tasks = tuple(
        JobTask(
            job=job(name),
            policy_id="msu",
            offering_id=EAST,
            instance_type=offering(EAST).instance_type,
            first_slot_start_ns=START_NS,
            elapsed_slots=0,
            progress_quanta=0,
            holding=Lot(offering_id=EAST),
            interrupted=False,
            pending_overhead_s=0,
            spent_micro_usd=0,
            memory=(),
            spot_firm=True,
        )
        for name in names
    )
    count = Count(instances=spot, provenance=Provenance.OBSERVED)
    quotes = tuple(
        replace(quoted, quote=replace(quoted.quote, spot_available=count))
        for quoted in slot_opened(0).quotes
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
        clearing=clearing,
    )


def turn_of(request: AllocateRequest) -> DecidedTurn:
    opened = slot_opened(0)
    return DecidedTurn(
        market=MarketFacts(
            opened=opened,
            offset_s=0,
            revision=0,
            history=(opened,),
            caps={},
            forecast_reason=DecisionReason.POLICY,
            fault="",
            shares_ppm={},
        ),
        jobs={},
        request=request,
        digest="",
        answered=None,
        answers=allocate(request).answers,
        decisions=(),
    )


def test_who_yields_sees_what_the_others_would_lose():
    turn = turn_of(asked(("one", "other"), spot=4))
    answer = next(each for each in turn.answers if each.yielded is not None)

    found = bids_of(turn, answer.job_id)

    assert found is not None
    assert found.jobs == 2
    got = next(option for option in found.options if option.chosen)
    held = holding_of(answer.lots)
    assert (got.spot, got.on_demand, got.more_micro_usd) == (held.spot, held.on_demand, 0)
    best = found.options[0]
    assert best.more_micro_usd > 0
    assert best.others_lose_micro_usd is not None
    # What the others lose is no less than what it would gain: else it would have got it.
    assert best.others_lose_micro_usd >= best.more_micro_usd - found.gap_micro_usd
    assert all(option.chosen or option.why for option in found.options)
    assert [worth.offering_id for worth in found.spot_worth] == [EAST]


def test_who_got_all_that_it_bid_for_sees_nothing_better():
    turn = turn_of(asked(("one", "other"), spot=100))

    found = bids_of(turn, turn.answers[0].job_id)

    assert found is not None
    assert [option.chosen for option in found.options] == [True]
    assert (found.spot_worth, found.gap_micro_usd) == ((), 0)


def test_jobs_that_are_served_in_order_do_not_bid():
    turn = turn_of(asked(("one",), spot=4, clearing=False))

    assert bids_of(turn, turn.answers[0].job_id) is None
