"""Event series of a source, sampled and held onto one slot grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.contracts.errors import ContractError
from spotline.domain.market.market import INFERRED, OBSERVED, UNKNOWN, IntArray, Market
from spotline.domain.market.offering import Offering, Provenance
from spotline.domain.units import NS_PER_S, utc_iso

_CODES = {Provenance.OBSERVED: OBSERVED, Provenance.INFERRED: INFERRED, Provenance.UNKNOWN: UNKNOWN}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EventSeries:
    """Values and the times, nanoseconds since the epoch, from which each holds.

    Both have shape (events,); times never decrease, and the last value at a time counts.
    """

    ts_ns: IntArray
    values: IntArray

    def __post_init__(self) -> None:
        if self.ts_ns.shape != self.values.shape or len(self.ts_ns) == 0:
            raise ValueError(
                f"times and values must be equally many and not none, "
                f"were {self.ts_ns.shape}, {self.values.shape}"
            )
        if (np.diff(self.ts_ns) < 0).any():
            raise ValueError("the times of a series must not go back")

    def held_at(self, grid_ns: IntArray) -> tuple[IntArray, IntArray]:
        """Return the value in force at each grid time, and the time of its event.

        The first value also holds before the first event.
        """
        latest = np.searchsorted(self.ts_ns, grid_ns, side="right") - 1
        latest = np.maximum(latest, 0)
        return self.values[latest], np.minimum(self.ts_ns[latest], grid_ns)

    def shifted(self, by_ns: int) -> EventSeries:
        """The same values, `by_ns` later."""
        return EventSeries(ts_ns=self.ts_ns + by_ns, values=self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferingSeries:
    """What a source knows of one offering; prices in micro-USD per instance-hour.

    `spot_price` and `spot_available` are None for a source that lacks them and takes
    `constant_*` instead; an unknown count is 0 with UNKNOWN provenance.
    """

    offering: Offering
    on_demand_price_micro_usd: int
    spot_price: EventSeries
    spot_available: EventSeries | None
    spot_provenance: Provenance
    constant_spot_available: int = 0


def first_slot_ns(given_ns: int | None, first_ns: int, slot_s: int, since: str) -> int:
    """Opening of a market's first slot: as given, or the first whole one once all is known.

    Parameters
    ----------
    given_ns
        What the caller asks for; None where it leaves the choice.
    first_ns
        From when on the source says enough; `since` says it in words.

    Raises
    ------
    ContractError
        The given time is before that.
    """
    if given_ns is None:
        slot_ns = slot_s * NS_PER_S
        return -(-first_ns // slot_ns) * slot_ns
    if given_ns < first_ns:
        raise ContractError(
            "--start",
            f"expected a time >= {utc_iso(first_ns)}, {since}, found {utc_iso(given_ns)}",
        )
    return given_ns


def assemble(
    series: Sequence[OfferingSeries], *, start_ns: int, end_ns: int, slot_s: int, source: str
) -> Market:
    """Sample every series at the opening of the slots from `start_ns` to before `end_ns`.

    A quote is as old as the latest event in it. Times before a series' first event take the first
    value: callers choose `start_ns` so that this happens only where they say so in `source`.

    Raises
    ------
    ContractError
        An offering occurs twice, or the source ends before the start.
    """
    ids = [held.offering.offering_id for held in series]
    if len(set(ids)) != len(ids):
        raise ContractError("FILE", f"expected each offering once, found {', '.join(ids)}")
    slots = -((start_ns - end_ns) // (slot_s * NS_PER_S))
    if slots < 1:
        raise ContractError(
            "start",
            f"expected a time before the source ends, {utc_iso(end_ns)}, found {utc_iso(start_ns)}",
        )
    grid_ns = start_ns + np.arange(slots, dtype=np.int64) * (slot_s * NS_PER_S)
    shape = (slots, len(series))
    spot_price = np.empty(shape, dtype=np.int64)
    spot_available = np.empty(shape, dtype=np.int64)
    quoted_ns = np.empty(shape, dtype=np.int64)
    for column, held in enumerate(series):
        spot_price[:, column], quoted_ns[:, column] = held.spot_price.held_at(grid_ns)
        spot_available[:, column] = held.constant_spot_available
        if held.spot_available is not None:
            spot_available[:, column], counted_ns = held.spot_available.held_at(grid_ns)
            quoted_ns[:, column] = np.maximum(quoted_ns[:, column], counted_ns)
    provenance = np.array([_CODES[held.spot_provenance] for held in series], dtype=np.int64)
    on_demand = np.array([held.on_demand_price_micro_usd for held in series], dtype=np.int64)
    return Market(
        offerings=tuple(held.offering for held in series),
        slot_s=slot_s,
        start_ns=start_ns,
        spot_price_micro_usd=spot_price,
        on_demand_price_micro_usd=np.tile(on_demand, (slots, 1)),
        spot_available=spot_available,
        spot_provenance=np.tile(provenance, (slots, 1)),
        on_demand_available=np.zeros(shape, dtype=np.int64),
        on_demand_provenance=np.full(shape, UNKNOWN, dtype=np.int64),
        quoted_ns=quoted_ns,
        source=source,
    )


def resampled(market: Market, slot_s: int) -> Market:
    """`market` on slots of another length; a slot takes the quote in force at its opening.

    Unlike `Market.resampled` the new length need not be a multiple of the old.
    """
    if slot_s == market.slot_s:
        return market
    duration_ns = market.slots * market.slot_s * NS_PER_S
    slots = -(-duration_ns // (slot_s * NS_PER_S))
    opening_ns = np.arange(slots, dtype=np.int64) * (slot_s * NS_PER_S)
    row = opening_ns // (market.slot_s * NS_PER_S)
    return replace(
        market,
        slot_s=slot_s,
        spot_price_micro_usd=market.spot_price_micro_usd[row],
        on_demand_price_micro_usd=market.on_demand_price_micro_usd[row],
        spot_available=market.spot_available[row],
        spot_provenance=market.spot_provenance[row],
        on_demand_available=market.on_demand_available[row],
        on_demand_provenance=market.on_demand_provenance[row],
        quoted_ns=market.quoted_ns[row],
    )
