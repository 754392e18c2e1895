"""Which window of a market the proof runs on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.contracts.errors import ContractError
from spotline.demo.train.market import (
    FLEET,
    GENERATED,
    SLOT_S,
    demo_window,
    qualifying_windows,
)
from spotline.domain.market.generate import generate


def test_a_window_takes_enough_from_a_fleet_and_leaves_enough_to_hold() -> None:
    window = demo_window(None, slots=48, seed=7)

    counts = np.minimum(window.market.spot_available[:, 0], FLEET)
    assert len(window.market.offerings) == 1
    assert window.market.slots == 48
    assert 3 * np.maximum(0, -np.diff(counts)).sum() >= 48
    assert (counts >= FLEET // 2).mean() >= 0.4
    assert 0.1 < window.reclaims_per_instance_hour < 2
    assert "drawn with seed 7" in window.words


def test_the_seed_alone_draws_the_window() -> None:
    starts = {demo_window(None, slots=40, seed=seed).market.start_ns for seed in (1, 1, 2, 3)}

    assert len(starts) == 3


def test_a_calm_market_has_no_window() -> None:
    # Prices of small clouds jump, their counts seldom fall below a small fleet.
    market = generate("mixed", seed=1, slots=96, slot_s=SLOT_S, start_ns=0)
    last = len(market.offerings) - 1

    assert all(column != last for column, _ in qualifying_windows(market, 90, GENERATED))


def test_windows_are_scarce_where_the_rule_asks_for_it() -> None:
    market = generate("mixed", seed=1, slots=960, slot_s=SLOT_S, start_ns=0)
    scarce = replace(GENERATED, slots_per_reclaim=30, least_scarce=0.3)

    found = qualifying_windows(market, 40, scarce)

    assert 0 < len(found) < len(qualifying_windows(market, 40, replace(scarce, least_scarce=0.0)))
    for column, first in found:
        counts = market.spot_available[first : first + 40, column]
        assert ((counts > 0) & (counts < FLEET)).mean() >= 0.3


def test_a_market_that_is_too_short_is_refused() -> None:
    with pytest.raises(ContractError, match="no window of 5000 slots"):
        demo_window(None, slots=5000, seed=1)
