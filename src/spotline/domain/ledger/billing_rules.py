"""What one instance costs in the end, as its provider bills it: exact integers, rounded once.

Bills by the slot (`billing.bill`) are estimates: what is held from a grant to a release, at the price of
each slot. What a provider demands goes by the instance's own life.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from spotline.domain.market.offering import BillingRules, CapacityType
from spotline.domain.units import NS_PER_S, S_PER_HOUR

BILLED_BY_THE_SECOND = BillingRules()
"""What an offering that states no rules is billed by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """From `from_s` on an instance-hour costs `micro_usd`; seconds since the epoch."""

    from_s: int
    micro_usd: int

    def __post_init__(self) -> None:
        if self.micro_usd < 0:
            raise ValueError(f"micro_usd must be >= 0, was {self.micro_usd}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledLife:
    """From when until when a provider bills an instance, and who ended it.

    Parameters
    ----------
    begin_s, end_s
        Seconds since the epoch: from when it runs, and from when it shuts down.
    taken_back
        The provider took it back; otherwise it was ended by its user.
    """

    capacity_type: CapacityType
    begin_s: int
    end_s: int
    taken_back: bool = False

    def __post_init__(self) -> None:
        if self.end_s < self.begin_s:
            raise ValueError(f"end_s must be >= begin_s ({self.begin_s}), was {self.end_s}")

    @property
    def ran_s(self) -> int:
        """For how long it ran."""
        return self.end_s - self.begin_s


def is_free(rules: BillingRules, life: BilledLife) -> bool:
    """Whether it costs nothing: spot that was taken back soon enough."""
    spot = life.capacity_type is CapacityType.SPOT
    return spot and life.taken_back and life.ran_s < rules.free_if_taken_within_s


def billed_until_s(rules: BillingRules, life: BilledLife) -> int:
    """Up to which second it is billed: its begin, where it costs nothing."""
    if is_free(rules, life):
        return life.begin_s
    return max(life.end_s, life.begin_s + rules.least_s)


def life_cost_micro_usd(
    rules: BillingRules, life: BilledLife, changes: Sequence[PriceChange]
) -> int:
    """What an instance's whole life costs, micro-USD, rounded half up once.

    Each second costs the price in force when it begins, those that a minimum adds among them.

    Parameters
    ----------
    changes
        Prices in order of time; the first is in force when the life begins, or before.

    Raises
    ------
    ValueError
        They are not in order, or none is in force when the life begins.
    """
    starts = [change.from_s for change in changes]
    if any(after < before for before, after in pairwise(starts)):
        raise ValueError(f"changes must be in order of time, were {starts}")
    first = bisect_right(starts, life.begin_s) - 1
    if first < 0:
        begins = f"the first begins at {starts[0]}" if starts else "there is none"
        raise ValueError(f"changes must begin by {life.begin_s}, where the life does: {begins}")
    until_s = billed_until_s(rules, life)
    total, at_s, price = 0, life.begin_s, changes[first].micro_usd
    for change in changes[first + 1 :]:
        if change.from_s >= until_s:
            break
        total += price * (change.from_s - at_s)
        at_s, price = change.from_s, change.micro_usd
    total += price * (until_s - at_s)
    return (total + S_PER_HOUR // 2) // S_PER_HOUR


def costs_nothing_if_taken_at(rules: BillingRules, begun_ns: int, taken_ns: int) -> bool:
    """Whether spot that began then costs nothing where its provider takes it back at that moment.

    To end it ourselves would cost the seconds that it ran: what is under notice is left to be taken.
    """
    return taken_ns - begun_ns < rules.free_if_taken_within_s * NS_PER_S
