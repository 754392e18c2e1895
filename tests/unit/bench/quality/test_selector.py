"""The table of selection rules in the quality benchmark."""

from __future__ import annotations

import numpy as np
import pytest

from spotline.bench.quality.selector import (
    WAYS,
    FollowTheLeader,
    Uniform,
    alternating_adversary,
    expected_utilities,
    selector_table,
)
from spotline.domain.selection.rules import AdaHedge


def market_like(seed: int, jobs: int = 1000, policies: int = 119) -> np.ndarray:
    """Utilities as replays give them: jobs differ most, many policies are nearly the same."""
    rng = np.random.Generator(np.random.PCG64(seed))
    family = rng.integers(0, 20, policies)
    means = rng.uniform(95.0, 101.0, 20)[family] + rng.normal(0.0, 0.1, policies)
    shared = rng.normal(0.0, 30.0, (jobs, 1))
    alike = rng.normal(0.0, 3.0, (jobs, 20))[:, family]
    return means + shared + alike + rng.normal(0.0, 0.5, (jobs, policies))


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, float | None]]:
    return selector_table(market_like(1), floor_usd=-250.0, ceiling_usd=250.0)


def test_adahedge_keeps_within_two_mean_jobs_and_eight_when_told_late(table) -> None:
    assert table["adahedge"]["regret_jobs"] <= 2.0
    assert table["adahedge/delay-20"]["regret_jobs"] <= 8.0
    assert table["adahedge"]["percent_of_best_fixed"] > 99.8


def test_following_the_leader_earns_nothing_from_the_adversary(table) -> None:
    assert table["follow-the-leader/alternating"]["percent_of_best_fixed"] < 0.1
    assert table["adahedge/alternating"]["percent_of_best_fixed"] > 96.0
    assert table["exponentiated-gradient/alternating"]["percent_of_best_fixed"] > 96.0


def test_exponentiated_gradient_pays_for_a_range_fixed_beforehand(table) -> None:
    assert table["exponentiated-gradient"]["regret_jobs"] > 5.0
    assert table["uniform"]["regret_jobs"] > table["exponentiated-gradient"]["regret_jobs"]


def test_the_table_holds_every_way_with_every_delay(table) -> None:
    assert set(table) == {
        name + suffix for name in WAYS for suffix in ("", "/delay-20", "/alternating")
    }


def test_delay_keeps_a_way_from_learning_until_the_first_job_is_known() -> None:
    utility = np.tile([[0.0, 1.0]], (30, 1))

    earned = expected_utilities(utility, AdaHedge(2), known=np.arange(30) + 21)

    assert earned[:21].tolist() == [0.5] * 21
    assert earned[21] > 0.7


def test_jobs_that_arrive_together_learn_only_from_those_before() -> None:
    utility = np.tile([[0.0, 1.0]], (4, 1))

    earned = expected_utilities(
        utility, FollowTheLeader(2), arrival=[0, 0, 1, 5], known=[1, 5, 6, 9]
    )

    assert earned.tolist() == [0.5, 0.5, 1.0, 1.0]


def test_nothing_is_known_before_it_happened() -> None:
    with pytest.raises(ValueError, match="later slot"):
        expected_utilities(np.ones((2, 2)), Uniform(2), arrival=[0, 1], known=[1, 1])


def test_shares_of_what_is_not_earned_are_not_reported() -> None:
    table = selector_table(-np.ones((3, 2)), floor_usd=-2.0, ceiling_usd=0.0)

    assert table["adahedge"] == {"percent_of_best_fixed": None, "regret_jobs": None}


@pytest.mark.parametrize(
    ("utilities", "ceiling"), [(np.ones((0, 3)), 1.0), (np.ones(3), 1.0), (np.ones((2, 2)), -1.0)]
)
def test_a_matrix_or_bounds_that_make_no_sense_are_refused(utilities, ceiling: float) -> None:
    with pytest.raises(ValueError, match=r"shape|ceiling_usd"):
        selector_table(utilities, floor_usd=-1.0, ceiling_usd=ceiling)


def test_the_adversary_is_fair_to_both_policies() -> None:
    totals = alternating_adversary(1000).sum(axis=0)

    assert totals.tolist() == [500.0, 499.5]
