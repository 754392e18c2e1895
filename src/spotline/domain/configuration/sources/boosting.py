"""Gradient-boosted trees on what the calibrated analytic model leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

from spotline.domain.configuration.encoding import Encoder, one_thread, unchecked
from spotline.domain.configuration.features import FeatureTable, Floats
from spotline.domain.configuration.sources.analytic import SEEN_SPREAD, UNSEEN_SPREAD, AnalyticRates
from spotline.domain.configuration.stacks import RateGuess, RateModel, StackedSource

_SEED = 7
# Exact trees for small tables, histograms for large ones.
_MANY_ROWS = 800
_CHOICE_FOLDS = 2
# Targets are cut off at this many median deviations.
_ODD, _LEAST_BOUND = 6.0, 0.3


class BoostingRates:
    """Trees on log rates, over the analytic model or over the number of GPUs alone.

    Which of the two is decided by cross-validation on the rows to learn from.
    """

    minimum_rows = 12

    def __init__(self, *, base: AnalyticRates | None = None, plain: bool | None = None) -> None:
        self._base = base or AnalyticRates()
        self._fitted_base = base is not None
        self._plain = plain
        self._encoder: Encoder | None = None
        self._trees: Any = None
        self._models: frozenset[str] = frozenset()

    @property
    def plain(self) -> bool | None:
        """Whether it does without the analytic model; None before `fit`."""
        return self._plain

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Fit the analytic model (unless one was given), then the trees."""
        if not self._fitted_base:
            self._base.fit(table, log_rates)
        self._models = frozenset(table.values("model"))
        self._encoder = Encoder(table)
        inputs = self._encoder.matrix(table)
        if self._plain is None:
            over = [log_rates - self._start(table, plain=plain) for plain in (False, True)]
            errors = [_error(inputs, target) for target in over]
            self._plain = errors[1] < errors[0]
        target = log_rates - self._start(table, plain=self._plain)
        # A few runs at half speed must not bend the trees; Huber's loss takes ten times as long.
        middle = float(np.median(target))
        bound = _ODD * float(np.median(np.abs(target - middle))) + _LEAST_BOUND
        target = np.clip(target, middle - bound, middle + bound)
        self._trees = _fitted(inputs, target)

    def predict(self, table: FeatureTable) -> RateGuess:
        """Log rates; spreads by whether runs of the model were learned."""
        if self._encoder is None or self._plain is None:
            raise ValueError("fit must come before predict")
        with unchecked():
            over = self._trees.predict(self._encoder.matrix(table))
        seen = np.array([model in self._models for model in table.values("model")])
        return RateGuess(
            log_rates=self._start(table, plain=self._plain) + over,
            spreads=np.where(seen, SEEN_SPREAD, UNSEEN_SPREAD),
        )

    def _start(self, table: FeatureTable, *, plain: bool) -> Floats:
        if plain:
            return table.column("gpus")
        return self._base.predict(table).log_rates


def _fitted(inputs: Floats, target: Floats) -> Any:
    if len(target) > _MANY_ROWS:
        trees = HistGradientBoostingRegressor(
            loss="squared_error",
            max_iter=400,
            learning_rate=0.08,
            max_leaf_nodes=24,
            min_samples_leaf=5,
            l2_regularization=0.1,
            early_stopping=False,
            random_state=_SEED,
        )
    else:
        trees = GradientBoostingRegressor(
            n_estimators=100,
            learning_rate=0.1,
            max_depth=3,
            min_samples_leaf=2,
            subsample=0.8,
            max_features=0.5,
            random_state=_SEED,
        )
    with one_thread():
        return trees.fit(inputs, target)


def _error(inputs: Floats, target: Floats) -> float:
    """Mean absolute error on held-out parts."""
    rows = np.arange(len(target))
    total = 0.0
    for fold in range(_CHOICE_FOLDS):
        tested = rows[fold::_CHOICE_FOLDS]
        kept = np.setdiff1d(rows, tested)
        with one_thread():
            said = _fitted(inputs[kept], target[kept]).predict(inputs[tested])
        total += float(np.abs(said - target[tested]).sum())
    return total / len(target)


class BoostingSource(StackedSource):
    """Gradient-boosted trees of scikit-learn."""

    source_id = "boosting"
    explanation = "gradient-boosted trees on the rate, or on what the analytic model leaves of it"

    def _make_model(self) -> BoostingRates:
        return BoostingRates()

    def _make_like(self, fitted: RateModel) -> RateModel:
        known = fitted.plain if isinstance(fitted, BoostingRates) else None
        return BoostingRates(plain=known)
