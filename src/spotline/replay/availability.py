"""Less to be had than there was: what if an offering, a cloud, or half of everything had been gone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from spotline.contracts.errors import ContractError
from spotline.domain.market.market import INFERRED, UNKNOWN, IntArray, Market


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """What is gone: nothing by default.

    `gone_offering` has neither spot nor on-demand from `first_slot` to `last_slot` of the log, both
    inside; None: from its beginning, to its end. `gone_cloud` is a provider that has nothing at all.
    `count_factor` scales every count that is known, downwards where that is no whole number.
    """

    gone_offering: str = ""
    first_slot: int | None = None
    last_slot: int | None = None
    gone_cloud: str = ""
    count_factor: Fraction = Fraction(1)

    @property
    def changes(self) -> bool:
        """Whether anything is other than it was."""
        return bool(self.gone_offering or self.gone_cloud) or self.count_factor != 1

    def describe(self) -> list[str]:
        """What is changed, a phrase each."""
        said = []
        if self.gone_offering:
            when = ""
            if self.first_slot is not None:
                when += f" from slot {self.first_slot}"
            if self.last_slot is not None:
                when += f" to slot {self.last_slot}"
            said.append(f"{self.gone_offering} gone{when or ' all the time'}")
        if self.gone_cloud:
            said.append(f"all regions of {self.gone_cloud} gone")
        if self.count_factor != 1:
            said.append(f"counts that are known x {float(self.count_factor):g}")
        return said

    def market(self, market: Market, *, first_slot: int = 0) -> Market:
        """The market with less in it.

        Parameters
        ----------
        first_slot
            The log's number of the market's first slot.

        Raises
        ------
        ContractError
            No offering, or no provider, of the market is called so, or the slots lie outside it.
        """
        if not self.changes:
            return market
        gone = np.zeros((market.slots, len(market.offerings)), dtype=bool)
        if self.gone_offering:
            column = [each.offering_id == self.gone_offering for each in market.offerings]
            _check("offering", self.gone_offering, [each.offering_id for each in market.offerings])
            begin = 0 if self.first_slot is None else self.first_slot - first_slot
            end = market.slots if self.last_slot is None else self.last_slot - first_slot + 1
            if not 0 <= begin < end or begin >= market.slots:
                raise ContractError(
                    "slots",
                    f"expected slots between {first_slot} and {first_slot + market.slots - 1}, the "
                    f"first no later than the last, found {self.first_slot} to {self.last_slot}",
                )
            gone[begin:end, column] = True
        if self.gone_cloud:
            _check("cloud", self.gone_cloud, [each.provider for each in market.offerings])
            gone[:, [each.provider == self.gone_cloud for each in market.offerings]] = True
        spot, spot_known = self._left(market.spot_available, market.spot_provenance, gone)
        own, own_known = self._left(market.on_demand_available, market.on_demand_provenance, gone)
        return replace(
            market,
            spot_available=spot,
            spot_provenance=spot_known,
            on_demand_available=own,
            on_demand_provenance=own_known,
        )

    def assumption(self, market: Market) -> str:
        """What a share of counts leaves as it is, empty for nothing: a count that nobody knows."""
        unknown = int((market.spot_provenance == UNKNOWN).sum())
        if self.count_factor == 1 or not unknown:
            return ""
        share = 100.0 * unknown / market.spot_provenance.size
        return f"{share:.0f} % of the counts of spot are not known in this log: they are not scaled"

    def _left(
        self, counts: IntArray, provenance: IntArray, gone: np.ndarray
    ) -> tuple[IntArray, IntArray]:
        scaled = counts * self.count_factor.numerator // self.count_factor.denominator
        left = np.where(provenance == UNKNOWN, counts, scaled)
        return (
            np.where(gone, 0, left).astype(np.int64),
            np.where(gone, INFERRED, provenance).astype(provenance.dtype),
        )


ALL_THERE = Availability()
"""Nothing is gone."""


def _check(what: str, name: str, known: list[str]) -> None:
    if name not in known:
        names = ", ".join(sorted(set(known))[:20])
        raise ContractError(what, f"expected one of {names}, found {name!r}")
