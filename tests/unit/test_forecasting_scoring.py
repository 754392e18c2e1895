from spotline.domain.events import ForecastStep, OfferingForecast
from spotline.domain.forecasting.distribution import certain, quantised
from spotline.domain.forecasting.evaluation import evaluate
from spotline.domain.forecasting.persistence import PersistenceForecaster
from spotline.domain.forecasting.scoring import (
    ForecastScoring,
    quotes_by_offering,
    relative_error_ppm,
)
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
