"""The generated world: its published marginals, its regularities, and that seeds decide it."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable

import pytest

from spotline.bench.knowledge.generated import (
    A100_PCIE,
    A100_SXM,
    BATCH_SIZES,
    FAILED_PERCENT,
    FAILED_PERCENT_BY_BATCH,
    FAILED_PERCENT_BY_METHOD,
    FAILED_PERCENT_BY_SEQUENCE,
    FAILED_PERCENT_L40S,
    L40S,
    RAN_PERCENT,
    REJECTED_PERCENT,
    SEQUENCES,
    SPEED_UP_BY_DOUBLING,
    STACK,
    WORLD_MODELS,
    GeneratedWorld,
    generate_runs,
)
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    MethodOption,
    RunOutcome,
)

_FAILED = (RunOutcome.OUT_OF_MEMORY, RunOutcome.FAILED)


def _configuration(**changes: object) -> Configuration:
    base = Configuration(
        model_name="granite-3.1-2b",
        method=Method.LORA,
        gpu_model=A100_SXM,
        gpus=1,
        nodes=1,
        tokens_per_sample=1024,
        batch_size=1,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def runs() -> tuple[MeasuredRun, ...]:
    return generate_runs(30_000, seed=11)


def _failed_percent(runs: tuple[MeasuredRun, ...], where: Callable[[Configuration], bool]) -> float:
    group = [run for run in runs if where(run.configuration)]
    return 100 * sum(run.outcome in _FAILED for run in group) / len(group)


def test_overall_shares_are_the_published_ones(runs: tuple[MeasuredRun, ...]) -> None:
    ran = 100 * sum(run.ran for run in runs) / len(runs)
    rejected = 100 * sum(run.outcome is RunOutcome.REJECTED for run in runs) / len(runs)
    assert ran == pytest.approx(RAN_PERCENT, abs=1.5)
    assert rejected == pytest.approx(REJECTED_PERCENT, abs=1.5)
    assert _failed_percent(runs, lambda one: True) == pytest.approx(FAILED_PERCENT, abs=1.5)


@pytest.mark.parametrize(
    ("batch", "percent"), list(zip(BATCH_SIZES, FAILED_PERCENT_BY_BATCH, strict=True))
)
def test_failures_by_batch(runs: tuple[MeasuredRun, ...], batch: int, percent: float) -> None:
    seen = _failed_percent(runs, lambda one: one.batch_size == batch)
    assert seen == pytest.approx(percent, abs=4.0)


@pytest.mark.parametrize(
    ("sequence", "percent"), list(zip(SEQUENCES, FAILED_PERCENT_BY_SEQUENCE, strict=True))
)
def test_failures_by_sequence(runs: tuple[MeasuredRun, ...], sequence: int, percent: float) -> None:
    seen = _failed_percent(runs, lambda one: one.tokens_per_sample == sequence)
    assert seen == pytest.approx(percent, abs=3.0)


@pytest.mark.parametrize(("method", "percent"), list(FAILED_PERCENT_BY_METHOD.items()))
def test_failures_by_method(runs: tuple[MeasuredRun, ...], method: Method, percent: float) -> None:
    seen = _failed_percent(runs, lambda one: one.method is method)
    assert seen == pytest.approx(percent, abs=3.0)


def test_failures_on_l40s(runs: tuple[MeasuredRun, ...]) -> None:
    seen = _failed_percent(runs, lambda one: one.gpu_model == L40S)
    assert seen == pytest.approx(FAILED_PERCENT_L40S, abs=3.0)


@pytest.mark.parametrize(
    ("batch", "speed_up"),
    list(zip(BATCH_SIZES[: len(SPEED_UP_BY_DOUBLING)], SPEED_UP_BY_DOUBLING, strict=True)),
)
def test_a_doubled_batch_pays_as_published(batch: int, speed_up: float) -> None:
    world = GeneratedWorld()
    ratios = []
    for model in WORLD_MODELS:
        for sequence in SEQUENCES:
            small = _configuration(
                model_name=model.name, tokens_per_sample=sequence, batch_size=batch
            )
            slow = world.rate_tokens_per_s(small)
            fast = world.rate_tokens_per_s(dataclasses.replace(small, batch_size=2 * batch))
            if slow and fast:
                ratios.append(fast / slow)
    assert len(ratios) >= 5
    assert statistics.median(ratios) == pytest.approx(speed_up, rel=0.03)


@pytest.mark.parametrize(
    ("changes", "other", "ratio"),
    [
        ({"gpu_model": L40S}, {"gpu_model": A100_PCIE}, 0.68),
        ({"gpu_model": A100_SXM}, {"gpu_model": A100_PCIE}, 1.18),
        (
            {"method": Method.LORA, "gpus": 8, "batch_size": 8},
            {"method": Method.FULL, "gpus": 8, "batch_size": 8},
            1.09,
        ),
        ({"gpus": 2, "batch_size": 2}, {}, 2 * 0.94),
        ({"gpus": 8, "batch_size": 8}, {"gpus": 2, "batch_size": 2}, 4 * 0.99),
        (
            {"gpus": 16, "nodes": 2, "batch_size": 16},
            {"gpus": 8, "batch_size": 8},
            2 * 0.98,
        ),
        (
            {
                "gpus": 16,
                "nodes": 2,
                "batch_size": 16,
                "options": (MethodOption(name="enable_roce", value="false"),),
            },
            {"gpus": 8, "batch_size": 8},
            2 * 0.98 * 0.26,
        ),
    ],
)
def test_published_ratios_hold_over_models(
    changes: dict[str, object], other: dict[str, object], ratio: float
) -> None:
    world = GeneratedWorld()
    ratios = []
    for model in WORLD_MODELS:
        above = world.rate_tokens_per_s(_configuration(model_name=model.name, **changes))
        below = world.rate_tokens_per_s(_configuration(model_name=model.name, **other))
        if above and below:
            ratios.append(above / below)
    assert len(ratios) >= 8
    assert statistics.median(ratios) == pytest.approx(ratio, rel=0.04)


def test_configurations_of_one_job_are_tens_of_times_apart() -> None:
    world = GeneratedWorld()
    rates = [
        world.rate_tokens_per_s(_configuration(gpu_model=gpu, gpus=gpus, batch_size=gpus * per_gpu))
        for gpu in (A100_SXM, L40S)
        for gpus in (1, 2, 4, 8)
        for per_gpu in (1, 2, 4, 8)
    ]
    succeeded = [rate for rate in rates if rate]
    assert 15 < max(succeeded) / min(succeeded) < 60


def test_a_measured_run_is_near_the_true_rate(runs: tuple[MeasuredRun, ...]) -> None:
    world = GeneratedWorld()
    errors = [
        abs(run.tokens_per_s / world.rate_tokens_per_s(run.configuration) - 1)
        for run in runs[:3000]
        if run.ran
    ]
    assert 0.01 < statistics.median(errors) < 0.03


@pytest.mark.parametrize(
    "changes", [{"gpus": 2}, {"gpus": 2, "nodes": 4, "batch_size": 2}, {"expert_parallel": 2}]
)
def test_what_breaks_a_hard_rule_is_rejected_and_has_no_rate(changes: dict[str, object]) -> None:
    world = GeneratedWorld()
    one = _configuration(**changes)
    assert world.outcome(one) is RunOutcome.REJECTED
    assert world.rate_tokens_per_s(one) == 0.0


def test_equal_seeds_give_equal_runs_and_others_differ() -> None:
    assert generate_runs(50, seed=1) == generate_runs(50, seed=1)
    assert generate_runs(50, seed=1) != generate_runs(50, seed=2)
    assert generate_runs(50, seed=1) != generate_runs(50, seed=1, world_seed=2)
    assert generate_runs(20, seed=1) == generate_runs(50, seed=1)[:20]


def test_other_seeds_measure_the_same_world() -> None:
    one = _configuration()
    assert GeneratedWorld().rate_tokens_per_s(one) == GeneratedWorld().rate_tokens_per_s(one)
    assert GeneratedWorld(1).rate_tokens_per_s(one) != GeneratedWorld(2).rate_tokens_per_s(one)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_name": "nobody-7b"}, "model_name must be of the generated world"),
        ({"gpu_model": "T4"}, "gpu_model must be one of"),
        ({"method": Method.ADAPTER}, "method must be one of full, lora, gptq-lora"),
    ],
)
def test_what_is_not_of_this_world_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GeneratedWorld().outcome(_configuration(**changes))


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValueError, match="count must be >= 0, was -1"):
        generate_runs(-1, seed=1)


def test_generated_runs_are_a_stack_of_their_own(runs: tuple[MeasuredRun, ...]) -> None:
    assert {run.stack for run in runs} == {STACK}
