"""What spot a market has for a job of so many instances: where, when, how long, how cheap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spotline.domain.market.market import UNKNOWN, IntArray, Market
from spotline.domain.market.stays import (
    BoolArray,
    FloatArray,
    Stays,
    SurvivalCurve,
    stays_of,
    survival_of,
)
from spotline.domain.units import NS_PER_S, S_PER_HOUR

HOURS = 24
# More are not told apart in a picture.
MOST_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OfferingSupply:
    """One offering: when it has enough spot, how long that stays, and at which part of the price.

    `there` and `known` are by slot: whether enough is there, and whether that is known. Shares are
    0..1 of the slots in which it is known, NaN or None where there are none; `share_by_hour` is by
    hour of the day in UTC. `price_ratio` is spot by on-demand price in every slot.
    """

    offering_id: str
    there: BoolArray
    known: BoolArray
    share_there: float | None
    share_by_hour: FloatArray
    stays: Stays
    survival: SurvivalCurve | None
    price_ratio: FloatArray

    @property
    def mean_price_ratio(self) -> float:
        """Spot by on-demand price, mean over all slots."""
        return float(self.price_ratio.mean())

    def as_json(self) -> dict[str, Any]:
        """The numbers by name; hours and shares."""
        curve = self.survival
        return {
            "offering_id": self.offering_id,
            "share_known": float(self.known.mean()),
            "share_there": self.share_there,
            "share_by_hour_utc": [None if np.isnan(s) else float(s) for s in self.share_by_hour],
            "stays": {
                "seen": len(self.stays.hours),
                "cut": self.stays.cut,
                "began_before": self.stays.began_before,
                "median_h": curve.median_h if curve else None,
                "p10_h": curve.p10_h if curve else None,
                "longest_h": curve.longest_h if curve else None,
            },
            "price_of_on_demand": {
                "mean": self.mean_price_ratio,
                "min": float(self.price_ratio.min()),
                "max": float(self.price_ratio.max()),
            },
            "mean_discount": 1.0 - self.mean_price_ratio,
        }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarketSupply:
    """The spot of some offerings of a market, and how often several have enough at once.

    `at_least[k]` is the share of slots in which k + 1 offerings or more have enough at once, of the
    slots in which that is known of all; `if_independent[k]` what it would be if each came and went
    by itself. Both are empty where no such slot is.
    """

    instances: int
    slot_s: int
    start_ns: int
    slots: int
    offerings: tuple[OfferingSupply, ...]
    at_least: tuple[float, ...]
    if_independent: tuple[float, ...]

    @property
    def share_any(self) -> float | None:
        """How often at least one of the offerings has enough."""
        return self.at_least[0] if self.at_least else None

    @property
    def share_all(self) -> float | None:
        """How often all of them have."""
        return self.at_least[-1] if self.at_least else None

    def as_json(self) -> dict[str, Any]:
        """The numbers by name."""
        return {
            "instances": self.instances,
            "offerings": [offering.as_json() for offering in self.offerings],
            "share_any": self.share_any,
            "share_all": self.share_all,
            "at_least": list(self.at_least),
            "at_least_if_independent": list(self.if_independent),
        }


def spot_columns(market: Market) -> list[int]:
    """The offerings that spot can be bought on: all but reservations."""
    return [c for c, offering in enumerate(market.offerings) if offering.reservation is None]


def measure_supply(market: Market, columns: Sequence[int], instances: int) -> MarketSupply:
    """Measure the spot of some offerings for a job of `instances`.

    Parameters
    ----------
    columns
        Which offerings, by position; none of them a reservation.
    instances
        How many must be there at once, >= 1.

    Raises
    ------
    ValueError
        `instances` < 1, or one of the offerings is a reservation, which has no spot.
    """
    if instances < 1:
        raise ValueError(f"instances must be >= 1, was {instances}")
    for column in columns:
        if market.offerings[column].reservation is not None:
            offering_id = market.offerings[column].offering_id
            raise ValueError(f"{offering_id} is a reservation, which has no spot")
    hours = _hours_of_day(market)
    offerings = tuple(_measure(market, column, instances, hours) for column in columns)
    at_least, if_independent = _together(offerings)
    return MarketSupply(
        instances=instances,
        slot_s=market.slot_s,
        start_ns=market.start_ns,
        slots=market.slots,
        offerings=offerings,
        at_least=at_least,
        if_independent=if_independent,
    )


def most_different(market: Market, instances: int, most: int = MOST_SHOWN) -> list[int]:
    """The offerings with spot, in the market's order; of more than `most` those that differ most.

    Two differ by the share of slots in which one has enough and the other has not, and by what they
    cost of on-demand. From the one that is there most often on, the offering furthest from all that
    are chosen is taken next; ties go to the first.
    """
    columns = spot_columns(market)
    if len(columns) <= most:
        return columns
    there = _there(market, instances)[:, columns].astype(np.float64)
    ratio = _price_ratio(market)[:, columns].mean(axis=0)
    chosen = [int(np.argmax(there.mean(axis=0)))]
    nearest = np.full(len(columns), np.inf)
    while len(chosen) < most:
        last = chosen[-1]
        apart = np.abs(there - there[:, [last]]).mean(axis=0) + np.abs(ratio - ratio[last])
        nearest = np.minimum(nearest, apart)
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
    return sorted(columns[place] for place in chosen)


def _there(market: Market, instances: int) -> BoolArray:
    there: BoolArray = (market.spot_available >= instances) & (market.spot_provenance != UNKNOWN)
    return there


def _price_ratio(market: Market) -> FloatArray:
    dear = np.maximum(1, market.on_demand_price_micro_usd)
    ratio: FloatArray = market.spot_price_micro_usd / dear
    return ratio


def _measure(
    market: Market, column: int, instances: int, hours: tuple[IntArray, int]
) -> OfferingSupply:
    known = market.spot_provenance[:, column] != UNKNOWN
    there = known & (market.spot_available[:, column] >= instances)
    stays = stays_of(there, known, market.slot_s)
    return OfferingSupply(
        offering_id=market.offerings[column].offering_id,
        there=there,
        known=known,
        share_there=float(there[known].mean()) if known.any() else None,
        share_by_hour=_by_hour(there, known, *hours),
        stays=stays,
        survival=survival_of(stays),
        price_ratio=_price_ratio(market)[:, column],
    )


def _hours_of_day(market: Market) -> tuple[IntArray, int]:
    """Hours of the day that the slots cover, slot by slot, and how many each covers (from 1)."""
    covered = max(1, market.slot_s // S_PER_HOUR)
    opening = market.slot_starts_ns() // (S_PER_HOUR * NS_PER_S)
    hours = (opening[:, None] + np.arange(covered)).ravel() % HOURS
    return hours, covered


def _by_hour(there: BoolArray, known: BoolArray, hours: IntArray, covered: int) -> FloatArray:
    known, there = np.repeat(known, covered), np.repeat(there, covered)
    slots = np.bincount(hours[known], minlength=HOURS).astype(np.float64)
    up = np.bincount(hours[there], minlength=HOURS)
    share: FloatArray = np.divide(up, slots, out=np.full(HOURS, np.nan), where=slots > 0)
    return share


def _together(
    offerings: tuple[OfferingSupply, ...],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if not offerings:
        return (), ()
    known = np.all([offering.known for offering in offerings], axis=0)
    if not known.any():
        return (), ()
    there = np.array([offering.there[known] for offering in offerings])
    most = len(offerings)
    shares = np.bincount(there.sum(axis=0), minlength=most + 1) / known.sum()
    alone = np.array([1.0])
    for share in there.mean(axis=1):
        # One more offering: k are there with it, or were without it.
        alone = np.convolve(alone, [1.0 - share, share])
    return _or_more(shares), _or_more(alone)


def _or_more(shares: FloatArray) -> tuple[float, ...]:
    """From the share of every count to that of as many or more, from 1 on."""
    return tuple(min(1.0, float(share)) for share in np.cumsum(shares[::-1])[::-1][1:])
