"""A recorded market as a live feed: what tests and rehearsals follow, at any speed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from spotline.application.market_ingest.ports import Quoted, QuotesStale
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.market.market import Market
from spotline.domain.market.offering import Offering, Quote
from spotline.domain.units import NS_PER_S


class FeedClock(Protocol):
    """The clock that a recording is played by."""

    def now_s(self) -> float:
        """Seconds since any moment; never less than before."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """A time of the market in which the source does not answer: from `from_ns` to `until_ns`.

    With `retry_after_s` > 0 it says that it is asked too often, and when to ask again.
    """

    from_ns: int
    until_ns: int
    retry_after_s: float = 0.0


class RecordedFeed:
    """Implements `MarketFeed` on a recorded market.

    Market time runs from the market's start, `speed` seconds of it in a second of `clock`, from
    when the feed is made. A quote comes when its slot opens, if it says anything new; a slot whose
    quote was taken more than `stale_after_s` before it opens is stale. The market's end is that of
    the feed.

    Raises
    ------
    ValueError
        `speed` or `stale_after_s` is not > 0.
    """

    def __init__(
        self,
        market: Market,
        clock: FeedClock,
        *,
        speed: float = 1.0,
        stale_after_s: float = 3600.0,
        outages: Sequence[Outage] = (),
        name: str = "recorded",
    ) -> None:
        for what, value in (("speed", speed), ("stale_after_s", stale_after_s)):
            if not value > 0:
                raise ValueError(f"{what} must be > 0, was {value}")
        self._market = market
        self._clock = clock
        self._speed = speed
        self._stale_after_ns = round(stale_after_s * NS_PER_S)
        self._outages = tuple(outages)
        self._name = name
        self._began_s = clock.now_s()

    @property
    def name(self) -> str:
        """The name that it was given."""
        return self._name

    @property
    def now_ns(self) -> int:
        """Market time."""
        elapsed_s = (self._clock.now_s() - self._began_s) * self._speed
        return self._market.start_ns + round(elapsed_s * NS_PER_S)

    async def offerings(self) -> Sequence[Offering]:
        """The market's offerings, by id."""
        self._answer()
        return tuple(sorted(self._market.offerings, key=lambda offering: offering.offering_id))

    async def quotes(self) -> AsyncIterator[Quoted]:
        """Follow the market from where its time is now."""
        self._answer()
        market, slot_ns = self._market, self._market.slot_s * NS_PER_S
        slot = min(market.slots - 1, (self.now_ns - market.start_ns) // slot_ns)
        said: dict[str, Quote] = {}
        stale: set[str] = set()
        while True:
            for quoted in self._slot(slot, said, stale):
                yield quoted
            if slot + 1 == market.slots:
                return
            slot += 1
            await self._until(market.start_ns + slot * slot_ns)

    def _slot(self, slot: int, said: dict[str, Quote], stale: set[str]) -> Sequence[Quoted]:
        """What a slot says that was not `said` before, and what it leaves unsaid for too long."""
        opened_ns = self._market.start_ns + slot * self._market.slot_s * NS_PER_S
        news: list[Quoted] = []
        fell_stale: list[Quote] = []
        for quote in self._market.quotes(slot):
            if said.get(quote.offering_id) != quote:
                said[quote.offering_id] = quote
                news.append(quote)
            if opened_ns - quote.ts_event_ns <= self._stale_after_ns:
                stale.discard(quote.offering_id)
            elif quote.offering_id not in stale:
                stale.add(quote.offering_id)
                fell_stale.append(quote)
        if fell_stale:
            news.append(
                QuotesStale(
                    offering_ids=tuple(sorted(quote.offering_id for quote in fell_stale)),
                    since_ns=max(quote.ts_event_ns for quote in fell_stale),
                )
            )
        return news

    async def _until(self, market_ns: int) -> None:
        """Wait for a moment of the market, or for the outage that comes before it."""
        before = [outage.from_ns for outage in self._outages if outage.from_ns <= market_ns]
        for moment_ns in sorted({*before, market_ns}):
            while (left_ns := moment_ns - self.now_ns) > 0:
                await self._clock.sleep(left_ns / NS_PER_S / self._speed)
            self._answer()

    def _answer(self) -> None:
        now_ns = self.now_ns
        for outage in self._outages:
            if outage.from_ns <= now_ns < outage.until_ns:
                if outage.retry_after_s > 0:
                    raise Throttled(self._name, outage.retry_after_s)
                raise ProviderUnavailable(f"{self._name}: recorded as not answering")
