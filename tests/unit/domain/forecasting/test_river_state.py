"""River's estimators go on from their numbers as they would have gone on without a stop."""

import random
from typing import Annotated, Any

import pytest
from river.drift import ADWIN

from spotline.domain.forecasting.river_counts import _logistic
from spotline.domain.forecasting.river_state import SnarimaxOrders, adwin, linear, snarimax
from spotline.domain.forecasting.snarimax import _model
from spotline.domain.forecasting.state_values import Rows, shape_of


def fresh_adwin():
    return ADWIN(delta=0.002)


DETECTOR = shape_of(Annotated[Any, adwin(fresh_adwin)])
LOGISTIC = shape_of(Annotated[Any, linear(_logistic)])
SERIES = shape_of(Annotated[Any, snarimax(_model)])


def again(shape, value):
    rows = Rows()
    plain = shape.write(value, rows)
    return shape.read(plain, Rows(rows.bytes))


def told(detector):
    return (
        detector.drift_detected,
        detector.estimation,
        detector.width,
        detector.variance,
        detector.n_detections,
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_detector_goes_on_identically_through_drifts(seed):
    rng = random.Random(seed)
    kept, restored = fresh_adwin(), fresh_adwin()
    drifts = 0
    for step in range(3_000):
        value = rng.random() * (0.2 if step // 400 % 2 else 1.0)
        kept.update(value)
        restored.update(value)
        assert told(restored) == told(kept)
        drifts += kept.drift_detected
        if rng.random() < 0.2 or kept.drift_detected:
            restored = again(DETECTOR, restored)
            assert told(restored) == told(kept)

    assert drifts >= 3


def test_a_regression_goes_on_identically():
    rng = random.Random(1)
    kept, restored = _logistic(), _logistic()
    for _ in range(300):
        names = rng.sample(["a", "b", "c", "prior"], rng.randint(1, 4))
        features = {name: rng.gauss(0, 1) for name in names}
        label = rng.random() < 0.5
        assert restored.predict_proba_one(features) == kept.predict_proba_one(features)
        kept.learn_one(features, label)
        restored.learn_one(features, label)
        restored = again(LOGISTIC, restored)
    assert list(restored.weights.items()) == list(kept.weights.items())


@pytest.mark.parametrize(
    "orders", [SnarimaxOrders(p=2, d=1, q=0, m=1, sp=0), SnarimaxOrders(p=2, d=0, q=1, m=7, sp=1)]
)
def test_a_series_goes_on_identically(orders):
    rng = random.Random(2)
    kept, restored = _model(orders), _model(orders)
    for step in range(200):
        value = rng.random()
        kept.learn_one(value)
        restored.learn_one(value)
        restored = again(SERIES, restored)
        if step:
            assert restored.forecast(3) == kept.forecast(3)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (1, [1.0, 1.0, 1e9, 1.0], "wide"),
        (2, [-1, 0, 0, 0], "natural numbers"),
        (2, [2**32, 0, 0, 0], "natural numbers"),
        (3, 0, "rows|bytes of numbers"),
    ],
)
def test_a_detector_that_cannot_be_is_refused(place, value, said):
    detector = fresh_adwin()
    for step in range(100):
        detector.update(step % 7)
    rows = Rows()
    plain = DETECTOR.write(detector, rows)
    plain[place] = value

    with pytest.raises(ValueError, match=said):
        DETECTOR.read(plain, Rows(rows.bytes))


@pytest.mark.parametrize("change", [{"p": -1}, {"d": 99}, {"m": 0}, {"m": 10**9}])
def test_orders_that_nobody_asks_for_are_refused(change):
    with pytest.raises(ValueError, match="must"):
        SnarimaxOrders(**{"p": 1, "d": 0, "q": 0, "m": 1, "sp": 0, **change})
