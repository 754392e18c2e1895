"""What a month of the calendar has cost, and costs if it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.page.months import PACE_S, month_spend
from spotline.domain.units import NS_PER_S

SLOT_S = 3600
DAY = 24


class Charge(NamedTuple):
    slot: int
    cost_micro_usd: int


@dataclass
class Market:
    """A market of hours that begins at a moment; `slot` is open."""

    begins: datetime
    slot: int

    def start_ns(self, slot: int) -> int:
        return (int(self.begins.timestamp()) + slot * SLOT_S) * NS_PER_S

    @property
    def now_ns(self) -> int:
        return self.start_ns(self.slot)


def ns(*at: int) -> int:
    return int(datetime(*at, tzinfo=UTC).timestamp()) * NS_PER_S


def test_a_month_is_the_calendars_and_goes_on_at_the_pace_of_its_last_week():
    # From 20 January; it is 11 February, 00:00.
    market = Market(datetime(2026, 1, 20, tzinfo=UTC), 22 * DAY)
    charges = [Charge(slot, 1_000_000) for slot in range(22 * DAY)]
    charges += [Charge(slot, 2_000_000) for slot in range(15 * DAY, 22 * DAY)]

    month = month_spend(market, charges)

    assert (month.begin_ns, month.end_ns) == (ns(2026, 2, 1), ns(2026, 3, 1))
    assert month.before_micro_usd == 12 * DAY * 1_000_000
    assert month.charged_micro_usd == (10 * DAY + 2 * 7 * DAY) * 1_000_000
    assert (month.pace_s, month.left_s) == (PACE_S, 18 * 86_400)
    assert month.expected_micro_usd == month.charged_micro_usd + 18 * DAY * 3_000_000


@given(
    begins=st.integers(ns(2020, 1, 1) // NS_PER_S // SLOT_S, ns(2035, 1, 1) // NS_PER_S // SLOT_S),
    slot=st.integers(0, 2_000),
    slots=st.lists(st.integers(0, 2_000), max_size=30),
)
def test_every_charge_counts_for_one_month_at_most(begins, slot, slots):
    market = Market(datetime.fromtimestamp(begins * SLOT_S, UTC), slot)
    charges = [Charge(at, 7) for at in slots if at <= slot]
    month = month_spend(market, charges)

    assert month.begin_ns <= market.now_ns < month.end_ns
    assert month.charged_micro_usd + month.before_micro_usd <= 7 * len(charges)
    assert month.expected_micro_usd is None or month.expected_micro_usd >= month.charged_micro_usd


@pytest.mark.parametrize("slot", [-1, 0])
def test_before_anything_was_charged_nothing_is_expected(slot):
    month = month_spend(Market(datetime(2026, 12, 31, tzinfo=UTC), slot), [])

    if slot < 0:
        assert month is None
    else:
        assert (month.expected_micro_usd, month.end_ns) == (None, ns(2027, 1, 1))
