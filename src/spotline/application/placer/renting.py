"""What regions' GPUs are rented as: instances, what there is of them, and since when.

Pipelines are placed by GPU, clouds rent instances. A share is rounded up to whole instances of its
own: no two pipelines share one, for a ledger row has one owner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spotline.domain.events.capacity import CapacityReported, SlotDecided
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.jobs.lot import Lot
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.placement.graph import Region
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.units import NS_PER_S, usd_from_micro_usd

# Slots at most before a pipeline that was refused asks again.
_LONGEST_WAIT_SLOTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Rental:
    """A region's offering with its latest quote."""

    offering: Offering
    quote: Quote
    spot: bool

    @property
    def usd_per_gpu_hour(self) -> float:
        """What one of its GPUs is quoted at."""
        quote = self.quote
        price = quote.spot_price_micro_usd if self.spot else quote.on_demand_price_micro_usd
        return usd_from_micro_usd(price) / self.offering.gpus_per_instance

    def instances(self, gpus: int) -> int:
        """Whole instances that hold `gpus` GPUs."""
        return -(-gpus // self.offering.gpus_per_instance)

    @property
    def kind(self) -> tuple[str, bool]:
        """Offering, and whether as spot: what is counted together."""
        return self.offering.offering_id, self.spot

    def whole_gpus(self, gpus: int) -> int:
        """The GPUs of those instances."""
        return self.instances(gpus) * self.offering.gpus_per_instance

    def lot(self, gpus: int) -> Lot:
        """What to hold for `gpus` GPUs."""
        instances = self.instances(gpus)
        return Lot(
            offering_id=self.offering.offering_id,
            spot=instances if self.spot else 0,
            on_demand=0 if self.spot else instances,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a pipeline was last told to hold of an offering; `carried` once a revision took it."""

    lot: Lot
    command_id: str
    quota_pool: str
    carried: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Until when a pipeline that was refused does not ask again; the wait doubles each time."""

    until_slot: int
    wait_slots: int


@dataclass(slots=True, kw_only=True)
class RentedCapacity:
    """What the market and the cloud say of what can be rented; `slot` is -1 before the first.

    `decided` says that the open slot's revision is out, so that what is commanded now goes with a
    later one; `revision_ns` is the moment it acts at. `limits` hold for the open slot: of what the
    cloud refused or took, pipelines have that count of instances and get no more.
    """

    offerings: dict[str, Offering] = field(default_factory=dict)
    quotes: dict[str, Quote] = field(default_factory=dict)
    slot: int = -1
    slot_s: int = 0
    opened_ns: int = 0
    last: bool = False
    decided: bool = False
    revision_ns: int = 0
    limits: dict[tuple[str, bool], int] = field(default_factory=dict)

    def open_market(self, event: MarketOpened) -> None:
        """Learn which offerings there are."""
        self.offerings = {offering.offering_id: offering for offering in event.offerings}

    def open_slot(self, event: SlotOpened) -> None:
        """Take a slot's quotes."""
        self.slot, self.slot_s, self.opened_ns = event.slot, event.slot_s, event.ts_event_ns
        self.last, self.decided, self.revision_ns = event.last, False, event.ts_event_ns
        self.quotes = {
            slot_quote.quote.offering_id: slot_quote.quote for slot_quote in event.quotes
        }
        self.limits = {}

    def note_decided(self, event: SlotDecided) -> bool:
        """A revision is out; whether it is one that the actuator carries out."""
        if event.slot != self.slot:
            return False
        self.decided = True
        self.revision_ns = self.opened_ns + event.offset_s * NS_PER_S
        return True

    def note_report(self, event: CapacityReported) -> None:
        """A slot that is not settled is decided once more."""
        if event.slot == self.slot and not event.settled:
            self.decided = False

    def next_revision_ns(self, now_ns: int) -> int:
        """When what is commanded now will be launched."""
        if self.slot < 0:
            return now_ns
        opens_ns = self.opened_ns + self.decided * self.slot_s * NS_PER_S
        return max(now_ns, opens_ns)

    def rental(self, region: Region) -> Rental | None:
        """What a region is rented as; None where it names nothing, or nothing that is quoted."""
        offering = self.offerings.get(region.offering_id)
        quote = self.quotes.get(region.offering_id)
        if offering is None or quote is None:
            return None
        return Rental(offering=offering, quote=quote, spot=region.spot)

    def available(self, rental: Rental, held: int) -> float:
        """Instances that pipelines can have in all, those `held` included; may be infinite.

        Spot beyond the quoted count is taken back; on-demand that is held stays.
        """
        count = rental.quote.spot_available if rental.spot else rental.quote.on_demand_available
        there: float = count.instances if count.known else math.inf
        if not rental.spot:
            there = max(there, held)
        if self.last and self.decided:
            there = min(there, held)  # nothing is launched any more
        return min(there, self.limits.get((rental.offering.offering_id, rental.spot), math.inf))


def backed_off(before: Backoff | None, slot: int) -> Backoff:
    """How long to wait after a refusal; one in the same wait does not count twice."""
    wait_slots = 1 if before is None else before.wait_slots
    if before is not None and slot >= before.until_slot:
        wait_slots = min(2 * wait_slots, _LONGEST_WAIT_SLOTS)
    return Backoff(until_slot=slot + wait_slots, wait_slots=wait_slots)


def covers(held: Lot | None, lot: Lot) -> bool:
    """Whether all of `lot` is held."""
    return lot.spot <= (held.spot if held else 0) and lot.on_demand <= (
        held.on_demand if held else 0
    )


def lots_of(placement: Placement | None, rentals: Mapping[str, Rental]) -> dict[str, Lot]:
    """What a placement has to hold, by offering; regions that are not rented need nothing."""
    lots: dict[str, Lot] = {}
    for share in placement.path if placement is not None else ():
        rental = rentals.get(share.region_id)
        if rental is None:
            continue
        lot = rental.lot(share.gpus)
        before = lots.get(lot.offering_id, Lot(offering_id=lot.offering_id))
        lots[lot.offering_id] = Lot(
            offering_id=lot.offering_id,
            spot=before.spot + lot.spot,
            on_demand=before.on_demand + lot.on_demand,
        )
    return lots


def on_whole_instances(placement: Placement, rentals: Mapping[str, Rental]) -> Placement:
    """The placement with all the GPUs that no other can have because of it."""
    path = tuple(
        RegionShare(region_id=share.region_id, gpus=rentals[share.region_id].whole_gpus(share.gpus))
        if share.region_id in rentals
        else share
        for share in placement.path
    )
    return placement if path == placement.path else replace(placement, path=path)
