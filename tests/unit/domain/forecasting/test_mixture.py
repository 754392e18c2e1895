import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.bench.forecast.evaluation import evaluate
from spotline.domain.forecasting.distribution import crps_milli, quantised
from spotline.domain.forecasting.mixture import MixtureForecaster, _joint_errors, _masses
from tests.fakes.market_slots import series, slot_opened

masses = st.lists(st.tuples(st.integers(0, 20), st.floats(0.01, 1.0)), min_size=1, max_size=5).map(
    quantised
)


@given(first=masses, second=masses, share=st.floats(0, 1), count=st.integers(0, 25))
def test_score_of_a_pool_is_the_quadratic_form_of_the_joint_errors(first, second, share, count):
    grid, probabilities = _masses([(first,), (second,)], 1)
    weights = np.array([share, 1.0 - share])
    pooled = [
        (int(point), float(mass))
        for point, mass in zip(grid, weights @ probabilities[0], strict=True)
    ]

    joint = _joint_errors(grid, probabilities[0].cumsum(axis=1), count)

    assert weights @ joint @ weights == pytest.approx(
        crps_milli(quantised(pooled), count) / 1_000, abs=2e-3
    )


def test_constant_market_is_left_to_persistence():
    forecaster = MixtureForecaster(3)
    for opened in series([16, 0, 16, 0] * 4 + [16] * 150):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(3)

    for step in forecast.steps:
        assert {c.instances: c.probability_ppm for c in step.counts}[16] > 970_000


def gangs(rng: random.Random, slots: int, mean_slots: float) -> list[int]:
    counts: list[int] = []
    while len(counts) < slots:
        up = 16 if not counts or counts[-1] == 0 else 0
        counts += [up] * max(1, round(rng.expovariate(1 / mean_slots)))
    return counts[:slots]


@pytest.mark.parametrize("mean_slots", [3.0, 8.0])
def test_pool_is_no_worse_than_persistence_at_every_step(mean_slots):
    slots = series(gangs(random.Random(7), 360, mean_slots))

    for each in evaluate(MixtureForecaster(12), slots, first_scored_slot=120):
        assert each.crps_instances < each.persistence_crps_instances


def test_offerings_lend_each_other_what_they_learnt():
    rng = random.Random(8)
    columns = [gangs(rng, 120, 12.0) for _ in range(3)]
    alone, together = MixtureForecaster(12), MixtureForecaster(12)
    for k in range(120):
        alone.learn(slot_opened(k, {"z0": columns[0][k]}))
        together.learn(slot_opened(k, {f"z{i}": column[k] for i, column in enumerate(columns)}))

    assert alone.forecast(12)[0].steps[-1].counts != together.forecast(12)[0].steps[-1].counts


def test_change_of_regime_is_followed():
    restless = gangs(random.Random(9), 120, 2.0)
    forecaster = MixtureForecaster(6)
    for opened in series([*restless, *[0] * 60]):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(6)

    assert all(
        {c.instances: c.probability_ppm for c in step.counts}[0] > 900_000
        for step in forecast.steps
    )
