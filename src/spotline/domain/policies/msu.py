"""Maximal spot utilisation: the rule that decides when no other can."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.jobs.accounting import Held, lay_out
from spotline.domain.jobs.offer import Offer, largest_allowed
from spotline.domain.jobs.program import Holding
from spotline.domain.kernels import IntArray, part
from spotline.domain.policies.interface import Choice, Memory, PolicyView
from spotline.domain.policies.params import Params

KIND = 1


@part
def choose(offer: Offer, by_count: IntArray) -> Held:
    """Hold the largest allowed count of spot."""
    return Held(largest_allowed(by_count, offer.spot), 0)


@dataclass(frozen=True, slots=True)
class MaximalSpotUtilisation:
    """All useful spot, always; on-demand only from the last safe moment (the safety net)."""

    policy_id: str = "msu"
    needs_forecast: bool = False
    nets_soft_deadlines: bool = True
    forecast_slots: int = 0
    uses_table: bool = False

    @property
    def params(self) -> Params:
        """Its kind alone."""
        return Params(KIND)

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        """Hold the largest allowed count of spot."""
        by_count = lay_out(view.program).by_count
        spot = largest_allowed(by_count, view.spot_available)
        return Choice(holding=Holding(spot=spot), memory=memory)
