"""Limits that couple the jobs of a slot beside what there is: quota pools, and what all may spend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from spotline.application.allocation.messages import AllocateRequest
from spotline.application.allocation.seats import Bidder, Seat
from spotline.domain.crowd.bids import Capacity, Option, resources_of, takes_of
from spotline.domain.market.offering import CapacityType
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLimits:
    """What all tasks of a request may hold of quota pools, and cost until the slot is over."""

    limits: Capacity
    quotes: Mapping[str, SlotQuote]
    left_s: int

    @staticmethod
    def of(request: AllocateRequest) -> SlotLimits | None:
        """The limits of a request, None where it states none."""
        if not request.quotas and request.budget_micro_usd is None:
            return None
        return SlotLimits(
            limits=Capacity(
                quota_pools={
                    offering_id: quota.quota_pool
                    for quota in request.quotas
                    for offering_id in quota.offering_ids
                },
                quotas={quota.quota_pool: quota.instances for quota in request.quotas},
                budget_micro_usd=request.budget_micro_usd,
            ),
            quotes={quoted.quote.offering_id: quoted for quoted in request.quotes},
            left_s=request.slot_s - request.offset_s,
        )

    @property
    def bounded(self) -> frozenset[str]:
        """The offerings that they bound, by id."""
        if self.limits.budget_micro_usd is not None:
            return frozenset(self.quotes)
        return frozenset(self.limits.quota_pools)

    def allow(self, chosen: Iterable[tuple[Bidder, Seat]]) -> bool:
        """Whether all may hold what they chose."""
        left = resources_of(self.limits)
        for bidder, seat in chosen:
            for key, amount in takes_of(self.told(bidder, seat.option), self.limits).items():
                left[key] -= amount
        return min(left.values()) >= 0

    def told(self, bidder: Bidder, option: Option) -> Option:
        """An option with what limits count of it: its cost, and what a deadline excepts from quotas.

        It costs what the dearest prices say that anybody says, and the copy where the job moves.
        """
        quoted = self.quotes[option.offering_id]
        place = next(p for p in bidder.places if p.offering_id == option.offering_id)
        cost = place.move_micro_usd + sum(
            cost_micro_usd(quoted.worst_price(kind), count, self.left_s)
            for kind, count in (
                (CapacityType.SPOT, option.spot),
                (CapacityType.ON_DEMAND, option.on_demand),
            )
        )
        excepted = 0 if place is not bidder.places[0] else bidder.task.excepted_on_demand
        return replace(option, cost_micro_usd=cost, excepted=min(option.on_demand, excepted))

    def bounding(self, capacity: Capacity) -> Capacity:
        """What there is, under these limits too."""
        return replace(self.limits, spot=capacity.spot, on_demand=capacity.on_demand)
