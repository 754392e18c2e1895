"""How old a quote may be, by the pace of its source."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.limits.quote_age import AgeRule, QuotePace
from spotline.domain.units import NS_PER_S, S_PER_HOUR

RULE = AgeRule()
silences = st.lists(st.integers(1, 10 * 24 * S_PER_HOUR), max_size=60)


def followed(said: list[int], rule: AgeRule = RULE) -> QuotePace:
    pace = QuotePace()
    for at_s in accumulate(said, initial=0):
        pace.note(at_s * NS_PER_S, rule)
    return pace


@given(silences, st.integers(60, 4 * S_PER_HOUR))
def test_the_limit_is_twice_the_longest_silence_of_a_week_within_its_bounds(
    said: list[int], slot_s: int
) -> None:
    limit_s = followed(said).limit_s(slot_s, RULE)

    least_s = max(RULE.least_s, 4 * slot_s)
    ends = list(accumulate(said))
    if len(said) < RULE.first_silences:
        assert limit_s == max(least_s, RULE.first_s)
    else:
        longest = max(s for s, end in zip(said, ends, strict=True) if end >= ends[-1] - 7 * 86_400)
        assert limit_s == max(least_s, min(2 * longest, RULE.most_s))


@given(silences)
def test_what_is_said_again_or_late_changes_nothing(said: list[int]) -> None:
    pace = followed(said)
    before = pace.limit_s(600, RULE)
    assert pace.said_ns is not None

    pace.note(pace.said_ns, RULE)
    pace.note(0, RULE)

    assert pace.limit_s(600, RULE) == before


def test_a_source_that_speaks_once_a_day_may_be_silent_for_two() -> None:
    assert followed([24 * S_PER_HOUR] * 9).limit_s(1800, RULE) == 48 * S_PER_HOUR


def test_a_stated_age_holds() -> None:
    assert (
        followed([600] * 20, AgeRule(stale_after_s=90)).limit_s(600, AgeRule(stale_after_s=90))
        == 90
    )
    with pytest.raises(ValueError, match="stale_after_s must be >= 0, was -1"):
        AgeRule(stale_after_s=-1)
