"""What market_ingest needs from outside: live quotes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from spotline.domain.market.offering import Offering, Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotesStale:
    """A source answers, but says nothing newer of some offerings.

    `offering_ids` ascend. Their latest quotes were taken at `since_ns` or before. Each offering
    is said to be stale once, until there is a newer quote of it.
    """

    offering_ids: tuple[str, ...]
    since_ns: int


Quoted = Quote | QuotesStale


class MarketFeed(Protocol):
    """Live quotes of one source. Prices are micro-USD per instance-hour, times market time."""

    @property
    def name(self) -> str:
        """The source's name, unique among feeds."""
        ...

    async def offerings(self) -> Sequence[Offering]:
        """The offerings that are quoted, by id.

        Raises
        ------
        Throttled, ProviderUnavailable
            Not now: ask again later.
        """
        ...

    def quotes(self) -> AsyncIterator[Quoted]:
        """Follow the quotes of these offerings, as they come.

        It begins with the latest quote of every offering that has one. After that each newer quote
        comes at least once, in any order, perhaps together with older ones. It ends only
        where the source has nothing more to say, ever.

        Raises
        ------
        Throttled, ProviderUnavailable
            The source does not answer any more. What it says later comes from another call, which
            begins again.
        """
        ...
