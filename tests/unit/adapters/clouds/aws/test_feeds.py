"""AWS's prices, read and joined: change points, list prices, what is kept when nobody answers."""

import asyncio
import json
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.clouds.aws.calling import CallRefused
from spotline.adapters.clouds.aws.feeds.advice import PlacementAdvice
from spotline.adapters.clouds.aws.feeds.feed import AwsMarketFeed, FeedPace
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.feeds.on_demand import REFRESH_S, RETRY_S, OnDemandPrices
from spotline.adapters.clouds.aws.feeds.placement_scores import (
    KEPT_S,
    MOST_A_DAY,
    PlacementScores,
    ScoredConfiguration,
)
from spotline.adapters.clouds.aws.feeds.price_list import (
    bundled_prices,
    on_demand_price,
    read_bundled,
)
from spotline.adapters.clouds.aws.feeds.quote_book import QuoteBook
from spotline.adapters.clouds.aws.feeds.spot_prices import (
    IN_VPC,
    SpotPricePoint,
    points_by_place,
    read_point,
)
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings
from spotline.adapters.market.instance_types import INSTANCE_TYPES
from spotline.application.market_ingest.ports import QuotesStale
from spotline.bootstrap.clouds import aws_source
from spotline.contracts.errors import ConfigError, ContractError, ProviderUnavailable, Throttled
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.market.offering import Provenance
from spotline.domain.units import NS_PER_S, micro_usd_from_usd
from tests.eventually import PATIENCE_S
from tests.fakes.aws_market import WallOf
from tests.fakes.clock import TurnedClock

AT = datetime(2026, 11, 1, tzinfo=UTC)
AT_NS = round(AT.timestamp()) * NS_PER_S


def row(**changed):
    return {
        "AvailabilityZone": "us-east-1a",
        "AvailabilityZoneId": "use1-az4",
        "InstanceType": "g5.xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.412300",
        "Timestamp": AT,
        **changed,
    }


def point(at_s: int, price: int = 400_000, **changed) -> SpotPricePoint:
    stated = {
        "zone_id": "z1",
        "zone_name": "a",
        "instance_type": "g5.xlarge",
        "product": "Linux/UNIX",
        "at_ns": at_s * NS_PER_S,
        "price_micro_usd": price,
    }
    return SpotPricePoint(**{**stated, **changed})


# --- spot prices ------------------------------------------------------------------------------


def test_a_row_is_read_with_its_zone_id_and_exact_price():
    read = read_point(row())

    assert (read.zone_id, read.instance_type) == ("use1-az4", "g5.xlarge")
    assert (read.price_micro_usd, read.at_ns) == (412_300, AT_NS)


@pytest.mark.parametrize(
    ("changed", "member"),
    [
        ({"SpotPrice": "free"}, "SpotPrice"),
        ({"SpotPrice": "0"}, "SpotPrice"),
        ({"SpotPrice": "nan"}, "SpotPrice"),
        ({"SpotPrice": None}, "SpotPrice"),
        ({"SpotPrice": "2000000"}, "SpotPrice"),
        ({"Timestamp": "2026-11-01"}, "Timestamp"),
        ({"Timestamp": datetime(2026, 11, 1)}, "Timestamp"),  # noqa: DTZ001 - what is refused
        ({"InstanceType": ""}, "InstanceType"),
    ],
)
def test_a_row_that_is_none_names_its_member(changed, member):
    with pytest.raises(ContractError) as refused:
        read_point(row(**changed))

    assert refused.value.where == f"SpotPriceHistory[].{member}"


def test_points_are_grouped_by_zone_id_even_where_only_the_name_is_told():
    told = [point(5), point(3, zone_id="", zone_name="us-east-1a"), point(1, zone_id="z2")]

    grouped = points_by_place(told, {"us-east-1a": "z1"})

    assert list(grouped) == [("z1", "g5.xlarge"), ("z2", "g5.xlarge")]
    assert [each.at_ns for each in grouped["z1", "g5.xlarge"]] == [3 * NS_PER_S, 5 * NS_PER_S]


def test_where_a_price_for_the_vpc_is_told_it_is_the_one():
    told = [point(5), point(4, product=IN_VPC), point(6)]

    (points,) = points_by_place(told, {}).values()

    assert [each.product for each in points] == [IN_VPC]


# --- the book ---------------------------------------------------------------------------------


def book(**changed) -> QuoteBook:
    stated = {"began_ns": 0, "confirm_every_ns": 300 * NS_PER_S, "stale_after_ns": 900 * NS_PER_S}
    return QuoteBook(**{**stated, **changed})


def told(quotes):
    return [(quote.ts_event_ns // NS_PER_S, quote.spot_price_micro_usd) for quote in quotes]


def test_the_price_in_force_before_anybody_asked_is_said_as_of_the_answer():
    (quote,) = book().heard("o", [point(10)], 1_000_000, 100 * NS_PER_S)

    assert told([quote]) == [(100, 400_000)]
    assert quote.on_demand_price_micro_usd == 1_000_000
    assert quote.spot_available.provenance is Provenance.UNKNOWN


def test_a_change_is_said_at_its_own_moment_and_a_price_that_holds_now_and_then():
    known = book()
    known.heard("o", [point(10)], 1, 100 * NS_PER_S)

    assert told(known.heard("o", [point(10), point(150, 500)], 1, 160 * NS_PER_S)) == [(150, 500)]
    assert told(known.heard("o", [point(150, 500)], 1, 220 * NS_PER_S)) == []
    assert told(known.heard("o", [], 1, 450 * NS_PER_S)) == [(450, 500)]


def test_a_change_that_becomes_visible_late_is_said_as_of_the_answer():
    known = book()
    known.heard("o", [point(10)], 1, 100 * NS_PER_S)

    assert told(known.heard("o", [point(90, 500)], 1, 110 * NS_PER_S)) == [(110, 500)]


def test_a_new_list_price_is_said_at_once():
    known = book()
    known.heard("o", [point(10)], 1, 100 * NS_PER_S)

    (quote,) = known.heard("o", [], 2, 110 * NS_PER_S)

    assert quote.on_demand_price_micro_usd == 2


def test_an_offering_without_a_spot_price_is_not_quoted_and_falls_stale():
    known = book()

    assert known.heard("o", [], 1, NS_PER_S) == []
    assert known.silent(["o"], 900 * NS_PER_S) == []
    assert known.silent(["o"], 901 * NS_PER_S) == [QuotesStale(offering_ids=("o",), since_ns=0)]
    assert known.silent(["o"], 950 * NS_PER_S) == []


@given(
    changes=st.lists(
        st.tuples(st.integers(1, 400), st.integers(1, 9)),
        min_size=1,
        max_size=12,
        unique_by=lambda c: c[0],
    ),
    asked=st.lists(st.integers(1, 600), min_size=1, max_size=12, unique=True),
)
def test_quotes_never_go_back_and_the_last_one_is_the_price_in_force(changes, asked):
    known, history = book(), [point(at, price) for at, price in sorted(changes)]
    said = []
    for at in sorted(asked):
        visible = [each for each in history if each.at_ns <= at * NS_PER_S]
        said += known.heard("o", visible, 1, at * NS_PER_S)
        if visible:
            assert said[-1].spot_price_micro_usd == visible[-1].price_micro_usd

    moments = [quote.ts_event_ns for quote in said]
    assert moments == sorted(set(moments))


# --- list prices ------------------------------------------------------------------------------


def product(usd="1.006", unit="Hrs", **attributes):
    stated = {"regionCode": "us-east-1", "instanceType": "g5.xlarge", "tenancy": "Shared"}
    dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
    return json.dumps(
        {
            "product": {"attributes": {**stated, **attributes}},
            "terms": {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}},
        }
    )


def test_the_price_of_the_type_is_taken_and_no_other():
    products = [
        product(),
        product("9", tenancy="Dedicated"),
        product("8", instanceType="g5.2xlarge"),
        product("7", unit="Quantity"),
        product("0"),
    ]

    assert on_demand_price(products, "us-east-1", "g5.xlarge") == 1_006_000
    assert on_demand_price([product("0")], "us-east-1", "g5.xlarge") is None


@pytest.mark.parametrize("broken", ["{", json.dumps({"product": {}}), product("dear")])
def test_a_product_that_cannot_be_read_is_refused(broken):
    with pytest.raises(ContractError):
        on_demand_price([broken], "us-east-1", "g5.xlarge")


def test_bundled_prices_have_their_sources_and_agree_with_the_list_of_the_importers():
    prices = bundled_prices()

    assert {price.source for price in prices.values()} == {"karpenter", "list", "skypilot"}
    for name, known in INSTANCE_TYPES.items():
        if known.us_list_price_usd is not None:
            listed = micro_usd_from_usd(known.us_list_price_usd)
            assert prices["us-east-1", name].price_micro_usd == listed


@pytest.mark.parametrize(
    "text",
    [
        "region,price\n",
        "region,instance_type,usd_per_hour,as_of,source\nus-east-1,g5.xlarge,dear,2026-01-19,s\n",
        "region,instance_type,usd_per_hour,as_of,source\nus-east-1,g5.xlarge,0,2026-01-19,s\n",
        "region,instance_type,usd_per_hour,as_of,source\nus-east-1,g5.xlarge,1\n",
    ],
)
def test_a_table_that_is_none_is_refused(text):
    with pytest.raises(ContractError):
        read_bundled(text)


class PriceList:
    """Answers prices by endpoint; an endpoint that is not in `answers` refuses."""

    def __init__(self, **answers):
        self.answers = answers
        self.asked = []

    async def call(self, account, region, service, operation, **params):
        self.asked.append(region)
        found = self.answers.get(region.replace("-", "_"))
        if found is None:
            raise CallRefused(operation, "AccessDeniedException", "you may not")
        return {"PriceList": [product(found)]}


PLACE = ("us-east-1", "g5.xlarge")


async def test_another_endpoint_is_asked_where_one_refuses_and_again_after_half_a_day():
    api = PriceList(eu_central_1="1.1")
    prices = OnDemandPrices(api, ["a"], [PLACE])

    await prices.refresh(0)
    await prices.refresh((REFRESH_S - 1) * NS_PER_S)

    assert prices.price(*PLACE).price_micro_usd == 1_100_000
    assert api.asked == ["us-east-1", "eu-central-1"]
    api.answers = {"us_east_1": "1.2"}
    await prices.refresh(REFRESH_S * NS_PER_S)
    assert prices.price(*PLACE).price_micro_usd == 1_200_000


async def test_the_last_good_price_is_kept_with_its_age_and_asked_for_again_sooner():
    api = PriceList(us_east_1="1.1")
    prices = OnDemandPrices(api, ["a"], [PLACE])
    await prices.refresh(5)

    api.answers = {}
    later_ns = 5 + REFRESH_S * NS_PER_S
    await prices.refresh(later_ns)

    kept = prices.price(*PLACE)
    assert (kept.price_micro_usd, kept.as_of_ns) == (1_100_000, 5)
    asked = len(api.asked)
    await prices.refresh(later_ns + RETRY_S * NS_PER_S)
    assert len(api.asked) > asked


async def test_where_nobody_ever_answered_the_bundled_price_stands_and_says_so():
    api = PriceList()
    prices = OnDemandPrices(api, ["a"], [PLACE, ("mars-1", "g5.xlarge")])

    await prices.refresh(0)

    bundled = prices.price(*PLACE)
    assert bundled.price_micro_usd == 1_006_000
    assert (bundled.as_of_ns, bundled.source) == (0, "bundled table, karpenter, 2026-01-19")
    assert prices.price("mars-1", "g5.xlarge") is None


async def test_an_endpoint_that_never_answers_holds_up_neither_the_next_nor_spot_prices():
    class Hanging(PriceList):
        async def call(self, account, region, service, operation, **params):
            if region == "us-east-1" or not self.answers:
                await asyncio.Event().wait()
            return await super().call(account, region, service, operation, **params)

    async with asyncio.timeout(PATIENCE_S):
        for api in (Hanging(eu_central_1="1.1"), Hanging()):
            prices = OnDemandPrices(api, ["a"], [PLACE], within_s=0.01)
            await prices.refresh(0)
            heard = prices.price(*PLACE).source == "price list"
            assert heard is bool(api.answers)


# --- the feed ---------------------------------------------------------------------------------


def offering(account="main", region="us-east-1", zone="use1-az4", **changed) -> AwsOffering:
    stated = {
        "account": account,
        "region": region,
        "zone": zone,
        "instance_type": "g5.xlarge",
        "gpu_model": "a10g",
        "gpus_per_instance": 1,
        "launch_template_id": "lt-1",
    }
    return AwsOffering(**{**stated, **changed})


def test_an_offering_counts_against_its_family_in_its_account_and_region():
    made = market_offering(offering())

    assert made.quota_pool == "aws:main:us-east-1:g"
    assert (made.offering_id, made.provider) == ("aws:main:use1-az4:g5.xlarge", "aws")
    assert made.notice_lead_s == 0


class TwoRegions:
    """Spot prices of two regions in two pages each; `fail` raises for a region."""

    def __init__(self):
        self.fail = {}
        self.hangs = set()
        self.empty = set()
        self.asked = []

    async def call(self, account, region, service, operation, **params):
        if region in self.hangs:
            await asyncio.Event().wait()
        if operation == "DescribeAvailabilityZones":
            return {"AvailabilityZones": [{"ZoneName": f"{region}a", "ZoneId": f"{region}-az1"}]}
        if operation == "GetProducts":
            raise CallRefused(operation, "AccessDeniedException", "you may not")
        self.asked.append((region, params["StartTime"], params.get("NextToken")))
        if region in self.fail:
            raise self.fail[region]
        if region in self.empty:
            return {"SpotPriceHistory": []}
        if "NextToken" not in params:
            return {"SpotPriceHistory": [], "NextToken": "2"}
        told = row(AvailabilityZone=f"{region}a", AvailabilityZoneId=None)
        return {"SpotPriceHistory": [row(SpotPrice="-1"), told], "NextToken": ""}


def two_regions(api, clock, **pace) -> AwsMarketFeed:
    settings = AwsSettings(
        accounts=(AwsAccount(name="main", account_id="000000000001"),),
        offerings=tuple(
            offering(region=region, zone=f"{region}-az1") for region in ("us-east-1", "us-west-2")
        ),
        clock=MarketClock(wall_ns=AT_NS, market_ns=AT_NS, market_s_per_s=1.0),
    )
    return AwsMarketFeed(settings, api, WallOf(clock, AT_NS + 60 * NS_PER_S), pace=FeedPace(**pace))


EAST, WEST = "aws:main:us-east-1-az1:g5.xlarge", "aws:main:us-west-2-az1:g5.xlarge"


async def test_all_pages_are_read_names_become_ids_and_a_bad_row_costs_only_itself():
    feed = two_regions(TwoRegions(), TurnedClock())

    async with asyncio.timeout(PATIENCE_S), aclosing(feed.quotes()) as quotes:
        first = [await anext(quotes), await anext(quotes)]

    assert [quote.offering_id for quote in first] == [EAST, WEST]
    assert {quote.spot_price_micro_usd for quote in first} == {412_300}
    assert {quote.on_demand_price_micro_usd for quote in first} == {1_006_000}


async def test_connections_are_closed_when_nobody_follows_any_more():
    closed = []
    settings = AwsSettings(
        accounts=(AwsAccount(name="main", account_id="000000000001"),),
        offerings=(offering(zone="us-east-1-az1"),),
    )
    clock = WallOf(TurnedClock(), AT_NS)
    feed = AwsMarketFeed(settings, TwoRegions(), clock, close=lambda: closed.append(1))

    async with asyncio.timeout(PATIENCE_S), aclosing(feed.quotes()) as quotes:
        await anext(quotes)
        assert closed == []
    assert closed == [1]


async def test_a_reservation_is_not_quoted():
    api = TwoRegions()
    reserved = offering(
        region="us-east-1",
        zone="us-east-1-az1",
        capacity_reservation_id="cr-1",
        reserved_instances=2,
    )
    settings = AwsSettings(
        accounts=(AwsAccount(name="main", account_id="000000000001"),),
        offerings=(reserved, offering(region="us-west-2", zone="us-west-2-az1")),
    )
    feed = AwsMarketFeed(settings, api, WallOf(TurnedClock(), AT_NS))

    assert [each.offering_id for each in await feed.offerings()] == [WEST]
    assert {region for region, _, _ in api.asked} == {"us-west-2"}


async def test_a_region_that_fails_silences_only_its_own_offerings():
    api, clock = TwoRegions(), TurnedClock()
    feed = two_regions(api, clock, poll_s=60, confirm_every_s=60, stale_after_s=100)
    quotes = feed.quotes()
    async with asyncio.timeout(PATIENCE_S), aclosing(quotes):
        await anext(quotes), await anext(quotes)
        api.fail = {"us-west-2": ProviderUnavailable("no")}
        said = []
        for _ in range(3):
            taking = asyncio.ensure_future(anext(quotes))
            while not taking.done():
                await asyncio.sleep(0)
                if clock.sleepers:
                    clock.turn(60)
            said.append(taking.result())

    assert [getattr(quoted, "offering_id", "stale") for quoted in said] == [EAST, EAST, "stale"]
    assert said[2].offering_ids == (WEST,)


async def test_a_region_that_hangs_silences_only_its_own_offerings():
    api, clock = TwoRegions(), TurnedClock()
    api.hangs = {"us-west-2"}
    feed = two_regions(api, clock, answer_within_s=0.01)

    async with asyncio.timeout(PATIENCE_S), aclosing(feed.quotes()) as quotes:
        first = await anext(quotes)

    assert first.offering_id == EAST


async def test_regions_that_all_hang_are_a_source_that_does_not_answer():
    api = TwoRegions()
    api.hangs = {"us-east-1", "us-west-2"}

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(ProviderUnavailable, match=r"us-east-1: no answer within 0\.01 s"):
            await two_regions(api, TurnedClock(), answer_within_s=0.01).offerings()


async def test_an_answer_that_leaves_an_offering_out_does_not_confirm_its_price():
    api, clock = TwoRegions(), TurnedClock()
    feed = two_regions(api, clock, poll_s=60, confirm_every_s=60, stale_after_s=100)
    quotes = feed.quotes()
    said = []
    async with asyncio.timeout(PATIENCE_S), aclosing(quotes):
        await anext(quotes), await anext(quotes)
        api.empty = {"us-west-2"}
        for _ in range(3):
            taking = asyncio.ensure_future(anext(quotes))
            while not taking.done():
                await asyncio.sleep(0)
                if clock.sleepers:
                    clock.turn(60)
            said.append(taking.result())

    assert [getattr(quoted, "offering_id", "stale") for quoted in said] == [EAST, EAST, "stale"]
    assert said[2].offering_ids == (WEST,)


async def test_each_asking_reaches_back_behind_the_one_before():
    api, clock = TwoRegions(), TurnedClock()
    feed = two_regions(api, clock, poll_s=60, confirm_every_s=60, overlap_s=30)
    quotes = feed.quotes()
    async with asyncio.timeout(PATIENCE_S), aclosing(quotes):
        await anext(quotes), await anext(quotes)
        taking = asyncio.ensure_future(anext(quotes))
        while not taking.done():
            await asyncio.sleep(0)
            if clock.sleepers:
                clock.turn(60)

    starts = [start for region, start, token in api.asked if region == "us-east-1" and not token]
    assert starts == [AT + timedelta(seconds=60), AT + timedelta(seconds=30)]


async def test_where_all_fail_the_longest_pause_that_was_asked_for_counts():
    api = TwoRegions()
    api.fail = {"us-east-1": Throttled("aws", 3.0), "us-west-2": Throttled("aws", 9.0)}
    feed = two_regions(api, TurnedClock())

    with pytest.raises(Throttled) as throttled:
        await feed.offerings()

    assert throttled.value.retry_after_s == 9.0


@pytest.mark.parametrize("field", ["poll_s", "confirm_every_s", "stale_after_s", "answer_within_s"])
def test_a_pace_must_be_one(field):
    with pytest.raises(ValueError, match=field):
        FeedPace(**{field: 0})


# --- placement scores -------------------------------------------------------------------------


class Scores:
    def __init__(self):
        self.asked = []

    async def call(self, account, region, service, operation, **params):
        self.asked.append(params["InstanceTypes"])
        return {"SpotPlacementScores": [{"AvailabilityZoneId": "use1-az4", "Score": 7}]}


def configuration(instances=1) -> ScoredConfiguration:
    return ScoredConfiguration(
        account="main", region="us-east-1", instance_type="g5.xlarge", instances=instances
    )


async def test_a_score_is_asked_for_once_a_day_and_kept_for_the_next_command(tmp_path):
    api, kept = Scores(), tmp_path / "aws" / "scores.json"

    for _ in range(2):
        scores = await PlacementScores(api, kept).scores(configuration(), AT_NS)
        assert scores == {"use1-az4": 7}
    assert len(api.asked) == 1
    await PlacementScores(api, kept).scores(configuration(), AT_NS + KEPT_S * NS_PER_S)
    assert len(api.asked) == 2


async def test_no_more_configurations_are_asked_for_than_a_day_allows(tmp_path):
    api = Scores()
    scores = PlacementScores(api, tmp_path / "scores.json")

    answers = [await scores.scores(configuration(n + 1), AT_NS) for n in range(MOST_A_DAY + 2)]

    assert answers[MOST_A_DAY:] == [None, None]
    assert len(api.asked) == MOST_A_DAY


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"asked_ns": 1, "scores": [1]}}'])
async def test_kept_scores_that_cannot_be_read_are_asked_for_again(tmp_path, text):
    kept = tmp_path / "scores.json"
    kept.write_text(text)

    assert await PlacementScores(Scores(), kept).scores(configuration(), AT_NS) == {"use1-az4": 7}


class Unwilling(Scores):
    """Answers nothing while it is `silent`."""

    silent = True

    async def call(self, account, region, service, operation, **params):
        answer = await super().call(account, region, service, operation, **params)
        if self.silent:
            raise CallRefused(operation, "UnauthorizedOperation", "no")
        return answer


async def test_scores_are_those_of_the_zones_that_have_one(tmp_path):
    advice = PlacementAdvice(PlacementScores(Scores(), tmp_path / "scores.json"), 4)

    found = await advice.of([offering(), offering(zone="use1-az6")], AT_NS)

    assert [(each.offering_id, each.score, each.asked_ns) for each in found] == [
        (offering().offering_id, 7, AT_NS)
    ]
    # A day's answer stands, with the time at which it was given.
    (later,) = await advice.of([offering()], AT_NS + 3600 * NS_PER_S)
    assert later.asked_ns == AT_NS


async def test_who_may_not_ask_for_scores_is_not_asked_for_a_day(tmp_path):
    api = Unwilling()
    advice = PlacementAdvice(PlacementScores(api, tmp_path / "scores.json"), 4)

    for minute in range(3):
        assert await advice.of([offering()], AT_NS + minute * 60 * NS_PER_S) == []
    assert len(api.asked) == 1
    api.silent = False
    assert len(await advice.of([offering()], AT_NS + KEPT_S * NS_PER_S)) == 1


def test_a_score_is_said_with_the_next_quote():
    book = QuoteBook(began_ns=0, confirm_every_ns=300, stale_after_ns=900)
    point = SpotPricePoint(
        at_ns=0,
        instance_type="t",
        zone_name="z",
        product="Linux/UNIX",
        zone_id="z",
        price_micro_usd=5,
    )
    (before,) = book.heard("o", [point], 9, 10)

    book.advised("o", 7, 20)

    assert book.heard("o", [point], 9, 30) == []
    (after,) = book.heard("o", [point], 9, 310)
    assert (before.placement_score, before.scored_ns) == (0, 0)
    assert (after.placement_score, after.scored_ns) == (7, 20)


def test_the_plugin_follows_the_offerings_of_its_settings(tmp_path):
    settings = AwsSettings(
        accounts=(AwsAccount(name="main", account_id="000000000001"),),
        offerings=(offering(zone="z2"), offering(zone="z1")),
    )

    source = aws_source(settings, tmp_path)

    assert [each.zone for each in source.offerings] == ["z1", "z2"]
    assert [feed.name for feed in source.feeds] == ["aws"]
    with pytest.raises(ConfigError, match=r"clouds\.aws\.offerings"):
        aws_source(AwsSettings(), tmp_path)
