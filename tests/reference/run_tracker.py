"""The belief over a mix of run laws, one observation at a time, to hold the compiled one against."""

from __future__ import annotations

import numpy as np

from spotline.domain.market.run_law import FloatArray, LawMix


class RunTracker:
    """Belief over the states of a mix, one observation at a time.

    The age of the run that is under way at the first observation is unknown, and so held.
    """

    def __init__(self, mix: LawMix) -> None:
        self._mix = mix
        self._belief: FloatArray | None = None
        self._source = np.repeat(np.arange(len(mix.first)), np.diff(mix.chain.row_start))

    def observe(self, up: bool) -> FloatArray:
        """Take whether spot is up in this slot; return the belief, shape (states,), sum 1."""
        mix = self._mix
        if self._belief is None:
            belief = mix.first.copy()
        else:
            flow = self._belief[self._source] * mix.chain.probability
            belief = np.zeros(len(mix.first))
            np.add.at(belief, mix.chain.column, flow)
        belief[mix.chain.up != up] = 0.0
        self._belief = belief / belief.sum()
        return self._belief

    def law_weights(self) -> FloatArray:
        """Posterior weight of each law, shape (laws,)."""
        belief = self._mix.first if self._belief is None else self._belief
        weights: FloatArray = belief.reshape(len(self._mix.laws), -1).sum(axis=1)
        return weights
