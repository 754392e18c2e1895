import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.forecasting.distribution import (
    certain,
    crps_milli,
    quantised,
    transport_milli,
)
from spotline.domain.market.forecast import CountProbability
from spotline.domain.units import PPM

masses = st.lists(
    st.tuples(st.integers(0, 40), st.floats(0, 1, allow_subnormal=False)), min_size=1, max_size=12
).filter(lambda pairs: sum(mass for _, mass in pairs) > 1e-6)
distributions = masses.map(quantised)


@given(masses)
def test_quantised_sums_to_exactly_a_million_in_order_of_count(pairs):
    counts = quantised(pairs)

    assert sum(c.probability_ppm for c in counts) == PPM
    assert [c.instances for c in counts] == sorted({c.instances for c in counts})
    assert all(c.probability_ppm > 0 for c in counts)


@given(masses)
def test_quantised_is_within_one_part_of_the_exact_share(pairs):
    total = sum(mass for _, mass in pairs)
    rounded = {c.instances: c.probability_ppm for c in quantised(pairs)}

    for count in {c for c, _ in pairs}:
        exact = sum(mass for c, mass in pairs if c == count) / total * PPM
        assert abs(rounded.get(count, 0) - exact) < 1.001


def test_tie_of_remainders_goes_to_the_smaller_count():
    counts = quantised([(2, 1.0), (0, 1.0), (1, 1.0)])

    assert [(c.instances, c.probability_ppm) for c in counts] == [
        (0, 333_334),
        (1, 333_333),
        (2, 333_333),
    ]


@pytest.mark.parametrize("bad", [[], [(1, 0.0)], [(1, float("nan"))], [(1, float("inf"))]])
def test_masses_without_a_positive_sum_are_refused(bad):
    with pytest.raises(ValueError, match="masses must sum"):
        quantised(bad)


@given(st.integers(0, 40), st.integers(0, 40))
def test_score_of_a_certain_count_is_its_absolute_error(count, observed):
    assert crps_milli(certain(count), observed) == abs(count - observed) * 1_000


@given(distributions, st.integers(0, 45))
def test_score_matches_the_energy_form(counts, observed):
    p = {c.instances: c.probability_ppm / PPM for c in counts}
    to_truth = sum(w * abs(x - observed) for x, w in p.items())
    within = sum(w * v * abs(x - y) for x, w in p.items() for y, v in p.items())

    assert crps_milli(counts, observed) == pytest.approx(1_000 * (to_truth - within / 2), abs=0.51)


def test_honest_coin_scores_a_quarter_of_the_gap():
    coin = quantised([(0, 0.5), (16, 0.5)])

    assert crps_milli(coin, 0) == crps_milli(coin, 16) == 4_000


@given(distributions, distributions)
def test_transport_is_symmetric_and_zero_only_for_equals(one, other):
    assert transport_milli(one, other) == transport_milli(other, one)
    assert transport_milli(one, one) == 0


@given(distributions, st.integers(0, 40))
def test_transport_to_a_point_is_the_mean_distance(counts, point):
    distance = sum(abs(one.instances - point) * one.probability_ppm for one in counts)

    assert transport_milli(counts, certain(point)) == (distance + 500) // 1_000


def test_order_of_counts_does_not_matter():
    counts = (
        CountProbability(instances=16, probability_ppm=400_000),
        CountProbability(instances=0, probability_ppm=600_000),
    )

    assert crps_milli(counts, 8) == crps_milli(counts[::-1], 8)
