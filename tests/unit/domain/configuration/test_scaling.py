"""H(n) from a knowledge source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.configuration import (
    Configuration,
    Method,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.features import unpredictable
from spotline.domain.configuration.scaling import (
    CountRate,
    ScalingMode,
    configuration_at,
    fit_scaling,
    scaling_of,
)

JOB = Configuration(
    model_name="granite-3.1-8b",
    method=Method.FULL,
    gpu_model="a100-80gb",
    gpus=1,
    nodes=1,
    tokens_per_sample=4096,
    batch_size=4,
)
# Tokens per second on 1..32 A100 at 4 samples per GPU: coastline_run_database.csv.
GRANITE_8B_WEAK = {
    1: 2671.5117,
    2: 5139.9546,
    4: 10385.6766,
    8: 20966.0341,
    16: 41448.2972,
    32: 80873.4326,
}
# The same model at a global batch of 32.
GRANITE_8B_GLOBAL_32 = {4: 10726.7978, 8: 20966.0341, 16: 39194.3241, 32: 62104.1348}


class LawSource:
    """Answers by a function of the number of GPUs."""

    source_id = "law"

    def __init__(self, rate, fails_at=()):
        self.rate, self.fails_at, self.asked = rate, fails_at, []

    def predict(self, configurations, *, stack=""):
        self.asked.extend(configurations)
        return tuple(self._say(one) for one in configurations)

    def _say(self, one):
        reason = unpredictable(one)
        if reason:
            return NoPrediction(source_id="law", reason=reason)
        rate = self.rate(one.gpus)
        return Prediction(
            source_id="law",
            tokens_per_s=rate,
            low_tokens_per_s=0.8 * rate,
            high_tokens_per_s=1.25 * rate,
            success_probability=0.1 if one.gpus in self.fails_at else 0.9,
        )


def weak(source, counts, **options):
    return scaling_of(source, JOB, 1, counts, ScalingMode.WEAK, **options)


def as_rates(rates):
    return tuple(
        CountRate(
            instances=count,
            configuration=JOB,
            tokens_per_hour=3600 * rate,
            low_tokens_per_hour=3000 * rate,
            high_tokens_per_hour=4000 * rate,
            success_probability=1.0,
            measured=True,
        )
        for count, rate in rates.items()
    )


def test_line_is_recovered_in_tokens_per_hour():
    found = weak(LawSource(lambda n: 2000 * n + 300), (8, 1, 2, 4))

    assert found.alpha == pytest.approx(2000 * 3600)
    assert found.beta == pytest.approx(300 * 3600)
    assert found.residual_percent == pytest.approx(0.0, abs=1e-6)
    assert found.linear
    assert not found.skipped
    assert [rate.instances for rate in found.rates] == [1, 2, 4, 8]
    at_four = found.rates[2]
    assert at_four.low_tokens_per_hour == pytest.approx(0.8 * 8300 * 3600)
    assert at_four.high_tokens_per_hour == pytest.approx(1.25 * 8300 * 3600)


def test_weak_scaling_of_granite_8b_is_the_published_line():
    found = fit_scaling(ScalingMode.WEAK, as_rates(GRANITE_8B_WEAK))

    assert found.alpha / 3600 == pytest.approx(2527, abs=1)
    assert found.beta / 3600 == pytest.approx(381, abs=5)


def test_constant_global_batch_is_concave_and_takes_a_table():
    found = fit_scaling(ScalingMode.CONSTANT_GLOBAL, as_rates(GRANITE_8B_GLOBAL_32))

    assert not found.linear
    assert found.residual_percent > 5
    gains = [
        (found.table[high - 1] - found.table[low - 1]) / (high - low)
        for low, high in ((4, 8), (8, 16), (16, 32))
    ]
    assert gains == sorted(gains, reverse=True)
    assert found.table[:3] == (0.0, 0.0, 0.0)


def test_weak_keeps_the_batch_of_a_gpu_and_constant_that_of_all():
    per_gpu = configuration_at(JOB, 3, 8, ScalingMode.WEAK)
    overall = configuration_at(replace(JOB, batch_size=48), 3, 8, ScalingMode.CONSTANT_GLOBAL)

    assert (per_gpu.gpus, per_gpu.nodes, per_gpu.batch_size) == (24, 3, 96)
    assert (overall.gpus, overall.nodes, overall.batch_size) == (24, 3, 48)


def test_instances_may_share_a_node():
    source = LawSource(lambda n: 100 * n)

    weak(source, (1, 8, 16), gpus_per_node=8)

    assert [one.nodes for one in source.asked] == [1, 1, 2]


def test_count_that_breaks_a_rule_is_left_out_with_the_reason():
    found = scaling_of(
        LawSource(lambda n: 100 * n), JOB, 1, (1, 2, 3, 4), ScalingMode.CONSTANT_GLOBAL
    )

    assert [one.instances for one in found.skipped] == [3]
    assert "batch_size" in found.skipped[0].reason
    assert [round(rate / 3600) for rate in found.table] == [100, 200, 200, 400]


def test_count_that_likely_fails_is_left_out():
    found = weak(LawSource(lambda n: 100 * n, fails_at=(1,)), (1, 2, 4))

    assert [rate.instances for rate in found.rates] == [2, 4]
    assert "10 %" in found.skipped[0].reason
    assert found.table[0] == 0.0


def test_nothing_runs_is_no_prediction():
    said = weak(LawSource(lambda n: 100 * n, fails_at=(1, 2)), (1, 2))

    assert isinstance(said, NoPrediction)
    assert "probability" in said.reason


def test_falling_rates_are_not_called_linear():
    found = weak(LawSource(lambda n: 100.0 + 1e-3 / n), (1, 2, 4, 8))

    assert not found.linear


@pytest.mark.parametrize("counts", [(), (0, 1)])
def test_counts_must_be_positive(counts):
    with pytest.raises(ValueError, match="counts"):
        weak(LawSource(lambda n: n), counts)


def test_instances_must_have_gpus():
    with pytest.raises(ValueError, match="gpus_per_instance"):
        scaling_of(LawSource(lambda n: n), JOB, 0, (1,))


@given(
    st.floats(1.0, 1e5),
    st.floats(0.1, 1.0),
    st.sets(st.integers(1, 40), min_size=1, max_size=8),
)
def test_table_reaches_the_largest_count_and_keeps_what_was_predicted(first, power, counts):
    found = weak(LawSource(lambda n: first * n**power), sorted(counts))

    assert len(found.table) == max(counts)
    for rate in found.rates:
        assert found.table[rate.instances - 1] == pytest.approx(rate.tokens_per_hour)
    assert list(found.table) == sorted(found.table)
