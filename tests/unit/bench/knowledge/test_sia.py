"""Sia's round: equal to brute force, within capacity, and faithful to its formulas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.knowledge.sia import (
    NOTHING,
    SiaConfiguration,
    SiaJob,
    allowed_configurations,
    restart_factor,
    round_costs,
    solve_round,
)
from tests.depth import examples

_CONFIGURATIONS = (
    *allowed_configurations("a100", gpus_per_node=2, nodes=2),
    *allowed_configurations("t4", gpus_per_node=4, nodes=1),
)
_CAPACITY = {"a100": 4, "t4": 4}


def _objective(jobs: tuple[SiaJob, ...], chosen: tuple[int, ...]) -> float:
    """The program as the reference writes it, term by term."""
    total = 0.0
    for job, choice in zip(jobs, chosen, strict=True):
        least = min(value for value in job.goodput if value > 0)
        for index, value in enumerate(job.goodput):
            x, before = choice == index, job.current == index
            total += 0.01 * abs(x - before)
            if x:
                kept = before or job.current == NOTHING
                factor = 1.0 if kept else restart_factor(job.age_s, job.restarts)
                scaled = factor * value / least
                total += scaled**-0.5 if scaled > 0 else math.inf
        if choice == NOTHING:
            total += 1.1
    return total


def _used(chosen: tuple[int, ...]) -> dict[str, int]:
    used = dict.fromkeys(_CAPACITY, 0)
    for choice in chosen:
        if choice != NOTHING:
            one = _CONFIGURATIONS[choice]
            used[one.gpu_type] += one.gpus
    return used


def _brute_force(jobs: tuple[SiaJob, ...]) -> float:
    best = math.inf
    for chosen in itertools.product(range(-1, len(_CONFIGURATIONS)), repeat=len(jobs)):
        used = _used(chosen)
        if all(used[name] <= limit for name, limit in _CAPACITY.items()):
            best = min(best, _objective(jobs, chosen))
    return best


_goodputs = st.lists(
    st.sampled_from([0.0, 0.5, 1.0, 1.7, 2.0, 3.1, 4.0, 7.9]),
    min_size=len(_CONFIGURATIONS),
    max_size=len(_CONFIGURATIONS),
).filter(any)
_jobs = st.lists(
    st.builds(
        SiaJob,
        goodput=_goodputs.map(tuple),
        current=st.integers(NOTHING, len(_CONFIGURATIONS) - 1),
        age_s=st.sampled_from([0.0, 60.0, 600.0]),
        restarts=st.integers(0, 3),
    ),
    min_size=1,
    max_size=4,
).map(tuple)


@settings(max_examples=examples(40), deadline=None)
@given(jobs=_jobs)
def test_a_round_is_as_good_as_brute_force_and_within_capacity(jobs: tuple[SiaJob, ...]) -> None:
    solved = solve_round(_CONFIGURATIONS, _CAPACITY, jobs)
    assert solved.optimal
    assert solved.gap == 0.0
    assert _objective(jobs, solved.chosen) == pytest.approx(solved.objective, abs=1e-6)
    assert solved.objective == pytest.approx(_brute_force(jobs), abs=1e-6)
    used = _used(solved.chosen)
    assert all(used[name] <= limit for name, limit in _CAPACITY.items())


def test_many_jobs_are_proven_optimal_and_fill_the_cluster() -> None:
    rng = np.random.default_rng(3)
    configurations = allowed_configurations("a100", gpus_per_node=8, nodes=8)
    jobs = tuple(
        SiaJob(goodput=tuple(one.gpus ** rng.uniform(0.6, 1.0) for one in configurations))
        for _ in range(90)
    )
    solved = solve_round(configurations, {"a100": 64}, jobs)
    held = sum(configurations[one].gpus for one in solved.chosen if one != NOTHING)
    assert solved.optimal
    assert held == 64


def test_without_branching_the_gap_is_stated() -> None:
    rng = np.random.default_rng(5)
    configurations = tuple(
        SiaConfiguration(gpu_type="a100", gpus=size, nodes=1) for size in (5, 7, 11, 13)
    )
    jobs = tuple(
        SiaJob(goodput=tuple(one.gpus * rng.uniform(0.9, 1.1) for one in configurations))
        for _ in range(40)
    )
    best = solve_round(configurations, {"a100": 101}, jobs)
    bounded = solve_round(configurations, {"a100": 101}, jobs, max_nodes=1)
    assert best.optimal
    assert bounded.objective >= best.objective - 1e-9
    assert bounded.bound <= best.objective + 1e-9
    assert bounded.optimal == (bounded.gap == 0.0)


def test_configurations_are_powers_of_two_and_then_whole_nodes() -> None:
    sizes = [
        (one.gpus, one.nodes) for one in allowed_configurations("t4", gpus_per_node=4, nodes=3)
    ]
    assert sizes == [(1, 1), (2, 1), (4, 1), (8, 2), (12, 3)]


def test_restart_factor_rises_with_age_and_falls_with_restarts() -> None:
    assert restart_factor(0.0, 0) == 0.0
    assert restart_factor(60.0, 0) == pytest.approx(60 / 90)
    assert restart_factor(60.0, 1) == pytest.approx(30 / 90)
    assert restart_factor(60.0, 2) == 0.0
    assert restart_factor(60.0, 9) == 0.0


def test_a_job_whose_restart_factor_is_zero_keeps_what_it_holds() -> None:
    job = SiaJob(goodput=(1.0, 100.0, 0, 0, 0, 0), current=0, age_s=30.0, restarts=1)
    solved = solve_round(_CONFIGURATIONS, _CAPACITY, (job,))
    assert solved.chosen == (0,)
    costs, _ = round_costs((job,))
    assert costs[0, 0] == 1.0
    assert np.isinf(costs[0, 1:]).all()


def test_a_waiting_job_starts_at_once_whatever_its_age() -> None:
    job = SiaJob(goodput=(1.0, 0, 0, 0, 0, 0), age_s=0.0)
    assert solve_round(_CONFIGURATIONS, _CAPACITY, (job,)).chosen == (0,)


def test_an_old_job_moves_to_what_is_much_better_and_not_for_a_trifle() -> None:
    moved = SiaJob(goodput=(1.0, 1.9, 0, 0, 0, 0), current=0, age_s=6000.0)
    stays = SiaJob(goodput=(1.0, 1.02, 0, 0, 0, 0), current=0, age_s=6000.0)
    assert solve_round(_CONFIGURATIONS, _CAPACITY, (moved,)).chosen == (1,)
    assert solve_round(_CONFIGURATIONS, _CAPACITY, (stays,)).chosen == (0,)


def test_no_jobs_need_no_round() -> None:
    assert solve_round(_CONFIGURATIONS, _CAPACITY, ()).chosen == ()


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (SiaJob(goodput=(1.0,)), "goodput of job 0 must have 6 entries, had 1"),
        (SiaJob(goodput=(1.0,) * 6, current=6), "current of job 0 must be NOTHING or < 6"),
    ],
)
def test_a_job_that_does_not_fit_the_configurations_is_refused(job: SiaJob, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        solve_round(_CONFIGURATIONS, _CAPACITY, (job,))
