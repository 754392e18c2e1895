"""Intervals that hold nine of ten measured rates, from errors on runs that were held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from spotline.domain.configuration.features import Floats
from spotline.domain.configuration.interface import INTERVAL_COVERAGE

# Believed before anything is held out: errors of 1.25 spreads, worth this many held-out runs.
_PRIOR_SCORE = 1.25
_PRIOR_RUNS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Half-widths of intervals in spreads, for runs of models seen in training and of others."""

    seen: float
    unseen: float

    def half_widths(self, spreads: Floats, seen: Floats) -> Floats:
        """Half-widths of log rates; `seen` holds 1.0 where the model was trained on."""
        return np.asarray(spreads * np.where(seen > 0, self.seen, self.unseen))


def prior_band() -> Band:
    """What is believed without a held-out run."""
    width = _quantile(np.zeros(0), np.zeros(0))
    return Band(seen=width, unseen=width)


def conformal_band(
    seen_scores: Floats, unseen_scores: Floats, unseen_models: Sequence[str] = ()
) -> Band:
    """Split conformal intervals from errors of held-out log rates, each over its spread.

    Parameters
    ----------
    seen_scores, unseen_scores
        Absolute errors over spreads; of rows held out at random, and of models held out whole.
    unseen_models
        The model of each of the latter; none: each row is one of its own. Rows of a model err
        together, so that a model counts once however many rows it has.

    Notes
    -----
    Vovk et al., "Algorithmic Learning in a Random World"; errors over spreads as in Lei et al.,
    arXiv:1604.04173; whole groups held out as in Dunn et al., arXiv:1809.07441. A few believed
    scores stand in for what a finite sample leaves open.
    """
    seen = _quantile(seen_scores, np.ones(seen_scores.size))
    if not unseen_scores.size:
        return Band(seen=seen, unseen=max(seen, prior_band().unseen))
    names = list(unseen_models) or [str(place) for place in range(unseen_scores.size)]
    rows_of = {name: names.count(name) for name in names}
    weights = np.array([1.0 / rows_of[name] for name in names])
    return Band(seen=seen, unseen=max(seen * 0.5, _quantile(unseen_scores, weights)))


def _quantile(scores: Floats, weights: Floats) -> float:
    """The score that nine of ten new ones stay below."""
    normal = NormalDist()
    believed = [
        _PRIOR_SCORE * normal.inv_cdf(0.5 + 0.5 * (place + 0.5) / _PRIOR_RUNS)
        for place in range(_PRIOR_RUNS)
    ]
    total = float(weights.sum())
    share = min(1.0, _PRIOR_RUNS / max(1.0, total))
    values = np.concatenate([scores, believed])
    shares = np.concatenate([weights, np.full(_PRIOR_RUNS, share)])
    order = np.argsort(values, kind="stable")
    # One more, of the new run, may lie anywhere above.
    reached = np.cumsum(shares[order]) / (shares.sum() + 1.0)
    place = int(np.searchsorted(reached, INTERVAL_COVERAGE))
    return float(values[order][min(place, len(values) - 1)])
