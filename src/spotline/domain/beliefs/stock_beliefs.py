"""What is believed of on-demand stock that nobody publishes: in or out, by offering.

A launch that was granted shows that there was stock in its slot, one that was refused for want of
capacity that there was none; between slots the laws pass. A gang is launched whole, so stock is told
as there or not, not counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from spotline.domain.beliefs.stock_laws import StockFamily, StockPriors
from spotline.domain.market.stock import QUANTILE_PERCENT
from spotline.domain.units import PPM

MOST_RESERVE_S = 14 * 86_400
"""A reserve is at most so long: then on-demand is taken for what cannot be had again."""

_RISK = 1.0 - QUANTILE_PERCENT / 100
# What is seen has some chance under each law.
_LEAST = 1e-12


@dataclass(slots=True, kw_only=True)
class StockBelief:
    """One offering: how likely each law is with stock there and with it out, as its slot opened.

    `there` and `out` have a figure per law and sum to 1 together. `shown_out` is what the open slot
    has shown last: a refusal, or a launch; None while there was neither. Before `cool_until_ns` the
    cloud is not asked: what is refused until then says nothing.
    """

    priors: StockPriors
    slot_s: int
    there: tuple[float, ...]
    out: tuple[float, ...]
    shown_out: bool | None = None
    cool_until_ns: int = 0

    @classmethod
    def before(cls, priors: StockPriors, family: StockFamily, slot_s: int) -> StockBelief:
        """The belief before anything is seen, for slots of `slot_s` seconds."""
        chances = [chance / PPM for chance in family.chances_ppm]
        out = [law.out_share for law in priors.laws]
        return cls(
            priors=priors,
            slot_s=slot_s,
            there=tuple(c * (1.0 - share) for c, share in zip(chances, out, strict=True)),
            out=tuple(c * share for c, share in zip(chances, out, strict=True)),
        )

    def pass_slots(self, slots: int) -> None:
        """End the open slot with what it has shown, and let so many pass."""
        there, out = self._seen()
        for _ in range(slots):
            there, out = self._onward(there, out)
        self.there, self.out, self.shown_out = there, out, None

    def out_chance(self) -> float:
        """The chance that a launch is refused in the open slot, by what it has shown."""
        return sum(self._seen()[1])

    def reserve_once_granted(self) -> int:
        """`reserve_slots`, if the next launch is granted: what a plan for longer counts on.

        What is unsure is asked for at once, and after that it is known.
        """
        granted = replace(self, shown_out=False)
        return min(self.reserve_slots(), granted.reserve_slots())

    def reserve_slots(self) -> int:
        """For how many slots a launch must be expected to wait: more have a chance of at most 5 %.

        That is judged for a launch in the next slot and for one at a time of which nothing is known.
        """
        there, out = self._seen()
        laws = [a + b for a, b in zip(there, out, strict=True)]
        by_chance = [p * law.out_share for p, law in zip(laws, self.priors.laws, strict=True)]
        return max(self._reserve(self._onward(there, out)[1]), self._reserve(tuple(by_chance)))

    def _reserve(self, out: tuple[float, ...]) -> int:
        stays = [law.stays_out(self.slot_s) for law in self.priors.laws]

        def longer(slots: int) -> float:
            """The chance that a launch waits for more slots than that."""
            return sum(p * math.pow(stay, slots) for p, stay in zip(out, stays, strict=True))

        low, high = 0, max(1, MOST_RESERVE_S // self.slot_s)
        while low < high:
            middle = (low + high) // 2
            if longer(middle) <= _RISK:
                high = middle
            else:
                low = middle + 1
        return low

    def _onward(
        self, there: tuple[float, ...], out: tuple[float, ...]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        moved_there, moved_out = [], []
        for law, a, b in zip(self.priors.laws, there, out, strict=True):
            stays_there, stays_out = law.stays(self.slot_s)
            moved_there.append(a * stays_there + b * (1.0 - stays_out))
            moved_out.append(a * (1.0 - stays_there) + b * stays_out)
        return tuple(moved_there), tuple(moved_out)

    def _seen(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The belief by what the open slot has shown."""
        if self.shown_out is None:
            return self.there, self.out
        nothing = (0.0,) * len(self.there)
        kept = self.out if self.shown_out else self.there
        total = sum(kept)
        if total < _LEAST:
            return self.there, self.out
        shares = tuple(each / total for each in kept)
        return (nothing, shares) if self.shown_out else (shares, nothing)


@dataclass(slots=True, kw_only=True)
class StockBeliefs:
    """The beliefs of all offerings whose on-demand stock nobody publishes, by offering id."""

    offerings: dict[str, StockBelief] = field(default_factory=dict)

    def opened(
        self, offering_id: str, gpu_model: str, priors: StockPriors, slot_s: int, slots: int
    ) -> None:
        """Let an offering's slots pass up to one that opens; one that is new begins."""
        known = self.offerings.get(offering_id)
        if known is None:
            family = priors.family_of(gpu_model)
            self.offerings[offering_id] = StockBelief.before(priors, family, slot_s)
        else:
            known.pass_slots(slots)

    def forget(self, offering_id: str) -> None:
        """Leave to its source what it has begun to count."""
        self.offerings.pop(offering_id, None)

    def reserve_slots(self, offering_id: str, *, ahead: bool) -> int:
        """For how many slots a launch must be expected to wait; 0 where nothing is believed.

        `ahead` is for a plan: as if the next launch were granted.
        """
        known = self.offerings.get(offering_id)
        if known is None:
            return 0
        return known.reserve_once_granted() if ahead else known.reserve_slots()

    def refused(self, offering_id: str, now_ns: int, cool_until_ns: int) -> None:
        """Take a refusal for want of capacity in the open slot; nothing where nothing is believed."""
        known = self.offerings.get(offering_id)
        if known is not None and now_ns >= known.cool_until_ns:
            known.shown_out, known.cool_until_ns = True, cool_until_ns

    def granted(self, offering_id: str) -> None:
        """Take a launch in the open slot that was granted in full."""
        known = self.offerings.get(offering_id)
        if known is not None:
            known.shown_out, known.cool_until_ns = False, 0
