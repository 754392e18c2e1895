"""Read a geography file (docs/geography-format.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from spotline.adapters.placement.yaml_file import (
    Count,
    Name,
    NotNegative,
    Number,
    Part,
    part_of,
    text_of,
)
from spotline.contracts.errors import ContractError
from spotline.domain.placement.geography import Geography, LinkChange, RegionChange, RegionSeries
from spotline.domain.placement.graph import Link, Region
from spotline.domain.units import S_PER_HOUR

_BYTES_PER_S_PER_GBIT = 1e9 / 8


class _RegionPart(Part):
    id: Name
    gpus: Count
    gpu_model: str = ""
    energy_usd_per_kwh: Number | Annotated[tuple[Number, ...], Field(min_length=1)]
    rent_usd_per_gpu_hour: NotNegative = 0.0
    gpu_kw: NotNegative = 0.3
    interruptions_per_hour: NotNegative = 0.0

    def to_domain(self) -> RegionSeries:
        energy = self.energy_usd_per_kwh
        prices = energy if isinstance(energy, tuple) else (energy,)
        return RegionSeries(
            region=Region(
                region_id=self.id,
                gpus=self.gpus,
                gpu_model=self.gpu_model,
                energy_usd_per_kwh=prices[0],
                rent_usd_per_gpu_hour=self.rent_usd_per_gpu_hour,
                gpu_kw=self.gpu_kw,
                interruptions_per_hour=self.interruptions_per_hour,
            ),
            hourly_energy_usd_per_kwh=prices if len(prices) > 1 else (),
        )


class _LinkPart(Part):
    source: Name = Field(alias="from")
    destination: Name = Field(alias="to")
    gbit_per_s: NotNegative
    egress_usd_per_gb: NotNegative = 0.0
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
    after_hours: NotNegative
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
    after_hours: NotNegative
    source: Name = Field(alias="from")
    destination: Name = Field(alias="to")
    gbit_per_s: NotNegative
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
    regions: tuple[_RegionPart, ...] = Field(min_length=1)
    links: tuple[_LinkPart, ...] = ()
    region_changes: tuple[_RegionChangePart, ...] = ()
    link_changes: tuple[_LinkChangePart, ...] = ()


def read_geography(path: Path) -> Geography:
    """Read a geography file.

    Raises
    ------
    ContractError
        It cannot be read, or a field is not as expected: says which, and what was found.
    """
    return parse_geography(text_of(path), where=str(path))


def parse_geography(text: str, *, where: str) -> Geography:
    """Read a geography from the text of its file; `ContractError` as `read_geography`."""
    part = part_of(_GeographyPart, text, where=where)
    try:
        return Geography(
            regions=[one.to_domain() for one in part.regions],
            links=[link for one in part.links for link in one.to_domain()],
            changes=[
                *(one.to_domain() for one in part.region_changes),
                *(change for one in part.link_changes for change in one.to_domain()),
            ],
        )
    except ValueError as error:
        raise ContractError(where, str(error)) from error
