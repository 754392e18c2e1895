"""Signals: one at a time, for a cloud with a clock, and when a look is due."""

import asyncio

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from spotline.application.cloud_actuator.handler import ActuateState
from spotline.application.cloud_actuator.reconciling import Reconciliation
from spotline.application.spec import Call
from spotline.bootstrap.cloud_signals import CloudSignals, Looks
from spotline.contracts.errors import ProviderUnavailable
from spotline.domain.events.capacity import CapacitySignalled
from spotline.domain.ledger.instance_life import LifeState
from spotline.domain.units import NS_PER_S
from spotline.runtime.metrics import Metrics
from spotline.runtime.telemetry import Telemetry
from tests.fakes.actuator import SLOT_S, opened

CALL = Call(name="cloud.signalled", digest="d", request=None)


class FakeCloud:
    """Has news while `news` is set."""

    def __init__(self):
        self.news = asyncio.Event()

    async def pushed(self):
        await self.news.wait()


class FakeHost:
    """Keeps what is published; `failures` are raised first."""

    def __init__(self, slot):
        self.state = ActuateState(opened=slot)
        self.published = asyncio.Queue()
        self.failures = []

    async def live(self):
        """It is."""

    async def publish_observation(self, event, *, event_id):
        if self.failures:
            raise self.failures.pop()
        assert event_id
        await self.published.put(event)
        return 1


class FakeClock:
    def __init__(self, now_s):
        self.now_s = now_s

    def now_ns(self):
        return self.now_s * NS_PER_S


async def nothing(_call):
    return ()


@pytest.fixture
async def running():
    """Starts signals on a host, and ends them with the test."""
    tasks = []

    def start(host, cloud, clock, look_ns=None, market_s_per_s=1.0):
        signals = CloudSignals(
            cloud,
            nothing,
            clock=clock,
            next_look_ns=lambda: look_ns,
            shortest_wait_s=0,
            market_s_per_s=market_s_per_s,
        )
        tasks.append(asyncio.create_task(signals.run(host)))
        return signals, tasks[-1]

    yield start
    for task in tasks:
        task.cancel()


async def test_news_is_signalled_once_until_it_is_taken(running):
    cloud, host, clock = FakeCloud(), FakeHost(opened(2)), FakeClock(2 * SLOT_S + 77)
    signals, _ = running(host, cloud, clock)
    cloud.news.set()

    assert await host.published.get() == CapacitySignalled(slot=2, offset_s=77)
    clock.now_s += 3
    await signals.perform(CALL)

    assert await host.published.get() == CapacitySignalled(slot=2, offset_s=80)
    assert host.published.empty()


async def test_a_look_that_is_due_is_signalled_though_the_cloud_says_nothing(running):
    host = FakeHost(opened(2))
    running(host, FakeCloud(), FakeClock(2 * SLOT_S + 5), look_ns=0)

    assert await host.published.get() == CapacitySignalled(slot=2, offset_s=5)


async def test_where_market_time_is_faster_a_look_is_due_sooner(running):
    host = FakeHost(opened(0))
    running(host, FakeCloud(), FakeClock(5), look_ns=3600 * NS_PER_S, market_s_per_s=360_000.0)

    async with asyncio.timeout(30):
        assert await host.published.get() == CapacitySignalled(slot=0, offset_s=5)


async def test_a_slot_that_is_overdue_is_signalled_in_its_last_second(running):
    host, cloud = FakeHost(opened(0)), FakeCloud()
    cloud.news.set()
    running(host, cloud, FakeClock(5 * SLOT_S))

    assert (await host.published.get()).offset_s == SLOT_S - 1


async def test_what_could_not_be_stored_is_signalled_again(running):
    host, cloud = FakeHost(opened(0)), FakeCloud()
    host.failures = [ProviderUnavailable("the broker is away")]
    cloud.news.set()
    running(host, cloud, FakeClock(1))

    assert (await host.published.get()).offset_s == 1


async def test_a_cloud_whose_time_is_played_is_not_waited_for(running):
    host, cloud = FakeHost(opened(0)), FakeCloud()
    cloud.news.set()

    _, task = running(host, cloud, None)
    await task

    assert host.published.empty()


async def test_looks_are_shown_as_metrics():
    reader = InMemoryMetricReader()
    telemetry = Telemetry(
        "cloud_actuator",
        None,
        Metrics(MeterProvider(metric_readers=[reader]).get_meter("test")),
    )
    looks = Looks()
    looks.note(Reconciliation(reaped=("i-1", "i-2")))
    looks.note(Reconciliation(states={LifeState.PENDING: 3}, unknown_launches=1))
    stop = looks.show(telemetry)

    metrics = {
        metric.name: [point.value for point in metric.data.data_points]
        for scope in reader.get_metrics_data().resource_metrics[0].scope_metrics
        for metric in scope.metrics
    }
    stop()

    assert metrics["spotline.orphans.reaped"] == [2]
    assert metrics["spotline.instance.state"] == [3]
    assert metrics["spotline.unknown_outcomes"] == [1]
