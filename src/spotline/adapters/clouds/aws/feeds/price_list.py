"""On-demand prices: what the Price List service answers, and the table that is bundled."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import MOST_PRICE_MICRO_USD
from spotline.domain.units import micro_usd_from_usd

BUNDLED = "on_demand_prices.csv"
_COLUMNS = ["region", "instance_type", "usd_per_hour", "as_of", "source"]

# Linux on shared hardware, in use, by the hour: what an instance costs that is just started.
FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "tenancy": "Shared",
        "capacitystatus": "Used",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledPrice:
    """A list price of the bundled table, per instance-hour; `as_of` and `source` say whose word."""

    price_micro_usd: int
    as_of: date
    source: str


@cache
def bundled_prices() -> Mapping[tuple[str, str], BundledPrice]:
    """The bundled prices by region and instance type."""
    text = files("spotline.adapters.clouds.aws").joinpath(BUNDLED).read_text("utf-8")
    return MappingProxyType(read_bundled(text))


def read_bundled(text: str) -> dict[tuple[str, str], BundledPrice]:
    """Read such a table.

    Raises
    ------
    ContractError
        A row is none; names file, line and column.
    """
    rows = csv.reader(line for line in text.splitlines() if line and not line.startswith("#"))
    found: dict[tuple[str, str], BundledPrice] = {}
    if next(rows, None) != _COLUMNS:
        raise ContractError(BUNDLED, f"expected the columns {', '.join(_COLUMNS)}")
    for row in rows:
        try:
            region, instance_type, usd, as_of, source = row
            price = micro_usd_from_usd(Decimal(usd))
            found[region, instance_type] = BundledPrice(
                price_micro_usd=price, as_of=date.fromisoformat(as_of), source=source
            )
        except (ValueError, InvalidOperation) as error:
            raise ContractError(BUNDLED, f"expected a price, found {row}: {error}") from error
        if not 0 < price <= MOST_PRICE_MICRO_USD:
            raise ContractError(BUNDLED, f"expected usd_per_hour > 0, found {row}")
    return found


def filters_of(region: str, instance_type: str) -> list[dict[str, str]]:
    """What GetProducts is asked for one type in one region."""
    wanted = {"regionCode": region, "instanceType": instance_type, **FILTERS}
    return [{"Type": "TERM_MATCH", "Field": name, "Value": wanted[name]} for name in wanted]


def on_demand_price(products: list[Any], region: str, instance_type: str) -> int | None:
    """The price in micro-USD per instance-hour that a `PriceList` states, None without one.

    Products of another place or type are left aside, and so are prices of 0: those of capacity
    that is paid for otherwise. Where several remain, the highest is the careful one.

    Raises
    ------
    ContractError
        A product cannot be read; names the member.
    """
    found: list[int] = []
    for product in products:
        try:
            read = json.loads(product) if isinstance(product, str) else product
            attributes = read["product"]["attributes"]
            wanted = {"regionCode": region, "instanceType": instance_type, **FILTERS}
            # A service that ignores a filter must not price another machine.
            if any(attributes.get(name, wanted[name]) != wanted[name] for name in wanted):
                continue
            found += _hourly(read["terms"].get("OnDemand", {}))
        except (KeyError, TypeError, ValueError, InvalidOperation) as error:
            raise ContractError(
                "PriceList[]", f"expected product.attributes and terms.OnDemand, found {error!r}"
            ) from error
    prices = [price for price in found if 0 < price <= MOST_PRICE_MICRO_USD]
    return max(prices, default=None)


def _hourly(terms: Mapping[str, Any]) -> list[int]:
    return [
        micro_usd_from_usd(Decimal(dimension["pricePerUnit"]["USD"]))
        for term in terms.values()
        for dimension in term["priceDimensions"].values()
        if dimension.get("unit", "Hrs") == "Hrs" and "USD" in dimension["pricePerUnit"]
    ]
