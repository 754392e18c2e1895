"""What the observations come to: the panes of every offering and tenant, and their windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spotline.application.analytics.store import Statistics
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.statistics import MarketStatisticsIssued, PlatformStatisticsIssued
from spotline.domain.statistics.figures import ALL_TENANTS
from spotline.domain.statistics.market import UNKNOWN, MarketPaneLaw, MarketPiece, MarketTally
from spotline.domain.statistics.market import market_pieces as cut_quote
from spotline.domain.statistics.panes import Arrival, Panes
from spotline.domain.statistics.platform import PlatformPaneLaw, PlatformPiece, PlatformTally
from spotline.domain.statistics.windows import Window
from spotline.domain.units import NS_PER_S


class Tallies:
    """Panes of `pane_s` seconds for every offering, every tenant and all tenants together."""

    def __init__(self, pane_s: int) -> None:
        self._pane_s = pane_s
        self._market: dict[str, Panes[MarketPiece, MarketTally]] = {}
        self._platform: dict[str, Panes[PlatformPiece, PlatformTally]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._market.values())) + sum(map(len, self._platform.values()))

    def add_quotes(self, arrival: Arrival, event: SlotOpened) -> None:
        """Add what a slot was quoted with."""
        for quoted in event.quotes:
            quote = quoted.quote
            panes = self._market.setdefault(quote.offering_id, Panes(self._pane_s, MarketPaneLaw()))
            count = quote.spot_available
            for piece in cut_quote(
                arrival,
                slot_s=event.slot_s,
                spot_price=quote.spot_price_micro_usd,
                on_demand_price=quote.on_demand_price_micro_usd,
                available=count.instances if count.known else UNKNOWN,
                pane_s=self._pane_s,
            ):
                panes.add(piece)

    def add(self, tenant: str, pieces: Iterable[PlatformPiece]) -> None:
        """Add a tenant's pieces, to all tenants' as well."""
        parts = list(pieces)
        for name in {tenant, ALL_TENANTS}:
            panes = self._platform.setdefault(name, Panes(self._pane_s, PlatformPaneLaw()))
            for piece in parts:
                panes.add(piece)

    def statistics(self, window: Window, grace_s: int) -> Iterator[Statistics]:
        """Put a window together, by offering, then by tenant, as first revisions."""
        when = {
            "ts_event_ns": window.end_s * NS_PER_S,
            "window_s": window.size_s,
            "hop_s": window.hop_s,
            "revision": 0,
        }
        for offering_id, market in sorted(self._market.items()):
            quoted = market.combine(window, grace_s)
            if quoted is not None:
                figures = quoted.tally.figures()
                yield MarketStatisticsIssued(
                    offering_id=offering_id, late=quoted.late, figures=figures, **when
                )
        for tenant, platform in sorted(self._platform.items()):
            done = platform.combine(window, grace_s)
            if done is not None:
                yield PlatformStatisticsIssued(
                    tenant=tenant,
                    late=done.late,
                    total=done.tally.total(),
                    policies=done.tally.policies(),
                    **when,
                )

    def forget_before(self, before_s: int) -> None:
        """Drop the panes that end by then."""
        for market in self._market.values():
            market.forget_before(before_s)
        for platform in self._platform.values():
            platform.forget_before(before_s)
        self._market = {key: panes for key, panes in self._market.items() if len(panes)}
        self._platform = {key: panes for key, panes in self._platform.items() if len(panes)}
