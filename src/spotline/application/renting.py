"""What a region's GPUs are rented as, and which instances a placement needs there.

Pipelines are placed by GPU, clouds rent instances. A share is rounded up to whole instances of its
own: no two pipelines share one, for a ledger row has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spotline.domain.events import Lot
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.placement.graph import Region
from spotline.domain.placement.pipeline import Placement
from spotline.domain.units import usd_from_micro_usd


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

    def usable_gpus(self, gpus: int) -> int:
        """Of the GPUs set aside, those on whole instances that the market is known to have."""
        instances = gpus // self.offering.gpus_per_instance
        count = self.quote.spot_available if self.spot else self.quote.on_demand_available
        if count.known:
            instances = min(instances, count.instances)
        return instances * self.offering.gpus_per_instance

    def lot(self, gpus: int) -> Lot:
        """What to hold for so many GPUs."""
        instances = self.instances(gpus)
        return Lot(
            offering_id=self.offering.offering_id,
            spot=instances if self.spot else 0,
            on_demand=0 if self.spot else instances,
        )


def rental_of(
    region: Region, offerings: Mapping[str, Offering], quotes: Mapping[str, Quote]
) -> Rental | None:
    """What a region is rented as; None where it names nothing, or nothing that is quoted."""
    offering, quote = offerings.get(region.offering_id), quotes.get(region.offering_id)
    if offering is None or quote is None:
        return None
    return Rental(offering=offering, quote=quote, spot=region.spot)


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
