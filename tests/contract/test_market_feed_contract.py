"""What every market feed promises its port; a new feed needs its rig here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import pytest

from spotline.adapters.clouds.aws.feeds.feed import AwsMarketFeed, FeedPace
from spotline.adapters.market.recorded_feed import Outage, RecordedFeed
from spotline.application.market_ingest.ports import MarketFeed, Quoted, QuotesStale
from spotline.application.market_ingest.vetting import QuoteVetting, Verdict
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Quote
from spotline.domain.units import NS_PER_S
from tests.eventually import PATIENCE_S
from tests.fakes.aws_market import ScriptedAws, WallOf, aws_market, aws_settings
from tests.fakes.clock import TurnedClock
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import with_one

SLOTS = 12
SILENT_SLOT, SPEAKS_AGAIN_SLOT = 4, 6
STALE_FROM = 7


def silenced(market: Market) -> Market:
    """What the source of every rig says: a market whose first offering falls silent."""
    quoted = market.quoted_ns.copy()
    quoted[STALE_FROM - 2 :, 0] = quoted[STALE_FROM - 2, 0]
    frozen = {"quoted_ns": quoted}
    for name in ("spot_price_micro_usd", "spot_available"):
        values = getattr(market, name).copy()
        values[STALE_FROM - 2 :, 0] = values[STALE_FROM - 2, 0]
        frozen[name] = values
    return replace(market, **frozen)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRig:
    """How the suite uses one feed.

    `open` opens it on a source that says what `source` does, slot by slot as `turn` lets time go
    on, and that answers until slot `SILENT_SLOT`, with `fails` not before `SPEAKS_AGAIN_SLOT`.
    """

    source: Market
    open: Callable[[bool, float], MarketFeed]
    turn: Callable[[int], None]


def recorded_rig() -> FeedRig:
    clock = TurnedClock()
    market = silenced(with_one(small_market(slots=SLOTS), instances=3, slots=9))
    slot_ns = market.slot_s * NS_PER_S

    def opened(fails: bool, retry_after_s: float) -> MarketFeed:
        outage = Outage(
            from_ns=market.start_ns + SILENT_SLOT * slot_ns,
            until_ns=market.start_ns + SPEAKS_AGAIN_SLOT * slot_ns,
            retry_after_s=retry_after_s,
        )
        return RecordedFeed(
            market,
            clock,
            speed=60.0,
            stale_after_s=market.slot_s,
            outages=[outage] if fails else [],
        )

    return FeedRig(
        source=market,
        open=opened,
        turn=lambda slots: clock.turn(slots * market.slot_s / 60.0),
    )


def aws_rig() -> FeedRig:
    clock = TurnedClock()
    market = silenced(aws_market(small_market(slots=SLOTS)))
    api = ScriptedAws(market, clock, silent_from=STALE_FROM - 1)
    # A price is asked for when a slot opens, and said again although it holds.
    pace = FeedPace(
        poll_s=market.slot_s,
        confirm_every_s=market.slot_s,
        stale_after_s=market.slot_s,
        until_ns=market.start_ns + (SLOTS - 1) * market.slot_s * NS_PER_S,
    )

    def opened(fails: bool, retry_after_s: float) -> MarketFeed:
        api.outage = (SILENT_SLOT, SPEAKS_AGAIN_SLOT) if fails else (0, 0)
        api.retry_after_s = retry_after_s
        settings = aws_settings(market)
        return AwsMarketFeed(settings, api, WallOf(clock, market.start_ns), pace=pace)

    return FeedRig(source=market, open=opened, turn=lambda slots: clock.turn(slots * market.slot_s))


RIGS = {"aws": aws_rig, "recorded": recorded_rig}


@pytest.fixture(params=sorted(RIGS))
def rig(request) -> FeedRig:
    return RIGS[request.param]()


async def said_until_silent(rig: FeedRig, quotes: AsyncIterator[Quoted]) -> list[Quoted]:
    """All that a feed says while time goes on to the market's end."""
    said: list[Quoted] = []

    async def take() -> None:
        async for quoted in quotes:
            said.append(quoted)  # noqa: PERF401 - what came before a failure counts

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        taking = tasks.create_task(take())
        while not taking.done():
            for _ in range(4):  # whoever is awake has his turn before time goes on
                await asyncio.sleep(0)
            rig.turn(1)
    return said


def latest(said: Sequence[Quoted]) -> dict[str, Quote]:
    found: dict[str, Quote] = {}
    for quoted in said:
        if isinstance(quoted, Quote):
            known = found.get(quoted.offering_id)
            if known is None or quoted.ts_event_ns >= known.ts_event_ns:
                found[quoted.offering_id] = quoted
    return found


async def test_its_offerings_are_those_that_it_quotes(rig):
    feed = rig.open(False, 0.0)

    offerings = await feed.offerings()
    said = await said_until_silent(rig, feed.quotes())

    ids = [offering.offering_id for offering in offerings]
    assert ids == sorted(offering.offering_id for offering in rig.source.offerings)
    assert set(latest(said)) == set(ids)


async def test_it_begins_with_the_latest_quote_of_every_offering(rig):
    feed = rig.open(False, 0.0)
    rig.turn(3)

    async with asyncio.timeout(PATIENCE_S), aclosing(feed.quotes()) as quotes:
        first = [await anext(quotes) for _ in rig.source.offerings]

    assert latest(first) == {quote.offering_id: quote for quote in rig.source.quotes(3)}


async def test_everything_new_is_said_at_least_once_and_may_be_believed(rig):
    feed = rig.open(False, 0.0)
    vetting = QuoteVetting.of(await feed.offerings())

    said = await said_until_silent(rig, feed.quotes())

    quotes = [quoted for quoted in said if isinstance(quoted, Quote)]
    expected = {quote for slot in range(SLOTS) for quote in rig.source.quotes(slot)}
    assert set(quotes) == expected
    assert {vetting.judge(quote).verdict for quote in quotes} <= {Verdict.RECORDED, Verdict.KNOWN}
    assert vetting.last == {quote.offering_id: quote for quote in rig.source.quotes(SLOTS - 1)}


async def test_an_offering_of_which_nothing_is_heard_is_said_to_be_stale_once(rig):
    silent = rig.source.offerings[0].offering_id

    said = await said_until_silent(rig, rig.open(False, 0.0).quotes())

    stale = [quoted for quoted in said if isinstance(quoted, QuotesStale)]
    assert [quoted.offering_ids for quoted in stale] == [(silent,)]
    assert stale[0].since_ns == latest(said)[silent].ts_event_ns


@pytest.mark.parametrize(("retry_after_s", "error"), [(0.0, ProviderUnavailable), (7.5, Throttled)])
async def test_a_source_that_does_not_answer_is_an_error_and_later_begins_anew(
    rig, retry_after_s, error
):
    feed = rig.open(True, retry_after_s)

    with pytest.raises(ExceptionGroup) as failed:
        await said_until_silent(rig, feed.quotes())
    (raised,) = failed.value.exceptions
    assert type(raised) is error
    if isinstance(raised, Throttled):
        assert raised.retry_after_s == retry_after_s
    with pytest.raises(error):
        await feed.offerings()
    with pytest.raises(error):
        await anext(feed.quotes())

    rig.turn(SPEAKS_AGAIN_SLOT - SILENT_SLOT)
    said = await said_until_silent(rig, feed.quotes())
    assert set(latest(said)) == {offering.offering_id for offering in rig.source.offerings}
