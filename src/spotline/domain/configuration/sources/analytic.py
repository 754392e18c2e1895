"""The analytic model of a step, calibrated on the measured runs of one stack."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from spotline.domain.configuration.features import FeatureTable, Floats
from spotline.domain.configuration.stacks import RateGuess, StackedSource
from spotline.domain.configuration.steptime import Coefficients, StepWork, step_times

# How far stacks lie apart a priori, standard deviation of the logarithm of measured over predicted
# rate without calibration: 0.8 between the medians of the nine stacks in
# `../shared/data/llm-finetune-perf`, 0.4 inside one.
UNCALIBRATED_SPREAD = math.hypot(0.8, 0.4)

# How far a stack's coefficient may lie from the usual figure: standard deviation of its logarithm.
_PRIOR = {
    "efficiency": 0.8,
    "half_efficiency_tokens": 1.2,
    "quantised_efficiency": 0.5,
    "mixture_efficiency": 0.7,
    "backward_over_forward": 0.3,
    "frozen_backward_over_forward": 0.3,
    "memory_efficiency": 0.4,
    "link_efficiency": 0.7,
    "roce_efficiency": 0.7,
    "tcp_efficiency": 0.7,
    "overlap": 0.5,
    "overhead_s": 1.5,
    "overhead_s_per_layer": 1.5,
    "collective_s_per_layer": 1.5,
}
_NAMES = tuple(field.name for field in fields(Coefficients))
# What the physics leaves out: factors by category, and slopes in the logarithm of a number.
_CATEGORY_PRIOR = {"model": 0.12, "method": 0.2, "gpu": 0.3, "precision": 0.2}
_OPTION_PRIOR = 0.25
_SLOPE_PRIOR = {
    "active_parameters": 0.2,
    "tokens_per_sample": 0.2,
    "samples_per_pass": 0.1,
    "gpus": 0.1,
    "nodes": 0.1,
}
_REFERENCE = {"active_parameters": math.log(7e9), "tokens_per_sample": math.log(2048.0)}

# Usual errors of log rates for models with measured runs and for others, before any is held out.
SEEN_SPREAD, UNSEEN_SPREAD = 0.12, 0.25
# Standard deviation of the logarithm of a rate that the fit leaves: between runs of one model, and
# where models have no factor of their own and differ by what no formula says.
_NOISE, _NOISE_OVER_MODELS = 0.06, 0.6
_HEAVY_TAIL = 4.0  # degrees of freedom: a run at half speed must not bend the rest
_ITERATIONS = 15
_MOST_ROWS = 3_000
_STEP = 1e-4
_ENOUGH = 3e-4


@dataclass(frozen=True, slots=True)
class _Design:
    """Which effects there are: (category, value) and slopes, with their prior deviations."""

    effects: tuple[tuple[str, str], ...]
    slopes: tuple[str, ...]
    prior: Floats

    def matrix(self, table: FeatureTable) -> Floats:
        """Columns of the linear part, shape (rows, effects + slopes)."""
        columns = np.zeros((len(table), len(self.effects) + len(self.slopes)))
        place_of = {effect: place for place, effect in enumerate(self.effects)}
        for category in sorted({category for category, _ in self.effects}):
            found = [place_of.get((category, value), -1) for value in table.values(category)]
            places = np.array(found, dtype=np.intp)
            rows = np.flatnonzero(places >= 0)
            columns[rows, places[rows]] = 1.0
        for offset, slope in enumerate(self.slopes):
            reference = _REFERENCE.get(slope, 0.0)
            columns[:, len(self.effects) + offset] = table.column(slope) - reference
        return columns


@dataclass(frozen=True, slots=True)
class _Calibration:
    """Fitted values: logarithms of coefficients over the usual ones, then the linear part."""

    design: _Design
    physical: Floats
    linear: Floats

    def log_rates(self, table: FeatureTable) -> Floats:
        rates = _physical_log_rates(table.work, self.physical)
        return rates + self.design.matrix(table) @ self.linear if self.linear.size else rates


_UNCALIBRATED = _Calibration(
    design=_Design(effects=(), slopes=(), prior=np.zeros(0)),
    physical=np.zeros(len(_NAMES)),
    linear=np.zeros(0),
)


class AnalyticRates:
    """Maximum a posteriori fit of the coefficients and a few factors, robust to odd runs.

    The prior keeps what few runs do not say at usual figures. Models that were measured get a
    factor of their own; what is said of others comes from a fit without such factors, for with
    them the few models there are would settle what depends on size. Units: log tokens per second.
    """

    minimum_rows = 1

    def __init__(self) -> None:
        self._general = _UNCALIBRATED
        self._by_model = _UNCALIBRATED
        self._models: frozenset[str] = frozenset()
        # All members of a combination ask for the same table.
        self._latest: tuple[FeatureTable, Floats, Floats] | None = None

    @property
    def coefficients(self) -> Coefficients:
        """The calibrated coefficients; the factors come on top."""
        return _coefficients(self._general.physical)

    def fit(
        self, table: FeatureTable, log_rates: Floats, near: AnalyticRates | None = None
    ) -> None:
        """Calibrate on measured rates, log tokens per second of shape (rows,).

        `near` is a fit on most of the same rows: a place to start from, nothing more.
        """
        self._latest = None
        general = near._general.physical if near else None
        by_model = near._by_model.physical if near else None
        if len(table) > _MOST_ROWS:
            chosen = np.linspace(0, len(table) - 1, _MOST_ROWS).astype(np.intp)
            table, log_rates = table.take(chosen), log_rates[chosen]
        self._models = frozenset(table.values("model"))
        self._general = _calibrated(
            table, log_rates, _design(table, by_model=False), _NOISE_OVER_MODELS, general
        )
        self._by_model = _calibrated(
            table, log_rates, _design(table, by_model=True), _NOISE, by_model
        )

    def predict(self, table: FeatureTable) -> RateGuess:
        """Log rates, and how far they may be off."""
        by_model, general = self._both(table)
        if not self._models:
            return RateGuess(log_rates=general, spreads=np.full(len(table), UNCALIBRATED_SPREAD))
        seen = self.knows(table)
        log_rates = np.where(seen, by_model, general)
        return RateGuess(log_rates=log_rates, spreads=np.where(seen, SEEN_SPREAD, UNSEEN_SPREAD))

    def knows(self, table: FeatureTable) -> NDArray[np.bool_]:
        """Which rows are of a model with measured runs, shape (rows,)."""
        return np.array([model in self._models for model in table.values("model")], dtype=bool)

    def general_log_rates(self, table: FeatureTable) -> Floats:
        """Log rates without any factor of a model's own, shape (rows,)."""
        return self._both(table)[1]

    def _both(self, table: FeatureTable) -> tuple[Floats, Floats]:
        latest = self._latest
        if latest is None or latest[0] is not table:
            general = self._general.log_rates(table)
            by_model = self._by_model.log_rates(table) if self._models else general
            latest = self._latest = (table, by_model, general)
        return latest[1], latest[2]


def _calibrated(
    table: FeatureTable, log_rates: Floats, design: _Design, noise: float, start: Floats | None
) -> _Calibration:
    matrix = design.matrix(table)
    prior = np.concatenate([[_PRIOR[name] for name in _NAMES], design.prior])
    values = np.zeros(len(prior))
    if start is None:
        # The median's level: Gauss-Newton then needs no line search to get there.
        level = float(np.median(log_rates - _physical_log_rates(table.work, values)))
        values[0] = level * prior[0] ** 2 / (prior[0] ** 2 + noise**2 / len(table))
    else:
        values[: len(_NAMES)] = start
    values = _gauss_newton(table.work, matrix, log_rates, prior, values, noise)
    return _Calibration(design=design, physical=values[: len(_NAMES)], linear=values[len(_NAMES) :])


def _gauss_newton(
    work: StepWork,
    matrix: Floats,
    log_rates: Floats,
    prior: Floats,
    values: Floats,
    noise: float,
) -> Floats:
    physical = len(_NAMES)
    inverse_prior = np.diag(prior**-2.0)
    damping = 1.0
    predicted = _physical_log_rates(work, values) + matrix @ values[physical:]
    loss = _loss(log_rates - predicted, values, prior, noise)
    for _ in range(_ITERATIONS):
        residual = log_rates - predicted
        weights = (_HEAVY_TAIL + 1) / (_HEAVY_TAIL + (residual / noise) ** 2) / noise**2
        jacobian = np.hstack([_slopes(work, values), matrix])
        weighted = jacobian * weights[:, None]
        curvature = jacobian.T @ weighted + inverse_prior
        gradient = weighted.T @ residual - values / prior**2
        step = np.linalg.solve(curvature + damping * inverse_prior, gradient)
        tried = values + np.clip(step, -1.0, 1.0)
        predicted_there = _physical_log_rates(work, tried) + matrix @ tried[physical:]
        loss_there = _loss(log_rates - predicted_there, tried, prior, noise)
        if loss_there >= loss:
            damping *= 5.0
            if damping > 1e5:
                break
            continue
        gain = loss - loss_there
        values, predicted, loss = tried, predicted_there, loss_there
        damping = max(damping / 5.0, 1e-6)
        if gain < _ENOUGH * (1.0 + loss):
            break
    return values


def _loss(residual: Floats, values: Floats, prior: Floats, noise: float) -> float:
    tail = 0.5 * (_HEAVY_TAIL + 1) * np.log1p((residual / noise) ** 2 / _HEAVY_TAIL)
    return float(tail.sum() + 0.5 * ((values / prior) ** 2).sum())


def _slopes(work: StepWork, values: Floats) -> Floats:
    here = _physical_log_rates(work, values)
    columns = []
    for place in range(len(_NAMES)):
        there = values.copy()
        there[place] += _STEP
        columns.append((_physical_log_rates(work, there) - here) / _STEP)
    return np.column_stack(columns)


def _physical_log_rates(work: StepWork, values: Floats) -> Floats:
    return np.asarray(np.log(step_times(work, _coefficients(values)).tokens_per_s))


def _coefficients(values: Floats) -> Coefficients:
    usual = Coefficients()
    found = {}
    for name, value in zip(_NAMES, values[: len(_NAMES)], strict=True):
        # Far beyond any stack; keeps a wild step of the solver finite.
        factor = math.exp(min(max(float(value), -8.0), 8.0))
        start = getattr(usual, name)
        if name == "overlap":
            odds = start / (1.0 - start) * factor
            found[name] = odds / (1.0 + odds)
        else:
            found[name] = start * factor
    return Coefficients(**found)


def _design(table: FeatureTable, *, by_model: bool) -> _Design:
    effects: list[tuple[str, str]] = []
    prior: list[float] = []
    for category in table.categories:
        values = sorted(set(table.values(category)))
        if len(values) < 2 or category == "expert_parallel":
            continue
        if category == "model" and not by_model:
            continue
        effects.extend((category, value) for value in values)
        prior.extend([_CATEGORY_PRIOR.get(category, _OPTION_PRIOR)] * len(values))
    slopes = tuple(name for name in sorted(_SLOPE_PRIOR) if np.ptp(table.column(name)) > 0)
    prior.extend(_SLOPE_PRIOR[name] for name in slopes)
    return _Design(effects=tuple(effects), slopes=slopes, prior=np.array(prior))


class AnalyticSource(StackedSource):
    """Compute, optimiser and communication, calibrated per stack; answers without any history."""

    source_id = "analytic"
    answers_without_runs = True
    explanation = "step time from first principles, calibrated on the stack's measured runs"

    def _make_model(self) -> AnalyticRates:
        return AnalyticRates()
