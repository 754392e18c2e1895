import random
from dataclasses import replace

import pytest

from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.registry import make_forecaster
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.market.forecast import ForecastScore, ForecastStep, OfferingForecast
from spotline.domain.market.generate import PRESETS, generate
from spotline.domain.units import PPM
from tests.fakes.market_slots import START_NS, series, slot_opened, slots_of

NOISE_FROM, NOISE_UNTIL = 80, 90
SLOTS = NOISE_UNTIL + 30


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
        market = generate(preset, seed=5, slots=SLOTS, slot_s=1800, start_ns=START_NS)
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

    assert judged >= SLOTS * len(PRESETS)
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
    assert not set(range(NOISE_UNTIL + 6, SLOTS)) & set(distrusted)


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


def score(step: int, crps: int, persistence: int, *, weight: int = 72_000, drift: int = 0):
    return ForecastScore(
        offering_id="a",
        step=step,
        count_crps_milli=crps,
        persistence_crps_milli=persistence,
        price_error_ppm=0,
        persistence_price_error_ppm=0,
        scored_milli=weight,
        drift_slot=drift,
        drift_detector="adwin" if drift else "",
    )


def judged(*scores: ForecastScore, slot: int = 100) -> tuple[ForecastTrust, ForecastIssued]:
    trust = ForecastTrust()
    trust.note_slot(slot_opened(slot, {"a": 16}))
    certain_of_none = replace(issued(slot, steady(0, price=1_010_000)), scores=scores)
    trust.note_forecast(certain_of_none)
    return trust, certain_of_none


def test_scores_no_worse_than_persistence_are_trusted_wholly():
    trust, forecast = judged(score(1, 900, 1_000), score(2, 1_000, 1_000))

    assert [trust.share_ppm("a", step) for step in (1, 2, 3)] == [PPM] * 3
    assert trust.moderated(forecast) == forecast


def test_share_falls_with_the_excess_of_the_score():
    trust, _ = judged(score(1, 1_250, 1_000), score(2, 1_500, 1_000), score(3, 9_000, 1_000))

    shares = [trust.share_ppm("a", step) for step in (1, 2, 3)]

    # Three quarters of the evidence that counts in full: 72 of 72 + 24 slots.
    assert shares == [625_000, 250_000, 250_000]


@pytest.mark.parametrize(("weight", "share"), [(0, PPM), (24_000, 500_000), (72_000, 250_000)])
def test_little_evidence_discounts_little(weight, share):
    trust, _ = judged(score(1, 9_000, 1_000, weight=weight))

    assert trust.share_ppm("a", 1) == share


def test_excess_too_small_to_matter_discounts_little():
    trust, _ = judged(score(1, 8, 0))

    assert trust.share_ppm("a", 1) > 900_000


def test_share_is_halved_for_a_while_after_drift():
    recent, _ = judged(score(1, 900, 1_000, drift=95))
    long_ago, _ = judged(score(1, 900, 1_000, drift=80))

    assert recent.share_ppm("a", 1) == PPM // 2
    assert long_ago.share_ppm("a", 1) == PPM


def test_moderated_forecast_is_drawn_towards_persistence():
    trust, forecast = judged(score(1, 1_250, 1_000))

    first, second = trust.moderated(forecast).forecasts[0].steps[:2]

    assert [(c.instances, c.probability_ppm) for c in first.counts] == [(0, 625_000), (16, 375_000)]
    assert first.spot_price_micro_usd == 1_006_250
    assert second == forecast.forecasts[0].steps[1]


def test_forecasts_with_hopeless_scores_are_not_used():
    hopeless = tuple(score(step, 9_000, 1_000, weight=100_000) for step in range(1, 13))

    trust, _ = judged(*hopeless)

    assert "far worse than persistence" in trust.fault("a")
    assert judged(*hopeless[:1], score(2, 10, 1_000))[0].trusted
