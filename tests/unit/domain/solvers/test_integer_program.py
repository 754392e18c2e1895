"""The dynamic program and the integer program agree: two independent ways to one optimum."""

from __future__ import annotations

import numpy as np
import pytest

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.solvers.configurations import Configurations, all_configurations
from spotline.domain.solvers.coupled_jobs import Unsolved
from spotline.domain.solvers.window import WindowMarket, solve_window
from tests.reference.integer_program import solve_window_cp


def program_of(rng: np.random.Generator, *, longest_overhead_s: int = 60) -> JobProgram:
    counts = [(1,), (1, 2), (2,), (1, 3), (1, 2, 3)][rng.integers(5)]
    shrink_s = int(rng.integers(0, 8)) * 3
    grow_s = min(longest_overhead_s, shrink_s + int(rng.integers(0, 8)) * 3)
    launch_s = min(longest_overhead_s, int(rng.integers(0, 21)) * 3)
    deadline = int(rng.integers(1, 5))
    late = int(rng.integers(0, 3))
    value = int(rng.integers(0, 80_000))
    values = [value] * (deadline + 1) + [value * (late - k) // late for k in range(1, late + 1)]
    return JobProgram(
        slot_s=60,
        work_quanta=int(rng.integers(20, 60 * counts[-1] * deadline + 1)),
        rate_quanta_per_s=tuple(n if n in counts else 0 for n in range(counts[-1] + 1)),
        allowed_counts=counts,
        launch_s=launch_s,
        grow_s=grow_s,
        shrink_s=min(shrink_s, grow_s),
        interrupted_s=longest_overhead_s,
        deadline_slots=deadline,
        end_slots=deadline + late,
        hard=late == 0,
        value_micro_usd=tuple(values),
    )


def market_of(rng: np.random.Generator, slots: int) -> WindowMarket:
    return WindowMarket(
        spot_price=rng.integers(10_000, 400_000, slots),
        on_demand_price=np.full(slots, 300_000, dtype=np.int64),
        spot_available=rng.integers(0, 4, slots),
        on_demand_available=rng.integers(1, 4, slots),
    )


def case_of(seed: int) -> tuple[JobProgram, Configurations, WindowMarket, JobProgress, int]:
    rng = np.random.default_rng(seed)
    program = program_of(rng)
    elapsed = int(rng.integers(0, program.deadline_slots))
    market = market_of(rng, program.end_slots - elapsed)
    held = [Holding(), Holding(spot=1), Holding(on_demand=program.max_instances)][rng.integers(3)]
    start = JobProgress(
        progress_quanta=int(rng.integers(0, program.work_quanta // 2 + 1)),
        holding=held,
        pending_overhead_s=int(rng.integers(0, 4)) * 15 if held.instances else 0,
    )
    configs = all_configurations(program, most_spot=program.max_instances)
    return program, configs, market, start, elapsed


@pytest.mark.parametrize("seed", range(30))
def test_both_programs_find_the_same_optimum(seed) -> None:
    program, configs, market, start, elapsed = case_of(seed)

    exact = solve_window(program, configs, market, start, elapsed_slots=elapsed, end_value=None)
    plan = solve_window_cp(program, configs, market, start, elapsed)

    assert not isinstance(plan, Unsolved)
    assert exact.exact
    assert plan.utility_micro_usd == exact.utility_micro_usd
    assert len(plan.holdings) == len(market)


def test_a_finished_job_needs_nothing() -> None:
    program, configs, market, _, elapsed = case_of(1)
    done = JobProgress(progress_quanta=program.work_quanta)

    plan = solve_window_cp(program, configs, market, done, elapsed)

    assert not isinstance(plan, Unsolved)
    assert plan.utility_micro_usd == 0
    assert set(plan.holdings) == {Holding()}


def test_overhead_longer_than_a_slot_is_left_to_the_dynamic_program() -> None:
    rng = np.random.default_rng(0)
    program = program_of(rng, longest_overhead_s=61)
    configs = all_configurations(program, most_spot=1)

    answer = solve_window_cp(program, configs, market_of(rng, 2), JobProgress(), 0)

    assert isinstance(answer, Unsolved)
    assert answer.reason == "overheads must be <= the slot (60 s), one was 61 s"


def test_the_bound_on_work_ends_the_search() -> None:
    program, configs, market, start, elapsed = case_of(3)

    answer = solve_window_cp(program, configs, market, start, elapsed, max_deterministic_time=0.0)

    assert isinstance(answer, Unsolved)
    assert "not proven" in answer.reason
