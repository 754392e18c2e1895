"""Records what the feeds of a live market say as a market file, without a system around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions, IngestState
from spotline.application.spec import Timer
from spotline.bootstrap.live import FeedWatch, FollowedMarket
from spotline.contracts.codec import decode
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ContractError
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.market.market import Market
from spotline.replay.recorded import market_seen
from spotline.runtime.timers import ArmedTimers

KEPT_EVERY = 12
"""Slots after which what was seen so far is handed out."""


@dataclass(slots=True)
class _Folded:
    """market_ingest without a log: what feeds say is folded at once."""

    handler: IngestHandler
    state: IngestState = field(init=False)
    slots: list[SlotOpened] = field(default_factory=list)
    opened: MarketOpened | None = None
    seq: int = 0
    changed: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.state = self.handler.initial()

    async def live(self) -> None:
        """It is from the start."""

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Fold what a feed said."""
        for envelope in envelopes:
            self.fold(decode(envelope.kind, envelope.payload))
        return [self.seq] * len(envelopes)

    def fold(self, event: Event) -> None:
        """Take in an event."""
        self.seq += 1
        self.handler.evolve(self.state, event)
        if isinstance(event, MarketOpened):
            self.opened = event
        elif isinstance(event, SlotOpened):
            self.slots.append(event)
            # Nothing is decided here, so nothing is waited for.
            settled = CapacityReported(
                slot=event.slot, revision=0, offset_s=0, holdings=(), settled=True
            )
            self.handler.evolve(self.state, settled)
        self.changed()


async def record_market(
    followed: FollowedMarket,
    *,
    slots: int,
    keep: Callable[[Market], None],
) -> Market:
    """Follow feeds for so many slots, and return the market that they said.

    What was seen so far is given to `keep` every now and then, and at the end, however that comes.
    Prices are kept as they are said: nothing is doubted here.

    Raises
    ------
    ContractError
        No feed has quoted anything by the end.
    """
    market, feeds = followed.market, followed.feeds
    by_clock = IngestOptions(barrier=False, wall_clock=True)
    seen = _Folded(IngestHandler(market, by_clock, clock=feeds.clock))
    watch = FeedWatch(feeds, market)
    done = asyncio.Event()

    async def record(timer: Timer) -> None:
        for event in timer.events:
            seen.fold(event)
        if len(seen.slots) >= slots:
            done.set()
        elif seen.slots and len(seen.slots) % KEPT_EVERY == 0:
            keep(_seen(seen))

    def every_slot() -> list[Timer]:
        """Nothing is bought here: slots that are over open, too, with what was known then."""
        return [replace(timer, late=None) for timer in seen.handler.due(seen.state)]

    timers = ArmedTimers("market_record", record, None)
    try:
        async with asyncio.TaskGroup() as tasks:
            seen.changed = lambda: timers.arm(every_slot(), tasks)
            following = [
                tasks.create_task(watch.record(feed, seen, seen), name=f"feed:{feed.name}")
                for feed in feeds.feeds
            ]
            seen.changed()
            try:
                await done.wait()
            finally:
                seen.changed = lambda: None
                timers.cancel()
                for task in following:
                    task.cancel()
    finally:
        if seen.slots:
            keep(_seen(seen))
    return _seen(seen)


def _seen(seen: _Folded) -> Market:
    if seen.opened is None:
        raise ContractError("feeds", "have quoted nothing: no market was opened")
    market = market_seen(seen.opened, seen.slots)
    return replace(market, source=seen.opened.source)
