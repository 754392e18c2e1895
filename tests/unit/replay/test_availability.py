"""What is gone is gone for the slots that are named, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.contracts.errors import ContractError
from spotline.domain.market.market import UNKNOWN
from spotline.replay.availability import ALL_THERE, Availability
from spotline.replay.what_if import share_of, what_if_of
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=12)
COUNTS = ("spot_available", "on_demand_available")


def test_nothing_gone_is_the_market_itself() -> None:
    assert ALL_THERE.market(MARKET) is MARKET
    assert ALL_THERE.describe() == []


@given(st.integers(0, 11), st.integers(0, 11), st.integers(0, 5))
def test_an_offering_is_gone_from_slot_to_slot(first: int, last: int, number: int) -> None:
    first, last = min(first, last), max(first, last)
    gone = MARKET.offerings[0].offering_id
    terms = Availability(gone_offering=gone, first_slot=first + number, last_slot=last + number)

    changed = terms.market(MARKET, first_slot=number)

    for name in COUNTS:
        before, after = getattr(MARKET, name), getattr(changed, name)
        assert (after[first : last + 1, 0] == 0).all()
        assert (after[:first, 0] == before[:first, 0]).all()
        assert (after[last + 1 :, 0] == before[last + 1 :, 0]).all()
        assert (after[:, 1:] == before[:, 1:]).all()
    # Of what is gone it is known that it is.
    assert (changed.spot_provenance[first : last + 1, 0] != UNKNOWN).all()
    assert (changed.spot_price_micro_usd == MARKET.spot_price_micro_usd).all()
    assert gone in terms.describe()[0]


def test_a_cloud_is_gone_with_all_its_regions_and_counts_are_rounded_down() -> None:
    cloud = MARKET.offerings[0].provider
    changed = Availability(gone_cloud=cloud).market(MARKET)
    of_cloud = np.array([each.provider == cloud for each in MARKET.offerings])
    assert (changed.spot_available[:, of_cloud] == 0).all()
    assert (changed.on_demand_available[:, of_cloud] == 0).all()

    terms = Availability(count_factor=Fraction(1, 2))
    half = terms.market(MARKET)
    known = MARKET.spot_provenance != UNKNOWN
    assert (half.spot_available[known] == MARKET.spot_available[known] // 2).all()
    assert (half.spot_available[~known] == MARKET.spot_available[~known]).all()
    nobody_knows = replace(MARKET, spot_provenance=np.full_like(MARKET.spot_provenance, UNKNOWN))
    assert terms.assumption(nobody_knows).startswith("100 % of the counts")
    assert (terms.market(nobody_knows).spot_available == MARKET.spot_available).all()
    assert ALL_THERE.assumption(nobody_knows) == ""


@pytest.mark.parametrize(
    "terms",
    [
        Availability(gone_offering="nowhere"),
        Availability(gone_cloud="nobody"),
        Availability(gone_offering=MARKET.offerings[0].offering_id, first_slot=12),
        Availability(gone_offering=MARKET.offerings[0].offering_id, first_slot=4, last_slot=3),
    ],
)
def test_what_was_never_there_cannot_be_gone(terms: Availability) -> None:
    with pytest.raises(ContractError, match="expected"):
        terms.market(MARKET)


def test_a_share_is_at_most_all() -> None:
    assert share_of("") == 1
    assert share_of("0.5") == Fraction(1, 2)
    for text in ("2", "half", "-1", "0"):
        with pytest.raises(ContractError, match="counts"):
            share_of(text)
    terms = what_if_of("+1h", availability=Availability(count_factor=Fraction(1, 2)))
    assert terms.describe() == ["deadlines +1h", "counts that are known x 0.5"]
