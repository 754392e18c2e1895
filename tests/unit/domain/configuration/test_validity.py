"""Probability of success."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.bench.knowledge.generated import generate_runs
from spotline.bench.knowledge.validity import evaluate_validity
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    RunOutcome,
)
from spotline.domain.configuration.features import table_of
from spotline.domain.configuration.validity import SuccessModel

SMALL = Configuration(
    model_name="llama-2-7b",
    method=Method.LORA,
    gpu_model="a100-80gb",
    gpus=1,
    nodes=1,
    tokens_per_sample=512,
    batch_size=1,
)
HUGE = replace(SMALL, model_name="llama-2-70b", method=Method.FULL)


def chances(model, *configurations):
    return model.probabilities(table_of(configurations)).tolist()


def run(configuration, *, ran=True, memory_gb=0.0):
    return MeasuredRun(
        configuration=configuration,
        stack="s",
        outcome=RunOutcome.SUCCEEDED if ran else RunOutcome.OUT_OF_MEMORY,
        tokens_per_s=100.0 if ran else 0.0,
        peak_memory_gb=memory_gb,
    )


def test_without_runs_memory_decides():
    small, huge = chances(SuccessModel(), SMALL, HUGE)

    assert small > 0.95
    assert huge < 0.05


def test_larger_batches_never_get_likelier_to_run_without_history():
    batches = [replace(SMALL, batch_size=2**power) for power in range(12)]

    said = chances(SuccessModel(), *batches)

    assert said == sorted(said, reverse=True)
    assert said[0] > 0.9
    assert said[-1] < 0.1


def test_one_failure_outweighs_the_estimate_for_that_very_configuration():
    model = SuccessModel()
    model.learn([run(SMALL, ran=False), run(replace(SMALL, batch_size=2))])

    failed, ran = chances(model, SMALL, replace(SMALL, batch_size=2))

    assert failed < ran


def test_few_runs_that_all_succeed_do_not_make_the_impossible_likely():
    model = SuccessModel()
    model.learn([run(replace(SMALL, batch_size=size)) for size in (1, 2, 4)])

    assert chances(model, HUGE)[0] < 0.2


def test_measured_peaks_correct_the_estimate():
    one = [replace(SMALL, batch_size=size) for size in (1, 2, 4, 8)]
    plain = SuccessModel().memory_gb(table_of(one))
    model = SuccessModel()

    model.learn(
        [
            run(configuration, memory_gb=1.5 * float(gb))
            for configuration, gb in zip(one, plain, strict=True)
        ]
    )

    ratio = model.memory_gb(table_of(one)) / plain
    assert np.all((ratio > 1.2) & (ratio < 1.6))


def test_broken_rules_teach_nothing():
    broken = run(replace(SMALL, gpus=4, batch_size=3), ran=False)
    model = SuccessModel()

    model.learn([broken] * 50)

    assert chances(model, SMALL) == chances(SuccessModel(), SMALL)


def test_generated_world_is_learned_from_a_thousand_runs():
    report = evaluate_validity(generate_runs(1_000, 1), generate_runs(1_000, 2))

    # A thousand runs; the target of 4.2 % is for five thousand.
    assert report.error_percent < 8
    assert report.brier < 0.08
    assert report.runs == 1_000
    assert report.declined == pytest.approx(296, abs=60)
    assert sum(one.runs for one in report.bins) == report.runs - report.declined


def test_nothing_to_test_is_refused():
    with pytest.raises(ValueError, match="test_runs"):
        evaluate_validity([], [])
