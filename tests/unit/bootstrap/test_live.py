"""The market that a cloud follows itself, and how its feeds are said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.adapters.market.recorded_feed import RecordedFeed
from spotline.application.health.surroundings import FeedFacts, feeds_answer
from spotline.application.market_ingest.handler import IngestOptions
from spotline.bootstrap.clouds import CLOUDS, CloudPlugin, LiveSource, chosen_cloud
from spotline.bootstrap.live import LIVE_SLOT_S, FeedWatch, LiveFeeds, followed_market
from spotline.bootstrap.pace import pace_of
from spotline.bootstrap.system import SystemOptions
from spotline.contracts.errors import ConfigError
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.units import NS_PER_S
from tests.fakes.clock import TurnedClock
from tests.fakes.recorded_run import START_NS, small_market

MARKET = small_market(slots=3)
FAST = MarketClock(wall_ns=1_000 * NS_PER_S, market_ns=START_NS + 250 * NS_PER_S, market_s_per_s=60)


def feed(name: str = "recorded") -> RecordedFeed:
    return RecordedFeed(MARKET, TurnedClock(), name=name)


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a cloud that follows its own market."""
    simulated = CLOUDS["simulated"]
    plugin = CloudPlugin(
        settings=simulated.settings,
        open=simulated.open,
        live=lambda settings, store: LiveSource(
            offerings=MARKET.offerings, feeds=(feed(),), clock=FAST
        ),
    )
    monkeypatch.setitem(CLOUDS, "following", plugin)
    return "following"


def test_a_live_market_begins_with_the_slot_that_the_present_lies_in(following, tmp_path: Path):
    found = followed_market(chosen_cloud(following), tmp_path, slot_s=600, now_ns=1_010 * NS_PER_S)

    assert found is not None
    # 250 s and ten seconds of wall time, each of which is a minute.
    assert found.market.start_ns == START_NS + 600 * NS_PER_S
    assert found.market.offerings == MARKET.offerings
    assert "recorded" in found.market.source
    by_default = followed_market(chosen_cloud(following), tmp_path)
    assert by_default is not None
    assert by_default.market.slot_s == LIVE_SLOT_S


def test_a_cloud_without_a_market_of_its_own_follows_none(tmp_path: Path):
    assert followed_market(chosen_cloud(), tmp_path) is None


def test_a_live_market_runs_by_the_clock_of_its_feeds_and_by_nothing_else():
    asked = {"speed": 0.0, "slots_per_s": 0.0, "wall_clock": False}
    own = {"own_market": True, "in_wall_time": True, "live": FAST}

    pace = pace_of(**asked, **own)

    assert (pace.by_time, pace.wall_clock, pace.market_s_per_s) == (True, True, 60)
    for option in ({"speed": 2.0}, {"slots_per_s": 1.0}, {"wall_clock": True}):
        with pytest.raises(ConfigError, match="live"):
            pace_of(**{**asked, **option}, **own)


def test_feeds_of_one_name_and_no_time_are_refused():
    with pytest.raises(ValueError, match="unique"):
        LiveFeeds(feeds=(feed(), feed()))
    with pytest.raises(ValueError, match="silent_after_s"):
        LiveFeeds(feeds=(feed(),), silent_after_s=0)


def test_a_live_market_without_feeds_or_time_is_refused(following, tmp_path: Path):
    found = followed_market(chosen_cloud(following), tmp_path)
    assert found is not None
    by_clock = IngestOptions(barrier=False, wall_clock=True)

    with pytest.raises(ValueError, match="needs feeds"):
        SystemOptions(market=found.market, store=tmp_path, ingest=by_clock)
    with pytest.raises(ValueError, match="needs feeds"):
        SystemOptions(market=found.market, store=tmp_path, feeds=found.feeds)
    options = SystemOptions(market=found.market, store=tmp_path, feeds=found.feeds, ingest=by_clock)
    assert options.settings()["market_ingest"]["feeds"] == ["recorded"]
    with pytest.raises(ConfigError, match="expected a market file"):
        _ = options.recorded_market


def test_the_manifest_of_a_recorded_market_says_nothing_of_feeds(tmp_path: Path):
    said = SystemOptions(market=MARKET, store=tmp_path).settings()["market_ingest"]

    assert "feeds" not in said
    assert "silent_after_s" not in said


def test_how_long_a_feed_has_not_answered_is_said_in_market_time(following, tmp_path: Path):
    found = followed_market(chosen_cloud(following), tmp_path)
    assert found is not None
    watch = FeedWatch(found.feeds, found.market, clock_ns=lambda: 1_020 * NS_PER_S)
    tally = watch.tallies["recorded"]
    tally.answered_ns = START_NS + 250 * NS_PER_S
    (fact,) = watch.facts()
    assert (fact.answered_s_ago, fact.failing_s) == (20 * 60, None)

    tally.failing_since_ns = START_NS + 850 * NS_PER_S
    tally.error = "no route"
    (judged,) = watch.judged(0.0)

    assert not judged.healthy
    assert judged.figure == 600
    assert "no route" in judged.detail


def test_a_feed_that_fails_for_a_short_while_is_no_trouble_and_one_that_ended_is():
    well = FeedFacts(name="aws", answered_s_ago=5)
    failing = FeedFacts(name="aws", answered_s_ago=40, failing_s=30, failures=3, error="timeout")
    ended = FeedFacts(name="aws", answered_s_ago=40, has_ended=True)

    assert feeds_answer((well,), 600).healthy
    assert feeds_answer((failing,), 600).healthy
    assert not feeds_answer((ended,), 600).healthy
    assert feeds_answer((well, ended), 600).is_partial
