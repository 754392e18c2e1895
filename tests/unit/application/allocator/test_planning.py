"""Plans: sampled futures, the choice among options, and comparisons on what happened."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.application.allocator.messages import (
    ComparisonRequest,
    JointPlan,
    MarketSlot,
    PlanRequest,
    QuotaLimit,
)
from spotline.application.allocator.planning import (
    DEFAULT_POLICY_IDS,
    compare,
    market_of_request,
    plan,
    warm_up,
)
from spotline.application.scenarios import ScenarioSpec, fit_chain, sample_records
from spotline.domain.jobs.run import Run
from spotline.domain.market.offering import UNKNOWN_COUNT
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    WEST,
    forecast_issued,
    job,
    offering,
    opened_host,
    slot_opened,
)

QUOTE = slot_opened(0).quotes[0].quote


def spec(**changes) -> ScenarioSpec:
    given = {
        "quote": QUOTE,
        "forecast": forecast_issued(0).forecasts[0],
        "history": (),
        "most_spot": 4,
        "slots": 20,
        "paths": 400,
        "seed": "s",
    }
    return ScenarioSpec(**{**given, **changes})


def counts_of(records) -> np.ndarray:
    return np.array([[record.spot_available for record in path] for path in records])


def market():
    found = opened_host().state.market()
    assert found is not None
    return found


# --- futures ----------------------------------------------------------------------------------


def test_equal_seeds_give_equal_futures_and_others_do_not() -> None:
    assert sample_records(spec()) == sample_records(spec())
    assert sample_records(spec()) != sample_records(spec(seed="another"))


@pytest.mark.parametrize("sure_ppm", [0, 200_000, 900_000, 1_000_000])
def test_within_the_horizon_counts_follow_the_forecast(sure_ppm) -> None:
    forecast = forecast_issued(0, sure_ppm=sure_ppm).forecasts[0]

    counts = counts_of(sample_records(spec(forecast=forecast)))[:, :6]

    assert set(np.unique(counts)) <= {0, 4}
    assert np.abs((counts == 4).mean(axis=0) - sure_ppm / 1e6).max() < 0.05


def test_paths_are_as_sticky_as_the_market_has_been() -> None:
    restless = tuple(slot_opened(k, spot=4 * (k % 2)) for k in range(60))
    calm = tuple(slot_opened(k, spot=4) for k in range(60))
    forecast = forecast_issued(0, sure_ppm=500_000).forecasts[0]

    def changes(history) -> float:
        counts = counts_of(sample_records(spec(history=history, forecast=forecast)))[:, :6]
        return float((np.diff(counts, axis=1) != 0).mean())

    assert changes(calm) < 0.1
    assert changes(restless) > 0.4


def test_beyond_the_horizon_regimes_persist() -> None:
    history = tuple(slot_opened(k, spot=4 if k < 30 else 0) for k in range(60))

    counts = counts_of(sample_records(spec(history=history, slots=60)))[:, 6:]

    assert (np.diff(counts, axis=1) != 0).mean() < 0.1
    assert set(np.unique(counts)) == {0, 4}


def test_counts_above_what_the_job_can_use_do_not_matter() -> None:
    counts = counts_of(sample_records(spec(most_spot=2)))

    assert set(np.unique(counts)) == {0, 2}


def test_an_unknown_count_without_a_forecast_counts_as_plenty() -> None:
    quote = replace(QUOTE, spot_available=UNKNOWN_COUNT, on_demand_available=UNKNOWN_COUNT)

    records = sample_records(spec(quote=quote, forecast=None))

    assert counts_of(records)[:, 0].mean() > 3.5
    assert records[0][0].forecast is None
    assert records[0][0].on_demand_available >= 1_000


def test_prices_stay_where_they_never_moved_and_spread_where_they_did() -> None:
    still = tuple(slot_opened(k) for k in range(40))
    moving = tuple(slot_opened(k, spot_price=3_000_000 + 90_000 * (k % 5)) for k in range(40))

    def prices(history) -> np.ndarray:
        records = sample_records(spec(history=history))
        return np.array([[record.spot_price for record in path] for path in records])

    assert set(np.unique(prices(still))) == {3_000_000}
    assert prices(moving).std() > 10_000
    assert abs(prices(moving).mean() / 3_000_000 - 1.0) < 0.05


def test_a_fitted_chain_is_stochastic_and_follows_what_it_saw() -> None:
    chain = fit_chain([0, 0, 0, 2, 2, 2, 0, 0, 2, 2], 2, None)

    assert np.allclose(chain.transition.sum(axis=1), 1.0)
    assert chain.transition[0, 0] > chain.transition[0, 2] > chain.transition[0, 1]


# --- plans ------------------------------------------------------------------------------------


def test_every_policy_is_considered_on_every_offering_and_one_is_chosen() -> None:
    answer = plan(PlanRequest(job=job(), policy_ids=DEFAULT_POLICY_IDS), market())

    considered = {(option.policy_id, option.offering_id) for option in answer.options}
    assert considered == {(p, o) for p in DEFAULT_POLICY_IDS for o in (EAST, WEST)}
    others = 2 * len(DEFAULT_POLICY_IDS) - 1
    assert [option.chosen for option in answer.options] == [True] + [False] * others
    assert all(option.why for option in answer.options)
    assert answer.feasible


def test_a_market_that_was_watched_is_planned_on_by_its_law() -> None:
    # East went up and down every ten slots: whoever knows that waits for the next up.
    history = tuple(slot_opened(k, spot=4 if k // 10 % 2 else 0) for k in range(100))
    unwatched = replace(market(), history=())
    watched = replace(unwatched, history=history)

    def expected(view) -> dict[str, int]:
        options = plan(PlanRequest(job=job(), policy_ids=("msu", "sdp")), view).options
        return {o.policy_id: o.expected_utility_micro_usd for o in options if o.offering_id == EAST}

    without, with_law = expected(unwatched), expected(watched)

    assert without["sdp"] == without["msu"]  # without a law it holds all useful spot, netted
    assert with_law["sdp"] != with_law["msu"]


def test_the_chosen_option_has_the_highest_expected_utility() -> None:
    answer = plan(PlanRequest(job=job(), policy_ids=DEFAULT_POLICY_IDS), market())

    utilities = [option.expected_utility_micro_usd for option in answer.options]
    assert utilities == sorted(utilities, reverse=True)
    chosen = answer.options[0]
    on_demand = next(o for o in answer.options if o.policy_id == "on_demand_only")
    assert chosen.expected_cost_micro_usd < on_demand.expected_cost_micro_usd
    assert chosen.cost_p10_micro_usd <= chosen.expected_cost_micro_usd <= chosen.cost_p90_micro_usd
    assert chosen.on_time_probability_ppm == 1_000_000
    assert "highest expected utility" in chosen.why
    assert "USD less expected utility" in answer.options[-1].why


def test_equal_requests_have_equal_plans() -> None:
    assert plan(PlanRequest(job=job()), market()) == plan(PlanRequest(job=job()), market())


def test_steps_begin_at_the_first_slot_and_do_the_work() -> None:
    started = job(start_ns=START_NS + 5 * SLOT_NS, deadline_slots=40)

    steps = (
        plan(PlanRequest(job=started, policy_ids=("on_demand_only",)), market()).options[0].steps
    )

    assert steps[0].slot == 5
    assert steps[0].slot_start_ns == START_NS + 5 * SLOT_NS
    assert [step.slot for step in steps] == list(range(5, 5 + len(steps)))
    held = sum(step.lot.spot + step.lot.on_demand for step in steps)
    assert held * SLOT_S / 3600 >= 8.0


def test_an_infeasible_deadline_has_no_options_but_a_date() -> None:
    answer = plan(PlanRequest(job=job(deadline_slots=3)), market())

    assert not answer.feasible
    assert answer.options == ()
    assert answer.earliest_feasible_deadline_ns == START_NS + 14 * SLOT_NS
    assert "at the earliest" in answer.infeasible_reason


def test_where_nothing_is_sure_the_likeliest_is_chosen_and_said_so() -> None:
    tight = market()
    scarce = replace(
        tight,
        quotes=tuple(
            replace(
                sq,
                quote=replace(
                    sq.quote, on_demand_available=replace(sq.quote.on_demand_available, instances=0)
                ),
            )
            for sq in tight.quotes
        ),
    )

    answer = plan(PlanRequest(job=job(deadline_slots=15), policy_ids=("msu",)), scarce)

    chosen = answer.options[0]
    assert chosen.chosen
    assert 0 < chosen.on_time_probability_ppm < 990_000
    assert "none reaches the 99 %" in chosen.why


def test_a_request_brings_its_own_market() -> None:
    request = PlanRequest(
        job=job(),
        policy_ids=("msu",),
        quotes=slot_opened(0, offering_ids=(WEST,)).quotes,
        offerings=(offering(WEST),),
        slot=0,
        slot_s=SLOT_S,
        slot_start_ns=START_NS,
    )
    found = market_of_request(request)
    assert found is not None

    answer = plan(request, found)

    assert [option.offering_id for option in answer.options] == [WEST]
    assert answer.options[0].steps[0].slot == 1
    assert market_of_request(PlanRequest(job=job())) is None


def test_wrong_requests_are_value_errors_that_name_the_field() -> None:
    with pytest.raises(ValueError, match=r"^policy_ids\[1\]: unknown policy 'guess'"):
        plan(PlanRequest(job=job(), policy_ids=("msu", "guess")), market())
    with pytest.raises(ValueError, match=r"^job.offerings\[0\] must be a known offering"):
        plan(PlanRequest(job=job(offerings=("moon",))), market())


# --- several jobs at once ---------------------------------------------------------------------


def joint_of(*jobs, found=None, **limits) -> JointPlan:
    answer = plan(PlanRequest(jobs=jobs, **limits), found or market())
    assert answer.feasible, answer.infeasible_reason
    assert answer.joint is not None
    assert answer.options == ()
    return answer.joint


def small(request_id: str, **changes):
    """A gang of two: few sets to choose from keep these tests fast."""
    return job(
        request_id, **{"counts": (2,), "instance_hours": 1.0, "deadline_slots": 6, **changes}
    )


def test_jobs_planned_together_share_what_there_is() -> None:
    joint = joint_of(
        *(small(name, offerings=(EAST,), instance_hours=0.5) for name in ("a", "b", "c")),
        quotas=(QuotaLimit(quota_pool="us-east-1", instances=4),),
    )

    assert (joint.first_slot, joint.slots) == (1, 5)
    assert joint.proven
    assert all(0 <= one.finished_slot <= 6 for one in joint.schedules)
    for slot in range(1, 7):
        lots = [step.lot for one in joint.schedules for step in one.steps if step.slot == slot]
        assert sum(lot.spot for lot in lots) <= 4
        assert sum(lot.spot + lot.on_demand for lot in lots) <= 4


def test_a_joint_plan_earns_what_its_parts_say() -> None:
    joint = joint_of(small("a"), small("b", late_slots=4))

    parts = [
        one.value_micro_usd + one.end_value_micro_usd - one.cost_micro_usd
        for one in joint.schedules
    ]
    assert joint.utility_micro_usd == sum(parts) <= joint.upper_utility_micro_usd
    assert [one.job_id for one in joint.schedules] == [small("a").job_id, small("b").job_id]


def test_a_deadline_beyond_the_forecast_lies_in_the_plan() -> None:
    far = small("a", instance_hours=6.0, deadline_slots=30, offerings=(EAST,))
    joint = joint_of(far)

    (one,) = joint.schedules
    assert joint.slots == 29
    assert 6 < one.finished_slot <= 30
    assert one.progress_ppm == 1_000_000


def test_a_job_that_starts_late_is_planned_from_its_start() -> None:
    late = small("a", start_ns=START_NS + 20 * SLOT_NS, deadline_slots=30)

    (one,) = joint_of(late).schedules

    assert one.steps[0].slot >= 20
    assert 20 <= one.finished_slot < 31


def test_without_a_forecast_the_futures_alone_are_planned_on() -> None:
    joint = joint_of(small("a", offerings=(EAST,)), found=replace(market(), forecast=None))

    assert joint.slots == 5
    assert joint.schedules[0].finished_slot >= 0


def test_what_makes_a_joint_plan_impossible_is_said() -> None:
    jobs = (small("a", offerings=(EAST,)), small("b", offerings=(EAST,)))

    quota = plan(
        PlanRequest(jobs=jobs, quotas=(QuotaLimit(quota_pool="us-east-1", instances=1),)), market()
    )
    budget = plan(PlanRequest(jobs=jobs, budget_micro_usd_per_hour=1_000_000), market())
    deadline = plan(PlanRequest(jobs=(jobs[0], job("c", deadline_slots=3))), market())

    assert [one.feasible for one in (quota, budget, deadline)] == [False] * 3
    assert "quota us-east-1 allows 1 instances" in quota.infeasible_reason
    assert "(a test job) needs at least" in quota.infeasible_reason
    assert "the budget allows 1.00 USD per hour" in budget.infeasible_reason
    assert deadline.infeasible_reason.startswith("jobs[1].deadline cannot be met")
    assert deadline.earliest_feasible_deadline_ns == START_NS + 14 * SLOT_NS


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"job": job()}, "^jobs must be empty where job is given"),
        ({"jobs": ()}, "^job is missing"),
        ({"jobs": (job(), job())}, r"^jobs\[1\].job_id must be unique"),
        ({"policy_ids": ("msu",)}, "^policy_ids must be empty"),
        ({"budget_micro_usd_per_hour": -1}, "^budget_micro_usd_per_hour must be >= 0"),
        ({"egress_micro_usd_per_gb": -1}, "^egress_micro_usd_per_gb must be >= 0"),
        ({"jobs": (job(offerings=("moon",)),)}, r"^jobs\[0\].offerings\[0\] must be a known"),
        (
            {"quotas": (QuotaLimit(quota_pool="moon", instances=1),)},
            r"^quotas\[0\].quota_pool must be one of us-east-1, us-west-2, was 'moon'",
        ),
        (
            {"quotas": (QuotaLimit(quota_pool="us-east-1", instances=-1),)},
            r"^quotas\[0\].instances must be >= 0",
        ),
    ],
)
def test_wrong_joint_requests_are_value_errors_that_name_the_field(changes, said) -> None:
    request = PlanRequest(**{"jobs": (job(),), **changes})

    with pytest.raises(ValueError, match=said):
        plan(request, market())


# --- comparisons ------------------------------------------------------------------------------


def comparison(**changes) -> ComparisonRequest:
    given = {
        "job": job(),
        "policy_ids": (),
        "slots": tuple(
            MarketSlot(
                slot=k,
                slot_start_ns=START_NS + k * SLOT_NS,
                quotes=slot_opened(k, spot=4 if k % 9 else 0).quotes,
                forecast=forecast_issued(k),
            )
            for k in range(30)
        ),
        "slot_s": SLOT_S,
        "offerings": (offering(EAST), offering(WEST)),
    }
    return ComparisonRequest(**{**given, **changes})


def test_a_program_that_spotline_runs_is_planned_with_notices_that_save_nothing() -> None:
    def offered(lead_s: int):
        return tuple(replace(offering(one), notice_lead_s=lead_s) for one in (EAST, WEST))

    stated = comparison().job
    run = replace(stated, run=Run(command=("train",)))

    ours, without, trusted = (
        compare(comparison(job=one, offerings=offered(lead_s)))
        for one, lead_s in ((run, 120), (stated, 0), (stated, 120))
    )

    assert ours == without
    assert ours != trusted


def test_no_policy_beats_the_clairvoyant() -> None:
    answer = compare(comparison(policy_ids=DEFAULT_POLICY_IDS))

    assert [c.policy_id for c in answer.comparisons] == list(DEFAULT_POLICY_IDS)
    best = max(c.utility_micro_usd for c in answer.comparisons)
    assert answer.clairvoyant.policy_id == "clairvoyant"
    assert answer.clairvoyant.utility_micro_usd >= best
    assert all(c.on_time for c in answer.comparisons)


def test_a_job_that_is_not_done_when_the_slots_end_is_worth_nothing() -> None:
    short = comparison(policy_ids=("msu",), slots=comparison().slots[:3])

    (msu,) = compare(short).comparisons

    assert (msu.finished_slot, msu.on_time) == (0, False)
    assert msu.utility_micro_usd == -msu.cost_micro_usd


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"slots": ()}, "^slots must hold"),
        ({"slots": comparison().slots[::2]}, r"^slots\[1\].slot must be 1, was 2"),
        ({"offerings": ()}, "^job.throughputs must be stated"),
        ({"policy_ids": ("guess",)}, r"^policy_ids\[0\]: unknown policy"),
        (
            {"slots": tuple(replace(s, quotes=s.quotes[:1]) for s in comparison().slots)},
            r"^slots\[0\].quotes must hold one of aws/us-west-2",
        ),
    ],
)
def test_wrong_comparisons_are_value_errors_that_name_the_field(changes, said) -> None:
    with pytest.raises(ValueError, match=said):
        compare(comparison(**changes))


def test_warming_up_is_safe_to_repeat() -> None:
    warm_up()
    warm_up()
