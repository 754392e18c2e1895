"""Several jobs, one capacity: who may take how much."""

from __future__ import annotations

from collections.abc import Iterable

from spotline.domain.jobs.lot import Lot, holding
from spotline.domain.jobs.program import Holding
from spotline.domain.market.offering import Count
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.prediction import UNCOUNTED


class ResidualCapacity:
    """What is left of every offering while jobs are served in order.

    An unknown count counts as plenty: the cloud will refuse what is not there.
    """

    def __init__(self, quotes: Iterable[SlotQuote]) -> None:
        self._spot: dict[str, int] = {}
        self._on_demand: dict[str, int] = {}
        for slot_quote in quotes:
            quote = slot_quote.quote
            self._spot[quote.offering_id] = _known(quote.spot_available)
            self._on_demand[quote.offering_id] = _known(quote.on_demand_available)

    def spot(self, offering_id: str) -> int:
        """Spot instances left."""
        return self._spot[offering_id]

    def on_demand(self, offering_id: str) -> int:
        """On-demand instances left."""
        return self._on_demand[offering_id]

    def cap(self, offering_id: str, *, spot: int | None, on_demand: int | None) -> None:
        """Lower what is left, where a refusal has shown that there is less than was quoted.

        Of an offering that is not quoted nothing is left anyway.
        """
        if offering_id not in self._spot:
            return
        if spot is not None:
            self._spot[offering_id] = min(self._spot[offering_id], spot)
        if on_demand is not None:
            self._on_demand[offering_id] = min(self._on_demand[offering_id], on_demand)

    def take(self, lots: Iterable[Lot]) -> None:
        """Serve a job.

        Raises
        ------
        ValueError
            It takes more than is left.
        """
        for lot in lots:
            if lot.spot > self._spot[lot.offering_id]:
                raise ValueError(
                    f"spot of {lot.offering_id} must be <= available "
                    f"({self._spot[lot.offering_id]}), was {lot.spot}"
                )
            if lot.on_demand > self._on_demand[lot.offering_id]:
                raise ValueError(
                    f"on_demand of {lot.offering_id} must be <= available "
                    f"({self._on_demand[lot.offering_id]}), was {lot.on_demand}"
                )
            self._spot[lot.offering_id] -= lot.spot
            self._on_demand[lot.offering_id] -= lot.on_demand

    def take_what_is_left(self, lots: Iterable[Lot]) -> None:
        """Serve a job that may hold more than is left by now."""
        for lot in lots:
            self.take_at(lot.offering_id, holding(lot.spot, lot.on_demand))

    def take_at(self, offering_id: str, wanted: Holding) -> tuple[int, int]:
        """Take of an offering what is wanted and left; return it, spot and on-demand."""
        spot = min(wanted.spot, self._spot[offering_id])
        on_demand = min(wanted.on_demand, self._on_demand[offering_id])
        self._spot[offering_id] -= spot
        self._on_demand[offering_id] -= on_demand
        return spot, on_demand


def _known(count: Count) -> int:
    return count.instances if count.known else UNCOUNTED
