"""What a job is told of an offering's on-demand stock."""

from __future__ import annotations

import pytest

from spotline.domain.market.stock import stock_terms


@pytest.mark.parametrize(
    ("stock", "terms"),
    [
        # Always plenty, or nothing known of the past: no reserve, and the largest count.
        ((9, 9, 9), (0, 0)),
        ((), (0, 0)),
        # Out for two slots once, and back.
        ((9, 1, 1, 9), (2, 0)),
        # Never four at a time: two are what can be counted on.
        ((3, 2, 2), (0, 2)),
        ((3, 0, 3), (1, 2)),
        # Never any: the largest count is awaited for as long as it has been out.
        ((0, 0), (2, 0)),
    ],
)
def test_stock_says_how_long_to_reserve_and_what_to_rescue_with(stock, terms):
    assert stock_terms(stock, (1, 2, 4)) == terms
