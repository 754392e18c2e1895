"""What regions' GPUs are rented as: instances, what there is of them, and since when.

Pipelines are placed by GPU, clouds rent instances. A share is rounded up to whole instances of its
own: no two pipelines share one, for a ledger row has one owner.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from spotline.domain.events import CapacityReported, Lot, MarketOpened, SlotOpened
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.placement.graph import Region
from spotline.domain.placement.pipeline import Placement, RegionShare
from spotline.domain.units import NS_PER_S, usd_from_micro_usd

# So many slots at most before a cloud that refused is believed again.
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
        """Whole instances that hold so many GPUs."""
        return -(-gpus // self.offering.gpus_per_instance)

    def whole_gpus(self, gpus: int) -> int:
        """The GPUs of those instances."""
        return self.instances(gpus) * self.offering.gpus_per_instance

    def lot(self, gpus: int) -> Lot:
        """What to hold for so many GPUs."""
        instances = self.instances(gpus)
        return Lot(
            offering_id=self.offering.offering_id,
            spot=instances if self.spot else 0,
            on_demand=0 if self.spot else instances,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """What a pipeline was last told to hold of an offering, less what it did not get or lost."""

    lot: Lot
    command_id: str
    quota_pool: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """The cloud gave pipelines so many instances and no more; believed before `until_slot`.

    `wait_slots` doubles with every refusal after a wait, so that nobody asks in vain for ever.
    """

    instances: int
    until_slot: int
    wait_slots: int


@dataclass(slots=True, kw_only=True)
class RentedCapacity:
    """What the market and the cloud say of what can be rented; `slot` is -1 before the first."""

    offerings: dict[str, Offering] = field(default_factory=dict)
    quotes: dict[str, Quote] = field(default_factory=dict)
    slot: int = -1
    slot_s: int = 0
    opened_ns: int = 0
    settled: bool = False
    shortages: dict[tuple[str, bool], Shortage] = field(default_factory=dict)

    def open_market(self, event: MarketOpened) -> None:
        """Learn which offerings there are."""
        self.offerings = {one.offering_id: one for one in event.offerings}

    def open_slot(self, event: SlotOpened) -> None:
        """Take a slot's quotes."""
        self.slot, self.slot_s, self.opened_ns = event.slot, event.slot_s, event.ts_event_ns
        self.settled = False
        self.quotes = {one.quote.offering_id: one.quote for one in event.quotes}

    def note_report(self, event: CapacityReported) -> None:
        """A settled slot launches nothing any more."""
        if event.slot == self.slot:
            self.settled = event.settled

    def next_revision_ns(self, now_ns: int) -> int:
        """When what is commanded now will be launched."""
        if self.slot < 0:
            return now_ns
        opens_ns = self.opened_ns + self.settled * self.slot_s * NS_PER_S
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
        shortage = self.shortages.get((rental.offering.offering_id, rental.spot))
        if shortage is not None and self.slot < shortage.until_slot:
            there = min(there, shortage.instances)
        return there

    def note_shortage(self, offering_id: str, *, spot: bool, held: int, refused: bool) -> None:
        """The cloud refused more than pipelines hold now, or took some."""
        before = self.shortages.get((offering_id, spot))
        wait_slots = 1 if before is None else before.wait_slots
        if refused and before is not None and self.slot >= before.until_slot:
            wait_slots = min(2 * wait_slots, _LONGEST_WAIT_SLOTS)
        self.shortages[offering_id, spot] = Shortage(
            instances=held, until_slot=self.slot + wait_slots, wait_slots=wait_slots
        )

    def note_granted(self, lot: Lot) -> None:
        """All of a lot was granted: a shortage that was is over."""
        key = (lot.offering_id, lot.spot > 0)
        shortage = self.shortages.get(key)
        if shortage is not None and self.slot >= shortage.until_slot:
            del self.shortages[key]


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
    """The placement with all the GPUs that nobody else can have because of it."""
    path = tuple(
        RegionShare(region_id=share.region_id, gpus=rentals[share.region_id].whole_gpus(share.gpus))
        if share.region_id in rentals
        else share
        for share in placement.path
    )
    return placement if path == placement.path else replace(placement, path=path)
