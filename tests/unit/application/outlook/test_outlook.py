"""What is expected of a job: the mixture that runs, certain cases, the curve, and joint limits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocator.messages import PlanRequest
from spotline.application.allocator.planning import plan
from spotline.application.outlook.fleets import FleetLimits
from spotline.application.outlook.following import Following
from spotline.application.outlook.outlook import fleets_of, job_outlook, market_futures
from spotline.application.selector.learning import learner_of
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.lifecycle import JobAdmitted, JobSubmitted
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.policies.registry import policy_named
from spotline.domain.units import PPM
from tests.depth import examples
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    WEST,
    job,
    market_opened,
    slot_opened,
)
from tests.fakes.followed import watched

AFTER = 60


def handed_over(request_id: str = "r1", **changes):
    """A job whose deadline counts from the slot after the market was watched."""
    return job(request_id, **{"from_slot": AFTER, "deadline_slots": 20, **changes})


def restless(slot: int) -> int:
    return 4 if slot * 7 % 11 < 7 else 1


def test_equal_states_have_equal_outlooks_whatever_the_job_is_called() -> None:
    _, known = watched(AFTER, restless)

    outlook = job_outlook(known, handed_over())

    assert outlook == job_outlook(watched(AFTER, restless)[1], handed_over())
    assert outlook == job_outlook(known, handed_over("another"))


def test_plenty_of_spot_and_time_is_certain_and_cheap() -> None:
    _, known = watched(AFTER)

    outlook = job_outlook(known, handed_over(deadline_slots=40))

    assert outlook is not None
    assert outlook.on_time_probability_ppm == PPM
    # 8 instance-hours cost 80 USD on demand, 24 on spot.
    assert 20_000_000 < outlook.cost_p10_micro_usd <= outlook.cost_p90_micro_usd < 60_000_000
    assert 0 < outlook.finish_p10_ns <= outlook.finish_p90_ns


def test_a_deadline_that_nothing_can_meet_is_missed_in_every_future() -> None:
    _, known = watched(AFTER)

    outlook = job_outlook(known, handed_over(deadline_slots=3))

    assert outlook is not None
    assert outlook.on_time_probability_ppm == 0
    assert outlook.finish_p50_ns == 0


def frozen(scope: FreezeScope, key: str, reason: FreezeReason = FreezeReason.UNDECIDED) -> Freeze:
    return Freeze(freeze_id="f", scope=scope, key=key, reason=reason, detail="")


def test_a_job_that_cannot_buy_is_not_expected_to_be_done() -> None:
    _, known = watched(AFTER)
    wanted = handed_over(deadline_slots=40)
    known.state.freezes.begin(frozen(FreezeScope.JOB, wanted.job_id))

    outlook = job_outlook(known, wanted)

    assert outlook is not None
    assert (outlook.on_time_probability_ppm, outlook.cost_p90_micro_usd) == (0, 0)
    known.state.freezes.end("f")
    gone_on = job_outlook(known, wanted)
    assert gone_on is not None
    assert gone_on.on_time_probability_ppm == PPM


def test_a_stop_for_another_job_and_a_doubt_that_yields_to_deadlines_take_nothing() -> None:
    _, known = watched(AFTER)
    wanted = handed_over(deadline_slots=40)
    known.state.freezes.begin(frozen(FreezeScope.JOB, "another"))
    free = job_outlook(known, wanted)
    known.state.freezes.end("f")
    known.state.freezes.begin(frozen(FreezeScope.SYSTEM, "", FreezeReason.BREAKER))
    doubted = job_outlook(known, wanted)

    assert free is not None
    assert free.on_time_probability_ppm == PPM
    # A doubt about the market is taken to be over with the next slot.
    assert doubted == free


def test_the_mixture_and_the_offerings_add_up() -> None:
    _, known = watched(AFTER, restless)

    outlook = job_outlook(known, handed_over(late_slots=10))

    assert outlook is not None
    for rows, share in (
        (outlook.policies, [row.weight_ppm for row in outlook.policies]),
        (outlook.offerings, [row.share_ppm for row in outlook.offerings]),
    ):
        assert sum(share) == PPM
        assert share == sorted(share, reverse=True)
        mean = sum(w * row.expected_cost_micro_usd for w, row in zip(share, rows, strict=True))
        assert mean / PPM == pytest.approx(outlook.expected_cost_micro_usd, abs=2)
        on_time = sum(w * row.on_time_probability_ppm for w, row in zip(share, rows, strict=True))
        assert on_time / PPM == pytest.approx(outlook.on_time_probability_ppm, abs=2)


def test_a_pool_of_one_policy_is_all_of_the_mixture() -> None:
    _, known = watched(AFTER, restless)
    pool = (policy_named("on_demand_only"),)
    alone = replace(known, pool=pool)
    alone.state.learner = learner_of(SelectorOptions(), pool)

    outlook = job_outlook(alone, handed_over())

    assert outlook is not None
    (only,) = outlook.policies
    assert (only.policy_id, only.weight_ppm) == ("on_demand_only", PPM)
    assert outlook.cost_p10_micro_usd == outlook.cost_p90_micro_usd


def test_later_deadlines_are_no_less_likely_and_no_dearer_on_the_same_futures() -> None:
    view, _ = watched(AFTER, restless)
    deadlines = tuple(START_NS + (AFTER + slots) * SLOT_NS for slots in (15, 18, 24, 36))

    answer = plan(PlanRequest(job=handed_over(), deadlines_ns=deadlines), view)

    curve = [point.outlook for point in answer.curve]
    assert [point.deadline_ns for point in answer.curve] == list(deadlines)
    assert all(outlook is not None for outlook in curve)
    on_time = [outlook.on_time_probability_ppm for outlook in curve]
    cost = [outlook.expected_cost_micro_usd for outlook in curve]
    assert on_time == sorted(on_time)
    # Less than a hundredth: another deadline is another policy's plan, not another market.
    assert all(later <= sooner * 1.01 for sooner, later in itertools.pairwise(cost))


def test_a_deadline_of_the_curve_that_cannot_be_met_has_no_outlook() -> None:
    view, _ = watched(AFTER)

    answer = plan(
        PlanRequest(job=handed_over(), deadlines_ns=(START_NS + (AFTER + 2) * SLOT_NS,)), view
    )

    assert [point.outlook for point in answer.curve] == [None]


def test_a_plan_says_what_the_quote_says() -> None:
    view, known = watched(AFTER, restless)

    answer = plan(PlanRequest(job=handed_over()), view, known=known)

    assert answer.outlook == job_outlook(known, handed_over())


# --- a job under way --------------------------------------------------------------------------


def under_way(policy_id: str) -> Following:
    following = Following(SelectorOptions())
    following.fold(market_opened())
    for k in range(AFTER + 1):
        following.fold(slot_opened(k, spot=restless(k)))
    one = handed_over()
    following.fold(JobSubmitted(job=one, ts_event_ns=START_NS))
    following.fold(
        JobAdmitted(
            job_id=one.job_id,
            tenant=one.tenant,
            slot=AFTER,
            policy_id=policy_id,
            offering_id=WEST,
            deadline_slot=AFTER + 19,
            weight_ppb=1_000_000_000,
        )
    )
    return following


def test_a_job_under_way_keeps_its_policy_and_counts_what_it_spent() -> None:
    known = under_way("on_demand_only").snapshot()
    assert known is not None
    one = handed_over()

    before = job_outlook(known, one)
    known.state.runs[one.job_id].spent_micro_usd = 5_000_000
    after = job_outlook(known, one)

    assert before is not None
    assert after is not None
    assert [row.policy_id for row in before.policies] == ["on_demand_only"]
    assert [row.offering_id for row in before.offerings] == [WEST]
    assert after.expected_cost_micro_usd == before.expected_cost_micro_usd + 5_000_000


def test_a_job_that_was_done_long_after_its_time_is_worth_nothing() -> None:
    following = under_way("on_demand_only")
    for k in range(AFTER + 1, AFTER + 40):
        following.fold(slot_opened(k, spot=restless(k)))
    known = following.snapshot()
    assert known is not None
    run = known.state.runs[handed_over().job_id]
    assert run.program is not None
    run.state = replace(run.state, progress_quanta=run.program.work_quanta)

    found = job_outlook(known, handed_over())

    assert found is not None
    assert found.on_time_probability_ppm == 0
    assert found.expected_utility_micro_usd == 0


def test_an_admission_that_is_read_late_keeps_its_slot() -> None:
    following = Following(SelectorOptions())
    following.fold(market_opened())
    for k in range(4):
        following.fold(slot_opened(k))
    one = job()
    following.fold(JobSubmitted(job=one, ts_event_ns=START_NS))
    following.fold(
        JobAdmitted(
            job_id=one.job_id,
            tenant=one.tenant,
            slot=2,
            policy_id="msu",
            offering_id=EAST,
            deadline_slot=29,
            weight_ppb=1,
        )
    )

    known = following.snapshot()
    assert known is not None
    run = known.state.runs[one.job_id]
    assert run.first_slot_start_ns == START_NS + 2 * SLOT_NS
    assert run.compiled.deadline_slots == 28


def test_a_snapshot_is_not_changed_by_what_comes_later() -> None:
    following = under_way("msu")
    known = following.snapshot()
    assert known is not None
    before = job_outlook(known, handed_over())

    following.fold(slot_opened(AFTER + 1, spot=0))

    assert job_outlook(known, handed_over()) == before


# --- several jobs -----------------------------------------------------------------------------


@settings(max_examples=examples(8), deadline=None)
@given(quota=st.integers(1, 8), budget_usd=st.integers(0, 60), jobs=st.integers(1, 3))
def test_jobs_together_keep_quota_and_budget_in_every_slot(quota, budget_usd, jobs) -> None:
    _, known = watched(AFTER, restless)
    limits = FleetLimits(
        pools={EAST: "a", WEST: "a"},
        quotas={"a": quota},
        budget_micro_usd_per_hour=budget_usd * 1_000_000,
    )
    several = [handed_over(f"r{k}", deadline_slots=16 + 3 * k) for k in range(jobs)]

    fleets = fleets_of(known, several, limits, market_futures(known.state, slots=22, futures=6))

    assert fleets is not None
    for fleet in fleets:
        for slot in fleet.slots:
            lots = [lot for held in slot.lots.values() for lot in held]
            assert sum(lot.spot + lot.on_demand for lot in lots) <= quota
            if budget_usd:
                assert slot.cost_micro_usd * 3600 <= budget_usd * 1_000_000 * SLOT_S


def test_a_job_alone_without_limits_fares_as_its_outlook_says() -> None:
    _, known = watched(AFTER, restless)
    futures = market_futures(known.state, slots=20, futures=50)

    fleets = fleets_of(known, [handed_over()], FleetLimits(), futures)
    outlook = job_outlook(known, handed_over(), market=futures)

    assert fleets is not None
    assert outlook is not None
    costs = [life.cost_micro_usd for fleet in fleets for life in fleet.lives.values()]
    assert sum(costs) // len(costs) == outlook.expected_cost_micro_usd
    assert sum(fleet.all_on_time for fleet in fleets) * PPM // 50 == outlook.on_time_probability_ppm


def test_who_is_served_first_leaves_less_to_the_others() -> None:
    following = under_way("msu")
    known = following.snapshot()
    assert known is not None
    holds = known.state.runs[handed_over().job_id]
    alone = job_outlook(known, handed_over("r2", deadline_slots=24, offerings=(WEST,)))

    holds.target = replace(holds.target, spot=4)
    beside = job_outlook(known, handed_over("r2", deadline_slots=24, offerings=(WEST,)))

    assert alone is not None
    assert beside is not None
    assert beside.expected_cost_micro_usd > alone.expected_cost_micro_usd


def stopped(reason: FreezeReason) -> BuyingFrozen:
    return BuyingFrozen(
        freeze=Freeze(
            freeze_id="f", scope=FreezeScope.SYSTEM, key="", reason=reason, detail="for a test"
        )
    )


def test_a_paused_job_that_holds_nothing_is_not_on_time_unless_it_goes_on() -> None:
    following = under_way("on_demand_only")
    before = job_outlook(following.snapshot(), handed_over())

    following.fold(stopped(FreezeReason.PAUSED))
    paused = job_outlook(following.snapshot(), handed_over())
    following.fold(BuyingUnfrozen(freeze_id="f"))
    after = job_outlook(following.snapshot(), handed_over())

    assert before is not None
    assert paused is not None
    assert before.on_time_probability_ppm == PPM
    assert paused.on_time_probability_ppm == 0
    assert after == before


def test_a_doubt_about_the_market_is_taken_to_be_over_soon() -> None:
    following = under_way("on_demand_only")
    before = job_outlook(following.snapshot(), handed_over())

    following.fold(stopped(FreezeReason.BREAKER))

    assert job_outlook(following.snapshot(), handed_over()) == before


def test_a_limited_job_is_looked_ahead_for_as_it_is_planned() -> None:
    """Its tables are made without the budget that only binds near its limit."""
    options = SelectorOptions(limits=True)
    following = Following(options)
    following.fold(market_opened())
    for k in range(AFTER + 1):
        following.fold(slot_opened(k, spot=restless(k)))
    one = replace(handed_over(), budget_micro_usd=500_000)
    following.fold(JobSubmitted(job=one, ts_event_ns=START_NS))
    arriving = job_outlook(following.snapshot(), one)
    following.fold(
        JobAdmitted(
            job_id=one.job_id,
            tenant=one.tenant,
            slot=AFTER,
            policy_id="on_demand_only",
            offering_id=WEST,
            deadline_slot=AFTER + 19,
            weight_ppb=1_000_000_000,
            on_demand_quote_micro_usd=80_000_000,
            limit_micro_usd=500_000,
        )
    )

    under = job_outlook(following.snapshot(), one)

    assert arriving is not None
    assert under is not None
    assert under.on_time_probability_ppm == PPM
    assert under.cost_p50_micro_usd > 500_000
