"""Who held how much for how long in a slot, and what that costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spotline.domain.canonical import canonical_as
from spotline.domain.events.capacity import CostAccrued
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import cost_micro_usd


@canonical_as("OfferingPrice", "offering_id spot_micro_usd on_demand_micro_usd")
@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingPrice:
    """An offering's prices in a slot, micro-USD per instance-hour."""

    offering_id: str
    spot_micro_usd: int
    on_demand_micro_usd: int

    def of(self, capacity_type: CapacityType) -> int:
        """The price of one capacity type."""
        spot = capacity_type is CapacityType.SPOT
        return self.spot_micro_usd if spot else self.on_demand_micro_usd


@canonical_as("SlotPrices", "slot slot_s prices")
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPrices:
    """What a slot is billed at; ordered by offering id."""

    slot: int
    slot_s: int
    prices: tuple[OfferingPrice, ...]

    def by_offering(self) -> dict[str, OfferingPrice]:
        """The prices by offering id."""
        return {price.offering_id: price for price in self.prices}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldInterval:
    """One instance inside one slot: held from `start_s` to `end_s`, seconds into the slot."""

    job_id: str
    tenant: str
    quota_pool: str
    offering_id: str
    capacity_type: CapacityType
    start_s: int
    end_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A longest stretch of a slot over which a count stays the same."""

    start_s: int
    held_s: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """A bill and where in its slot it begins; below 0 for what is no instance's."""

    start_s: int
    cost: CostAccrued


def constant_segments(steps: Iterable[tuple[int, int]], until_s: int) -> tuple[Segment, ...]:
    """Cut [first offset, `until_s`) where the count changes.

    Parameters
    ----------
    steps
        (offset_s, instances held from then on), ascending; of equal offsets the last one counts.

    Returns
    -------
    tuple of Segment
        Only those with instances; neighbours of equal count are one segment, one rounding.
    """
    counts = dict(steps)
    segments: list[Segment] = []
    start_s, current = 0, 0
    for offset_s, instances in [*counts.items(), (until_s, 0)]:
        if instances == current and offset_s < until_s:
            continue
        held_s = min(offset_s, until_s) - start_s
        if current and held_s > 0:
            segments.append(Segment(start_s=start_s, held_s=held_s, instances=current))
        start_s, current = offset_s, instances
    return tuple(segments)


def lots_cost_micro_usd(
    steps: Sequence[tuple[int, tuple[Lot, ...]]], prices: Mapping[str, OfferingPrice], slot_s: int
) -> int:
    """What one job's lots cost over a slot: the same sum as its `CostAccrued` of that slot.

    `steps` are (offset_s, lots held from then on), ascending.
    """
    if len(steps) == 1 and not steps[0][0] and len(steps[0][1]) <= 1:
        # Nearly all jobs hold one lot from the slot's first moment to its last.
        return sum(
            cost_micro_usd(prices[lot.offering_id].spot_micro_usd, lot.spot, slot_s)
            + cost_micro_usd(prices[lot.offering_id].on_demand_micro_usd, lot.on_demand, slot_s)
            for lot in steps[0][1]
        )
    total = 0
    offering_ids = sorted({lot.offering_id for _, lots in steps for lot in lots})
    for offering_id in offering_ids:
        for capacity_type in CapacityType:
            counts = [
                (offset_s, _count(lots, offering_id, capacity_type)) for offset_s, lots in steps
            ]
            for segment in constant_segments(counts, slot_s):
                price = prices[offering_id].of(capacity_type)
                total += cost_micro_usd(price, segment.instances, segment.held_s)
    return total


def bill(
    intervals: Iterable[HeldInterval], prices: SlotPrices, *, until_s: int | None = None
) -> tuple[Charge, ...]:
    """Bill what was held in a slot, up to `until_s` where given.

    One charge and one rounding per (job, offering, capacity type, segment), ordered by these.
    """
    until_s = prices.slot_s if until_s is None else until_s
    price_of = prices.by_offering()
    groups: dict[tuple[str, str, str], list[HeldInterval]] = {}
    for held in intervals:
        key = (held.job_id, held.offering_id, held.capacity_type.value)
        groups.setdefault(key, []).append(held)
    charges: list[Charge] = []
    for _, group in sorted(groups.items()):
        first = group[0]
        for segment in constant_segments(_steps(group), until_s):
            price = price_of[first.offering_id].of(first.capacity_type)
            cost = CostAccrued(
                job_id=first.job_id,
                tenant=first.tenant,
                offering_id=first.offering_id,
                quota_pool=first.quota_pool,
                capacity_type=first.capacity_type,
                slot=prices.slot,
                instances=segment.instances,
                held_s=segment.held_s,
                price_micro_usd=price,
                cost_micro_usd=cost_micro_usd(price, segment.instances, segment.held_s),
            )
            charges.append(Charge(start_s=segment.start_s, cost=cost))
    return tuple(charges)


def _count(lots: Iterable[Lot], offering_id: str, capacity_type: CapacityType) -> int:
    spot = capacity_type is CapacityType.SPOT
    return sum(
        lot.spot if spot else lot.on_demand for lot in lots if lot.offering_id == offering_id
    )


def _steps(intervals: Iterable[HeldInterval]) -> list[tuple[int, int]]:
    changes: dict[int, int] = {}
    for held in intervals:
        changes[held.start_s] = changes.get(held.start_s, 0) + 1
        changes[held.end_s] = changes.get(held.end_s, 0) - 1
    steps: list[tuple[int, int]] = []
    instances = 0
    for offset_s, change in sorted(changes.items()):
        instances += change
        steps.append((offset_s, instances))
    return steps
