"""AWS's own market, followed: spot price changes of every account and region, joined with list prices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

import structlog

from spotline.adapters.clouds.aws.calling import AwsReader, pages
from spotline.adapters.clouds.aws.feeds.advice import PlacementAdvice
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.feeds.quote_book import QuoteBook
from spotline.adapters.clouds.aws.feeds.spot_prices import (
    PRODUCTS,
    SpotPricePoint,
    points_by_place,
    read_point,
)
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.application.market_ingest.ports import Quoted
from spotline.contracts.errors import ContractError, ProviderUnavailable, Throttled
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

NAME = "aws"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As many rows as EC2 puts into one answer.
_ROWS = 1000
_PATIENCE = 3
# However fast market time runs, nobody is asked more often than this, in wall time.
LEAST_WALL_S = 0.5
_STALE_WALL_S = 20.0


class FeedWall(Protocol):
    """Wall time, and waiting in it."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPace:
    """How often prices are asked for, in seconds of market time.

    Parameters
    ----------
    poll_s
        Between two askings.
    overlap_s
        How far an asking reaches back behind the one before: a change may become visible late.
    confirm_every_s
        A price that holds is said again after so long.
    stale_after_s
        An offering of which nothing was confirmed for longer is stale.
    until_ns
        Market time after which the feed ends; 0: it does not.
    answer_within_s
        Wall seconds that an account has to answer in a region: none may hold up the others.
    """

    poll_s: float = 60.0
    overlap_s: float = 600.0
    confirm_every_s: float = 300.0
    stale_after_s: float = 900.0
    until_ns: int = 0
    answer_within_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("poll_s", "confirm_every_s", "stale_after_s", "answer_within_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, was {getattr(self, name)}")
        if self.overlap_s < 0 or self.until_ns < 0:
            raise ValueError("overlap_s and until_ns must be >= 0")


def pace_in(clock: MarketClock) -> FeedPace:
    """The usual pace; where time runs fast, it is stale no sooner than calls and pauses take."""
    usual = FeedPace()
    stale_after_s = max(usual.stale_after_s, _STALE_WALL_S * clock.market_s_per_s)
    return replace(usual, stale_after_s=stale_after_s)


@dataclass(slots=True)
class _Group:
    """The offerings of one account in one region: they are asked for, and fail, together."""

    account: str
    region: str
    offerings: list[AwsOffering]
    zone_ids: dict[str, str] = field(default_factory=dict)
    zones_known: bool = False
    asked_ns: int = -1
    not_before_ns: int = 0


class AwsMarketFeed:
    """Implements `MarketFeed` on DescribeSpotPriceHistory and the Price List.

    Quotes carry unknown counts: AWS publishes none. An account or region that does not answer
    silences only its own offerings, which fall stale; the feed fails where none answers. `close` is
    called when nobody follows its quotes any more.
    """

    def __init__(
        self,
        settings: AwsSettings,
        api: AwsReader,
        clock: FeedWall,
        *,
        pace: FeedPace | None = None,
        on_demand: OnDemandPrices | None = None,
        advice: PlacementAdvice | None = None,
        close: Callable[[], None] | None = None,
    ) -> None:
        self._settings = settings
        self._close, self._advice = close, advice
        self._api = api
        self._clock = clock
        self._pace = pace or pace_in(settings.clock)
        # A reservation has no price that anybody could quote: the market knows what it costs.
        self._quoted = tuple(each for each in settings.offerings if each.reservation is None)
        self._groups = _groups_of(self._quoted)
        self._book: QuoteBook | None = None
        self._on_demand = on_demand or OnDemandPrices(
            api,
            [account.name for account in settings.accounts],
            [(offering.region, offering.instance_type) for offering in self._quoted],
        )

    @property
    def name(self) -> str:
        """`aws`."""
        return NAME

    async def offerings(self) -> Sequence[Offering]:
        """The offerings of the settings but reservations, by id, once any account and region answers."""
        now_ns = self._now_ns()
        answers = await self._ask(self._groups, now_ns, since_ns=now_ns)
        _fail_where_none_answers(list(answers))
        offerings = map(market_offering, self._quoted)
        return tuple(sorted(offerings, key=lambda offering: offering.offering_id))

    async def quotes(self) -> AsyncIterator[Quoted]:
        """Follow the prices from now on."""
        pace = self._pace
        least_ns = round(LEAST_WALL_S * self._settings.clock.market_s_per_s * NS_PER_S)
        poll_ns, now_ns = max(round(pace.poll_s * NS_PER_S), least_ns), self._now_ns()
        book = self._book = QuoteBook(
            began_ns=now_ns,
            confirm_every_ns=round(pace.confirm_every_s * NS_PER_S),
            # A silence is one only after several askings, however fast time runs.
            stale_after_ns=max(round(pace.stale_after_s * NS_PER_S), _PATIENCE * least_ns),
            remembered=self._book.latest() if self._book else {},
        )
        for group in self._groups:
            group.asked_ns = -1
        try:
            while True:
                for quoted in await self._poll(book, now_ns):
                    yield quoted
                # Polls that were missed are not made up for: an asking reaches back to the last one.
                next_ns = max(now_ns + poll_ns, self._now_ns())
                if pace.until_ns and next_ns > pace.until_ns:
                    return
                await self._until(next_ns)
                now_ns = self._now_ns()
        finally:
            if self._close is not None:
                self._close()

    async def _poll(self, book: QuoteBook, now_ns: int) -> list[Quoted]:
        """Ask all who may be asked now, and say what is new."""
        await self._on_demand.refresh(now_ns)
        if self._advice is not None:
            for given in await self._advice.of(self._quoted, now_ns):
                book.advised(given.offering_id, given.score, given.asked_ns)
        due = [group for group in self._groups if group.not_before_ns <= now_ns]
        answers = await self._ask(due, now_ns)
        if len(due) == len(self._groups):
            _fail_where_none_answers(answers)
        news: list[Quoted] = []
        for group, answer in zip(due, answers, strict=True):
            if isinstance(answer, ProviderUnavailable):
                self._failed(group, answer, now_ns)
                continue
            group.asked_ns = now_ns
            by_place = points_by_place(answer, group.zone_ids)
            for offering in group.offerings:
                news += self._heard(
                    book,
                    offering,
                    by_place.get((offering.zone, offering.instance_type), ()),
                    now_ns,
                )
        ids = [offering.offering_id for group in self._groups for offering in group.offerings]
        return [*book.begun(), *news, *book.silent(ids, now_ns)]

    def _heard(
        self,
        book: QuoteBook,
        offering: AwsOffering,
        points: Sequence[SpotPricePoint],
        now_ns: int,
    ) -> Sequence[Quoted]:
        price = self._on_demand.price(offering.region, offering.instance_type)
        # An answer always holds the price in force: of what it leaves out it says nothing.
        if price is None or not points:
            return ()
        return book.heard(offering.offering_id, points, price.price_micro_usd, now_ns)

    def _failed(self, group: _Group, error: ProviderUnavailable, now_ns: int) -> None:
        if isinstance(error, Throttled):
            clock = self._settings.clock
            wall_ns = clock.wall_at(now_ns) + round(error.retry_after_s * NS_PER_S)
            group.not_before_ns = clock.market_at(wall_ns)
        _log.warning(
            "spot_prices_silent", account=group.account, region=group.region, error=str(error)
        )

    async def _ask(
        self, groups: Sequence[_Group], now_ns: int, *, since_ns: int | None = None
    ) -> list[list[SpotPricePoint] | ProviderUnavailable]:
        """The points of each group since it was last asked, or why there are none."""

        async def asked(group: _Group) -> list[SpotPricePoint] | ProviderUnavailable:
            within_s = self._pace.answer_within_s
            try:
                async with asyncio.timeout(within_s):
                    return await self._points(group, now_ns, since_ns)
            except ProviderUnavailable as error:
                return error
            except TimeoutError:
                return ProviderUnavailable(
                    f"aws {group.account}/{group.region}: no answer within {within_s:g} s"
                )

        async with asyncio.TaskGroup() as tasks:
            asking = [tasks.create_task(asked(group), name=group.region) for group in groups]
        return [task.result() for task in asking]

    async def _points(
        self, group: _Group, now_ns: int, since_ns: int | None
    ) -> list[SpotPricePoint]:
        overlap_ns = round(self._pace.overlap_s * NS_PER_S)
        began_ns = now_ns if group.asked_ns < 0 else group.asked_ns - overlap_ns
        rows = await pages(
            self._api,
            (group.account, group.region, "ec2"),
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=sorted({offering.instance_type for offering in group.offerings}),
            ProductDescriptions=list(PRODUCTS),
            # It also answers the last change before this moment: the price in force.
            StartTime=_moment(began_ns if since_ns is None else since_ns),
            EndTime=_moment(now_ns),
            MaxResults=_ROWS,
        )
        points = []
        for row in rows:
            try:
                points.append(read_point(row))
            except ContractError as error:
                _log.warning("spot_price_refused", region=group.region, error=str(error))
        if not group.zones_known and any(not point.zone_id for point in points):
            await self._learn_zones(group)
        return points

    async def _learn_zones(self, group: _Group) -> None:
        """Learn which zone ids the names of this account stand for."""
        answer = await self._api.call(
            group.account, group.region, "ec2", "DescribeAvailabilityZones"
        )
        group.zone_ids = {
            str(zone["ZoneName"]): str(zone["ZoneId"])
            for zone in answer.get("AvailabilityZones", ())
        }
        group.zones_known = True

    def _now_ns(self) -> int:
        return self._settings.clock.market_at(self._clock.now_ns())

    async def _until(self, market_ns: int) -> None:
        clock = self._settings.clock
        while (left_ns := clock.wall_at(market_ns) - self._clock.now_ns()) > 0:
            await self._clock.sleep(left_ns / NS_PER_S)


def _groups_of(offerings: Sequence[AwsOffering]) -> list[_Group]:
    found: dict[tuple[str, str], list[AwsOffering]] = {}
    for offering in sorted(offerings, key=lambda offering: offering.offering_id):
        found.setdefault((offering.account, offering.region), []).append(offering)
    return [
        _Group(account=account, region=region, offerings=found[account, region])
        for account, region in sorted(found)
    ]


def _fail_where_none_answers(
    answers: Sequence[list[SpotPricePoint] | ProviderUnavailable],
) -> None:
    """Raise what all of them raised: the longest pause where any of them asks for one."""
    errors = [answer for answer in answers if isinstance(answer, ProviderUnavailable)]
    if not errors or len(errors) < len(answers):
        return
    throttled = [error for error in errors if isinstance(error, Throttled)]
    if throttled:
        raise max(throttled, key=lambda error: error.retry_after_s)
    raise errors[0]


def _moment(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
