"""The fixed families of recorded markets that forecasters are compared on, in slots of 30 min."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.market import Market
from spotline.domain.market.slot_quote import SlotQuote

SLOT_S = 1800

_SKYPILOT = "spot-traces-skypilot"
_AWS_PRICES = "spot-price-aws-gpu-2020/aws_spot_price_2019-12-20_2020-03-23.csv.gz"
_NEOCLOUD = "gpu-market-prime-intellect"
# Nothing but the shape of its availability is used of the nine zones: no recorded price covers
# every one of them.
_FLAT_PRICE_USD = Decimal("0.918")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFamily:
    """One family: a market per set of offerings that are quoted together.

    Attributes
    ----------
    name
        How the reports call it.
    description
        What is recorded and what is not, for the reports.
    markets
        Slots of `SLOT_S` seconds; each is forecast by a forecaster of its own.
    """

    name: str
    description: str
    markets: tuple[Market, ...]


def load_families(data: Path, *, only: Sequence[str] = ()) -> tuple[ForecastFamily, ...]:
    """Read every family under `data`, or those named in `only`, in the order of the reports.

    Raises
    ------
    ContractError
        A name is unknown, or a folder or file is missing or breaks its format.
    """
    for name in only:
        if name not in _FAMILIES:
            raise ContractError("--family", f"expected one of {', '.join(_FAMILIES)}, found {name}")
    return tuple(
        ForecastFamily(name=name, description=description, markets=read(data))
        for name, (description, read) in _FAMILIES.items()
        if not only or name in only
    )


def slots_of(market: Market) -> tuple[SlotOpened, ...]:
    """Every slot of a market, as a forecaster is fed it."""
    starts_ns = market.slot_starts_ns()
    return tuple(
        SlotOpened(
            slot=slot,
            ts_event_ns=int(starts_ns[slot]),
            slot_s=market.slot_s,
            quotes=tuple(SlotQuote(quote=quote, age_s=0) for quote in market.quotes(slot)),
        )
        for slot in range(market.slots)
    )


def _traces(data: Path, folder: str, start: str, price: Path | Decimal) -> tuple[Market, ...]:
    files = _files(data / _SKYPILOT / folder, "*.json")
    options = ImportOptions(price=price, start_ns=time_ns(start, "bench forecast"), slot_s=SLOT_S)
    return (import_market("skypilot", files, options),)


def _sixteen_nodes(data: Path) -> tuple[Market, ...]:
    folder = "availability/16-node/aws-08-27-2023"
    return _traces(data, folder, "2023-08-27T00:00:00Z", data / _AWS_PRICES)


def _four_nodes(data: Path) -> tuple[Market, ...]:
    folder = "preemption/4-node/aws-08-03-2023"
    return _traces(data, folder, "2023-08-03T00:00:00Z", data / _AWS_PRICES)


def _nine_zones(data: Path) -> tuple[Market, ...]:
    folder = "availability/1-node/aws-02-15-2023"
    return _traces(data, folder, "2023-02-15T00:00:00Z", _FLAT_PRICE_USD)


def _neocloud(data: Path) -> tuple[Market, ...]:
    files = _files(data / _NEOCLOUD, "*.jsonl.gz")
    options = ImportOptions(slot_s=SLOT_S)
    return tuple(import_market("prime-intellect", [path], options) for path in files)


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise ContractError("--data", f"expected files {pattern} in {folder}, found none")
    return files


_FAMILIES: Mapping[str, tuple[str, Callable[[Path], tuple[Market, ...]]]] = MappingProxyType(
    {
        "16-node": (
            "AWS V100 gangs of 16, 2 zones, 2023; AWS prices of 2020 laid over them",
            _sixteen_nodes,
        ),
        "4-node": (
            "AWS V100 gangs of 4, 2 zones, 2023; AWS prices of 2020 laid over them",
            _four_nodes,
        ),
        "nine-zones": (
            "AWS V100, 9 zones with one instance each, 2023; a constant price",
            _nine_zones,
        ),
        "neocloud": (
            "offers of 5 GPU models, 2025: cheapest price and number of offers, as recorded",
            _neocloud,
        ),
    }
)
