"""Lengths of stays, known by hand and by law."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.stays import Stays, stays_of, survival_of


def stays(there: str, slot_s: int = 3600) -> Stays:
    """Stays of a series written as `.` (not there), `#` (there) and `?` (not known)."""
    up = np.array([letter == "#" for letter in there])
    known = np.array([letter != "?" for letter in there])
    return stays_of(up, known, slot_s)


def listed(found: Stays) -> list[tuple[float, bool]]:
    return list(zip(found.hours.tolist(), found.ended.tolist(), strict=True))


def sample(ended: list[float], cut: list[float] = []) -> Stays:  # noqa: B006 - never changed
    hours = np.array([*ended, *cut], dtype=np.float64)
    flags = np.array([True] * len(ended) + [False] * len(cut), dtype=np.bool_)
    return Stays(hours=hours, ended=flags)


def test_a_stay_lasts_from_the_first_slot_with_enough_to_the_first_without():
    assert listed(stays(".##.###..", slot_s=1800)) == [(1.0, True), (1.5, True)]


def test_a_stay_that_the_end_of_the_file_cuts_is_not_ended():
    assert listed(stays(".#.##")) == [(1.0, True), (2.0, False)]


def test_a_stay_that_was_there_before_the_file_is_cut_too():
    found = stays("###.##.")

    assert listed(found) == [(3.0, False), (2.0, True)]
    assert (found.began_before, found.cut) == (1, 1)


def test_a_zone_that_is_nearly_always_there_does_not_look_short_lived():
    # It was there before, and was gone for an hour once.
    curve = survival_of(stays("#" * 200 + "." + "#" + "." + "#" * 100))

    assert curve.median_h is None
    assert curve.longest_h == 200.0


def test_what_is_not_known_cuts_a_stay_at_both_ends():
    found = stays(".##?##.#.")

    assert listed(found) == [(2.0, False), (2.0, False), (1.0, True)]
    assert found.began_before == 1


def test_nothing_there_makes_no_stay():
    assert listed(stays("....")) == []
    assert survival_of(stays("....")) is None


def test_the_curve_of_a_textbook():
    # Remission of 21 patients, weeks (Freireich and others 1963; Kaplan-Meier as lifelines and R give it).
    ended = [6.0, 6, 6, 7, 10, 13, 16, 22, 23]
    cut = [6.0, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]

    curve = survival_of(sample(ended, cut))

    at = dict(zip(curve.hours.tolist(), curve.share.tolist(), strict=True))
    known = {6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482}
    assert {week: round(at[week], 4) for week in known} == known
    assert curve.median_h == 23
    assert curve.p10_h == 6
    assert curve.longest_h == 35


def test_a_curve_that_does_not_fall_so_far_has_no_median():
    # Four stays: one of an hour ends; the others are cut: three quarters stay for all that is known.
    curve = survival_of(sample([1.0], [2.0, 2.0, 5.0]))

    assert curve.median_h is None
    assert curve.p10_h == 1.0
    assert curve.longest_h == 5.0


def test_ten_stays_have_their_first_as_p10_and_their_fifth_as_median():
    curve = survival_of(sample([float(hours) for hours in range(1, 11)]))

    assert (curve.p10_h, curve.median_h) == (1.0, 5.0)


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(ended=lengths)
def test_without_cut_stays_the_curve_is_the_share_that_lasts_longer(ended):
    curve = survival_of(sample([float(hours) for hours in ended]))

    for hours, share in zip(curve.hours, curve.share, strict=True):
        assert share == pytest.approx(sum(length > hours for length in ended) / len(ended))


@given(ended=st.lists(st.integers(1, 40), max_size=40), cut=lengths)
def test_the_curve_falls_and_is_the_product_over_the_ends(ended, cut):
    curve = survival_of(sample([float(h) for h in ended], [float(h) for h in cut]))

    assert np.all(np.diff(curve.share) <= 1e-12)
    assert np.all((curve.share >= -1e-12) & (curve.share <= 1.0))
    for hours, share in zip(curve.hours, curve.share, strict=True):
        product = Fraction(1)
        for end in sorted({length for length in ended if length <= hours}):
            at_risk = sum(length >= end for length in [*ended, *cut])
            product *= 1 - Fraction(ended.count(end), at_risk)
        assert share == pytest.approx(float(product), abs=1e-12)


@given(ended=lengths, cut=lengths)
def test_a_cut_stay_never_makes_stays_look_shorter_than_if_it_had_ended(ended, cut):
    hours = [float(h) for h in ended]
    cut_hours = [float(h) for h in cut]
    with_cut = survival_of(sample(hours, cut_hours))
    all_ended = survival_of(sample(hours + cut_hours))

    assert np.all(with_cut.share >= all_ended.share - 1e-12)
