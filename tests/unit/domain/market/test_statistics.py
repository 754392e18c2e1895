import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.generate import generate
from spotline.domain.market.market import UNKNOWN
from spotline.domain.market.statistics import (
    autocorrelation,
    lag_slots,
    measure,
    run_lengths_h,
)


def _market(counts, prices=None, slot_s=1800):
    """One offering of a generated market under given counts and prices."""
    from dataclasses import replace

    base = generate("cloud-gang", seed=0, slots=len(counts), slot_s=slot_s, start_ns=0)
    column = np.array(counts, dtype=np.int64)[:, None]
    money = np.array(prices or [1_000_000] * len(counts), dtype=np.int64)[:, None]
    return replace(
        base,
        offerings=base.offerings[:1],
        spot_price_micro_usd=money,
        on_demand_price_micro_usd=np.full_like(money, 4_000_000),
        spot_available=column,
        **{
            name: getattr(base, name)[:, :1].copy()
            for name in (
                "spot_provenance",
                "on_demand_available",
                "on_demand_provenance",
                "quoted_ns",
            )
        },
    )


def test_runs_levels_and_errors_of_a_small_series_are_exact():
    counts = measure(_market([0, 4, 4, 2, 0, 0, 4, 4])).offerings[0].availability
    assert counts.most_instances == 4
    assert counts.up_fraction == 5 / 8
    assert counts.full_fraction == 4 / 8
    assert counts.none_or_full_fraction == 7 / 8
    assert counts.changed_slot_fraction == 4 / 7
    assert counts.persistence_error_1h_instances == pytest.approx((4 + 2 + 4 + 2 + 4 + 4) / 6)
    assert (counts.up_runs.runs, counts.up_runs.mean_h, counts.up_runs.max_h) == (2, 1.25, 1.5)
    assert (counts.down_runs.runs, counts.down_runs.mean_h) == (2, 0.75)


def test_price_moves_are_counted_per_day_and_relative():
    prices = [1_000_000, 1_000_000, 1_100_000, 1_100_000]
    price = measure(_market([1] * 4, prices)).offerings[0].price
    assert price.mean_usd == pytest.approx(1.05)
    assert price.changes_per_day == pytest.approx(48 / 3)
    assert price.median_step_percent == pytest.approx(10.0)
    assert price.mean_fraction_of_on_demand == pytest.approx(1.05 / 4)


def test_constant_series_has_no_autocorrelation_and_no_down_runs():
    one = measure(_market([3] * 60)).offerings[0]
    assert one.price.autocorrelation_1h is None
    assert one.price.median_step_percent is None
    assert one.availability.autocorrelation_1h is None
    assert one.availability.down_runs is None


def test_market_of_one_slot_is_measured():
    one = measure(_market([3])).offerings[0]
    assert one.price.changes_per_day == 0
    assert one.availability.persistence_error_1h_instances is None


def test_unknown_counts_have_no_availability_statistics():
    from dataclasses import replace

    market = _market([0] * 10)
    market = replace(market, spot_provenance=np.full((10, 1), UNKNOWN, dtype=np.int64))
    statistics = measure(market)
    assert statistics.offerings[0].availability is None
    assert statistics.any_up_fraction is None
    assert statistics.availability_correlation == ((None,),)


def test_lag_is_the_nearest_whole_number_of_slots():
    assert [lag_slots(1, s) for s in (195, 300, 1800, 3600, 14_400)] == [18, 12, 2, 1, 0]


def test_period_shows_in_the_autocorrelation():
    series = np.array([0, 1] * 50, dtype=np.int64)
    assert autocorrelation(series, 1) == pytest.approx(-0.99)
    assert autocorrelation(series, 2) == pytest.approx(0.98)


@given(st.lists(st.booleans(), min_size=1, max_size=60))
def test_runs_of_up_and_down_fill_the_whole_market(state):
    state = np.array(state)
    total_h = run_lengths_h(state, 1800).sum() + run_lengths_h(~state, 1800).sum()
    assert total_h == pytest.approx(len(state) / 2)


@given(st.lists(st.integers(0, 16), min_size=3, max_size=60), st.integers(1, 59))
def test_autocorrelation_lies_between_minus_one_and_one(values, lag):
    value = autocorrelation(np.array(values, dtype=np.int64), lag)
    assert value is None or -1.0 - 1e-9 <= value <= 1.0 + 1e-9
