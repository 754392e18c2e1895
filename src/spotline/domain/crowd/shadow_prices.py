"""Shadow prices: what spot is worth to a crowd beyond what it costs, as its slots were cleared of late.

A value table is solved as if its job were alone. Where many compete, an instance of spot that a job
takes in a slot to come is one that another cannot have: it costs the dual of capacity more than its
price. The mean of the duals of the slots cleared so far estimates that. Control by such bid prices,
found again and again, is asymptotically optimal as jobs and capacity grow together (Talluri and van
Ryzin, Management Science 44(11), 1998; Jasin and Kumar, Mathematics of Operations Research 37(2), 2012).

A mean of few bids says little. It counts by what it was learned from, and what is expected of the slots to come
(`fluid.py`) for the rest: credibility (Buehlmann, ASTIN Bulletin 4(3), 1967). A fluid knows its future, and no
launches and whole gangs: spot is worth that or more, so what is expected only raises a mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Slots whose worths are averaged: a day of half-hour slots.
MEAN_SLOTS = 48
# Slots whose worths say where it is crowded now: half of that is left four slots later.
LATE_SLOTS = 4
# Prices are multiples of this share of the on-demand price: few distinct tables, each kept for long.
PRICE_STEPS = 16
# Bids of all those slots from which on their mean counts for more than what is expected: of 15 jobs a day.
CREDIBLE_BIDS = 700
# What would count for less than this share of a price is not looked for.
_LEAST_SHARE = 0.05


@dataclass(slots=True, kw_only=True)
class ShadowPrices:
    """What was published last, and what it is made of: micro-USD per instance-hour, by offering.

    `counts` (spot instances), `worths` and `bids` (jobs that bid) are by slot, of the last `MEAN_SLOTS`,
    from the first that was cleared on.
    """

    published: dict[str, int] = field(default_factory=dict)
    counts: dict[int, Mapping[str, int]] = field(default_factory=dict)
    worths: dict[int, Mapping[str, int]] = field(default_factory=dict)
    bids: dict[int, int] = field(default_factory=dict)

    def open(self, slot: int, counts: Mapping[str, int]) -> None:
        """Take how much spot there is in a slot; until it is cleared, more of it is worth nothing."""
        self.counts[slot] = counts
        oldest = slot - MEAN_SLOTS if self.worths else slot - 1
        for old in [old for old in self.counts if old <= oldest]:
            del self.counts[old]
            self.worths.pop(old, None)
            self.bids.pop(old, None)

    def note(self, slot: int, worths: Mapping[str, int], bids: int = 0) -> None:
        """Take what one more instance of spot was worth in a slot; of what is not named there was enough."""
        self.worths[slot] = worths
        self.bids[slot] = bids

    @property
    def expected_share(self) -> float:
        """What expected worths count for in a price; 0 where that would be next to nothing."""
        share = CREDIBLE_BIDS / (CREDIBLE_BIDS + sum(self.bids.values()))
        return share if share >= _LEAST_SHARE else 0.0

    def moved(
        self, on_demand_prices: Mapping[str, int], expected: Mapping[str, int] | None = None
    ) -> dict[str, int] | None:
        """The prices now, None where those that are published are still near enough.

        The mean is that of an instance of spot: slots with more of it count for more, those without
        for nothing. A price moves when the mean is more than a step away from it, and is never above
        what on-demand costs: beyond that nobody would take spot.

        Parameters
        ----------
        on_demand_prices
            Micro-USD per instance-hour, of every offering that is quoted.
        expected
            What spot is expected to be worth in the slots to come, micro-USD per instance-hour; what is
            not named has no price but by its mean. None: means alone count.
        """
        share = 0.0 if expected is None else self.expected_share
        prices: dict[str, int] = {}
        for offering_id in sorted(on_demand_prices):
            dearest = on_demand_prices[offering_id]
            mean = self._mean(offering_id)
            if expected is not None and offering_id in expected:
                mean += round(share * max(0, expected[offering_id] - mean))
            mean = min(mean, dearest)
            price = _stepped(
                mean, self.published.get(offering_id, 0), max(1, dearest // PRICE_STEPS)
            )
            if price:
                prices[offering_id] = price
        return None if prices == self.published else prices

    def _mean(self, offering_id: str) -> int:
        """What an instance of an offering's spot was worth in the mean; 0 where there was none."""
        there = total = 0
        for slot, counts in self.counts.items():
            count = counts.get(offering_id, 0)
            there += count
            total += count * self.worths.get(slot, {}).get(offering_id, 0)
        return total // there if there else 0

    def lately(self, offering_id: str, slots: int = LATE_SLOTS) -> int:
        """What an instance of an offering's spot was worth in the last slots, not yet in steps.

        Where there was none in them, that is what is published.
        """
        there = total = 0
        for slot in sorted(self.worths)[-slots:]:
            count = self.counts.get(slot, {}).get(offering_id, 0)
            there += count
            total += count * self.worths[slot].get(offering_id, 0)
        return total // there if there else self.published.get(offering_id, 0)

    def copied(self) -> ShadowPrices:
        """The same, that no later event changes."""
        return ShadowPrices(
            published=dict(self.published),
            counts=dict(self.counts),
            worths=dict(self.worths),
            bids=dict(self.bids),
        )


def _stepped(mean: int, published: int, step: int) -> int:
    """A price in steps: the one that is published, unless the mean has left it, or is next to nothing."""
    if abs(mean - published) <= step and (not published or 2 * mean >= step):
        return published
    return (mean + step // 2) // step * step
