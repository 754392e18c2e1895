"""Where a geography file has the prices of a region from: written in it, or files beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, Tag, model_validator

from spotline.adapters.energy.entsoe import DayAheadPrices, read_day_ahead
from spotline.adapters.files.fields import Count, Name, Number, Part, Positive, Stated, expected
from spotline.adapters.files.geography.price_table import (
    PriceTable,
    read_price_csv,
    read_price_parquet,
)
from spotline.adapters.market.importers.gcp_gpu_weekly import RegionPrices, read_gcp_gpu_prices
from spotline.contracts.errors import ContractError
from spotline.domain.placement.price_steps import PriceSteps
from spotline.domain.units import NS_PER_S

# Above any price of a kilowatt-hour or a GPU.
MOST_USD = 1_000_000.0

_PER_MWH = 1e-3
_ENERGY_SCALE = {"usd_per_kwh": 1.0, "usd_per_mwh": _PER_MWH, "eur_per_kwh": 1.0,
                 "eur_per_mwh": _PER_MWH}  # fmt: skip
# Deliveries are dated on the market's local clock, and days may be missing.
_EARLIER = timedelta(days=7)

GpusPerInstance = Annotated[Count, Field(ge=1)]


class _SpacedPart(Part):
    every_hours: Positive
    prices: Annotated[tuple[Number, ...], Field(min_length=1)]


class _TablePart(Part):
    format: Literal["csv", "parquet"]
    file: Stated
    time: Name
    price: Name
    only: dict[str, str] = Field(default_factory=dict)


class _EnergyTablePart(_TablePart):
    unit: Literal["usd_per_kwh", "usd_per_mwh", "eur_per_kwh", "eur_per_mwh"]
    usd_per_eur: Positive | None = None

    @model_validator(mode="after")
    def _euros_have_a_price(self) -> _EnergyTablePart:
        if self.unit.startswith("eur") != (self.usd_per_eur is not None):
            raise expected("usd_per_eur with a unit in EUR, and only with one", found=self.unit)
        return self

    def scale(self) -> float:
        return _ENERGY_SCALE[self.unit] * (self.usd_per_eur or 1.0)


class _RentTablePart(_TablePart):
    unit: Literal["usd_per_gpu_hour", "usd_per_instance_hour"]
    gpus_per_instance: GpusPerInstance | None = None

    @model_validator(mode="after")
    def _instances_have_gpus(self) -> _RentTablePart:
        if (self.unit == "usd_per_instance_hour") != (self.gpus_per_instance is not None):
            raise expected(
                "gpus_per_instance with the unit usd_per_instance_hour, and only with it",
                found=self.unit,
            )
        return self

    def scale(self) -> float:
        return 1.0 / (self.gpus_per_instance or 1)


class _EntsoePart(Part):
    format: Literal["entsoe"]
    file: Stated
    zone: Name
    usd_per_eur: Positive


class _GcpWeeklyPart(Part):
    format: Literal["gcp_gpu_weekly"]
    file: Stated
    machine_type: Name
    region: Name
    price: Literal["spot", "on_demand"]
    gpus_per_instance: GpusPerInstance


def _form(value: Any) -> str | None:
    """Which form a price has, as the tags below name it; None: no such form."""
    if isinstance(value, dict):
        return f"<{value['format']}>" if "format" in value else "<spaced>"
    if isinstance(value, list | tuple):
        return "<hourly>"
    return "<number>"


def _forms(formats: str) -> Discriminator:
    return Discriminator(
        _form,
        custom_error_type="form_of_price",
        custom_error_message=(
            f"expected a number, a list of hourly prices, or a mapping with every_hours or a "
            f"format of {formats}"
        ),
    )


_Spaced = Annotated[_SpacedPart, Tag("<spaced>")]
_Hourly = Annotated[tuple[Number, ...], Field(min_length=1), Tag("<hourly>")]
_Written = Annotated[Number, Tag("<number>")]

EnergyPrice = Annotated[
    _Written
    | _Hourly
    | _Spaced
    | Annotated[_EnergyTablePart, Tag("<csv>")]
    | Annotated[_EnergyTablePart, Tag("<parquet>")]
    | Annotated[_EntsoePart, Tag("<entsoe>")],
    _forms("csv, parquet, entsoe"),
]
RentPrice = Annotated[
    _Written
    | _Hourly
    | _Spaced
    | Annotated[_RentTablePart, Tag("<csv>")]
    | Annotated[_RentTablePart, Tag("<parquet>")]
    | Annotated[_GcpWeeklyPart, Tag("<gcp_gpu_weekly>")],
    _forms("csv, parquet, gcp_gpu_weekly"),
]


class PriceSources:
    """Turns prices as the file states them into steps; each file they name is read once.

    Parameters
    ----------
    folder
        Files are relative to it.
    begins_ns
        What time of theirs the first slot opens at; None: they are not dated.
    zones
        All the ENTSO-E zones that will be asked for.
    """

    def __init__(self, folder: Path, begins_ns: int | None, zones: Collection[str] = ()) -> None:
        self._folder = folder
        self._begins_ns = begins_ns
        self._zones = tuple(sorted(set(zones)))
        self._tables: dict[str, PriceTable] = {}
        self._day_ahead: dict[str, dict[str, DayAheadPrices]] = {}
        self._weekly: dict[tuple[str, str], dict[str, RegionPrices]] = {}

    def steps(self, stated: EnergyPrice | RentPrice, *, least: float) -> PriceSteps:
        """The prices in USD per kWh, or per GPU-hour.

        Raises
        ------
        ValueError
            The opening is outside what there are prices for, or one is not in `least`..`MOST_USD`.
        ContractError
            A file cannot be read, or does not hold what is looked for.
        """
        if isinstance(stated, _SpacedPart):
            steps = PriceSteps.spaced(stated.prices, stated.every_hours)
        elif isinstance(stated, tuple):
            steps = PriceSteps.spaced(stated)
        elif isinstance(stated, Part):
            steps = self._read(stated)
        else:
            steps = PriceSteps.spaced((stated,))
        for usd in (float(steps.usd.min()), float(steps.usd.max())):
            if not least <= usd <= MOST_USD:
                raise ValueError(f"expected prices in {least:g}..{MOST_USD:g} USD, found {usd:g}")
        return steps

    def _read(self, stated: Any) -> PriceSteps:
        if self._begins_ns is None:
            raise ValueError(
                "expected begins, such as 2026-01-01T00:00:00Z, at the top of the geography: the "
                "time of the file's prices at which the first slot opens, found none"
            )
        ts_ns, usd = self._dated(stated)
        return PriceSteps.dated(ts_ns, usd, begins_ns=self._begins_ns)

    def _dated(self, stated: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        if isinstance(stated, _EntsoePart):
            zone = self._zone(stated)
            return zone.ts_ns, zone.eur_per_kwh * stated.usd_per_eur
        if isinstance(stated, _GcpWeeklyPart):
            weekly = self._region(stated)
            spot = stated.price == "spot"
            usd = weekly.spot_usd_per_hour if spot else weekly.on_demand_usd_per_hour
            return weekly.ts_ns, usd / stated.gpus_per_instance
        table = self._table(stated)
        ts_ns, prices = table.prices(time=stated.time, price=stated.price, only=stated.only)
        return ts_ns, prices * stated.scale()

    def _table(self, stated: _TablePart) -> PriceTable:
        if stated.file not in self._tables:
            reader: Callable[[Path], PriceTable] = (
                read_price_csv if stated.format == "csv" else read_price_parquet
            )
            self._tables[stated.file] = reader(self._folder / stated.file)
        return self._tables[stated.file]

    def _zone(self, stated: _EntsoePart) -> DayAheadPrices:
        if stated.file not in self._day_ahead:
            begins = datetime.fromtimestamp((self._begins_ns or 0) // NS_PER_S, tz=UTC)
            self._day_ahead[stated.file] = read_day_ahead(
                self._folder / stated.file, self._zones, first=(begins - _EARLIER).date()
            )
        return self._day_ahead[stated.file][stated.zone]

    def _region(self, stated: _GcpWeeklyPart) -> RegionPrices:
        key = stated.file, stated.machine_type
        if key not in self._weekly:
            self._weekly[key] = read_gcp_gpu_prices(self._folder / stated.file, stated.machine_type)
        regions = self._weekly[key]
        if stated.region not in regions:
            raise ContractError(
                str(self._folder / stated.file),
                f"expected the region {stated.region}, found {', '.join(regions)}",
            )
        return regions[stated.region]


def zones_of(prices: Collection[Any]) -> list[str]:
    """The ENTSO-E zones among prices as they are stated."""
    return sorted({price.zone for price in prices if isinstance(price, _EntsoePart)})
