from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.law import (
    PPB,
    MarketLaw,
    RunTracker,
    StateSpace,
    choose_space,
    last_run_state,
    law_weights,
    learn_law,
    learn_laws,
    mixed_law,
    run_states,
    transitions,
)

SPACE = StateSpace(level_starts=(0, 8), age_starts=(1, 3), price_centres_ppm=(300_000,))


def up_and_down(slots: int, up: int, down: int, count: int = 16) -> np.ndarray:
    return np.array([count if k % (up + down) < up else 0 for k in range(slots)], dtype=np.int64)


def flat(series: np.ndarray) -> np.ndarray:
    return np.full(series.shape, 300_000, dtype=np.int64)


def test_a_run_state_is_level_and_age_bucket() -> None:
    states = run_states(SPACE, [16, 16, 16, 0, 16])

    assert states.tolist() == [2, 2, 3, 0, 2]


def test_a_space_keeps_few_distinct_counts_and_cuts_between_them() -> None:
    space = choose_space([0, 0, 3, 3, 16, 16], [300_000] * 6, most_instances=12)

    assert space.level_starts == (0, 2, 8)


def test_a_space_of_one_price_has_one_price_level() -> None:
    space = choose_space([0, 16], [300_000, 300_400], most_instances=12)

    assert space.price_states == 1


def test_learned_probabilities_approach_those_of_the_series() -> None:
    series = up_and_down(4_000, up=4, down=2)

    law = learn_law(series, flat(series), SPACE)

    matrix = law.run_matrix()
    ends = matrix[3, 0]  # an old run of spot goes down after its fourth slot: every second time
    assert ends == pytest.approx(0.5, abs=0.02)
    assert matrix[2, 0] == pytest.approx(0.0, abs=0.02)


def test_a_prior_rules_where_nothing_was_seen_and_yields_to_what_was() -> None:
    other = up_and_down(4_000, up=40, down=4)
    prior = learn_law(other, flat(other), SPACE)
    own = up_and_down(4_000, up=2, down=2)

    unseen = learn_law([16], [300_000], SPACE, prior=prior)
    seen = learn_law(own, flat(own), SPACE, prior=prior)

    assert unseen.run_matrix()[3] == pytest.approx(prior.run_matrix()[3], abs=0.03)
    assert seen.run_matrix()[2, 0] == pytest.approx(0.5, abs=0.02)


def test_weights_find_the_law_that_fits() -> None:
    calm = up_and_down(2_000, up=30, down=5)
    wild = up_and_down(2_000, up=2, down=2)
    laws = [learn_law(series, flat(series), SPACE) for series in (calm, wild)]

    weights = law_weights(transitions(SPACE, wild[:60]), laws)

    assert weights[1] > 0.99


def test_an_offering_without_a_past_borrows_the_law_of_the_one_that_fits() -> None:
    long_known = up_and_down(2_000, up=30, down=5)
    new = long_known[:6]

    laws = learn_laws(
        {"new": (new, flat(new)), "old": (long_known, flat(long_known))}, most_instances=12
    )

    up = laws["new"].run_matrix()
    own_alone = learn_law(new, flat(new), laws["new"].space).run_matrix()
    old = laws["old"].run_matrix()
    oldest = up.shape[0] - 1
    assert abs(up[oldest, 0] - old[oldest, 0]) < abs(own_alone[oldest, 0] - old[oldest, 0])


@given(
    st.lists(st.integers(min_value=0, max_value=20), min_size=2, max_size=60),
    st.integers(min_value=1, max_value=12),
)
def test_every_learned_row_is_a_distribution(counts: list[int], most: int) -> None:
    prices = [200_000 + 7_000 * (c % 13) for c in counts]
    space = choose_space(counts, prices, most_instances=most)

    law = learn_law(counts, prices, space)

    assert law.run_matrix().sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    assert all(entry >= 0 for entry in law.run_ppb)
    assert law.level_counts[0] == 0
    assert list(law.level_counts) == sorted(law.level_counts)


@given(st.lists(st.integers(min_value=0, max_value=12), max_size=60))
def test_a_tracker_goes_through_the_run_states_of_its_series(counts: list[int]) -> None:
    tracker = RunTracker(space=SPACE)

    states = run_states(SPACE, counts).tolist()
    assert [tracker.observe(count) for count in counts] == states
    assert [last_run_state(SPACE, counts[: n + 1]) for n in range(len(counts))] == states


def test_a_mixture_lies_between_its_laws() -> None:
    calm, wild = (
        learn_law(series, flat(series), SPACE)
        for series in (up_and_down(900, 30, 5), up_and_down(900, 2, 2))
    )

    half = mixed_law([calm, wild], [0.5, 0.5])

    assert half.run_matrix() == pytest.approx((calm.run_matrix() + wild.run_matrix()) / 2, abs=1e-8)


def test_a_row_that_does_not_sum_to_one_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="price_ppb row 0"):
        MarketLaw(
            space=StateSpace(level_starts=(0,), age_starts=(1,), price_centres_ppm=(1,)),
            level_counts=(0,),
            run_ppb=(PPB,),
            price_ppb=(PPB - 1,),
        )


@pytest.mark.parametrize(
    ("field", "value"),
    [("level_starts", (1, 2)), ("age_starts", (1, 1)), ("price_centres_ppm", ())],
)
def test_a_space_out_of_order_is_refused(field: str, value: tuple[int, ...]) -> None:
    good = {"level_starts": (0, 2), "age_starts": (1, 2), "price_centres_ppm": (1,)}

    with pytest.raises(ValueError, match=field):
        StateSpace(**{**good, field: value})
