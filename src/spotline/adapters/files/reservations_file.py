"""Read a file of reservations (docs/market-format.md): capacity that is paid for already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, overload

from pydantic import Field

from spotline.adapters.files.fields import Name, Part, TimeNs, Usd, Whole, read_part
from spotline.adapters.files.mistake import BadFile, Mistake
from spotline.adapters.files.yaml_file import read_yaml
from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations
from spotline.domain.units import micro_usd_from_usd


class _OfferingPart(Part):
    """What an offering is known by; what is left out may be anything."""

    instance_type: Name
    provider: Name | None = None
    account: Name | None = None
    region: Name | None = None
    zone: Name | None = None

    def is_of(self, offering: Offering) -> bool:
        stated = self.model_dump(exclude_none=True)
        return all(getattr(offering, name) == value for name, value in stated.items())

    def shown(self) -> str:
        stated = self.model_dump(exclude_none=True)
        return ", ".join(f"{name} {value}" for name, value in stated.items())


class ReservationPart(Part):
    """Capacity that is paid for already, as a file has it."""

    offering: Name | _OfferingPart
    id: Name
    instances: Annotated[Whole, Field(le=1_000_000)]
    ends: TimeNs | None = None
    sunk_usd_per_instance_hour: Usd = 0.0


class _ReservationsPart(Part):
    reservations: Annotated[tuple[ReservationPart, ...], Field(min_length=1)]


@overload
def add_reservations(market: Market, path: Path | None) -> Market: ...


@overload
def add_reservations(market: AnyMarket, path: Path | None) -> AnyMarket: ...


def add_reservations(market: AnyMarket, path: Path | None) -> AnyMarket:
    """Add the reservations of a file to a market; without one, the market as it is.

    Raises
    ------
    BadFile
        The file is unreadable, or a field is not as expected: an offering that is none or several
        of the market's, an id that comes twice for one.
    """
    if path is None:
        return market
    part = read_part(_ReservationsPart, read_yaml(path), where=str(path))
    added, mistakes = reserved_offerings(market.offerings, part.reservations)
    if mistakes:
        raise BadFile(str(path), mistakes)
    return with_reservations(market, added)


def reserved_offerings(
    offerings: Sequence[Offering], stated: Sequence[ReservationPart]
) -> tuple[list[Offering], list[Mistake]]:
    """What is held of these offerings, and what is wrong with what was stated."""
    open_market = [offering for offering in offerings if offering.reservation is None]
    known = {offering.offering_id for offering in offerings}
    added: list[Offering] = []
    mistakes: list[Mistake] = []
    for index, entry in enumerate(stated):
        field = f"reservations[{index}]"
        bases = _bases(entry.offering, open_market)
        if len(bases) != 1:
            mistakes.append(_not_one(f"{field}.offering", entry.offering, bases, open_market))
            continue
        offering = reserved_offering(
            bases[0],
            entry.id,
            Reservation(
                instances=entry.instances,
                ends_ns=entry.ends or 0,
                sunk_price_micro_usd=micro_usd_from_usd(entry.sunk_usd_per_instance_hour),
            ),
        )
        if offering.offering_id in known:
            expected = f"another id for each reservation of {bases[0].offering_id}"
            mistakes.append(Mistake(field=f"{field}.id", expected=expected, found=repr(entry.id)))
            continue
        known.add(offering.offering_id)
        added.append(offering)
    return added, mistakes


def _bases(named: str | _OfferingPart, offerings: list[Offering]) -> list[Offering]:
    if isinstance(named, str):
        return [offering for offering in offerings if offering.offering_id == named]
    return [offering for offering in offerings if named.is_of(offering)]


def _not_one(
    field: str, named: str | _OfferingPart, bases: list[Offering], offerings: list[Offering]
) -> Mistake:
    found = repr(named) if isinstance(named, str) else named.shown()
    if bases:
        found += f", which is {' and '.join(offering.offering_id for offering in bases)}"
    known = ", ".join(offering.offering_id for offering in offerings)
    return Mistake(field=field, expected=f"one offering of the market ({known})", found=found)
