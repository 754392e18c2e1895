import random

import pytest

from spotline.domain.events import (
    ForecastIssued,
    ForecastStep,
    OfferingForecast,
)
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.registry import make_forecaster
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.market.generate import PRESETS, generate
from tests.fakes.market_slots import START_NS, series, slot_opened, slots_of

NOISE_FROM, NOISE_UNTIL = 150, 160


def issued(slot: int, *forecasts: OfferingForecast) -> ForecastIssued:
    return ForecastIssued(slot=slot, model_id="fake", forecasts=forecasts, scores=())


def steady(count: int, price: int = 1_000_000, steps: int = 12) -> OfferingForecast:
    step = ForecastStep(spot_price_micro_usd=price, counts=certain(count))
    return OfferingForecast(offering_id="a", steps=(step,) * steps)


def noise(rng: random.Random, forecasts, kind: str):
    """Replace prices, counts or both by independent draws, step by step."""
    replaced = []
    for forecast in forecasts:
        steps = []
        for step in forecast.steps:
            price, counts = step.spot_price_micro_usd, step.counts
            if kind in ("prices", "both"):
                price = max(1, round(price * rng.uniform(0.3, 3.0)))
            if kind in ("counts", "both"):
                counts = certain(rng.randint(0, 16))
            if kind == "distributions":
                counts = quantised([(count, rng.expovariate(1)) for count in (0, 4, 8, 16)])
            steps.append(ForecastStep(spot_price_micro_usd=price, counts=counts))
        replaced.append(OfferingForecast(offering_id=forecast.offering_id, steps=tuple(steps)))
    return tuple(replaced)


@pytest.fixture(scope="module")
def forecast_markets():
    """Every preset with the default forecaster's forecasts."""
    markets = {}
    for preset in sorted(PRESETS):
        market = generate(preset, seed=5, slots=300, slot_s=1800, start_ns=START_NS)
        forecaster = make_forecaster()
        pairs = []
        for opened in slots_of(market):
            forecaster.learn(opened)
            pairs.append((opened, forecaster.forecast(12)))
        markets[preset] = pairs
    return markets


def test_everything_is_trusted_before_the_first_forecast():
    assert ForecastTrust().trusted


def test_sane_forecasts_of_generated_markets_are_trusted(forecast_markets):
    judged = alarms = 0
    for pairs in forecast_markets.values():
        trust = ForecastTrust()
        for opened, forecasts in pairs:
            trust.note_slot(opened)
            trust.note_forecast(issued(opened.slot, *forecasts))
            judged += 1
            alarms += not trust.trusted

    assert judged >= 1_000
    assert alarms / judged < 0.01


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("kind", ["prices", "counts", "both", "distributions"])
def test_noise_is_noticed_and_forgiven(forecast_markets, preset, kind):
    rng, trust = random.Random(9), ForecastTrust()
    distrusted = []
    for opened, forecasts in forecast_markets[preset]:
        noisy = NOISE_FROM <= opened.slot < NOISE_UNTIL
        trust.note_slot(opened)
        trust.note_forecast(
            issued(opened.slot, *(noise(rng, forecasts, kind) if noisy else forecasts))
        )
        if not trust.trusted:
            distrusted.append(opened.slot)

    assert NOISE_FROM + 1 in distrusted
    assert set(range(NOISE_FROM + 2, NOISE_UNTIL)) <= set(distrusted)
    assert not set(range(NOISE_UNTIL + 6, NOISE_UNTIL + 50)) & set(distrusted)


def test_price_far_from_the_quote_is_named_as_the_fault():
    trust = ForecastTrust()
    trust.note_slot(slot_opened(0, {"a": 16}))
    trust.note_forecast(issued(0, steady(16, price=2_000_000)))

    assert "next price is 100% away" in trust.fault("a")
    assert trust.fault() == f"a: {trust.fault('a')}"
    assert trust.fault("unheard-of") == ""


def test_price_jump_of_the_market_itself_is_no_fault():
    trust = ForecastTrust()
    for slot, price in enumerate([1_000_000] * 20 + [2_000_000]):
        trust.note_slot(slot_opened(slot, {"a": 16}, {"a": price}))
        trust.note_forecast(issued(slot, steady(16, price=price)))

    assert trust.trusted


def test_steady_but_wrong_distribution_is_noticed_when_it_matures():
    trust = ForecastTrust()
    for opened in series([16] * 6):
        trust.note_slot(opened)
        trust.note_forecast(issued(opened.slot, steady(0)))

    assert "worse than persistence" in trust.fault()


def test_missing_offering_is_a_fault():
    trust = ForecastTrust()
    trust.note_slot(slot_opened(0, {"a": 16, "b": 16}))
    trust.note_forecast(issued(0, steady(16)))

    assert trust.fault("a") == ""
    assert trust.fault("b") == "no forecast of this offering"


def test_one_sane_forecast_is_not_enough_to_recover():
    trust = ForecastTrust()
    said = []
    for slot, price in enumerate([1_000_000, 3_000_000, 1_000_000, 1_000_000]):
        trust.note_slot(slot_opened(slot, {"a": 16}))
        trust.note_forecast(issued(slot, steady(16, price=price)))
        said.append(trust.trusted)

    assert said == [True, False, False, True]


def test_forecast_of_another_slot_is_ignored():
    trust = ForecastTrust()
    trust.note_slot(slot_opened(3, {"a": 16}))

    trust.note_forecast(issued(2, steady(16, price=9_000_000)))

    assert trust.trusted


def test_unknown_counts_and_gaps_are_survived():
    trust = ForecastTrust()
    for slot in [0, 1, 2, 9, 10, 30]:
        count = None if slot in (1, 9) else 16
        trust.note_slot(slot_opened(slot, {"a": count}))
        trust.note_forecast(issued(slot, steady(16)))

    assert trust.trusted


def test_short_forecasts_are_judged_by_price_and_outcome():
    trust = ForecastTrust()
    for opened in series([16, 0, 16, 16]):
        trust.note_slot(opened)
        trust.note_forecast(
            issued(opened.slot, steady(opened.quotes[0].quote.spot_available.instances, steps=1))
        )

    assert trust.trusted
