"""Records what a market feed says: each quote once, and which of them are not believed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from spotline.application.market_ingest.handler import SPEC
from spotline.application.market_ingest.ports import MarketFeed, Quoted, QuotesStale
from spotline.application.market_ingest.vetting import QuoteVetting, Verdict, Vetting
from spotline.application.spec import derive_id
from spotline.contracts.build import envelope_for
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.contracts.mapping import digest
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


@dataclass(slots=True)
class FeedTally:
    """What was said so far: quotes by verdict, times that offerings fell stale, failures.

    `answered_ns` is when it last said anything, None where it never did; `failing_since_ns` when it
    failed first since then, None while it answers, with the last `error`. Times are market time.
    """

    recorded: int = 0
    known: int = 0
    quarantined: int = 0
    refused: int = 0
    stale: int = 0
    failures: int = 0
    answered_ns: int | None = None
    failing_since_ns: int | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """From when on a feed that fails is dead: `after_s` of market time, by its clock."""

    now_ns: Callable[[], int]
    after_s: int


async def record_feed(
    feed: MarketFeed,
    stream: QuoteLog,
    *,
    pause: Callable[[float], Awaitable[None]],
    tally: FeedTally | None = None,
    vetting: Vetting | None = None,
    silence: Silence | None = None,
) -> FeedTally:
    """Publish what `feed` says until it ends: `QuoteObserved`, or `QuoteQuarantined` of a doubted one.

    New spot of an offering is frozen while its price is doubted, and while nothing is said of it.

    A quote's id comes from what it says: one that is said twice, by this process or one before it,
    is stored once within the broker's duplicate window. A feed that does not answer is asked again
    after a pause, which doubles, or after the one that it asks for.

    Parameters
    ----------
    pause
        Waits for the seconds that it is given.
    tally
        Counts as it goes on; a new one without.
    vetting
        Judges what it says; without, by what it has said itself.
    silence
        From when on a feed that fails is dead; without it never is.

    Raises
    ------
    ProviderUnavailable
        The broker, not the feed, does not answer.
    """
    tally = tally or FeedTally()
    patience = _Patience(feed.name, pause, tally, silence)
    judged = vetting or QuoteVetting.of(await _offerings(feed, patience))

    async def unanswered(since_ns: int) -> None:
        await _record(stream, feed.name, judged.unanswered(since_ns))

    patience.unanswered = unanswered
    async for quoted in _without_failures(feed, patience):
        if isinstance(quoted, QuotesStale):
            tally.stale += len(quoted.offering_ids)
            _log.warning(
                "quotes_stale",
                feed=feed.name,
                offerings=quoted.offering_ids,
                since_ns=quoted.since_ns,
            )
            silent = judged.fell_silent(quoted.offering_ids, quoted.since_ns)
            await _record(stream, feed.name, silent)
            continue
        vetted = judged.judge(quoted)
        again = judged.answered(quoted.offering_id, patience.now_ns())
        await _record(stream, feed.name, (*again, *vetted.events))
        _count(tally, vetted.verdict)
        if vetted.detail:
            _log.warning(
                f"quote_{vetted.verdict.value}",
                feed=feed.name,
                offering_id=quoted.offering_id,
                detail=vetted.detail,
            )
    return tally


def _count(tally: FeedTally, verdict: Verdict) -> None:
    setattr(tally, verdict.value, getattr(tally, verdict.value) + 1)


async def _record(stream: QuoteLog, feed: str, events: Sequence[Event]) -> None:
    if events:
        await stream.publish([_envelope(feed, event) for event in events])


class QuoteLog(Protocol):
    """Where what a feed says is recorded; an `EventStream` is one."""

    async def publish(self, envelopes: Sequence[Envelope]) -> Sequence[int]:
        """Store envelopes in order; idempotent by event id."""
        ...


class _Patience:
    """Waits after a failure of a feed, longer each time until it answers.

    `unanswered` is told since when it did not, once that is long enough, and again while it lasts.
    """

    def __init__(
        self,
        name: str,
        pause: Callable[[float], Awaitable[None]],
        tally: FeedTally,
        silence: Silence | None,
    ) -> None:
        self.unanswered: Callable[[int], Awaitable[None]] | None = None
        self._silence = silence
        self._name = name
        self._pause = pause
        self._tally = tally
        self._next_s = FIRST_PAUSE_S

    def answered(self) -> None:
        """Begin with the shortest pause again."""
        self._next_s = FIRST_PAUSE_S
        self._tally.answered_ns = self.now_ns()
        self._tally.failing_since_ns = None
        self._tally.error = ""

    def now_ns(self) -> int:
        """Market time; 0 where nobody asks for it."""
        return 0 if self._silence is None else self._silence.now_ns()

    async def wait(self, error: ProviderUnavailable) -> None:
        wait_s = error.retry_after_s if isinstance(error, Throttled) else self._next_s
        self._tally.failures += 1
        # Said once, and again where it says something else: it may fail for days.
        tell = _log.debug if self._tally.error == str(error) else _log.warning
        self._tally.error = str(error)
        if self._tally.failing_since_ns is None:
            self._tally.failing_since_ns = self.now_ns()
        tell("feed_silent", feed=self._name, error=str(error), retry_in_s=wait_s)
        await self._tell(self._tally.failing_since_ns)
        await self._pause(wait_s)
        self._next_s = min(2 * self._next_s, LONGEST_PAUSE_S)

    async def _tell(self, since_ns: int) -> None:
        silence = self._silence
        if silence is None or self.unanswered is None:
            return
        if silence.now_ns() - since_ns >= silence.after_s * NS_PER_S:
            await self.unanswered(since_ns)


async def _offerings(feed: MarketFeed, patience: _Patience) -> Sequence[Offering]:
    while True:
        try:
            return await feed.offerings()
        except ProviderUnavailable as error:
            await patience.wait(error)


async def _without_failures(feed: MarketFeed, patience: _Patience) -> AsyncIterator[Quoted]:
    """What a feed says, until it ends: asked again whenever it fails."""
    while True:
        try:
            async for quoted in feed.quotes():
                patience.answered()
                yield quoted
        except ProviderUnavailable as error:
            await patience.wait(error)
        else:
            return


def _envelope(feed: str, event: Event) -> Envelope:
    """The message of an event, under an id made of what it says."""
    event_id = derive_id(feed, f"{KINDS[type(event)]}:{digest(event)}")
    return envelope_for(
        event,
        event_id=event_id,
        source=SPEC.service,
        causation_id="",
        correlation_id=event_id,
    )
