"""Several jobs in one window: the integer program against what is known, and why there is none."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationCost,
    PlacedHolding,
    PlacedProgress,
    equal_migrations,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.coupled import solve_coupled
from spotline.domain.solvers.coupled_jobs import (
    CoupledJob,
    CoupledPlan,
    Infeasible,
    SharedMarket,
    Unsolved,
    execute_coupled,
)
from spotline.domain.solvers.multi_window import solve_multi_window
from spotline.domain.solvers.multi_window_layout import OfferingWindow
from spotline.domain.solvers.window import ProgressValue, WindowMarket, solve_window
from tests.depth import examples

SLOT_S = 60


def program_of(
    *,
    counts: tuple[int, ...] = (1, 2),
    overheads: tuple[int, int, int, int] = (6, 6, 3, 9),
    rate: int = 1,
    work: int = 200,
    deadline: int = 4,
    end: int = 4,
    value: int = 60_000,
) -> JobProgram:
    launch_s, grow_s, shrink_s, interrupted_s = overheads
    values = [value] * (deadline + 1)
    values += [value * (end - slot) // (end - deadline) for slot in range(deadline + 1, end + 1)]
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=work,
        rate_quanta_per_s=tuple(rate * n if n in counts else 0 for n in range(counts[-1] + 1)),
        allowed_counts=counts,
        launch_s=launch_s,
        grow_s=grow_s,
        shrink_s=shrink_s,
        interrupted_s=max(interrupted_s, grow_s),
        deadline_slots=deadline,
        end_slots=end,
        hard=deadline == end,
        value_micro_usd=tuple(values),
    )


def market_of(spot_price, available, *, on_demand: int = 300_000, stock: int = 9) -> WindowMarket:
    slots = len(spot_price)
    return WindowMarket(
        spot_price=np.array(spot_price, dtype=np.int64),
        on_demand_price=np.full(slots, on_demand, dtype=np.int64),
        spot_available=np.array(available, dtype=np.int64),
        on_demand_available=np.full(slots, stock, dtype=np.int64),
    )


def shared_of(*markets: WindowMarket, **changes) -> SharedMarket:
    ids = tuple(f"o{k}" for k in range(len(markets)))
    return SharedMarket(offering_ids=ids, markets=markets, **changes)


def solved(jobs, shared, **options) -> CoupledPlan:
    plan = solve_coupled(jobs, shared, **options)
    assert isinstance(plan, CoupledPlan), plan
    return plan


def held(plan: CoupledPlan, shared: SharedMarket) -> np.ndarray:
    """Instances of each kind held together, shape (slots, offerings, 2)."""
    counts = np.zeros((shared.slots, len(shared.markets), 2), dtype=np.int64)
    for schedule in plan.schedules:
        for t, one in enumerate(schedule.result.placements):
            if one.offering != NOWHERE:
                counts[t, one.offering] += (one.holding.spot, one.holding.on_demand)
    return counts


def draw_program(draw, slots: int, counts=((1,), (1, 2), (2,))) -> JobProgram:
    shrink = draw(st.integers(0, 6)) * 3
    grow = shrink + draw(st.integers(0, 6)) * 3
    deadline = draw(st.integers(1, slots))
    return program_of(
        counts=draw(st.sampled_from(counts)),
        overheads=(
            draw(st.integers(0, 12)) * 3,
            grow,
            shrink,
            grow + draw(st.sampled_from([0, 9, 60])),
        ),
        work=draw(st.integers(20, 100 * deadline)),
        deadline=deadline,
        end=min(slots, deadline + draw(st.integers(0, 1))),
        value=draw(st.integers(0, 40_000)),
    )


def draw_market(draw, slots: int, most_spot: int = 3) -> WindowMarket:
    return market_of(
        draw(st.lists(st.integers(10_000, 400_000), min_size=slots, max_size=slots)),
        draw(st.lists(st.integers(0, most_spot), min_size=slots, max_size=slots)),
        stock=draw(st.integers(0, 3)),
    )


# --- agreement with what is known -------------------------------------------------------------


@st.composite
def single_cases(draw):
    slots = draw(st.integers(2, 4))
    program = draw_program(draw, slots)
    start = PlacedProgress()
    if draw(st.booleans()):
        start = PlacedProgress(
            home=0,
            holding=Holding(spot=program.max_instances),
            pending_overhead_s=draw(st.sampled_from([0, 15, 90])),
            progress_quanta=program.work_quanta // 3,
        )
    line = ProgressValue(
        target_quanta=program.work_quanta // 2,
        # Nothing undone is worth more than being done in the last slot.
        at_target_micro_usd=program.value_micro_usd[program.end_slots] - 40 * program.work_quanta,
        below_micro_usd_per_giga=10**11,
        above_micro_usd_per_giga=4 * 10**10,
    )
    return (
        program,
        draw_market(draw, program.end_slots, 2),
        start,
        draw(st.sampled_from([None, line])),
    )


@settings(max_examples=examples(30), deadline=None)
@given(single_cases())
def test_one_job_is_the_window_program(case) -> None:
    program, market, start, end_value = case
    single = solve_window(
        program,
        all_configurations(program, most_spot=2),
        market,
        JobProgress(
            progress_quanta=start.progress_quanta,
            holding=start.holding,
            pending_overhead_s=start.pending_overhead_s,
        ),
        elapsed_slots=0,
        end_value=end_value,
    )
    job = CoupledJob(job_id="a", programs=(program,), start=start, end_value=end_value)

    plan = solved([job], shared_of(market))

    assert plan.proven
    assert plan.utility_micro_usd == single.utility_micro_usd


@pytest.mark.parametrize("seed", range(6))
def test_one_job_over_several_offerings_is_their_window_program(seed) -> None:
    rng = np.random.default_rng(seed)
    slots = 4
    markets = [
        market_of(rng.integers(10_000, 300_000, slots), rng.integers(0, 3, slots)) for _ in range(2)
    ]
    programs = [program_of(rate=int(rng.integers(1, 3)), work=260, value=40_000) for _ in range(2)]
    table = equal_migrations(
        2, MigrationCost(overhead_s=int(rng.integers(0, 30)) * 3, cost_micro_usd=300)
    )
    start = PlacedProgress(home=1, holding=Holding(spot=1), progress_quanta=12)
    exact = solve_multi_window(
        [
            OfferingWindow(
                program=program, configs=all_configurations(program, most_spot=2), market=market
            )
            for program, market in zip(programs, markets, strict=True)
        ],
        table,
        start,
        elapsed_slots=0,
        end_value=None,
    )
    job = CoupledJob(job_id="a", programs=tuple(programs), migrations=table, start=start)

    plan = solved([job], shared_of(*markets))

    assert plan.proven
    assert plan.utility_micro_usd == exact.utility_micro_usd


@settings(max_examples=examples(10), deadline=None)
@given(st.data())
def test_two_jobs_that_share_nothing_earn_the_sum(data) -> None:
    slots = 3
    programs = [draw_program(data.draw, slots) for _ in range(2)]
    markets = [draw_market(data.draw, slots) for _ in range(2)]
    alone = [
        solve_window(
            program,
            all_configurations(program, most_spot=2),
            market,
            JobProgress(),
            elapsed_slots=0,
            end_value=None,
        ).utility_micro_usd
        for program, market in zip(programs, markets, strict=True)
    ]
    jobs = [
        CoupledJob(job_id="a", programs=(programs[0], None)),
        CoupledJob(job_id="b", programs=(None, programs[1])),
    ]

    plan = solved(jobs, shared_of(*markets))

    assert plan.utility_micro_usd == sum(alone)


def brute_force(jobs, shared: SharedMarket) -> int:
    """Try all schedules of all jobs together, within what they share."""
    slots = shared.slots
    per_job = []
    for job in jobs:
        options = [NOT_PLACED] + [
            PlacedHolding(offering=k, holding=Holding(spot=s, on_demand=n - s))
            for k, program in enumerate(job.programs)
            if program is not None
            for n in program.allowed_counts
            for s in range(n + 1)
        ]
        per_job.append(options)

    @cache
    def joint(t: int):
        fitting = []
        for choice in product(*per_job):
            spot = [0] * len(shared.markets)
            stock = [0] * len(shared.markets)
            for one in choice:
                if one.offering != NOWHERE:
                    spot[one.offering] += one.holding.spot
                    stock[one.offering] += one.holding.on_demand
            quota = dict(shared.quotas)
            for k, pool in enumerate(shared.quota_pools):
                quota[pool] = quota.get(pool, 99) - spot[k] - stock[k]
            fits = all(
                s <= m.spot_available[t] and o <= m.on_demand_available[t]
                for s, o, m in zip(spot, stock, shared.markets, strict=True)
            )
            late = any(
                t >= job.program.deadline_slots
                and one.holding not in (Holding(), Holding(on_demand=job.program.max_instances))
                for job, one in zip(jobs, choice, strict=True)
            )
            if fits and not late and all(left >= 0 for left in quota.values()):
                fitting.append(choice)
        return fitting

    best = -(10**18)
    for schedule in product(*(joint(t) for t in range(slots))):
        results = execute_coupled(jobs, shared, list(zip(*schedule, strict=True)))
        best = max(best, sum(result.utility_micro_usd for result in results))
    return best


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_two_coupled_jobs_equal_brute_force(data) -> None:
    slots = 3
    jobs = [
        CoupledJob(job_id=name, programs=(draw_program(data.draw, slots, counts=((1,), (2,))),))
        for name in ("a", "b")
    ]
    pools = {}
    if data.draw(st.booleans()):
        pools = {"quota_pools": ("p",), "quotas": (("p", data.draw(st.integers(0, 3))),)}
    shared = shared_of(draw_market(data.draw, slots), **pools)

    plan = solved(jobs, shared)

    assert plan.proven
    assert plan.utility_micro_usd == brute_force(jobs, shared)


@settings(max_examples=examples(15), deadline=None)
@given(st.data())
def test_a_plan_takes_no_more_than_there_is_and_earns_what_it_says(data) -> None:
    slots = 4
    budget = data.draw(st.integers(0, 40)) * 60_000
    jobs = [
        CoupledJob(
            job_id=str(index),
            programs=(draw_program(data.draw, slots), draw_program(data.draw, slots))[:1] * 2,
            migrations=equal_migrations(2, MigrationCost(overhead_s=9, cost_micro_usd=100)),
            first_slot=data.draw(st.integers(0, 1)),
        )
        for index in range(3)
    ]
    markets = [draw_market(data.draw, slots), draw_market(data.draw, slots)]
    shared = shared_of(
        *markets,
        quota_pools=("p", "p"),
        quotas=(("p", data.draw(st.integers(0, 5))),),
        budget_micro_usd_per_hour=budget,
    )

    plan = solved(jobs, shared, max_deterministic_time=3.0)

    counts = held(plan, shared)
    for k, market in enumerate(markets):
        assert (counts[:, k, 0] <= market.spot_available).all()
        assert (counts[:, k, 1] <= market.on_demand_available).all()
    assert (counts.sum(axis=(1, 2)) <= shared.quotas[0][1]).all()
    if budget:
        cost = sum(one.result.cost_micro_usd for one in plan.schedules)
        assert cost <= slots * (budget * SLOT_S // 3600)
    again = execute_coupled(jobs, shared, [one.result.placements for one in plan.schedules])
    assert sum(result.utility_micro_usd for result in again) == plan.utility_micro_usd
    assert plan.utility_micro_usd <= plan.upper_utility_micro_usd


# --- what coupling means ----------------------------------------------------------------------


def test_the_more_valuable_job_gets_the_spot_that_is_there() -> None:
    shared = shared_of(market_of([10_000] * 4, [2] * 4, stock=0))
    jobs = [
        CoupledJob(job_id="cheap", programs=(program_of(counts=(2,), work=300, value=20_000),)),
        CoupledJob(job_id="dear", programs=(program_of(counts=(2,), work=300, value=50_000),)),
    ]

    plan = solved(jobs, shared)

    assert [bool(one.result.finished_slot) for one in plan.schedules] == [False, True]
    assert plan.proven


def test_who_yields_reclaimed_spot_is_interrupted_and_who_keeps_it_is_not() -> None:
    program = program_of(counts=(1, 2), overheads=(0, 0, 0, 30), work=300)
    jobs = [CoupledJob(job_id=name, programs=(program,)) for name in ("a", "b")]
    shared = shared_of(market_of([10_000] * 2, [4, 3]))
    two = PlacedHolding(offering=0, holding=Holding(spot=2))
    one = PlacedHolding(offering=0, holding=Holding(spot=1))

    kept, hit = execute_coupled(jobs, shared, [[two, two], [two, one]])

    assert kept.end.progress_quanta == 240
    assert hit.end.progress_quanta == 120 + 30


def test_a_job_without_migrations_stays_where_it_was_launched() -> None:
    program = program_of(counts=(2,), work=400)
    markets = (
        market_of([10_000] * 4, [2, 2, 0, 0], stock=0),
        market_of([10_000] * 4, [0, 0, 2, 2], stock=0),
    )
    job = CoupledJob(job_id="a", programs=(program, program))
    table = equal_migrations(2, MigrationCost(overhead_s=6, cost_micro_usd=10))

    stays = solved([job], shared_of(*markets))
    moves = solved([replace(job, migrations=table)], shared_of(*markets))

    assert stays.schedules[0].result.finished_slot == 0
    assert [p.offering for p in moves.schedules[0].result.placements] == [0, 0, 1, 1]


def test_work_that_is_done_before_the_window_needs_nothing() -> None:
    program = program_of()
    start = PlacedProgress(progress_quanta=program.work_quanta, home=0, holding=Holding(spot=1))

    plan = solved(
        [CoupledJob(job_id="a", programs=(program,), start=start)],
        shared_of(market_of([1, 1], [1, 1])),
    )

    assert plan.utility_micro_usd == 0
    assert plan.schedules[0].result.placements == (NOT_PLACED,) * 2


# --- why there is no plan ---------------------------------------------------------------------


def required(job_id: str, *, by: int, counts=(4,), work=800, **changes) -> CoupledJob:
    program = program_of(counts=counts, work=work, deadline=8, end=8)
    return CoupledJob(
        job_id=job_id,
        programs=(program,),
        required_quanta=work,
        required_by_slot=by,
        **changes,
    )


def answer_of(jobs, shared) -> Infeasible:
    answer = solve_coupled(jobs, shared)
    assert isinstance(answer, Infeasible), answer
    return answer


def test_a_job_that_cannot_make_it_alone_is_named_with_what_it_needs() -> None:
    shared = shared_of(market_of([10_000] * 8, [4] * 8), first_slot=100)

    answer = answer_of([required("a", by=3), required("b", by=8)], shared)

    assert answer.job_ids == ("a",)
    assert answer.slot == 102
    assert answer.reason.startswith(
        "job a needs at least 4 slots of 4 instances from slot 100 on, before slot 103; alone it "
        "would get 87 % of that"
    )


def test_a_quota_that_is_too_small_is_the_reason() -> None:
    shared = shared_of(market_of([10_000] * 8, [4] * 8), quota_pools=("p4d",), quotas=(("p4d", 2),))

    answer = answer_of([required("a", by=8)], shared)

    assert answer.resources == ("quota p4d allows 2 instances",)
    assert answer.reason == (
        "job a needs at least 4 slots of 4 instances from slot 0 on, before slot 8; that is "
        "impossible: quota p4d allows 2 instances"
    )


def test_jobs_that_cannot_both_be_served_are_named_and_others_are_not() -> None:
    shared = shared_of(market_of([10_000] * 8, [4] * 8, stock=0))
    jobs = [required("a", by=5), required("b", by=6), required("c", by=8, counts=(1,), work=1)]

    answer = answer_of(jobs, shared)

    assert answer.job_ids == ("a", "b")
    assert answer.resources == ("o0 has 4 spot instances",)
    assert answer.slot == 5
    assert "impossible together" in answer.reason


def test_a_budget_that_is_too_small_is_the_reason() -> None:
    shared = shared_of(market_of([10_000] * 8, [0] * 8), budget_micro_usd_per_hour=900_000)

    answer = answer_of([required("a", by=8)], shared)

    assert answer.resources == ("the budget allows 0.90 USD per hour",)


def test_the_bound_on_work_ends_the_search_with_a_value() -> None:
    shared = shared_of(market_of([10_000] * 8, [4] * 8), quota_pools=("p4d",), quotas=(("p4d", 2),))

    answer = solve_coupled([required("a", by=8)], shared, max_deterministic_time=0.0)

    assert isinstance(answer, Unsolved)
    assert "no plan found" in answer.reason


# --- wrong arguments --------------------------------------------------------------------------


def test_wrong_arguments_name_what_they_are_about() -> None:
    program = program_of()
    market = market_of([1], [1])
    with pytest.raises(ValueError, match="quotas must be of a pool of an offering, 'q'"):
        shared_of(market, quota_pools=("p",), quotas=(("q", 1),))
    with pytest.raises(ValueError, match="programs of a must hold 1, held 2"):
        solve_coupled([CoupledJob(job_id="a", programs=(program, None))], shared_of(market))
    with pytest.raises(ValueError, match=r"required_by_slot must lie in 0\.\.1"):
        solve_coupled([required("a", by=2)], shared_of(market))
    with pytest.raises(ValueError, match="shrink_s <= grow_s <= interrupted_s"):
        CoupledJob(job_id="a", programs=(replace(program, interrupted_s=0),))
