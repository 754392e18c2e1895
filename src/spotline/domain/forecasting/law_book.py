"""The past of every offering, and the laws learned from it as it grows."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.state_format import pack, unpack
from spotline.domain.market.law import MarketLaw, choose_space, learn_laws
from spotline.domain.market.law_drift import changed_at
from spotline.domain.market.learning_rules import FIRST_RULES, LearningRules
from spotline.domain.market.offering import is_reserved
from spotline.domain.market.prior_laws import NO_PRIORS, SLOT_S, PriorLaws
from spotline.domain.units import PPM

# Counts beyond what jobs use are alike; a job that wants more sees the level of this one.
MOST_INSTANCES = 32
# Six weeks of half-hour slots: older habits of a market say little about it.
MOST_SLOTS = 2016
# The first law comes with the prior's help after a few slots, later ones every half day.
FIRST_AFTER_SLOTS = 6
EVERY_SLOTS = 24
# With laws from elsewhere there is something to say at once, and each slot of the first hours
# moves it.
EARLY_SLOTS = (1, 2, 3, 4, 6, 8, 12, 16, 20)

_NAME, _VERSIONS = "law book", {"format": "5"}


@dataclass(slots=True, kw_only=True)
class LawBook:
    """Spot counts and prices of every offering, slot by slot.

    Feed it every slot in order. Slots of unknown count leave no trace. What offerings show is lent
    to each other, except by `reserved` ones: that these have no spot says nothing of a market.

    Where its `learning` says so, what an offering did before its law changed is forgotten whenever laws are
    due.
    """

    learning: LearningRules = FIRST_RULES
    slots: int = 0
    counts: dict[str, list[int]] = field(default_factory=dict)
    price_ppm: dict[str, list[int]] = field(default_factory=dict)
    reserved: set[str] = field(default_factory=set)

    def observe(self, opened: SlotOpened) -> None:
        """Take in one slot."""
        self.slots += 1
        for slot_quote in opened.quotes:
            quote = slot_quote.quote
            if not quote.spot_available.known:
                continue
            counts = self.counts.setdefault(quote.offering_id, [])
            prices = self.price_ppm.setdefault(quote.offering_id, [])
            counts.append(quote.spot_available.instances)
            if is_reserved(quote):
                self.reserved.add(quote.offering_id)
                prices.append(PPM)
            else:
                prices.append(quote.spot_price_micro_usd * PPM // quote.on_demand_price_micro_usd)
            del counts[:-MOST_SLOTS], prices[:-MOST_SLOTS]
        if self.learning.watch_laws and self.is_due():
            for name in sorted(self.counts.keys() - self.reserved):
                self._forget_earlier_law(name)

    def _forget_earlier_law(self, name: str) -> None:
        counts = np.array(self.counts[name], dtype=np.int64)
        prices = np.array(self.price_ppm[name], dtype=np.int64)
        space = choose_space(
            counts, prices, most_instances=MOST_INSTANCES, whole_gangs=self.learning.whole_gangs
        )
        since = changed_at(space, counts, prices)
        del self.counts[name][:since], self.price_ppm[name][:since]

    def is_due(self, priors: PriorLaws = NO_PRIORS) -> bool:
        """Whether laws should be learned again with the slot taken in last."""
        if priors and self.slots in EARLY_SLOTS:
            return True
        past = self.slots - FIRST_AFTER_SLOTS
        return past == 0 or (past > 0 and self.slots % EVERY_SLOTS == 0)

    def learn(self, priors: PriorLaws = NO_PRIORS, *, slot_s: int = SLOT_S) -> dict[str, MarketLaw]:
        """The law of every offering with a known past, by offering id.

        Slots have `slot_s` seconds, which matters to `priors` alone.
        """
        past = {name: (counts, self.price_ppm[name]) for name, counts in self.counts.items()}
        traded = {name: of for name, of in past.items() if name not in self.reserved}
        lends = priors.lends(slot_s) if priors else None
        laws = learn_laws(
            traded,
            most_instances=MOST_INSTANCES,
            elsewhere=lends,
            learning=self.learning,
        )
        for name in sorted(self.reserved):
            laws.update(learn_laws({name: past[name]}, most_instances=MOST_INSTANCES))
        return laws

    def __post_init__(self) -> None:
        """Refuse pasts of counts and prices that do not belong together, by `ValueError`."""
        if {name: len(counts) for name, counts in self.counts.items()} != {
            name: len(prices) for name, prices in self.price_ppm.items()
        }:
            raise ValueError("every known count must have its price")
        if not self.reserved <= {*self.counts}:
            raise ValueError("what is reserved must have a past")

    def dump(self) -> bytes:
        """Freeze the past; `load` restores it."""
        return pack(_NAME, _VERSIONS, self, LawBook)

    @classmethod
    def load(cls, dumped: bytes) -> LawBook:
        """Restore what `dump` wrote; `ValueError` where these bytes are something else."""
        book: LawBook = unpack(_NAME, _VERSIONS, dumped, LawBook)
        return book
