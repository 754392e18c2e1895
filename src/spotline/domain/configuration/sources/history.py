"""The nearest measured runs, carried over to what was asked."""

from __future__ import annotations

import numpy as np

from spotline.domain.configuration.features import FeatureTable, Floats
from spotline.domain.configuration.sources.analytic import AnalyticRates
from spotline.domain.configuration.stacks import RateGuess, StackedSource, Surroundings

_NEIGHBOURS = 8
# Distances at which a neighbour's say falls by e^(-1/2); the best on the history itself is taken.
_BANDWIDTHS = (0.2, 0.4, 0.8, 1.6)
_MOST_REFERENCES = 1_000
_NEAREST_SPREAD, _SPREAD_PER_DISTANCE, _WIDEST_SPREAD = 0.03, 0.12, 0.5


class HistoryRates:
    """Rates of like runs, each times the analytic model's ratio between it and what was asked."""

    minimum_rows = 1

    def __init__(self, *, base: AnalyticRates | None = None) -> None:
        self._base = base or AnalyticRates()
        self._fitted_base = base is not None
        self._references: dict[str, tuple[Surroundings, Floats]] = {}
        self._bandwidth = _BANDWIDTHS[1]

    def fit(self, table: FeatureTable, log_rates: Floats) -> None:
        """Keep what was measured over what the analytic model says of it."""
        if not self._fitted_base:
            self._base.fit(table, log_rates)
        # Column 0 for models that were measured, 1 for others: each over its own analytic rate.
        residual = np.column_stack(
            [
                log_rates - self._base.predict(table).log_rates,
                log_rates - self._base.general_log_rates(table),
            ]
        )
        chosen, left = _bounded(table, residual)
        self._references = {"": (Surroundings(chosen), left)}
        if len(table) > _MOST_REFERENCES:
            # All runs of a model are nearer than a sample of all models'.
            models = np.array(table.values("model"))
            for model in sorted(set(models.tolist())):
                own = np.flatnonzero(models == model)
                if len(own) >= _NEIGHBOURS:
                    near, theirs = _bounded(table.take(own), residual[own])
                    self._references[model] = Surroundings(near), theirs
        self._bandwidth = _best_bandwidth(chosen, left)

    def predict(self, table: FeatureTable) -> RateGuess:
        """Weighted mean over the neighbours; the spread grows with the distance to the nearest."""
        base = self._base.predict(table).log_rates
        known = self._base.knows(table)
        log_rates, spreads = np.empty(len(table)), np.empty(len(table))
        models = np.array(
            [model if model in self._references else "" for model in table.values("model")]
        )
        for model in sorted(set(models.tolist())):
            rows = np.flatnonzero(models == model)
            references, residual = self._references[model]
            far = references.distances(table.take(rows))
            carried = [_carried(far, column, self._bandwidth) for column in residual.T]
            log_rates[rows] = base[rows] + np.where(known[rows], carried[0], carried[1])
            spreads[rows] = _spread(far.min(axis=1))
        return RateGuess(log_rates=log_rates, spreads=spreads)


def _bounded(table: FeatureTable, residual: Floats) -> tuple[FeatureTable, Floats]:
    if len(table) <= _MOST_REFERENCES:
        return table, residual
    chosen = np.linspace(0, len(table) - 1, _MOST_REFERENCES).astype(np.intp)
    return table.take(chosen), residual[chosen]


def _spread(nearest: Floats) -> Floats:
    return np.minimum(_NEAREST_SPREAD + _SPREAD_PER_DISTANCE * nearest, _WIDEST_SPREAD)


def _carried(far: Floats, residual: Floats, bandwidth: float) -> Floats:
    count = min(_NEIGHBOURS, far.shape[1])
    near = np.argpartition(far, count - 1, axis=1)[:, :count] if count < far.shape[1] else None
    if near is None:
        near = np.tile(np.arange(far.shape[1]), (far.shape[0], 1))
    near_far = np.take_along_axis(far, near, axis=1)
    # Relative to the nearest: somebody is always listened to.
    closest = near_far.min(axis=1, keepdims=True)
    weights = np.exp(-0.5 * (near_far**2 - closest**2) / bandwidth**2)
    return np.asarray((weights * residual[near]).sum(axis=1) / weights.sum(axis=1))


def _best_bandwidth(references: FeatureTable, residual: Floats) -> float:
    """By the median error of every measured run from all others."""
    if len(references) < 3:
        return _BANDWIDTHS[1]
    residual = residual[:, 0]
    far = Surroundings(references).distances(references)
    far[np.diag_indices_from(far)] = np.inf
    kept = np.where(np.isfinite(far), far, 1e6)
    errors = [
        float(np.mean(np.minimum(np.abs(_carried(kept, residual, width) - residual), 0.5)))
        for width in _BANDWIDTHS
    ]
    return _BANDWIDTHS[int(np.argmin(errors))]


class HistorySource(StackedSource):
    """What was measured, exactly or nearest to it."""

    source_id = "history"
    trusts_measurements = True
    explanation = "nearest measured runs, scaled by the calibrated analytic model"

    def _make_model(self) -> HistoryRates:
        return HistoryRates()
