"""Reservations on a market: each is an offering of its own, beside the one it was bought of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import overload

import numpy as np

from spotline.domain.market.grid import AnyMarket
from spotline.domain.market.market import OBSERVED, IntArray, Market
from spotline.domain.market.offering import (
    NO_SPOT_PRICE_MICRO_USD,
    Count,
    Offering,
    Provenance,
    Quote,
    Reservation,
)
from spotline.domain.units import NS_PER_S


def reserved_offering(base: Offering, name: str, reservation: Reservation) -> Offering:
    """The offering of a reservation: that of `base` under an id of its own."""
    return replace(base, offering_id=f"{base.offering_id}/reserved/{name}", reservation=reservation)


def reserved_quote(offering: Offering, opens_ns: int, slot_s: int) -> Quote:
    """The quote of a reservation in a slot: nobody has to say it, it is paid for already.

    Raises
    ------
    ValueError
        The offering is no reservation.
    """
    there = _reservation_of(offering).instances_until(opens_ns + slot_s * NS_PER_S)
    return Quote(
        offering_id=offering.offering_id,
        ts_event_ns=opens_ns,
        spot_price_micro_usd=NO_SPOT_PRICE_MICRO_USD,
        on_demand_price_micro_usd=0,
        spot_available=Count(instances=0, provenance=Provenance.OBSERVED),
        on_demand_available=Count(instances=there, provenance=Provenance.OBSERVED),
    )


@overload
def with_reservations(market: Market, reserved: Sequence[Offering]) -> Market: ...


@overload
def with_reservations(market: AnyMarket, reserved: Sequence[Offering]) -> AnyMarket: ...


def with_reservations(market: AnyMarket, reserved: Sequence[Offering]) -> AnyMarket:
    """Add offerings of reservations to a market; the same market where there are none.

    In a slot that its reservation covers whole, an offering has all its instances on demand, and
    none in any other: nothing is lost in the middle of a slot. It has no spot.

    Raises
    ------
    ValueError
        An offering is no reservation, or its id is in the market already.
    """
    if not reserved:
        return market
    held = [_reservation_of(offering) for offering in reserved]
    if not isinstance(market, Market):
        # Its slots quote them as they open.
        return replace(market, offerings=(*market.offerings, *reserved))
    starts_ns = market.slot_starts_ns()
    ends_ns = starts_ns + market.slot_s * NS_PER_S
    counts = [_counts(reservation, ends_ns) for reservation in held]
    shape = (market.slots, len(reserved))

    def beside(before: IntArray, added: int | IntArray) -> IntArray:
        column: IntArray = np.broadcast_to(np.asarray(added, dtype=np.int64), shape)
        return np.concatenate([before, column], axis=1)

    return replace(
        market,
        offerings=(*market.offerings, *reserved),
        spot_price_micro_usd=beside(market.spot_price_micro_usd, NO_SPOT_PRICE_MICRO_USD),
        on_demand_price_micro_usd=beside(market.on_demand_price_micro_usd, 0),
        spot_available=beside(market.spot_available, 0),
        spot_provenance=beside(market.spot_provenance, OBSERVED),
        on_demand_available=beside(market.on_demand_available, np.stack(counts, axis=1)),
        on_demand_provenance=beside(market.on_demand_provenance, OBSERVED),
        quoted_ns=beside(market.quoted_ns, starts_ns[:, None]),
    )


def moved(market: Market, start_ns: int) -> Market:
    """A market that begins at another time; its reservations end when they did."""
    later = market.beginning_at(start_ns)
    counts = later.on_demand_available.copy()
    ends_ns = later.slot_starts_ns() + later.slot_s * NS_PER_S
    for column, offering in enumerate(later.offerings):
        if offering.reservation is not None:
            counts[:, column] = _counts(offering.reservation, ends_ns)
    return replace(later, on_demand_available=counts)


def begun_at(market: AnyMarket, start_ns: int) -> AnyMarket:
    """A market, recorded or live, on the grid that begins then."""
    if isinstance(market, Market):
        return moved(market, start_ns)
    return replace(market, start_ns=start_ns)


def _reservation_of(offering: Offering) -> Reservation:
    if offering.reservation is None:
        raise ValueError(f"{offering.offering_id} must be a reservation, was none")
    return offering.reservation


def _counts(reservation: Reservation, ends_ns: IntArray) -> IntArray:
    return np.array(
        [reservation.instances_until(end_ns) for end_ns in ends_ns.tolist()], dtype=np.int64
    )
