"""Read a geography file (docs/geography-format.md)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field, model_validator

from spotline.adapters.files.geography.price_source import (
    MOST_USD,
    EnergyPrice,
    PriceSources,
    RentPrice,
    zones_of,
)
from spotline.adapters.files.geography.skyplane_links import SkyplaneLinksPart
from spotline.adapters.files.yaml_file import Count, Name, NotNegative, Part, part_of, text_of
from spotline.adapters.market.parse import time_ns
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


def _ns(value: Any) -> int:
    # YAML reads what looks like a time as one.
    text = value.isoformat() if isinstance(value, datetime) else value
    try:
        return time_ns(text, "begins")
    except ContractError as error:
        raise ValueError(error.problem) from error


AfterHours = Annotated[NotNegative, Field(le=MOST_HOURS)]
GbitPerS = Annotated[NotNegative, Field(le=_MOST_GBIT_PER_S)]


class _RegionPart(Part):
    id: Name
    gpus: Count
    gpu_model: str = ""
    energy_usd_per_kwh: EnergyPrice
    rent_usd_per_gpu_hour: RentPrice = 0.0
    offering: str = ""
    spot: bool = False
    gpu_kw: Annotated[NotNegative, Field(le=_MOST_KW)] = 0.3
    interruptions_per_hour: Annotated[NotNegative, Field(le=_MOST_PER_HOUR)] = 0.0

    @model_validator(mode="after")
    def _spot_is_of_an_offering(self) -> _RegionPart:
        if self.spot and not self.offering:
            raise ValueError("spot: expected offering as well, whose spot instances are rented")
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

    def to_domain(self) -> RegionChange:
        if self.down is None and self.gpus is None:
            raise ValueError(f"region_changes: of {self.region} expected down or gpus")
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


class _GeographyPart(Part):
    begins: Annotated[int, BeforeValidator(_ns)] | None = None
    regions: tuple[_RegionPart, ...] = Field(min_length=1)
    links: tuple[_LinkPart, ...] = ()
    skyplane_links: SkyplaneLinksPart | None = None
    region_changes: tuple[_RegionChangePart, ...] = ()
    link_changes: tuple[_LinkChangePart, ...] = ()

    def to_domain(self, folder: Path) -> Geography:
        zones = zones_of([one.energy_usd_per_kwh for one in self.regions])
        sources = PriceSources(folder, self.begins, zones)
        regions = []
        for index, one in enumerate(self.regions):
            energy = _named(
                f"regions[{index}].energy_usd_per_kwh",
                partial(sources.steps, one.energy_usd_per_kwh, least=-MOST_USD),
            )
            rent = _named(
                f"regions[{index}].rent_usd_per_gpu_hour",
                partial(sources.steps, one.rent_usd_per_gpu_hour, least=0.0),
            )
            regions.append(one.to_domain(energy, rent))
        links = [link for one in self.links for link in one.to_domain()]
        skyplane = self.skyplane_links
        if skyplane is not None:
            links += _named("skyplane_links", partial(skyplane.to_domain, folder))
        return Geography(
            regions=regions,
            links=links,
            changes=[
                *(one.to_domain() for one in self.region_changes),
                *(change for one in self.link_changes for change in one.to_domain()),
            ],
        )


def _named(field: str, work: Callable[[], ResultT]) -> ResultT:
    """Do the work of a field, and have its mistakes name it."""
    try:
        return work()
    except (ValueError, ContractError) as error:
        raise ValueError(f"{field}: {error}") from error


def read_geography(path: Path) -> Geography:
    """Read a geography file, and the files it names, which are relative to its folder.

    Raises
    ------
    ContractError
        One cannot be read, or a field is not as expected: says which, and what was found.
    """
    return parse_geography(text_of(path), where=str(path), folder=path.parent)


def parse_geography(text: str, *, where: str, folder: Path = Path()) -> Geography:
    """Read a geography from the text of its file; `ContractError` as `read_geography`."""
    part = part_of(_GeographyPart, text, where=where)
    try:
        return part.to_domain(folder)
    except ValueError as error:
        raise ContractError(where, str(error)) from error
