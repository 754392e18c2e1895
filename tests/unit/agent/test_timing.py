import pytest

from spotline.adapters.grpc.agent.messages import MarketMoment
from spotline.agent.timing import MachineClock, MarketTime, RetryPauses
from tests.fakes.agent_parts import SteppedClock


def test_pauses_double_up_to_a_bound_and_are_spread():
    short, long = RetryPauses(lambda: 0.0), RetryPauses(lambda: 0.999999)

    assert [round(short.next_s(), 3) for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    assert [round(long.next_s(), 3) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    short.reset()
    assert short.next_s() == pytest.approx(0.1)


def test_market_time_is_counted_on_from_when_it_was_first_said():
    clock = SteppedClock(wall_s=500.0)
    market = MarketTime(clock, 60.0)
    assert market.wall_s(10**18) == 500.0

    market.observe(MarketMoment(market_ns=10**18, slot=3))
    clock.advance(5.0)
    market.observe(MarketMoment(market_ns=10**18, slot=3))
    market.observe(None)

    assert market.wall_s(10**18 + 120 * 10**9) == 502.0
    market.observe(MarketMoment(market_ns=10**18 + 600 * 10**9, slot=4))
    assert market.wall_s(10**18 + 600 * 10**9) == 505.0


@pytest.mark.parametrize(("wall_s", "market_s"), [(0.5, 30), (0.51, 31), (0.1 * 3, 18), (-1, 0)])
def test_market_seconds_are_rounded_up(wall_s, market_s):
    assert MarketTime(SteppedClock(), 60.0).market_s(wall_s) == market_s


async def test_machine_clock_goes_on():
    clock = MachineClock()
    before_s, wall_s = clock.elapsed_s(), clock.wall_s()

    await clock.sleep(0.001)

    assert clock.elapsed_s() > before_s
    assert clock.wall_s() > wall_s
