"""Slots written down as plain numbers, or cut from a market."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotline.domain.events.market import SlotOpened
from spotline.domain.market.market import Market
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S

START_NS = 1_767_225_600 * NS_PER_S


def quote(
    offering_id: str, *, count: int | None, price: int = 1_000_000, ts_ns: int = START_NS
) -> Quote:
    """A quote; a count of None is unknown."""
    known = Count(instances=count or 0, provenance=Provenance.OBSERVED)
    return Quote(
        offering_id=offering_id,
        ts_event_ns=ts_ns,
        spot_price_micro_usd=price,
        on_demand_price_micro_usd=3_000_000,
        spot_available=UNKNOWN_COUNT if count is None else known,
        on_demand_available=UNKNOWN_COUNT,
    )


def slot_opened(
    slot: int,
    counts: Mapping[str, int | None],
    prices: Mapping[str, int] | None = None,
    *,
    slot_s: int = 1800,
) -> SlotOpened:
    """One slot; offerings without a price are at 1 USD."""
    ts_ns = START_NS + slot * slot_s * NS_PER_S
    quotes = tuple(
        SlotQuote(
            quote=quote(i, count=c, price=(prices or {}).get(i, 1_000_000), ts_ns=ts_ns), age_s=0
        )
        for i, c in counts.items()
    )
    return SlotOpened(slot=slot, ts_event_ns=ts_ns, slot_s=slot_s, quotes=quotes)


def series(counts: Sequence[int | None], *, offering_id: str = "a") -> list[SlotOpened]:
    """Consecutive slots of one offering."""
    return [slot_opened(slot, {offering_id: count}) for slot, count in enumerate(counts)]


def slots_of(market: Market) -> list[SlotOpened]:
    """Every slot of a market."""
    starts_ns = market.slot_starts_ns()
    return [
        SlotOpened(
            slot=slot,
            ts_event_ns=int(starts_ns[slot]),
            slot_s=market.slot_s,
            quotes=tuple(SlotQuote(quote=q, age_s=0) for q in market.quotes(slot)),
        )
        for slot in range(market.slots)
    ]
