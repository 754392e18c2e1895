"""Read a geography file (docs/geography-format.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, model_validator

from spotline.adapters.files.fields import (
    Count,
    Label,
    Name,
    NotNegative,
    Part,
    TimeNs,
    expected,
    read_part,
)
from spotline.adapters.files.geography.price_source import (
    MOST_USD,
    EnergyPrice,
    PriceSources,
    RentPrice,
    zones_of,
)
from spotline.adapters.files.geography.skyplane_links import SkyplaneLinksPart
from spotline.adapters.files.mistake import BadFile, Mistake, mistake_of, shown_key
from spotline.adapters.files.yaml_file import Limits, parse_yaml, read_text
from spotline.contracts.errors import ContractError
from spotline.domain.placement.geography import Geography, LinkChange, RegionChange, RegionSeries
from spotline.domain.placement.graph import Link, Region
from spotline.domain.placement.price_steps import MOST_HOURS, PriceSteps
from spotline.domain.units import S_PER_HOUR

_BYTES_PER_S_PER_GBIT = 1e9 / 8
# Far beyond what there is, and far from where products of floats end.
_MOST_GBIT_PER_S = 1e9
_MOST_KW = 1e3
_MOST_PER_HOUR = 1e6

ResultT = TypeVar("ResultT")


AfterHours = Annotated[NotNegative, Field(le=MOST_HOURS)]
GbitPerS = Annotated[NotNegative, Field(le=_MOST_GBIT_PER_S)]


class _RegionPart(Part):
    id: Name
    gpus: Count
    gpu_model: Label = ""
    energy_usd_per_kwh: EnergyPrice
    rent_usd_per_gpu_hour: RentPrice = 0.0
    offering: Label = ""
    spot: bool = False
    gpu_kw: Annotated[NotNegative, Field(le=_MOST_KW)] = 0.3
    interruptions_per_hour: Annotated[NotNegative, Field(le=_MOST_PER_HOUR)] = 0.0

    @model_validator(mode="after")
    def _spot_is_of_an_offering(self) -> _RegionPart:
        if self.spot and not self.offering:
            raise expected(
                "offering as well, whose spot instances are rented", at="spot", found="true alone"
            )
        return self

    def to_domain(self, energy: PriceSteps, rent: PriceSteps) -> RegionSeries:
        prices = energy.hourly()
        return RegionSeries(
            region=Region(
                region_id=self.id,
                gpus=self.gpus,
                gpu_model=self.gpu_model,
                energy_usd_per_kwh=prices[0],
                rent_usd_per_gpu_hour=rent.at(0.0),
                gpu_kw=self.gpu_kw,
                interruptions_per_hour=self.interruptions_per_hour,
                offering_id=self.offering,
                spot=self.spot,
            ),
            hourly_energy_usd_per_kwh=prices if len(prices) > 1 else (),
            rent=rent if len(rent.usd) > 1 else None,
        )


class _LinkPart(Part):
    source: Name = Field(alias="from")
    destination: Name = Field(alias="to")
    gbit_per_s: GbitPerS
    egress_usd_per_gb: Annotated[NotNegative, Field(le=MOST_USD)] = 0.0
    both_ways: bool = True

    @model_validator(mode="after")
    def _joins_two(self) -> _LinkPart:
        if self.source == self.destination:
            raise expected("another region than from", at="to", found=shown_key(self.source))
        return self

    def to_domain(self) -> list[Link]:
        ends = [(self.source, self.destination)]
        if self.both_ways:
            ends.append((self.destination, self.source))
        return [
            Link(
                source=source,
                destination=destination,
                bytes_per_s=self.gbit_per_s * _BYTES_PER_S_PER_GBIT,
                egress_usd_per_gb=self.egress_usd_per_gb,
            )
            for source, destination in ends
        ]


class _RegionChangePart(Part):
    after_hours: AfterHours
    region: Name
    down: bool | None = None
    gpus: Count | None = None

    @model_validator(mode="after")
    def _something_changes(self) -> _RegionChangePart:
        if self.down is None and self.gpus is None:
            raise expected("down or gpus", found="neither")
        return self

    def to_domain(self) -> RegionChange:
        return RegionChange(
            after_s=round(self.after_hours * S_PER_HOUR),
            region_id=self.region,
            down=self.down,
            gpus=self.gpus,
        )


class _LinkChangePart(Part):
    after_hours: AfterHours
    source: Name = Field(alias="from")
    destination: Name = Field(alias="to")
    gbit_per_s: GbitPerS
    both_ways: bool = True

    def to_domain(self) -> list[LinkChange]:
        ends = [(self.source, self.destination)]
        if self.both_ways:
            ends.append((self.destination, self.source))
        return [
            LinkChange(
                after_s=round(self.after_hours * S_PER_HOUR),
                source=source,
                destination=destination,
                bytes_per_s=self.gbit_per_s * _BYTES_PER_S_PER_GBIT,
            )
            for source, destination in ends
        ]


# The wires of a geography are a square of its regions.
_MOST_REGIONS = 1_000
_MOST_ROWS = 100_000
_LIMITS = Limits(most_bytes=16 << 20, most_values=1_000_000)


class _Wrong(Exception):
    """A mistake that shows when the fields of a file are put together."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


class _GeographyPart(Part):
    begins: TimeNs | None = None
    regions: tuple[_RegionPart, ...] = Field(min_length=1, max_length=_MOST_REGIONS)
    links: tuple[_LinkPart, ...] = Field(default=(), max_length=_MOST_ROWS)
    skyplane_links: SkyplaneLinksPart | None = None
    region_changes: tuple[_RegionChangePart, ...] = Field(default=(), max_length=_MOST_ROWS)
    link_changes: tuple[_LinkChangePart, ...] = Field(default=(), max_length=_MOST_ROWS)

    @model_validator(mode="after")
    def _names_regions_that_are_there(self) -> _GeographyPart:
        known: set[str] = set()
        for index, region in enumerate(self.regions):
            if region.id in known:
                raise expected(
                    "different ids", at=f"regions[{index}].id", found=f"{region.id} again"
                )
            known.add(region.id)
        joined: tuple[tuple[str, tuple[_LinkPart | _LinkChangePart, ...]], ...] = (
            ("links", self.links),
            ("link_changes", self.link_changes),
        )
        named = [
            (f"{rows}[{index}].{end}", name)
            for rows, links in joined
            for index, link in enumerate(links)
            for end, name in (("from", link.source), ("to", link.destination))
        ]
        named += [
            (f"region_changes[{index}].region", change.region)
            for index, change in enumerate(self.region_changes)
        ]
        for at, name in named:
            if name not in known:
                raise expected("the id of a region", at=at, found=f"no region {shown_key(name)}")
        return self

    def to_domain(self, folder: Path) -> Geography:
        zones = zones_of([region.energy_usd_per_kwh for region in self.regions])
        sources = PriceSources(folder, self.begins, zones)
        regions = []
        for index, part in enumerate(self.regions):
            energy = _named(
                f"regions[{index}].energy_usd_per_kwh",
                partial(sources.steps, part.energy_usd_per_kwh, least=-MOST_USD),
            )
            rent = _named(
                f"regions[{index}].rent_usd_per_gpu_hour",
                partial(sources.steps, part.rent_usd_per_gpu_hour, least=0.0),
            )
            regions.append(part.to_domain(energy, rent))
        links = [link for row in self.links for link in row.to_domain()]
        skyplane = self.skyplane_links
        if skyplane is not None:
            links += _named("skyplane_links", partial(skyplane.to_domain, folder))
        return Geography(
            regions=regions,
            links=links,
            changes=[
                *(row.to_domain() for row in self.region_changes),
                *(change for row in self.link_changes for change in row.to_domain()),
            ],
        )


def _named(field: str, work: Callable[[], ResultT]) -> ResultT:
    """Do the work of a field, and have its mistakes name it."""
    try:
        return work()
    except ContractError as error:
        # It names the file beside this one, and the place in it.
        place = f"{field}: {error.where}"
        raise _Wrong(mistake_of(error.problem, field=place)) from error
    except ValueError as error:
        raise _Wrong(mistake_of(str(error), field=field)) from error


def read_geography(path: Path) -> Geography:
    """Read a geography file, and the files it names, which are relative to its folder.

    Raises
    ------
    BadFile
        One cannot be read, or a field is not as expected: says which, and what was found.
    """
    return parse_geography(read_text(path, _LIMITS), where=str(path), folder=path.parent)


def parse_geography(text: str, *, where: str, folder: Path = Path()) -> Geography:
    """Read a geography from the text of its file; `BadFile` as `read_geography`."""
    part = read_part(_GeographyPart, parse_yaml(text, where=where, limits=_LIMITS), where=where)
    try:
        return part.to_domain(folder)
    except _Wrong as error:
        raise BadFile(where, [error.mistake]) from error
    except ValueError as error:
        raise BadFile(where, [mistake_of(str(error))]) from error
