import math
import random

import pytest

from spotline.bench.forecast.evaluation import evaluate
from spotline.domain.forecasting.river_forecaster import RiverForecaster
from spotline.domain.units import PPM
from tests.fakes.market_slots import series, slot_opened


def run_lengths(rng: random.Random, slots: int, mean_slots: float) -> list[int]:
    counts: list[int] = []
    up = True
    while len(counts) < slots:
        counts += [16 if up else 0] * max(1, round(rng.expovariate(1 / mean_slots)))
        up = not up
    return counts[:slots]


def at_least(step, instances: int) -> float:
    return sum(c.probability_ppm for c in step.counts if c.instances >= instances) / PPM


def test_chance_of_a_gang_fades_towards_its_frequency():
    forecaster = RiverForecaster(12)
    for opened in series(run_lengths(random.Random(1), 600, 8.0)):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(12)

    up = forecast.steps[0].counts[-1].probability_ppm > PPM // 2
    first, last = at_least(forecast.steps[0], 16), at_least(forecast.steps[11], 16)
    assert 0.7 < (first if up else 1 - first) < 0.99
    assert abs(last - 0.5) < abs(first - 0.5)


def test_gangs_are_forecast_as_all_or_nothing():
    forecaster = RiverForecaster(12)
    for opened in series(run_lengths(random.Random(2), 400, 8.0)):
        forecaster.learn(opened)

    (forecast,) = forecaster.forecast(12)

    assert {c.instances for step in forecast.steps for c in step.counts} <= {0, 16}


def test_steady_season_is_learnt():
    # Up from 06 to 18 UTC, every day: persistence is wrong at 12 steps of an hour, always.
    counts = [16 if 6 <= hour % 24 < 18 else 0 for hour in range(24 * 40)]
    slots = [slot_opened(k, {"a": c}, slot_s=3600) for k, c in enumerate(counts)]

    result = evaluate(RiverForecaster(12), slots, first_scored_slot=24 * 30)

    assert result[11].crps_instances < 0.2 * result[11].persistence_crps_instances


@pytest.mark.parametrize("mean_slots", [4.0, 20.0])
def test_renewal_gangs_are_forecast_better_than_by_persistence(mean_slots):
    slots = series(run_lengths(random.Random(3), 800, mean_slots))

    for each in evaluate(RiverForecaster(12), slots, first_scored_slot=400):
        assert each.crps_instances < each.persistence_crps_instances


def test_slow_random_walk_is_forecast_better_than_by_persistence():
    rng, counts = random.Random(4), [16]
    for _ in range(800):
        counts.append(min(32, max(0, counts[-1] + rng.choice((-1, 0, 0, 1)))))

    for each in evaluate(RiverForecaster(12), series(counts), first_scored_slot=400):
        assert each.crps_instances < each.persistence_crps_instances


def test_sticky_price_stays_exactly_at_persistence():
    rng, price = random.Random(5), 918_000
    forecaster = RiverForecaster(12)
    for slot in range(400):
        if rng.random() < 0.04:
            price += rng.choice((-1_800, 1_800))
        forecaster.learn(slot_opened(slot, {"a": 4}, {"a": price}))
        if slot > 50:
            (forecast,) = forecaster.forecast(12)
            moved = [abs(s.spot_price_micro_usd - price) for s in forecast.steps]
            assert max(moved) <= 6_000
            assert moved[0] == 0


def test_mean_reverting_price_is_forecast_better_than_by_persistence():
    rng, deviation, slots = random.Random(6), 0.0, []
    for slot in range(1_000):
        deviation = 0.7 * deviation + rng.gauss(0, 0.08)
        slots.append(slot_opened(slot, {"a": 4}, {"a": round(1_000_000 * math.exp(deviation))}))

    result = evaluate(RiverForecaster(12), slots, first_scored_slot=500)

    assert result[5].price_error < 0.95 * result[5].persistence_price_error
    assert result[11].price_error < 0.95 * result[11].persistence_price_error


def test_state_of_another_river_is_refused():
    dumped = RiverForecaster(3).dump()

    with pytest.raises(ValueError, match=r"river.*learn again"):
        RiverForecaster.load(dumped.replace(b'"river": "0', b'"river": "9'))


def test_extreme_prices_stay_finite():
    forecaster = RiverForecaster(4)
    for slot in range(120):
        price = 1 if slot % 3 else 10**12
        forecaster.learn(slot_opened(slot, {"a": slot % 2 * 5_000}, {"a": price}))

        for step in forecaster.forecast(4)[0].steps:
            assert step.spot_price_micro_usd >= 1
