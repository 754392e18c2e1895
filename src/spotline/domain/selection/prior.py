"""What a pool's weights are before anything was learned."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from spotline.domain.selection.rules import FloatArray

TRUSTED_POLICY_ID = "sdp"
"""Optimal where the market's law is known; the others have to show that it is not."""

_TRUSTED_SHARE = 0.5


def initial_weights(policy_ids: Sequence[str]) -> FloatArray:
    """Half the weight on the learned control, the rest spread equally; shape (policies,).

    A pool without it, or of it alone, starts with equal weights. Regret against policy i grows with
    ln(1 / weight), so this costs any other policy at most ln 2 more than equal weights would.
    """
    count = len(policy_ids)
    weights = np.full(count, 1.0 / count)
    if TRUSTED_POLICY_ID in policy_ids and count > 1:
        weights *= 1.0 - _TRUSTED_SHARE
        weights[list(policy_ids).index(TRUSTED_POLICY_ID)] += _TRUSTED_SHARE
    return weights


def shipped_weights() -> str:
    """The weights in the wheel, for `SelectorOptions.warm_start`: learned on first halves of traces.

    `spotline priors build` makes them; `spotline priors show` says from what.
    """
    return (
        files("spotline.domain.selection").joinpath("prior_weights.json").read_text("utf-8").strip()
    )
