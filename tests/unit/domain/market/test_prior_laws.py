from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.law import choose_space, learn_laws
from spotline.domain.market.prior_laws import (
    NO_PRIORS,
    SHARES,
    WHOLE,
    PriorLaws,
    learn_prior,
    lent_by,
    named_priors,
    parse_priors,
    priors_to_json,
    shipped_priors,
)

# Up for ten slots, down for two, again and again: a run of spot lasts.
LASTING = ([16] * 10 + [0] * 2) * 20


def _prior(counts=LASTING, name="a", kind="gang", region="east"):
    return learn_prior(name, kind, region, counts)


def _goes_on(law, count: int) -> float:
    """The chance that a run of `count`, just begun, goes on for a slot."""
    ages = law.space.ages
    level = law.space.level_of(count)
    row = law.run_matrix()[level * ages].reshape(-1, ages).sum(axis=1)
    return float(row[level])


@pytest.mark.parametrize("capacity", [1, 4, 16, 128])
def test_a_law_lent_to_an_offering_of_any_size_keeps_how_long_spot_lasts(capacity: int) -> None:
    space = choose_space([0, capacity], [], most_instances=32)

    lent = lent_by(_prior().law, space, capacity)

    assert _goes_on(lent, min(capacity, 32)) == pytest.approx(
        _goes_on(_prior().law, WHOLE), abs=0.02
    )


def test_in_shorter_slots_spot_lasts_for_more_of_them() -> None:
    space = choose_space([0, 16], [], most_instances=32)

    goes_on = [_goes_on(lent_by(_prior().law, space, 16, s), 16) for s in (600, 1800, 5400)]

    assert goes_on[0] > goes_on[1] > goes_on[2]
    assert 1 - goes_on[0] == pytest.approx((1 - goes_on[1]) / 3, rel=0.2)


@given(
    counts=st.lists(st.integers(0, 40), min_size=2, max_size=40).filter(any),
    capacity=st.integers(1, 200),
)
def test_what_is_lent_is_a_law_of_the_other_space(counts: list[int], capacity: int) -> None:
    space = choose_space([0, *counts], [], most_instances=32)

    lent = lent_by(_prior(counts).law, space, capacity)  # MarketLaw refuses rows that do not sum

    assert lent.space == space


def test_a_market_that_has_shown_nothing_yet_behaves_as_its_priors_do() -> None:
    priors = PriorLaws(laws=(_prior(),))

    told = learn_laws({"o": ([16], [300_000])}, most_instances=32, elsewhere=priors.lends(1800))[
        "o"
    ]
    untold = learn_laws({"o": ([16], [300_000])}, most_instances=32)["o"]

    expected = _goes_on(_prior().law, WHOLE)
    assert abs(_goes_on(told, 16) - expected) < abs(_goes_on(untold, 16) - expected)
    assert _goes_on(told, 16) == pytest.approx(expected, abs=0.05)


def test_what_a_market_shows_outweighs_its_priors() -> None:
    flickering = [16, 0] * 200
    prices = [300_000] * len(flickering)
    priors = PriorLaws(laws=(_prior(),))

    told = learn_laws({"o": (flickering, prices)}, most_instances=32, elsewhere=priors.lends(1800))[
        "o"
    ]

    assert _goes_on(told, 16) < 0.12


def test_priors_are_read_as_they_were_written() -> None:
    text = priors_to_json([_prior(), _prior(name="b", kind="single")], {"from": "a test"})

    found = parse_priors(text)

    assert [prior.name for prior in found.laws] == ["a", "b"]
    assert found.laws[0].law == _prior().law
    assert found.chances().tolist() == [0.5, 0.5]
    assert [prior.name for prior in found.without(kinds=["gang"]).laws] == ["b"]
    assert not found.without(regions=["east"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "must be JSON"),
        ("[]", "format_version 1"),
        ('{"format_version": 1, "laws": {}}', "laws must be a list"),
        ('{"format_version": 1, "laws": [{"name": "a"}]}', r"laws\[0\]: 'kind'"),
    ],
)
def test_a_file_that_holds_no_priors_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_priors(text)


def test_an_offering_that_never_had_spot_teaches_no_prior() -> None:
    with pytest.raises(ValueError, match="must be > 0 in some slot"):
        _prior([0, 0, 0])


def test_a_manifest_names_the_priors_of_this_release_or_none() -> None:
    assert named_priors("") is NO_PRIORS
    assert named_priors(shipped_priors().sha256) is shipped_priors()
    with pytest.raises(ValueError, match="priors_sha256"):
        named_priors("0" * 64)


def test_the_wheel_ships_laws_on_shares_of_every_kind() -> None:
    laws = shipped_priors().laws

    assert {prior.kind for prior in laws} == {
        "H100 counts",
        "cloud gang",
        "cloud single",
        "neocloud",
    }
    assert all(prior.law.space == SHARES for prior in laws)
    assert np.isclose(shipped_priors().chances().sum(), 1.0)
