"""River's Bayesian linear regression on top of the uncalibrated step time: one run at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from river import linear_model

from spotline.domain.configuration.configuration import MeasuredRun
from spotline.domain.configuration.features import FeatureTable, Floats, table_of
from spotline.domain.configuration.sources.analytic import UNCALIBRATED_SPREAD, AnalyticRates
from spotline.domain.configuration.stacks import RateGuess, StackedSource, StackState

# Prior deviations of the weights: the level of a stack, its slopes, its categories.
_LEVEL, _SLOPE, _CATEGORY = 0.9, 0.2, 0.25
_PRECISION_OF_RUNS = 1 / 0.1**2
_NUMBERS = {
    "active_parameters": math.log(7e9),
    "samples_per_pass": math.log(2.0),
    "tokens_per_sample": math.log(2048.0),
    "gpus": math.log(2.0),
    "nodes": 0.0,
    "passes": 0.0,
    "memory_share": -1.0,
}
# After this many runs its errors are those of a calibrated model.
_RUNS_TO_SETTLE = 10.0
_SETTLED_SPREAD = 0.15


class OnlineRates:
    """Weights start at zero, so that it starts as the analytic model with usual figures."""

    minimum_rows = 1

    def __init__(self) -> None:
        self._base = AnalyticRates()
        # River is not typed.
        self._regression: Any = linear_model.BayesianLinearRegression(
            alpha=1.0, beta=_PRECISION_OF_RUNS
        )
        self._runs = 0

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Learn all rows in order."""
        self.learn_each(table, log_rates)

    def learn_each(self, table: FeatureTable, log_rates: Floats) -> None:
        """Learn rows one at a time, on top of what is known."""
        base = self._base.general_log_rates(table)
        for inputs, residual in zip(_inputs(table), log_rates - base, strict=True):
            self._regression.learn_one(inputs, float(residual))
            self._runs += 1

    def predict(self, table: FeatureTable) -> RateGuess:
        """Log rates; the spread shrinks from that between stacks as runs are learned."""
        base = self._base.general_log_rates(table)
        over = np.array([self._regression.predict_one(inputs) for inputs in _inputs(table)])
        unsettled = math.exp(-self._runs / _RUNS_TO_SETTLE)
        spread = _SETTLED_SPREAD + (UNCALIBRATED_SPREAD - _SETTLED_SPREAD) * unsettled
        return RateGuess(log_rates=base + over, spreads=np.full(len(table), spread))


def _inputs(table: FeatureTable) -> list[dict[str, float]]:
    """Features scaled so that one prior deviation fits all weights."""
    numbers = {name: (table.column(name) - centre) * _SLOPE for name, centre in _NUMBERS.items()}
    rows: list[dict[str, float]] = []
    for place in range(len(table)):
        one = {"level": _LEVEL}
        for name, column in numbers.items():
            one[name] = float(column[place])
        for category, values in table.categories.items():
            if values[place]:
                one[f"{category}={values[place]}"] = _CATEGORY
        rows.append(one)
    return rows


class OnlineSource(StackedSource):
    """Learns from every run as it is reported; `learn` replays runs in the order given."""

    source_id = "online"
    answers_without_runs = True
    in_order = True
    explanation = "River's Bayesian regression over the analytic model, one run at a time"

    def _make_model(self) -> OnlineRates:
        return OnlineRates()

    def _observe_rate(self, stack: StackState, run: MeasuredRun, log_rate: float) -> None:
        if not isinstance(stack.model, OnlineRates):
            stack.model = self._make_model()
        stack.model.learn_each(table_of([run.configuration]), np.array([log_rate]))
        self._remember(stack, run.configuration, log_rate)
        self._forget_what_was_learned(stack)

    @staticmethod
    def _forget_what_was_learned(stack: StackState) -> None:
        """Observations keep only what the regression, having learned them, still gets wrong."""
        if stack.model is None or stack.observed_table is None:
            return
        said: Sequence[float] = stack.model.predict(stack.observed_table).log_rates.tolist()
        stack.observed_errors = [
            rate - guess for rate, guess in zip(stack.observed_rates, said, strict=True)
        ]
