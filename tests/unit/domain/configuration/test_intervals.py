"""Intervals from held-out errors."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.configuration.intervals import conformal_band, prior_band

NONE = np.zeros(0)


def test_without_errors_the_prior_is_believed():
    assert conformal_band(NONE, NONE) == prior_band()
    assert prior_band().seen > 1.645


def test_nine_of_ten_new_scores_stay_inside():
    rng = np.random.default_rng(3)
    scores = np.abs(rng.standard_normal(2_000))

    band = conformal_band(scores[:1_000], NONE)

    assert np.mean(scores[1_000:] <= band.seen) == pytest.approx(0.9, abs=0.03)


def test_model_with_many_rows_counts_once():
    # Forty models err little; another, with most of the rows, errs much.
    scores = np.concatenate([np.full(40, 0.5), np.full(200, 9.0)])
    models = [f"m{place}" for place in range(40)] + ["large"] * 200

    by_model = conformal_band(NONE, scores, models)
    by_row = conformal_band(NONE, scores)

    assert by_model.unseen < by_row.unseen == 9.0


def test_models_held_out_widen_only_what_is_said_of_unseen_models():
    band = conformal_band(np.full(100, 0.5), np.full(30, 4.0))

    assert band.seen < 1.0
    assert band.unseen == 4.0
    widths = band.half_widths(np.array([0.1, 0.1]), np.array([1.0, 0.0]))
    assert widths.tolist() == pytest.approx([0.1 * band.seen, 0.4])


@given(st.lists(st.floats(0, 50), min_size=1, max_size=60), st.floats(1.0, 10.0))
def test_larger_errors_never_narrow_the_interval(scores, factor):
    small = conformal_band(np.array(scores), NONE)
    large = conformal_band(np.array(scores) * factor, NONE)

    assert large.seen >= small.seen > 0
