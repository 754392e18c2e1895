"""What a feed says is on the log of a real broker, each quote once."""

from __future__ import annotations

import asyncio

import pytest

from spotline.adapters.market.recorded_feed import Outage, RecordedFeed
from spotline.contracts.build import event_of
from spotline.domain.events.market import QuoteObserved
from spotline.domain.units import NS_PER_S
from spotline.runtime.feeding import FeedTally, record_feed
from tests.eventually import PATIENCE_S
from tests.fakes.clock import TurnedClock
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import with_one

pytestmark = pytest.mark.integration

MARKET = with_one(small_market(slots=10), instances=2, slots=7)
SLOT_NS = MARKET.slot_s * NS_PER_S


async def recorded(stream) -> FeedTally:
    """Record a feed that fails twice, on a clock that goes on while anybody waits."""
    clock = TurnedClock()
    outages = [
        Outage(from_ns=MARKET.start_ns + 3 * SLOT_NS, until_ns=MARKET.start_ns + 4 * SLOT_NS),
        Outage(
            from_ns=MARKET.start_ns + 6 * SLOT_NS,
            until_ns=MARKET.start_ns + 7 * SLOT_NS,
            retry_after_s=5.0,
        ),
    ]
    feed = RecordedFeed(MARKET, clock, speed=float(MARKET.slot_s), outages=outages)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        recording = tasks.create_task(record_feed(feed, stream, pause=clock.sleep))
        while not recording.done():
            if clock.sleepers:
                clock.turn(0.25)
            await asyncio.sleep(0)
    return recording.result()


async def test_each_quote_is_stored_once_whatever_fails_and_whoever_records_again(event_stream):
    tally = await recorded(event_stream)
    await recorded(event_stream)

    last_seq = await event_stream.last_seq()
    entries = [entry async for entry in event_stream.read([], last_seq=last_seq)]
    quotes = [event_of(entry) for entry in entries]
    assert all(isinstance(event, QuoteObserved) for event in quotes)
    said = [event.quote for event in quotes]
    assert len(said) == len(set(said)) == tally.recorded
    assert set(MARKET.quotes(9)) <= set(said)
    assert tally.failures == 2
    assert tally.refused == 0
