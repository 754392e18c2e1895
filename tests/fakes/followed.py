"""What a selector knows that has watched a market for a while: for tests of what is expected."""

from __future__ import annotations

from collections.abc import Callable

from spotline.application.market_view import MarketView
from spotline.application.outlook.following import SelectorSnapshot, snapshot_of_market
from spotline.domain.events.market import SlotOpened
from tests.fakes.allocator import EAST, SLOT_NS, SLOT_S, START_NS, WEST, offering, slot_opened


def view_of(slots: tuple[SlotOpened, ...]) -> MarketView:
    """The market after these slots, the last of them open."""
    last = slots[-1]
    return MarketView(
        offerings=(offering(EAST), offering(WEST)),
        slot_s=SLOT_S,
        next_slot=last.slot + 1,
        next_slot_start_ns=START_NS + (last.slot + 1) * SLOT_NS,
        quotes=last.quotes,
        forecast=None,
        history=slots,
    )


def watched(
    slots: int = 60, spot: Callable[[int], int] = lambda slot: 4, **quoted: int
) -> tuple[MarketView, SelectorSnapshot]:
    """A market of `spot(slot)` instances after so many slots, and what a selector knows of it."""
    view = view_of(tuple(slot_opened(k, spot=spot(k), **quoted) for k in range(slots)))
    return view, snapshot_of_market(view)
