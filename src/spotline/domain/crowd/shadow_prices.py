"""Shadow prices: what spot is worth to a crowd beyond what it costs, as its slots were cleared of late.

A value table is solved as if its job were alone. Where many compete, an instance of spot that a job
takes in a slot to come is one that another cannot have: it costs the dual of capacity more than its
price. The mean of the duals of the slots cleared so far estimates that. Control by such bid prices,
found again and again, is asymptotically optimal as jobs and capacity grow together (Talluri and van
Ryzin, Management Science 44(11), 1998; Jasin and Kumar, Mathematics of Operations Research 37(2), 2012).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Slots whose worths are averaged: a day of half-hour slots.
MEAN_SLOTS = 48
# Prices are multiples of this share of the on-demand price: few distinct tables, each kept for long.
PRICE_STEPS = 16


@dataclass(slots=True, kw_only=True)
class ShadowPrices:
    """What was published last, and the worths behind it; micro-USD per instance-hour, by offering.

    `worths` are by slot, of the last `MEAN_SLOTS`; `first_slot` is the first that was cleared (-1:
    none yet).
    """

    published: dict[str, int] = field(default_factory=dict)
    worths: dict[int, Mapping[str, int]] = field(default_factory=dict)
    first_slot: int = -1

    def note(self, slot: int, worths: Mapping[str, int]) -> None:
        """Take what one more instance of spot was worth in a slot; of what is not named there was enough."""
        if self.first_slot < 0:
            self.first_slot = slot
        self.worths[slot] = worths
        for old in [old for old in self.worths if old <= slot - MEAN_SLOTS]:
            del self.worths[old]

    def moved(self, slot: int, on_demand_prices: Mapping[str, int]) -> dict[str, int] | None:
        """The prices after a slot, None where those that are published are still near enough.

        A price moves when the mean is more than a step away from it, and is never above what
        on-demand costs: beyond that nobody would take spot. In slots in which nothing was cleared
        spot was worth nothing more.

        Parameters
        ----------
        slot
            The last slot that counts.
        on_demand_prices
            Micro-USD per instance-hour, of every offering that is quoted.
        """
        if self.first_slot < 0:
            return None
        slots = min(MEAN_SLOTS, slot - self.first_slot + 1)
        recent = [worths for at, worths in self.worths.items() if at > slot - MEAN_SLOTS]
        prices: dict[str, int] = {}
        for offering_id in sorted(on_demand_prices):
            dearest = on_demand_prices[offering_id]
            mean = min(sum(worths.get(offering_id, 0) for worths in recent) // slots, dearest)
            price = _stepped(
                mean, self.published.get(offering_id, 0), max(1, dearest // PRICE_STEPS)
            )
            if price:
                prices[offering_id] = price
        return None if prices == self.published else prices

    def copied(self) -> ShadowPrices:
        """The same, that no later event changes."""
        return ShadowPrices(
            published=dict(self.published), worths=dict(self.worths), first_slot=self.first_slot
        )


def _stepped(mean: int, published: int, step: int) -> int:
    """A price in steps: the one that is published, unless the mean has left it, or is next to nothing."""
    if abs(mean - published) <= step and (not published or 2 * mean >= step):
        return published
    return (mean + step // 2) // step * step
