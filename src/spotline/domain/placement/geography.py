"""A recorded or assumed geography: regions and links, and what becomes of them over time.

Seconds count from when the first slot of the market opens, so that it fits any market.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.domain.placement.graph import Link, Region, RegionGraph
from spotline.domain.placement.price_steps import PriceSteps
from spotline.domain.units import S_PER_HOUR

# Day-ahead prices: this many hours to come are known.
HOURS_AHEAD = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSeries:
    """A region, and the price of energy there by the hour (empty: as the region says, always).

    Hour 0 begins with the first slot; the last price holds on. `rent` are rents in USD per
    GPU-hour, known when they hold and not before; None: as the region says.
    """

    region: Region
    hourly_energy_usd_per_kwh: tuple[float, ...] = ()
    rent: PriceSteps | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionChange:
    """From `after_s` on the region is up or down, or has other GPUs; None leaves that as it was."""

    after_s: int
    region_id: str
    down: bool | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChange:
    """From `after_s` on the link has this bandwidth."""

    after_s: int
    source: str
    destination: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionMoment:
    """A region as it is at one time; `ahead` are the prices of the hours that follow."""

    region: Region
    down: bool = False
    ahead: tuple[float, ...] = ()


class Geography:
    """Regions by id and links by their ends, at any time.

    Raises
    ------
    ValueError
        An id or link is given twice, or a link or change names what is not there.
    """

    def __init__(
        self,
        regions: Sequence[RegionSeries],
        links: Sequence[Link],
        changes: Sequence[RegionChange | LinkChange] = (),
    ) -> None:
        # Refuses what is given twice, and links between regions that are not there.
        RegionGraph([place.region for place in regions], links)
        rented = [place.region for place in regions if place.region.offering_id]
        for index, region in enumerate(rented):
            for other in rented[:index]:
                if (other.offering_id, other.spot) == (region.offering_id, region.spot):
                    raise ValueError(
                        f"regions: {other.region_id} and {region.region_id} are rented as the same "
                        f"offering, {region.offering_id}: each would count all there is of it"
                    )
        self.regions = {place.region.region_id: place for place in regions}
        self.links = {(link.source, link.destination): link for link in links}
        self.changes = tuple(sorted(changes, key=lambda change: change.after_s))
        for change in self.changes:
            if isinstance(change, RegionChange) and change.region_id not in self.regions:
                raise ValueError(f"changes: no region {change.region_id}")
            if isinstance(change, LinkChange):
                ends = change.source, change.destination
                if ends not in self.links:
                    raise ValueError(f"changes: no link {ends[0]} -> {ends[1]}")

    def region_at(self, region_id: str, at_s: float) -> RegionMoment:
        """What a region is `at_s` seconds after the beginning."""
        one = self.regions[region_id]
        region, down = one.region, False
        for change in self.changes:
            if change.after_s > at_s:
                break
            if isinstance(change, RegionChange) and change.region_id == region_id:
                down = down if change.down is None else change.down
                region = region if change.gpus is None else replace(region, gpus=change.gpus)
        if one.rent is not None:
            region = replace(region, rent_usd_per_gpu_hour=one.rent.at(at_s))
        prices = one.hourly_energy_usd_per_kwh
        if not prices:
            return RegionMoment(region=region, down=down)
        hour = min(int(at_s // S_PER_HOUR), len(prices) - 1)
        return RegionMoment(
            region=replace(region, energy_usd_per_kwh=prices[hour]),
            down=down,
            ahead=prices[hour + 1 : hour + 1 + HOURS_AHEAD],
        )

    def link_at(self, source: str, destination: str, at_s: float) -> Link:
        """What a link is `at_s` seconds after the beginning."""
        link = self.links[source, destination]
        for change in self.changes:
            if change.after_s > at_s:
                break
            if isinstance(change, LinkChange) and (change.source, change.destination) == (
                source,
                destination,
            ):
                link = replace(link, bytes_per_s=change.bytes_per_s)
        return link

    def graph_at(self, at_s: float) -> RegionGraph:
        """What can be used at a time: a region that is down has no GPUs."""
        moments = [self.region_at(region_id, at_s) for region_id in sorted(self.regions)]
        regions = [
            replace(moment.region, gpus=0) if moment.down else moment.region for moment in moments
        ]
        return RegionGraph(regions, [self.link_at(*ends, at_s) for ends in sorted(self.links)])
