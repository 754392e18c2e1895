"""What single sources do beyond the contract."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.knowledge.generated import generate_runs
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    MethodOption,
    RunOutcome,
)
from spotline.domain.configuration.features import (
    canonical_configuration,
    table_of,
    unknown_part,
    unpredictable,
)
from spotline.domain.configuration.sources.analytic import AnalyticRates
from spotline.domain.configuration.sources.combined import (
    MEMBERS,
    CombinedSource,
    stacking_weights,
)
from spotline.domain.configuration.sources.gaussian_process import GaussianProcessRates
from spotline.domain.configuration.sources.history import HistorySource
from spotline.domain.configuration.stacks import Surroundings, lessons_of, model_folds, random_folds
from spotline.domain.configuration.steptime import Coefficients, step_times
from tests.depth import examples

ONE = Configuration(
    model_name="llama-2-7b",
    method=Method.LORA,
    gpu_model="a100-80gb",
    gpus=1,
    nodes=1,
    tokens_per_sample=2048,
    batch_size=4,
)


def grid(models=("llama-3.2-1b", "llama-2-7b", "llama-2-13b")):
    return [
        replace(ONE, model_name=model, gpus=gpus, batch_size=gpus * samples)
        for model in models
        for gpus in (1, 2, 8)
        for samples in (1, 4, 16)
    ]


def measured(configuration, tokens_per_s):
    return MeasuredRun(
        configuration=configuration,
        stack="s",
        outcome=RunOutcome.SUCCEEDED,
        tokens_per_s=tokens_per_s,
    )


def test_analytic_calibration_finds_a_slower_stack():
    table = table_of(grid())
    slow = np.log(step_times(table.work, Coefficients(efficiency=0.15)).tokens_per_s)
    rates = AnalyticRates()

    rates.fit(table, slow)

    assert rates.predict(table).log_rates == pytest.approx(slow, abs=0.05)
    assert rates.coefficients.efficiency < 0.3


def test_analytic_calibration_is_not_bent_by_an_odd_run():
    table = table_of(grid())
    true = np.log(step_times(table.work, Coefficients(efficiency=0.3)).tokens_per_s)
    odd = true.copy()
    odd[5] -= math.log(4.0)
    rates = AnalyticRates()

    rates.fit(table, odd)

    errors = np.abs(rates.predict(table).log_rates - true)
    assert np.median(errors) < 0.05


def test_process_is_surer_where_runs_are_near():
    table = table_of(grid())
    process = GaussianProcessRates()
    process.fit(table, np.log(step_times(table.work, Coefficients()).tokens_per_s))

    near, far = process.predict(
        table_of([grid()[0], replace(ONE, model_name="llama-2-70b", tokens_per_sample=512)])
    ).spreads

    assert near < far


def test_history_returns_the_mean_of_repeated_runs():
    source = HistorySource()
    source.learn([measured(ONE, 1000.0), measured(ONE, 1040.0)])

    (said,) = source.predict([ONE], stack="s")

    assert said.tokens_per_s == pytest.approx(math.sqrt(1000 * 1040), rel=0.01)
    assert said.measured
    assert "2 times" in said.basis


def test_history_scales_from_the_nearest_run():
    source = HistorySource()
    source.learn([measured(ONE, 1000.0)])

    (double,) = source.predict([replace(ONE, gpus=2, batch_size=8)], stack="s")

    assert 1300 < double.tokens_per_s < 2200
    assert not double.measured


def test_members_weights_add_up():
    source = CombinedSource()
    source.learn([run for run in generate_runs(250, 5) if run.ran])

    members = source.members()

    assert [one.source_id for one in members] == list(MEMBERS)
    assert math.fsum(one.weight for one in members) == pytest.approx(1.0)
    assert all(one.median_error_percent > 0 for one in members)


def test_better_member_gets_the_weight():
    rng = np.random.default_rng(1)
    good, bad = 0.01 * rng.standard_normal(200), 0.5 + 0.3 * rng.standard_normal(200)

    weights = stacking_weights(np.column_stack([bad, good]), ("bad", "good"), 200.0)

    assert weights["good"] > 0.9


def test_errors_that_cancel_share_the_weight():
    rng = np.random.default_rng(2)
    common = 0.2 * rng.standard_normal(300)

    weights = stacking_weights(np.column_stack([common, -common]), ("a", "b"), 300.0)

    assert weights["a"] == pytest.approx(0.5, abs=0.05)


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(0, 40))
@settings(max_examples=examples(25), deadline=None)
def test_stacking_is_never_much_worse_than_the_best_member(seed, members, rows):
    rng = np.random.default_rng(seed)
    errors = rng.standard_normal((rows, members)) * rng.uniform(0.01, 1.0, members)
    names = [str(member) for member in range(members)]

    weights = stacking_weights(errors, names, float(rows))

    assert math.fsum(weights.values()) == pytest.approx(1.0)
    assert min(weights.values()) >= 0
    if rows >= 20:
        mean = np.abs(errors @ [weights[name] for name in names]).mean()
        assert mean <= 1.25 * np.abs(errors).mean(axis=0).min() + 0.02


def test_distance_is_a_symmetric_one():
    table = table_of([*grid(), replace(ONE, options=(MethodOption(name="x", value="1"),))])

    far = Surroundings(table).distances(table)

    assert far == pytest.approx(far.T)
    assert np.diag(far) == pytest.approx(0.0, abs=1e-6)
    assert far[-1, 0] > 0


def test_folds_hold_every_row_out_once():
    lessons = lessons_of([measured(one, 100.0) for one in grid()])
    rows = len(lessons.table)

    for folds in (random_folds(rows), model_folds(lessons.table)):
        assert sorted(np.concatenate(folds).tolist()) == list(range(rows))
    models = lessons.table.values("model")
    for fold in model_folds(lessons.table):
        inside = {models[place] for place in fold}
        outside = {models[place] for place in range(rows) if place not in set(fold.tolist())}
        assert not inside & outside


def test_model_alone_cannot_be_held_out():
    assert model_folds(table_of(grid(("llama-2-7b",)))) == []


def test_names_are_made_canonical():
    spelled = replace(ONE, model_name="NousResearch/Llama-2-7b-hf", gpu_model="NVIDIA A100-80GB")

    assert canonical_configuration(spelled) == ONE
    assert canonical_configuration(ONE) == ONE


def test_reasons_say_which_field():
    assert unpredictable(ONE) == ""
    assert "batch_size" in unpredictable(replace(ONE, gpus=4, batch_size=5))
    assert "model_name" in unknown_part(replace(ONE, model_name="unheard-of"))
    assert "gpu_model" in unknown_part(replace(ONE, gpu_model="unheard-of"))


def test_options_that_only_some_rows_have_are_aligned():
    with_option = replace(ONE, options=(MethodOption(name="fast", value="true"),))

    table = table_of([ONE, with_option, ONE])

    assert table.values("fast") == ("", "true", "")
    assert table.take([1, 0]).values("fast") == ("true", "")
    assert table.values("never") == ("", "", "")
