"""What was spent, as limits count it: by the bills, and by our own reckoning until they are in.

The actuator bills a slot when the next one opens, from the ledger; limits are asked before. So each
period counts as it was billed, and as it was reckoned where that is more, until its bills are known
to be in: then they alone count. What is reckoned beyond the bills is not yet settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType, Quote

Spender = tuple[str, CapacityType]
"""A tenant and a capacity type."""

Spent = dict[Spender, int]
"""Micro-USD by tenant and capacity type."""


@dataclass(slots=True)
class SpendBook:
    """Micro-USD `billed` and `reckoned` by period, a slot or several that are kept together."""

    billed: dict[int, Spent] = field(default_factory=dict)
    reckoned: dict[int, Spent] = field(default_factory=dict)
    _sums: dict[int, Spent] = field(default_factory=dict)

    def bill(self, period: int, spender: Spender, micro_usd: int) -> None:
        """Add a bill of the ledger's."""
        self._add(self.billed, period, spender, micro_usd)

    def reckon(self, period: int, spender: Spender, micro_usd: int) -> None:
        """Add what something cost by our own reckoning."""
        self._add(self.reckoned, period, spender, micro_usd)

    def settle(self, before: int) -> None:
        """All bills of the periods before this one are in.

        One of which there are none at all though something was reckoned stays as it was reckoned.
        """
        for period in [each for each in self.reckoned if each < before]:
            if self.billed.get(period) or not any(self.reckoned[period].values()):
                del self.reckoned[period]
                self._sums.clear()

    def forget(self, first: int) -> None:
        """Let go of the periods before this one."""
        for book in (self.billed, self.reckoned):
            for old in [period for period in book if period < first]:
                del book[old]
                self._sums.clear()

    def spent_since(self, first: int) -> Mapping[Spender, int]:
        """What was spent from a period on: what limits are held against."""
        if first not in self._sums:
            found = dict(self.unsettled_since(first))
            for period, by in self.billed.items():
                for spender, cost in by.items() if period >= first else ():
                    found[spender] = found.get(spender, 0) + cost
            self._sums[first] = found
        return self._sums[first]

    def unsettled_since(self, first: int) -> Mapping[Spender, int]:
        """What was reckoned beyond what is billed yet, from a period on."""
        found: Spent = {}
        for period, by in self.reckoned.items():
            billed = self.billed.get(period, {})
            for spender, cost in by.items() if period >= first else ():
                beyond = max(0, cost - billed.get(spender, 0))
                found[spender] = found.get(spender, 0) + beyond
        return found

    def _add(self, book: dict[int, Spent], period: int, spender: Spender, micro_usd: int) -> None:
        by = book.setdefault(period, {})
        by[spender] = by.get(spender, 0) + micro_usd
        self._sums.clear()


def by_capacity_type(
    micro_usd: int, lots: Iterable[Lot], quotes: Mapping[str, Quote]
) -> tuple[tuple[CapacityType, int], ...]:
    """A slot's cost split by what its lots cost at their quotes; what nothing held cost is on-demand's.

    That is what copies of checkpoints are billed as.
    """
    on_spot = on_demand = 0
    for lot in lots:
        quote = quotes.get(lot.offering_id)
        if quote is not None:
            on_spot += lot.spot * quote.spot_price_micro_usd
            on_demand += lot.on_demand * quote.on_demand_price_micro_usd
    spot = micro_usd * on_spot // max(1, on_spot + on_demand)
    return ((CapacityType.SPOT, spot), (CapacityType.ON_DEMAND, micro_usd - spot))
