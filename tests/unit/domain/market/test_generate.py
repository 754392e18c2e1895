"""Generated markets reproduce the statistics of measured ones, averaged over seeds.

Targets are the ranges of docs/market-format.md ("What the presets reproduce"); a tolerance says
how far a mean over eight seeds of 45 days may lie outside.
"""

from functools import cache

import numpy as np
import pytest

from spotline.domain.market.generate import PRESETS, generate
from spotline.domain.market.market import OBSERVED, UNKNOWN
from spotline.domain.market.statistics import MarketStatistics, measure, run_lengths_h
from spotline.domain.units import NS_PER_S

START_NS = 1_767_571_200 * NS_PER_S  # a Monday, 00:00 UTC
SEEDS = range(8)
DAYS = 45


@cache
def _measured(preset: str, slot_s: int) -> tuple[MarketStatistics, ...]:
    slots = DAYS * 86_400 // slot_s
    return tuple(
        measure(generate(preset, seed=seed, slots=slots, slot_s=slot_s, start_ns=START_NS))
        for seed in SEEDS
    )


def _mean(values) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _over_seeds(preset, slot_s, column, read) -> float:
    return _mean(read(one.offerings[column]) for one in _measured(preset, slot_s))


@pytest.mark.parametrize("slot_s", [300, 1800])
@pytest.mark.parametrize("column", [0, 1])
def test_gang_zone_is_up_about_half_the_time_and_nearly_all_or_nothing(slot_s, column):
    def mean(read):
        return _over_seeds("cloud-gang", slot_s, column, lambda o: read(o.availability))

    assert 0.42 - 0.02 <= mean(lambda a: a.up_fraction) <= 0.63 + 0.02
    assert 0.42 - 0.03 <= mean(lambda a: a.full_fraction) <= 0.46 + 0.03
    assert mean(lambda a: a.none_or_full_fraction) >= 0.83
    assert mean(lambda a: a.most_instances) == 16


@pytest.mark.parametrize("slot_s", [300, 1800])
@pytest.mark.parametrize("column", [0, 1])
def test_gang_zone_persists_as_measured_after_one_hour_and_one_day(slot_s, column):
    def mean(read):
        return _over_seeds("cloud-gang", slot_s, column, lambda o: read(o.availability))

    assert 0.46 <= mean(lambda a: a.autocorrelation_1h) <= 0.69 + 0.06
    assert 0.07 <= mean(lambda a: a.autocorrelation_24h) <= 0.37
    assert 2.4 - 0.1 <= mean(lambda a: a.persistence_error_1h_instances) <= 2.7 + 0.2


@pytest.mark.parametrize("seed", SEEDS)
def test_single_gang_market_stays_near_the_measured_ranges(seed):
    for one in _measured("cloud-gang", 300)[seed].offerings:
        counts = one.availability
        assert 0.30 <= counts.up_fraction <= 0.75
        assert 0.50 <= counts.autocorrelation_1h <= 0.85
        assert 0.0 <= counts.autocorrelation_24h <= 0.5


def test_zones_of_a_region_are_correlated_as_measured():
    mean = _mean(one.availability_correlation[0][1] for one in _measured("cloud-gang", 1800))
    assert 0.25 <= mean <= 0.59


@pytest.mark.parametrize("preset", ["cloud-gang", "cloud-zones"])
def test_runs_are_heavy_tailed(preset):
    slots = DAYS * 86_400 // 300
    for seed in range(3):
        market = generate(preset, seed=seed, slots=slots, slot_s=300, start_ns=START_NS)
        up = market.spot_available[:, 1] > 0
        for state in (up, ~up):
            lengths_h = run_lengths_h(state, 300)
            # Exponential runs would have a coefficient of variation of 1, a 95th percentile of
            # 3.0 means and a median of 0.7 means.
            assert lengths_h.std() / lengths_h.mean() > 1.5
            assert np.percentile(lengths_h, 95) > 3.5 * lengths_h.mean()
            assert np.median(lengths_h) < 0.4 * lengths_h.mean()


def test_capacity_follows_the_hour_of_the_day():
    by_hour = np.zeros(24)
    for seed in SEEDS:
        market = generate("cloud-gang", seed=seed, slots=45 * 24, slot_s=3600, start_ns=START_NS)
        by_hour += (market.spot_available[:, 0] > 0).reshape(-1, 24).mean(axis=0) / len(SEEDS)
    # Measured in one zone: up 37 % of the time at 00 UTC, 80 % at 14 UTC.
    assert by_hour[14] - by_hour[2] > 0.25


def test_cloud_prices_are_sticky_in_small_steps_near_the_floor():
    for column in (0, 1):

        def mean(read, column=column):
            return _over_seeds("cloud-gang", 300, column, lambda o: read(o.price))

        assert 2.0 <= mean(lambda p: p.changes_per_day) <= 4.5
        assert 0.15 <= mean(lambda p: p.median_step_percent) <= 0.25
        assert 0.30 <= mean(lambda p: p.mean_fraction_of_on_demand) <= 0.36
        assert mean(lambda p: p.persistence_error_1h_percent) < 0.1


def test_some_zone_of_nine_is_nearly_always_up_and_regions_hang_together():
    measured = _measured("cloud-zones", 1800)
    assert 0.98 <= _mean(one.any_up_fraction for one in measured) <= 0.999
    correlation = np.mean([np.array(one.availability_correlation) for one in measured], axis=0)
    region = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    same = (region[:, None] == region) & ~np.eye(9, dtype=bool)
    other = region[:, None] != region
    assert correlation[same].min() >= 0.25 - 0.02
    assert correlation[same].max() <= 0.59
    assert correlation[other].min() >= 0.03 - 0.02
    assert correlation[other].max() <= 0.27
    ups = [
        _over_seeds("cloud-zones", 1800, c, lambda o: o.availability.up_fraction) for c in range(9)
    ]
    assert min(ups) < 0.3
    assert 0.85 < max(ups) < 0.95


def test_half_of_the_nine_zones_never_change_price():
    for one in _measured("cloud-zones", 1800):
        still = [o.price.changes_per_day == 0 for o in one.offerings]
        assert sum(still) == 4


@pytest.mark.parametrize("column", [0, 1])
def test_neocloud_prices_jump_and_counts_are_partial(column):
    def mean(read):
        return _over_seeds("neocloud", 1800, column, read)

    assert 0.10 <= mean(lambda o: o.price.autocorrelation_24h) <= 0.32
    assert mean(lambda o: o.price.median_step_percent) > 15
    assert 0.05 <= mean(lambda o: o.price.changed_slot_fraction) <= 0.20
    assert mean(lambda o: o.availability.none_or_full_fraction) < 0.35
    assert mean(lambda o: o.availability.most_instances) == 16


def test_default_preset_mixes_two_correlated_zones_and_a_neocloud_of_like_price():
    market = generate("mixed", seed=1, slots=200, slot_s=1800, start_ns=START_NS)
    assert [o.provider for o in market.offerings] == ["cloud", "cloud", "neocloud"]
    assert len({o.gpu_model for o in market.offerings}) == 1
    on_demand = market.on_demand_price_micro_usd[0]
    assert on_demand.max() / on_demand.min() < 1.1


def test_counts_are_observed_and_on_demand_stock_unknown():
    market = generate("mixed", seed=1, slots=10, slot_s=1800, start_ns=START_NS)
    assert (market.spot_provenance == OBSERVED).all()
    assert (market.on_demand_provenance == UNKNOWN).all()
    assert (market.quoted_ns == market.slot_starts_ns()[:, None]).all()


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_same_seed_gives_the_same_market_and_another_seed_another(preset):
    def make(seed):
        return generate(preset, seed=seed, slots=300, slot_s=1800, start_ns=START_NS)

    one, same, other = make(3), make(3), make(4)
    assert (one.spot_available == same.spot_available).all()
    assert (one.spot_price_micro_usd == same.spot_price_micro_usd).all()
    assert (one.spot_available != other.spot_available).any()


def test_one_slot_is_enough():
    market = generate("mixed", seed=0, slots=1, slot_s=60, start_ns=0)
    assert market.slots == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "mixt"}, "preset must be one of cloud-gang, cloud-zones, mixed, neocloud"),
        ({"seed": -1}, "seed >= 0"),
        ({"slots": 0}, "slots >= 1"),
        ({"slot_s": 0}, "slot_s >= 1"),
    ],
)
def test_bad_argument_is_refused(change, message):
    arguments = {"preset": "mixed", "seed": 0, "slots": 5, "slot_s": 60, "start_ns": 0} | change
    preset = arguments.pop("preset")
    with pytest.raises(ValueError, match=message):
        generate(preset, **arguments)
