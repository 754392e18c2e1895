import random

from spotline.bench.forecast.evaluation import evaluate
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.persistence import PersistenceForecaster
from spotline.domain.forecasting.scoring import (
    DRIFT_DETECTOR,
    ForecastScoring,
    inside_central,
    pit_ppm,
    quotes_by_offering,
    relative_error_ppm,
)
from spotline.domain.market.forecast import ForecastStep, OfferingForecast
from tests.fakes.market_slots import series, slot_opened


def forecast_of(price: int, counts) -> tuple[OfferingForecast, ...]:
    step = ForecastStep(spot_price_micro_usd=price, counts=counts)
    return (OfferingForecast(offering_id="a", steps=(step, step)),)


def feed(scoring, opened, forecasts):
    quotes = quotes_by_offering(opened)
    scoring.observe(opened.slot, quotes)
    scoring.issue(opened.slot, quotes, forecasts)


def test_nothing_is_scored_before_a_step_matures():
    scoring = ForecastScoring(horizon_slots=2)

    feed(scoring, slot_opened(0, {"a": 16}), forecast_of(1_000_000, certain(16)))

    assert scoring.scores() == ()


def test_scores_compare_forecast_and_persistence():
    scoring = ForecastScoring(horizon_slots=2)
    coin = quantised([(0, 0.5), (16, 0.5)])
    feed(scoring, slot_opened(0, {"a": 16}, {"a": 1_000_000}), forecast_of(1_100_000, coin))
    feed(scoring, slot_opened(1, {"a": 0}, {"a": 2_000_000}), forecast_of(2_000_000, coin))

    (score,) = scoring.scores()

    assert (score.offering_id, score.step) == ("a", 1)
    assert score.count_crps_milli == 4_000
    assert score.persistence_crps_milli == 16_000
    assert score.price_error_ppm == 450_000
    assert score.persistence_price_error_ppm == 500_000


def test_recent_errors_weigh_more():
    improving, worsening = (ForecastScoring(horizon_slots=1) for _ in range(2))
    for slot in range(200):
        early = slot < 100
        feed(
            improving,
            slot_opened(slot, {"a": 16}),
            forecast_of(1_000_000, certain(0 if early else 16)),
        )
        feed(
            worsening,
            slot_opened(slot, {"a": 16}),
            forecast_of(1_000_000, certain(16 if early else 0)),
        )

    assert improving.scores()[0].count_crps_milli < 8_000 < worsening.scores()[0].count_crps_milli


def test_unknown_counts_score_prices_only():
    scoring = ForecastScoring(horizon_slots=2)
    for slot in range(3):
        feed(scoring, slot_opened(slot, {"a": None}), forecast_of(1_500_000, certain(3)))

    assert {(s.count_crps_milli, s.price_error_ppm) for s in scoring.scores()} == {(0, 500_000)}


def test_missed_slots_are_scored_at_their_true_distance():
    scoring = ForecastScoring(horizon_slots=2)
    feed(scoring, slot_opened(0, {"a": 16}), forecast_of(1_000_000, certain(16)))
    feed(scoring, slot_opened(2, {"a": 16}), forecast_of(1_000_000, certain(16)))

    assert [score.step for score in scoring.scores()] == [2]


def test_relative_error_rounds_half_up():
    assert relative_error_ppm(1, 2) == 500_000
    assert relative_error_ppm(3_000_002, 3_000_000) == 1


def test_persistence_evaluates_equal_to_itself():
    counts = [16, 16, 0, 0, 4, 16, 16, 16, 0, 16] * 4

    result = evaluate(PersistenceForecaster(3), series(counts), first_scored_slot=10)

    assert [(e.offering_id, e.step) for e in result] == [("a", 1), ("a", 2), ("a", 3)]
    assert [e.slots for e in result] == [29, 28, 27]
    for each in result:
        assert each.crps_instances == each.persistence_crps_instances > 0
        assert each.price_error == each.persistence_price_error == 0


def test_pit_interval_counts_what_lies_inside_the_central_one():
    half = 500_000

    assert inside_central(0, 1_000_000, half) == 0.5
    assert inside_central(300_000, 700_000, half) == 1.0
    assert inside_central(0, 500_000, half) == 0.5
    assert inside_central(0, 200_000, half) == 0.0
    assert inside_central(0, 0, half) == 0.0
    assert inside_central(400_000, 400_000, half) == 1.0


def test_pit_of_a_coarse_count_is_the_probability_below_and_with_it():
    counts = quantised([(0, 0.25), (4, 0.5), (16, 0.25)])

    assert pit_ppm(counts, 4) == (250_000, 750_000)
    assert pit_ppm(counts, 3) == (250_000, 250_000)
    assert pit_ppm(counts, 99) == (1_000_000, 1_000_000)


def scores_of(counts, said):
    scoring = ForecastScoring(horizon_slots=1)
    drifted = []
    for opened in series(counts):
        quotes = quotes_by_offering(opened)
        if scoring.observe(opened.slot, quotes):
            drifted.append(opened.slot)
        scoring.issue(opened.slot, quotes, forecast_of(1_000_000, said(opened.slot)))
    return scoring.scores()[0], drifted


def test_true_probabilities_are_calibrated():
    rng = random.Random(3)
    coin = quantised([(0, 0.3), (8, 0.2), (16, 0.5)])
    counts = rng.choices((0, 8, 16), weights=(3, 2, 5), k=4_000)

    score, drifted = scores_of(counts, lambda _: coin)

    assert abs(score.coverage_50_ppm - 500_000) < 80_000
    assert abs(score.coverage_90_ppm - 900_000) < 50_000
    assert abs(score.pit_mean_ppm - 500_000) < 60_000
    assert score.reliability_error_ppm < 100_000
    assert drifted == []
    assert (score.drift_detector, score.drift_slot) == ("", 0)


def test_overconfident_forecasts_are_not_calibrated():
    rng = random.Random(4)
    counts = rng.choices((0, 16), k=600)

    score, _ = scores_of(counts, lambda _: quantised([(0, 0.05), (16, 0.95)]))

    assert score.coverage_90_ppm < 700_000
    assert score.reliability_error_ppm > 300_000


def test_drift_is_seen_when_scores_get_worse_and_only_then():
    steady = [16] * 300

    score, drifted = scores_of(steady + [0] * 60, lambda _: certain(16))
    better, improved = scores_of([0] * 300 + [16] * 300, lambda _: certain(16))

    assert 300 < drifted[0] < 330
    assert score.drift_detector == DRIFT_DETECTOR == "adwin"
    assert score.drift_slot == drifted[-1]
    assert improved == []
    assert better.drift_slot == 0


def test_scores_after_drift_follow_the_latest_slots():
    score, drifted = scores_of([16] * 300 + [0] * 40, lambda _: certain(16))

    assert drifted
    assert score.count_crps_milli > 8_000
    assert score.scored_milli < 60_000
