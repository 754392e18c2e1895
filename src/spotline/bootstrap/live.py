"""A live market in a process: who quotes it, and how its time runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from spotline.application.health.conditions import Judged
from spotline.application.health.surroundings import FeedFacts, feeds_answer
from spotline.application.market_ingest.handler import IngestState
from spotline.application.market_ingest.live_vetting import LiveVetting
from spotline.application.market_ingest.ports import MarketFeed
from spotline.bootstrap.clouds import CLOUDS, ChosenCloud
from spotline.domain.market.grid import floored_ns
from spotline.domain.market.live_market import LiveMarket
from spotline.domain.market.market_clock import WALL_TIME, MarketClock
from spotline.domain.market.overrides import NO_OVERRIDES, PriceOverrides
from spotline.domain.units import NS_PER_S
from spotline.runtime.feeding import FeedTally, QuoteLog, Silence, record_feed

SILENT_AFTER_S = 600
"""So long may a feed fail to answer before no new spot is bought by what it said, market time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFeeds:
    """The feeds of a live market; none of a recorded one.

    `clock` says how market time follows wall time, `overrides` what this buyer pays. A feed that has not answered for
    `silent_after_s` of market time is dead until it does: no new spot is bought of what it quotes.

    Raises
    ------
    ValueError
        Two feeds have the same name, or the time is not > 0.
    """

    feeds: tuple[MarketFeed, ...] = ()
    clock: MarketClock = WALL_TIME
    silent_after_s: int = SILENT_AFTER_S
    overrides: PriceOverrides = NO_OVERRIDES

    def __post_init__(self) -> None:
        if self.silent_after_s < 1:
            raise ValueError(f"silent_after_s must be >= 1, was {self.silent_after_s}")
        names = [feed.name for feed in self.feeds]
        if len(set(names)) != len(names):
            raise ValueError(f"names of feeds must be unique, were {names}")

    def described(self) -> dict[str, Any]:
        """What a log's manifest says of them."""
        return {
            "feeds": [feed.name for feed in self.feeds],
            "market_s_per_s": self.clock.market_s_per_s,
            "silent_after_s": self.silent_after_s,
            "overrides": [override.described() for override in self.overrides.stated],
        }


NO_FEEDS = LiveFeeds()

LIVE_SLOT_S = 600
"""The slots of a live market where nobody says how long they are, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedMarket:
    """A live market with its feeds, as it begins where its store has none yet."""

    market: LiveMarket
    feeds: LiveFeeds


def followed_market(
    cloud: ChosenCloud,
    store: Path,
    *,
    slot_s: int = 0,
    now_ns: int = 0,
    overrides: PriceOverrides = NO_OVERRIDES,
) -> FollowedMarket | None:
    """The market of a cloud that follows its own; None for any other.

    Slots have `slot_s` seconds (0: `LIVE_SLOT_S`). The first is the one that `now_ns`, wall time
    (0: the present), lies in.
    """
    live = CLOUDS[cloud.name].live
    if live is None:
        return None
    source = live(cloud.settings, store)
    slot_s = slot_s or LIVE_SLOT_S
    market_ns = source.clock.market_at(now_ns or time.time_ns())
    market = LiveMarket(
        source=f"live market of {cloud.name}: {', '.join(feed.name for feed in source.feeds)}",
        offerings=source.offerings,
        slot_s=slot_s,
        start_ns=floored_ns(market_ns, slot_s),
    )
    feeds = LiveFeeds(feeds=source.feeds, clock=source.clock, overrides=overrides)
    return FollowedMarket(market=market, feeds=feeds)


class _Ingesting(Protocol):
    @property
    def state(self) -> IngestState: ...

    async def live(self) -> None: ...


class FeedWatch:
    """Records the feeds of a live market, and says how they are.

    Parameters
    ----------
    clock_ns
        Wall time, ns since the epoch.
    """

    def __init__(
        self,
        feeds: LiveFeeds,
        market: LiveMarket,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._feeds = feeds
        self._market = market
        self._clock_ns = clock_ns
        self.tallies = {feed.name: FeedTally() for feed in feeds.feeds}
        self._ended: set[str] = set()

    def now_ns(self) -> int:
        """Market time."""
        return self._feeds.clock.market_at(self._clock_ns())

    async def record(self, feed: MarketFeed, host: _Ingesting, stream: QuoteLog) -> None:
        """Record what a feed says until it ends, on what the log says by then.

        Raises
        ------
        ProviderUnavailable
            The broker, not the feed, does not answer.
        """
        await host.live()
        await record_feed(
            feed,
            stream,
            pause=self._pause,
            tally=self.tallies[feed.name],
            vetting=LiveVetting(self._market, lambda: host.state),
            silence=Silence(now_ns=self.now_ns, after_s=self._feeds.silent_after_s),
        )
        self._ended.add(feed.name)

    def judged(self, now_s: float) -> Sequence[Judged]:
        """Whether all feeds answer."""
        return [feeds_answer(self.facts(), self._feeds.silent_after_s)]

    def facts(self) -> tuple[FeedFacts, ...]:
        """How each feed is, by name."""
        at_ns = self.now_ns()
        return tuple(
            FeedFacts(
                name=name,
                answered_s_ago=_since_s(tally.answered_ns, at_ns),
                failing_s=_since_s(tally.failing_since_ns, at_ns),
                failures=tally.failures,
                error=tally.error,
                has_ended=name in self._ended,
            )
            for name, tally in sorted(self.tallies.items())
        )

    async def _pause(self, seconds: float) -> None:
        # A rehearsal's feeds fail and answer again in its own time.
        await asyncio.sleep(seconds / self._feeds.clock.market_s_per_s)


def _since_s(then_ns: int | None, at_ns: int) -> int | None:
    return None if then_ns is None else max(0, at_ns - then_ns) // NS_PER_S
