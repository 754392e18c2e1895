"""The slots of a market, whether it was recorded or goes on without a known end."""

from __future__ import annotations

from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S

AnyMarket = Market | LiveMarket


def opens_ns(market: AnyMarket, slot: int) -> int:
    """When a slot opens, ns since the epoch in market time."""
    return market.start_ns + slot * market.slot_s * NS_PER_S


def slots_of(market: AnyMarket) -> int | None:
    """How many slots it has, None where nobody knows its end."""
    return market.slots if isinstance(market, Market) else None


def ends_ns(market: AnyMarket) -> int:
    """When its last slot ends, ns since the epoch in market time; 0 where nobody knows."""
    return opens_ns(market, market.slots) if isinstance(market, Market) else 0


def floored_ns(at_ns: int, slot_s: int) -> int:
    """The opening of the slot that `at_ns` lies in, on the grid that begins at the epoch."""
    slot_ns = slot_s * NS_PER_S
    return at_ns // slot_ns * slot_ns
