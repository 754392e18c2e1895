import random

import pytest

from spotline.bench.forecast.evaluation import evaluate
from spotline.domain.forecasting.law_forecaster import LawForecaster
from spotline.domain.forecasting.registry import make_forecaster
from spotline.domain.units import PPM
from tests.fakes.market_slots import series, slot_opened

HOUR_S = 3_600


def daily(days: int):
    counts = [16 if 6 <= hour % 24 < 18 else 0 for hour in range(24 * days)]
    return [slot_opened(k, {"a": c}, slot_s=HOUR_S) for k, c in enumerate(counts)]


def test_seasonal_naive_knows_the_day():
    result = evaluate(make_forecaster("seasonal_naive"), daily(8), first_scored_slot=24 * 4)

    assert result[5].crps_instances < 0.3 * result[5].persistence_crps_instances


def test_snarimax_learns_the_day():
    result = evaluate(make_forecaster("snarimax"), daily(20), first_scored_slot=24 * 15)

    assert result[11].crps_instances < 0.5 * result[11].persistence_crps_instances


def test_climatology_says_the_same_at_every_step():
    forecaster = make_forecaster("climatology", 3)
    for opened in series([0, 16] * 100):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(3)

    assert len({step.counts for step in forecast.steps}) == 1
    assert abs(forecast.steps[0].counts[0].probability_ppm - PPM // 2) < 5_000


def test_law_knows_that_old_runs_go_on():
    rng, counts = random.Random(5), []
    while len(counts) < 900:
        up = 4 if not counts or counts[-1] == 0 else 0
        counts += [up] * rng.choice((1, 1, 1, 60))

    def chance_of_staying(present: list[int]) -> int:
        forecaster = LawForecaster(2)
        for opened in series(counts[:900] + present):
            forecaster.learn(opened)
        (forecast,) = forecaster.forecast(2)
        return {c.instances: c.probability_ppm for c in forecast.steps[0].counts}[present[-1]]

    assert chance_of_staying([0, 4, 0]) < chance_of_staying([4] + [0] * 30) - 100_000


@pytest.mark.parametrize("name", ["law", "seasonal_naive", "snarimax"])
def test_drift_is_survived(name):
    rng = random.Random(6)
    calm = [16 if rng.random() < 0.97 else 0 for _ in range(250)]
    forecaster = make_forecaster(name, 4)
    for opened in series([*calm, *(rng.choice((0, 16)) for _ in range(120))]):
        forecaster.learn(opened)

    drifted = {score.drift_slot for score in forecaster.scores() if score.drift_slot}

    assert drifted
    assert min(drifted) > 250
