"""Evaluation of knowledge sources on held-out runs."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import median
from typing import ClassVar

import pytest

from spotline.bench.knowledge import evaluation, validity
from spotline.bench.knowledge.evaluation import evaluate_sources
from spotline.bench.knowledge.generated import generate_runs
from spotline.bench.knowledge.throughput import interval_coverage, throughput_section
from spotline.domain.configuration.configuration import (
    MeasuredRun,
    NoPrediction,
    Prediction,
    RunOutcome,
)
from spotline.domain.configuration.features import canonical_configuration, unpredictable

RUNS = generate_runs(160, 3)


class Typical:
    """Says the median rate of a model's runs, or of all; quick, and good enough to be scored."""

    def __init__(self, name):
        self.source_id = name

    def learn(self, runs):
        self.rates = {"": [run.tokens_per_s for run in runs if run.ran]}
        for run in runs:
            if run.ran:
                self.rates.setdefault(run.configuration.model_name, []).append(run.tokens_per_s)

    def predict(self, configurations, *, stack=""):
        return tuple(self._say(one) for one in configurations)

    def _say(self, one):
        reason = unpredictable(one)
        if reason:
            return NoPrediction(source_id=self.source_id, reason=reason)
        rate = median(self.rates.get(one.model_name, self.rates[""]))
        return Prediction(
            source_id=self.source_id,
            tokens_per_s=rate,
            low_tokens_per_s=rate / 3,
            high_tokens_per_s=rate * 3,
            success_probability=0.8 if one.batch_size < 64 else 0.3,
        )


@pytest.fixture(scope="module", autouse=True)
def quick_sources():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "make_source", Typical)
        patch.setattr(validity, "make_source", Typical)
        yield


@pytest.fixture(scope="module")
def report(quick_sources):
    return evaluate_sources(
        RUNS, sources=("analytic", "history"), repeats=2, curves={"history": (10, 25)}
    )


def test_every_source_and_split_is_scored(report):
    assert set(report.splits) == {"random", "leave_one_model_out"}
    for sources in report.splits.values():
        assert set(sources) == {"analytic", "history"}
        for found in sources.values():
            assert found.pooled.runs > 0
            assert 0 < found.pooled.mdape_percent <= found.pooled.p90_percent
            assert 0 <= found.pooled.coverage <= 1
            assert found.by_stack.keys() == {"generated"}


def test_measured_run_is_left_out_once_by_model(report):
    measured = sum(run.tokens_per_s > 0 for run in RUNS)

    assert report.splits["leave_one_model_out"]["analytic"].pooled.runs == measured


def test_more_samples_are_listed_in_order(report):
    assert list(report.by_samples["history"]) == [10, 25]


def test_report_is_plain_json(report):
    found = json.loads(json.dumps(report.as_json(), allow_nan=False))

    assert found["splits"]["random"]["history"]["mdape_percent"] > 0
    assert found["validity"]["runs"] == len(RUNS)
    assert 0 < found["validity"]["error_percent"] < 50
    section = throughput_section(report)
    assert set(section) == {"random_split", "leave_one_model_out", "by_samples"}
    assert section["by_samples"]["history"]["10"]["runs"] > 0
    assert set(interval_coverage(report, "history")) == set(report.splits)


def test_same_seed_gives_the_same_report():
    def once(seed):
        return evaluate_sources(
            RUNS, sources=("history",), splits=("random",), repeats=1, seed=seed, curves={}
        )

    assert once(4).as_json() == once(4).as_json()
    assert once(4).splits != once(5).splits


class Spy:
    """Remembers what it was taught and asked, and predicts what it cannot know."""

    seen: ClassVar[list] = []

    def __init__(self):
        self.learned = set()

    def learn(self, runs):
        self.learned = {run.configuration for run in runs}
        self.models = {canonical_configuration(one).model_name for one in self.learned}

    def predict(self, configurations, *, stack=""):
        Spy.seen.append((self, list(configurations)))
        return ()


def test_nothing_asked_was_taught(monkeypatch):
    Spy.seen = []
    monkeypatch.setattr(evaluation, "make_source", lambda name: Spy())
    repeated = [replace(run, tokens_per_s=run.tokens_per_s * 1.01) for run in RUNS if run.ran]

    with pytest.raises(ValueError, match="zip"):
        evaluate_sources([*RUNS, *repeated], sources=("history",), curves={})

    for source, asked in Spy.seen:
        assert asked
        assert not source.learned & set(asked)


def test_models_left_out_teach_nothing_not_even_failures():
    runs = [run for run in RUNS if not run.ran or run.tokens_per_s]

    for case in evaluation._model_cases({"generated": tuple(runs)}):
        taught = {canonical_configuration(run.configuration).model_name for run in case.train}
        asked = {canonical_configuration(run.configuration).model_name for run in case.test}
        assert asked
        assert not taught & asked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sources": ("oracle",)}, "sources"),
        ({"splits": ("none",)}, "splits"),
        ({"repeats": 0}, "repeats"),
        ({"test_share": 1.0}, "test_share"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate_sources(RUNS, **arguments)


@pytest.mark.parametrize("runs", [(), [run for run in RUNS if not run.ran]])
def test_nothing_to_split_is_refused(runs):
    with pytest.raises(ValueError, match="at least 2 measured"):
        evaluate_sources(runs)


def test_stack_of_a_single_run_is_skipped_by_name():
    lonely = next(run for run in RUNS if run.ran)
    lonely = MeasuredRun(
        configuration=lonely.configuration,
        stack="lonely",
        outcome=RunOutcome.SUCCEEDED,
        tokens_per_s=1.0,
    )

    report = evaluate_sources(
        [*RUNS, lonely], sources=("analytic",), splits=("random",), repeats=1, curves={}
    )

    assert report.skipped_stacks == ("lonely",)
