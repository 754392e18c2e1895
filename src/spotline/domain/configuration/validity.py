"""How likely a run is to succeed: the memory verdict, corrected by what runs of a stack showed.

Hard rules come first and are `rules.broken_rules`'; here every configuration may be tried. Three
estimates stand one on the other, each only where there are runs enough for it: the analytic
memory verdict with a soft margin; a logistic regression whose prior is that verdict; and
boosted trees, mixed with it by their cross-validated scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from spotline.domain.configuration.configuration import Configuration, MeasuredRun
from spotline.domain.configuration.encoding import Encoder, one_thread, unchecked
from spotline.domain.configuration.features import (
    FeatureTable,
    Floats,
    table_of,
    unknown_part,
    unpredictable,
)

# Log odds of success where the estimated memory is just what the GPU has, and how they grow with
# the logarithm of what is left: uncalibrated estimates are off by a third either way.
_AT_THE_LIMIT, _BY_MARGIN = 0.0, 6.0
_MOST_LOG_ODDS = 5.0

# Activations weigh this many times as much as estimated, against weights and states: what a stack
# recomputes or keeps is not known. Margins at several let a linear model find its own.
_ACTIVATION_FACTORS = (0.25, 1.0, 4.0, 16.0, 64.0)

# Prior deviations of the regression's weights, which are in log odds.
_PRIOR_LEVEL, _PRIOR_MARGIN, _PRIOR_MARGINS, _PRIOR_NUMBER, _PRIOR_CATEGORY = (
    2.0,
    3.0,
    3.0,
    1.0,
    1.5,
)
_NEWTON_STEPS = 25
_MOST_ROWS = 12_000

_FEWEST_OF_EACH = 25  # successes and failures that trees need
_FOLDS = 3
_MIXTURES = (0.0, 0.25, 0.5, 0.75, 1.0)
_SEED = 11
# How far one more run moves the odds of configurations like it, and of itself.
_OBSERVATION_LOG_ODDS = 1.0
_LIMIT = 0.002  # nothing is certain: machines fail, estimates err


class SuccessModel:
    """Probability that runs of one stack succeed. Without runs: the analytic verdict."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._memory = MemoryModel()
        self._encoder: Encoder | None = None
        self._weights = np.zeros(0)
        self._trees: Any = None
        self._mixture = 0.0
        self._scale = (0.0, 1.0)
        self._seen: dict[Configuration, list[int]] = {}

    def learn(self, runs: Sequence[MeasuredRun]) -> None:
        """Learn from runs of one stack; those that break a hard rule say nothing new."""
        self._forget()
        usable = [run for run in runs if not unpredictable(run.configuration)]
        for run in usable:
            self._count(run)
        self._memory.learn(usable)
        if len(usable) > _MOST_ROWS:
            chosen = np.linspace(0, len(usable) - 1, _MOST_ROWS).astype(np.intp)
            usable = [usable[place] for place in chosen]
        if not usable:
            return
        table = table_of([run.configuration for run in usable])
        success = np.array([1.0 if run.ran else 0.0 for run in usable])
        self._encoder = Encoder(table, levels=True)
        inputs = self._inputs(table)
        prior_mean, prior_deviation = self._prior(inputs.shape[1])
        self._weights = _logistic(inputs, success, prior_mean, prior_deviation)
        failures = len(success) - success.sum()
        if min(failures, success.sum()) >= _FEWEST_OF_EACH:
            self._fit_trees(inputs, success, prior_mean, prior_deviation)

    def observe(self, run: MeasuredRun) -> None:
        """Count one more run: it moves the odds of that very configuration."""
        self._count(run)

    def probabilities(self, table: FeatureTable) -> Floats:
        """Probability of success of every row, which breaks no hard rule; shape (rows,)."""
        if self._encoder is None:
            log_odds = _verdict(table.column("memory_share"))
        else:
            inputs = self._inputs(table)
            log_odds = np.clip(inputs @ self._weights, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
            if self._trees is not None:
                log_odds = (1 - self._mixture) * log_odds + self._mixture * _tree_log_odds(
                    self._trees, inputs
                )
                log_odds = self._scale[0] + self._scale[1] * log_odds
        log_odds = log_odds + np.array([self._seen_log_odds(c) for c in table.configurations])
        return np.clip(_probability(log_odds), _LIMIT, 1 - _LIMIT)

    def memory_gb(self, table: FeatureTable) -> Floats:
        """Expected peak of the fullest GPU in 10^9 bytes, as measured runs of the stack had it."""
        return self._memory.memory_gb(table)

    def _count(self, run: MeasuredRun) -> None:
        counts = self._seen.setdefault(run.configuration, [0, 0])
        counts[0 if run.ran else 1] += 1

    def _seen_log_odds(self, configuration: Configuration) -> float:
        succeeded, failed = self._seen.get(configuration, (0, 0))
        return 2.0 * (math.log(succeeded + 0.5) - math.log(failed + 0.5))

    def _inputs(self, table: FeatureTable) -> Floats:
        """Level, margin, margins at other weights of activations, numbers and categories."""
        if self._encoder is None:
            raise ValueError("learn must come first")
        margin = -np.log(self._memory.memory_gb(table)) + _log_available(table)
        coded = self._encoder.matrix(table)
        coded[:, : table.numbers.shape[1]] -= self._encoder.centre
        return np.hstack([np.ones((len(table), 1)), margin[:, None], _margins(table), coded])

    def _prior(self, columns: int) -> tuple[Floats, Floats]:
        mean = np.zeros(columns)
        mean[0], mean[1] = _AT_THE_LIMIT, _BY_MARGIN
        deviation = np.full(columns, _PRIOR_CATEGORY)
        margins = 2 + len(_ACTIVATION_FACTORS)
        numbers = self._encoder.numbers if self._encoder is not None else 0
        deviation[0], deviation[1] = _PRIOR_LEVEL, _PRIOR_MARGIN
        deviation[2:margins] = _PRIOR_MARGINS
        deviation[margins : margins + numbers] = _PRIOR_NUMBER
        return mean, deviation

    def _fit_trees(self, inputs: Floats, success: Floats, mean: Floats, deviation: Floats) -> None:
        rows = np.arange(len(success))
        linear, trees = np.empty(len(rows)), np.empty(len(rows))
        for fold in range(_FOLDS):
            tested = rows[fold::_FOLDS]
            kept = np.setdiff1d(rows, tested)
            weights = _logistic(inputs[kept], success[kept], mean, deviation)
            linear[tested] = np.clip(inputs[tested] @ weights, -_MOST_LOG_ODDS, _MOST_LOG_ODDS)
            grown = _grown(inputs[kept], success[kept])
            trees[tested] = _tree_log_odds(grown, inputs[tested])
        scored = []
        for mixture in _MIXTURES:
            mixed = (1 - mixture) * linear + mixture * trees
            # Platt's scaling, held near the identity where rows are few.
            scale = _logistic(
                np.column_stack([np.ones(len(rows)), mixed]),
                success,
                np.array([0.0, 1.0]),
                np.array([0.5, 0.5]),
            )
            chance = _probability(scale[0] + scale[1] * mixed)
            scored.append((float(((chance - success) ** 2).mean()), mixture, scale))
        _, self._mixture, scale = min(scored, key=lambda one: (one[0], one[1]))
        self._scale = (float(scale[0]), float(scale[1]))
        self._trees = _grown(inputs, success)


class MemoryModel:
    """Measured over estimated peak memory, by ridge regression; 1 without measured peaks."""

    def __init__(self) -> None:
        self._encoder: Encoder | None = None
        self._weights: Floats = np.zeros(0)
        self._level = 0.0

    def learn(self, runs: Sequence[MeasuredRun]) -> None:
        """Learn from the runs whose peak was measured."""
        known = [
            run
            for run in runs
            if run.ran and run.peak_memory_gb > 0 and not unknown_part(run.configuration)
        ]
        self._encoder = None
        if len(known) < 3:
            return
        if len(known) > _MOST_ROWS:
            chosen = np.linspace(0, len(known) - 1, _MOST_ROWS).astype(np.intp)
            known = [known[place] for place in chosen]
        table = table_of([run.configuration for run in known])
        peaks = np.array([run.peak_memory_gb for run in known], dtype=np.float64)
        ratio = np.asarray(np.log(peaks) - np.log(table.memory_gb))
        self._encoder = Encoder(table, levels=True)
        self._level = float(np.median(ratio)) * len(known) / (len(known) + 4)
        inputs = self._inputs(table)
        # Deviation 0.2 a weight, 0.1 of noise.
        curvature = inputs.T @ inputs + np.eye(inputs.shape[1]) * (0.1 / 0.2) ** 2
        self._weights = np.asarray(np.linalg.solve(curvature, inputs.T @ (ratio - self._level)))

    def memory_gb(self, table: FeatureTable) -> Floats:
        """Expected peak of the fullest GPU, 10^9 bytes, shape (rows,)."""
        if self._encoder is None:
            return table.memory_gb
        ratio = np.clip(self._level + self._inputs(table) @ self._weights, -2.5, 2.5)
        return np.asarray(table.memory_gb * np.exp(ratio))

    def _inputs(self, table: FeatureTable) -> Floats:
        if self._encoder is None:
            raise ValueError("learn must come first")
        margins = _margins(table)
        # Differences: what they have in common is the estimate itself.
        shape = margins[:, 1:] - margins[:, :1]
        coded = self._encoder.matrix(table)
        coded[:, : table.numbers.shape[1]] -= self._encoder.centre
        return np.hstack([shape, coded])


def _log_available(table: FeatureTable) -> Floats:
    return np.asarray(np.log(table.memory_gb) - table.column("memory_share"))


def _margins(table: FeatureTable) -> Floats:
    """Log of the GPU's memory over the estimate, at several weights of activations."""
    states = np.exp(table.column("state_share"))
    activations = np.exp(table.column("activation_share"))
    return np.column_stack(
        [-np.log(states + factor * activations) for factor in _ACTIVATION_FACTORS]
    )


def _verdict(memory_share: Floats) -> Floats:
    log_odds = _AT_THE_LIMIT - _BY_MARGIN * memory_share
    return np.asarray(np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS))


def _probability(log_odds: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(log_odds, -30.0, 30.0))))


def _logistic(inputs: Floats, success: Floats, mean: Floats, deviation: Floats) -> Floats:
    """Maximum a posteriori weights under independent normal priors, by Newton's method."""
    weights = mean.copy()
    precision = deviation**-2.0
    best, best_loss = weights, math.inf
    for _ in range(_NEWTON_STEPS):
        log_odds = inputs @ weights
        loss = float(
            np.logaddexp(0.0, log_odds).sum()
            - success @ log_odds
            + 0.5 * (precision * (weights - mean) ** 2).sum()
        )
        if loss >= best_loss - 1e-6 * (1.0 + abs(best_loss)):
            if loss < best_loss or math.isinf(best_loss):
                best = weights
            if np.abs(weights - best).max() < 1e-6:
                break
            weights = 0.5 * (weights + best)
            continue
        best, best_loss = weights, loss
        chance = _probability(log_odds)
        spread = chance * (1 - chance) + 1e-9
        curvature = (inputs * spread[:, None]).T @ inputs + np.diag(precision)
        gradient = inputs.T @ (success - chance) - precision * (weights - mean)
        weights = weights + np.linalg.solve(curvature, gradient)
    return best


def _grown(inputs: Floats, success: Floats) -> Any:
    trees = HistGradientBoostingClassifier(
        max_iter=75,
        learning_rate=0.14,
        max_leaf_nodes=12,
        min_samples_leaf=8,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=_SEED,
    )
    with one_thread():
        return trees.fit(inputs, success)


def _tree_log_odds(trees: Any, inputs: Floats) -> Floats:
    with unchecked():
        log_odds = trees.decision_function(inputs)
    return np.asarray(np.clip(log_odds, -_MOST_LOG_ODDS, _MOST_LOG_ODDS))
