"""The market that a running system saw, as its door tells it: an offering's quotes, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotline.application.market_view import MarketStatus
from spotline.contracts.errors import ContractError
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.market import Market
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.units import NS_PER_S
from spotline.replay.recorded import market_seen


def market_told(
    status: MarketStatus, quotes: Mapping[str, Sequence[SlotQuote]], *, last_s: int
) -> Market:
    """Put a market together, at the prices that everybody pays.

    A quote names no slot: it belongs to the one that opened when the quote was as old as it says.
    Slots that opened while the quotes were asked for are taken, too.

    Parameters
    ----------
    status
        The market's clock and offerings.
    quotes
        By offering, one for each of its latest slots.
    last_s
        Of the latest slots those that opened so many seconds before the open one, or later.

    Raises
    ------
    ContractError
        No slot has opened there yet.
    """
    clock = status.clock
    if clock is None or clock.slot < 0:
        raise ContractError("--address", "expected a system whose market has opened, found none")
    slot_ns = clock.slot_s * NS_PER_S
    by_slot: dict[int, list[SlotQuote]] = {}
    for _, said in sorted(quotes.items()):
        for quoted in said:
            # The age is in whole seconds: the slot opened less than one later.
            at_ns = quoted.quote.ts_event_ns + quoted.age_s * NS_PER_S
            ago_ns = clock.market_ns - at_ns
            if ago_ns // NS_PER_S <= last_s:
                by_slot.setdefault(clock.slot - ago_ns // slot_ns, []).append(quoted)
    opened = MarketOpened(
        offerings=status.offerings,
        slot_s=clock.slot_s,
        first_slot_start_ns=clock.market_ns - clock.slot * slot_ns,
        source=status.source,
        ends_ns=status.ends_ns,
    )
    slots = [
        SlotOpened(
            slot=slot,
            ts_event_ns=clock.market_ns - (clock.slot - slot) * slot_ns,
            slot_s=clock.slot_s,
            quotes=tuple(found),
        )
        for slot, found in sorted(by_slot.items())
    ]
    return replace(market_seen(opened, slots), source=status.source)
