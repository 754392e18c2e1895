"""Waits of a cloud's own time."""

import pytest

from spotline.adapters.clouds.aws.driver import CloudTimeDriver
from spotline.adapters.clouds.aws.feeds.feed import FeedPace, pace_in
from spotline.application.spec import Call
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.market.market_clock import WALL_TIME, MarketClock


@pytest.mark.parametrize(("speed", "wait_s"), [(1.0, 8.0), (400.0, 0.02)])
async def test_a_cloud_is_waited_for_by_its_own_time(speed, wait_s):
    async def throttled(call):
        raise Throttled("aws", 8.0)

    with pytest.raises(Throttled) as caught:
        await CloudTimeDriver(throttled, speed)(Call(name="a", request=None, digest="d"))

    assert caught.value.retry_after_s == pytest.approx(wait_s)


async def test_what_is_answered_or_fails_otherwise_is_as_it_is():
    async def answered(call):
        return ("answer",)

    async def unavailable(call):
        raise ProviderUnavailable("nobody there")

    call = Call(name="a", request=None, digest="d")
    assert await CloudTimeDriver(answered, 9.0)(call) == ("answer",)
    with pytest.raises(ProviderUnavailable, match="nobody there"):
        await CloudTimeDriver(unavailable, 9.0)(call)


def test_a_feed_of_fast_time_is_stale_no_sooner_than_calls_take():
    assert pace_in(WALL_TIME) == FeedPace()
    assert pace_in(MarketClock(market_s_per_s=400.0)).stale_after_s == 8000.0
