"""From a forecast's distribution to what a planner uses."""

from __future__ import annotations

from spotline.domain.market.forecast import CountProbability, ForecastStep, OfferingForecast
from spotline.domain.policies.prediction import UNCOUNTED, median_count, window_forecast


def step(price: int, **counts: int) -> ForecastStep:
    return ForecastStep(
        spot_price_micro_usd=price,
        counts=tuple(
            CountProbability(instances=int(name[1:]), probability_ppm=ppm)
            for name, ppm in counts.items()
        ),
    )


FORECAST = OfferingForecast(
    offering_id="a",
    steps=(step(1_000_000, n0=400_000, n16=600_000), step(1_000_000, n0=900_000, n16=100_000)),
)


def test_the_planned_count_is_the_median() -> None:
    assert median_count(FORECAST.steps[0]) == (16, 600_000)
    assert median_count(FORECAST.steps[1]) == (0, 1_000_000)


def test_doubt_about_the_count_raises_the_price_towards_on_demand() -> None:
    window = window_forecast(FORECAST, on_demand_price_micro_usd=3_000_000)

    assert window.spot_available == (16, 0)
    # 0.6 x 1.00 + 0.4 x 3.00
    assert window.spot_price[0] == 1_800_000


def test_what_earlier_jobs_hold_is_not_counted_on() -> None:
    window = window_forecast(FORECAST, on_demand_price_micro_usd=3_000_000, taken=10)

    assert window.spot_available == (6, 0)


def test_where_nobody_counts_plenty_is_assumed_now_and_later() -> None:
    window = window_forecast(FORECAST, on_demand_price_micro_usd=3_000_000, counted=False)

    assert window.spot_available == (UNCOUNTED, UNCOUNTED)
    assert window.spot_price == (1_000_000, 1_000_000)
