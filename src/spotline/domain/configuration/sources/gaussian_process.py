"""A Gaussian process on what the calibrated analytic model leaves."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.optimize import minimize

from spotline.domain.configuration.features import FeatureTable, Floats
from spotline.domain.configuration.sources.analytic import AnalyticRates
from spotline.domain.configuration.stacks import RateGuess, RateModel, StackedSource

Codes = NDArray[np.int64]

# Inputs and what one unit of each is.
_INPUTS = {
    "active_parameters": 1.0,
    "samples_per_pass": 1.0,
    "tokens_per_sample": 1.0,
    "gpus": 1.0,
    "nodes": 1.0,
    "passes": 1.5,
    "memory_share": 0.5,
    "tflops": 1.0,
}
_MOST_ROWS = 500
_MOST_ROWS_TUNED = 250
_ITERATIONS = 60
_JITTER = 1e-6
_RESIDUAL_LIMIT = 3.0
# Prior of the kernel's parameters: median and standard deviation of the logarithm. Deviations are
# of log rates.
_PRIOR = {
    "model": (0.08, 0.8),
    "setup": (0.08, 0.8),
    "smooth": (0.12, 0.8),
    "slope": (0.05, 0.8),
    "noise": (0.03, 0.6),
    "length": (2.0, 0.7),
    "mismatch": (0.5, 0.8),
}


@dataclass(frozen=True, slots=True)
class _Points:
    """Rows as the kernel sees them: scaled inputs and category codes (-1: never seen)."""

    inputs: Floats
    codes: Codes


class GaussianProcessRates:
    """k = model + setup + slopes + smooth, its parameters at their most probable values.

    `model` is shared by all runs of a model, `setup` by runs alike in all other categories,
    `slopes` are linear in the inputs and `smooth` a squared exponential of them, damped by every
    category that differs.
    """

    minimum_rows = 4

    def __init__(self, *, base: AnalyticRates | None = None, tuned: Floats | None = None) -> None:
        self._base = base or AnalyticRates()
        self._fitted_base = base is not None
        self._tuned = tuned
        self._names: tuple[str, ...] = ()
        self._codes: dict[str, dict[str, int]] = {}
        self._points = _Points(np.zeros((0, 0)), np.zeros((0, 0), dtype=np.int64))
        self._weights = np.zeros(0)
        self._inverse = np.zeros((0, 0))
        self._theta = np.zeros(0)
        self._limit = _RESIDUAL_LIMIT

    @property
    def tuned(self) -> Floats:
        """The kernel's parameters; another fit of the same stack may start from them."""
        return self._theta

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Fit the analytic model (unless one was given), then the process on what it leaves."""
        if not self._fitted_base:
            self._base.fit(table, log_rates)
        residual = log_rates - self._base.general_log_rates(table)
        if len(table) > _MOST_ROWS:
            chosen = np.linspace(0, len(table) - 1, _MOST_ROWS).astype(np.intp)
            table, residual = table.take(chosen), residual[chosen]
        self._names = tuple(sorted(table.categories, key=lambda name: (name != "model", name)))
        self._codes = {
            name: {value: code for code, value in enumerate(sorted(set(table.values(name))))}
            for name in self._names
        }
        self._points = self._points_of(table)
        size = _layout(len(_INPUTS), len(self._names))["size"]
        if self._tuned is not None and len(self._tuned) == size:
            self._theta = self._tuned
        else:
            self._theta = _tune(self._points, residual)
        kernel = _kernel(self._theta, self._points, self._points)
        noise = math.exp(2 * self._theta[-1]) + _JITTER
        kernel[np.diag_indices_from(kernel)] += noise
        lower = cholesky(kernel, lower=True)
        self._inverse = cho_solve((lower, True), np.eye(len(residual)))
        self._weights = self._inverse @ residual
        self._limit = 1.5 * float(np.abs(residual).max()) + 0.1

    def predict(self, table: FeatureTable) -> RateGuess:
        """Mean and standard deviation of the log rate."""
        points = self._points_of(table)
        cross = _kernel(self._theta, points, self._points)
        mean = np.clip(cross @ self._weights, -self._limit, self._limit)
        explained = np.einsum("ij,ij->i", cross @ self._inverse, cross)
        variance = _self_kernel(self._theta, points) - explained
        noise = math.exp(2 * self._theta[-1])
        spreads = np.sqrt(np.maximum(variance, 0.0) + noise)
        return RateGuess(log_rates=self._base.general_log_rates(table) + mean, spreads=spreads)

    def _points_of(self, table: FeatureTable) -> _Points:
        inputs = np.column_stack([table.column(name) / unit for name, unit in _INPUTS.items()])
        codes = np.empty((len(table), len(self._names)), dtype=np.int64)
        for column, name in enumerate(self._names):
            known = self._codes[name]
            # An option that no run gave and this one does not either is no difference.
            codes[:, column] = [known.get(value, -1) for value in table.values(name)]
        return _Points(inputs - _CENTRE, codes)


_CENTRE = np.array([math.log(7e9), 1.0, math.log(2048), 1.0, 0.0, 0.0, -1.5, math.log(300)])
_CENTRE = _CENTRE / np.array(list(_INPUTS.values()))


def _layout(inputs: int, categories: int) -> dict[str, int]:
    """Places of the kernel's parameters: 3 deviations, lengths, mismatches, slopes, noise."""
    return {
        "length": 3,
        "mismatch": 3 + inputs,
        "slope": 3 + inputs + categories,
        "size": 4 + 2 * inputs + categories,
    }


def _prior(inputs: int, categories: int) -> tuple[Floats, Floats]:
    names = (
        ["model", "setup", "smooth"]
        + ["length"] * inputs
        + ["mismatch"] * categories
        + ["slope"] * inputs
        + ["noise"]
    )
    medians = np.array([math.log(_PRIOR[name][0]) for name in names])
    return medians, np.array([_PRIOR[name][1] for name in names])


def _kernel(theta: Floats, left: _Points, right: _Points) -> Floats:
    inputs, categories = left.inputs.shape[1], left.codes.shape[1]
    at = _layout(inputs, categories)
    lengths = np.exp(theta[at["length"] : at["mismatch"]])
    mismatches = np.exp(theta[at["mismatch"] : at["slope"]])
    slopes = np.exp(2 * theta[at["slope"] : -1])
    mine, theirs = left.inputs / lengths, right.inputs / lengths
    gaps = (mine**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)[None, :] - 2 * mine @ theirs.T
    differs = _differing(left.codes[:, 1:], right.codes[:, 1:], mismatches[1:])
    same_model = left.codes[:, 0][:, None] == right.codes[:, 0][None, :]
    setup = np.exp(-differs)
    smooth = np.exp(-0.5 * np.maximum(gaps, 0.0)) * setup
    smooth *= np.where(same_model, 1.0, math.exp(-mismatches[0]))
    total = math.exp(2 * theta[0]) * same_model + math.exp(2 * theta[1]) * setup
    total += math.exp(2 * theta[2]) * smooth
    total += (left.inputs * slopes) @ right.inputs.T
    return np.asarray(total)


def _differing(left: Codes, right: Codes, mismatches: Floats) -> Floats:
    """Sum of the mismatches of all categories that differ, shape (rows of left, of right)."""
    mine: list[Floats] = []
    theirs: list[Floats] = []
    for column, mismatch in enumerate(mismatches):
        for code in range(int(right[:, column].max()) + 1):
            mine.append(mismatch * (left[:, column] == code))
            theirs.append((right[:, column] == code).astype(np.float64))
    if not mine:
        return np.zeros((len(left), len(right)))
    alike = np.column_stack(mine) @ np.column_stack(theirs).T
    return np.asarray(np.maximum(mismatches.sum() - alike, 0.0))


def _self_kernel(theta: Floats, points: _Points) -> Floats:
    at = _layout(points.inputs.shape[1], points.codes.shape[1])
    slopes = np.exp(2 * theta[at["slope"] : -1])
    constant = sum(math.exp(2 * theta[place]) for place in range(3))
    return np.asarray(constant + (points.inputs**2 * slopes).sum(axis=1))


def _tune(points: _Points, residual: Floats) -> Floats:
    """Maximise marginal likelihood times prior, on a bounded number of rows."""
    if len(residual) > _MOST_ROWS_TUNED:
        chosen = np.linspace(0, len(residual) - 1, _MOST_ROWS_TUNED).astype(np.intp)
        points = _Points(points.inputs[chosen], points.codes[chosen])
        residual = residual[chosen]
    inputs, categories = points.inputs.shape[1], points.codes.shape[1]
    medians, deviations = _prior(inputs, categories)
    gaps = [(p[:, None] - p[None, :]) ** 2 for p in points.inputs.T]
    differs = [(c[:, None] != c[None, :]).astype(np.float64) for c in points.codes.T]
    products = [p[:, None] * p[None, :] for p in points.inputs.T]

    def loss(theta: Floats) -> tuple[float, Floats]:
        return _evidence(theta, residual, gaps, differs, products, medians, deviations)

    found = minimize(
        loss,
        medians,
        jac=True,
        method="L-BFGS-B",
        bounds=[(m - 3 * d, m + 3 * d) for m, d in zip(medians, deviations, strict=True)],
        options={"maxiter": _ITERATIONS},
    )
    return np.asarray(found.x, dtype=np.float64)


def _evidence(
    theta: Floats,
    residual: Floats,
    gaps: list[Floats],
    differs: list[Floats],
    products: list[Floats],
    medians: Floats,
    deviations: Floats,
) -> tuple[float, Floats]:
    """Negative log posterior of the kernel's parameters and its gradient."""
    inputs, categories = len(gaps), len(differs)
    at = _layout(inputs, categories)
    lengths = np.exp(-2 * theta[at["length"] : at["mismatch"]])
    mismatches = np.exp(theta[at["mismatch"] : at["slope"]])
    slopes = np.exp(2 * theta[at["slope"] : -1])
    exponent = np.zeros_like(differs[0])
    for weight, differ in zip(mismatches[1:], differs[1:], strict=True):
        exponent -= weight * differ
    model = math.exp(2 * theta[0]) * (1 - differs[0])
    setup = math.exp(2 * theta[1]) * np.exp(exponent)
    smooth_exponent = exponent - mismatches[0] * differs[0]
    for length, gap in zip(lengths, gaps, strict=True):
        smooth_exponent -= 0.5 * length * gap
    smooth = math.exp(2 * theta[2]) * np.exp(smooth_exponent)
    noise = math.exp(2 * theta[-1])
    kernel = model + setup + smooth
    for slope, product in zip(slopes, products, strict=True):
        kernel += slope * product
    kernel[np.diag_indices_from(kernel)] += noise + _JITTER
    lower = cholesky(kernel, lower=True)
    inverse = cho_solve((lower, True), np.eye(len(residual)))
    weights = inverse @ residual
    value = 0.5 * residual @ weights + float(np.log(np.diag(lower)).sum())
    # Derivative of the value by the kernel.
    outer = 0.5 * (inverse - np.outer(weights, weights))
    by_smooth, by_setup = outer * smooth, outer * setup
    gradient = np.empty_like(theta)
    gradient[0] = 2 * float((outer * model).sum())
    gradient[1] = 2 * float(by_setup.sum())
    gradient[2] = 2 * float(by_smooth.sum())
    for place in range(inputs):
        gradient[at["length"] + place] = lengths[place] * float((by_smooth * gaps[place]).sum())
        gradient[at["slope"] + place] = 2 * slopes[place] * float((outer * products[place]).sum())
    for place in range(categories):
        touched = by_smooth if place == 0 else by_smooth + by_setup
        gradient[at["mismatch"] + place] = -mismatches[place] * float(
            (touched * differs[place]).sum()
        )
    gradient[-1] = 2 * noise * float(np.trace(outer))
    score = (theta - medians) / deviations
    return value + 0.5 * float(score @ score), gradient + score / deviations


class GaussianProcessSource(StackedSource):
    """The calibrated analytic model, corrected by a Gaussian process."""

    source_id = "gaussian_process"
    explanation = "Gaussian process on what the calibrated analytic model leaves"

    def _make_model(self) -> GaussianProcessRates:
        return GaussianProcessRates()

    def _make_like(self, fitted: RateModel) -> RateModel:
        known = fitted.tuned if isinstance(fitted, GaussianProcessRates) else None
        return GaussianProcessRates(tuned=known)
