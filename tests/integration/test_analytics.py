"""The analytics on a real broker: equal to a batch, killed, taken over; and what they answer."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import grpc
import pytest

from spotline.adapters.analytics.worker import Analytics, AnalyticsSettings
from spotline.adapters.grpc.analytics.client import AnalyticsClient
from spotline.adapters.grpc.analytics.servicer import AnalyticsServer
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import FIELD_KEY, RpcFailed
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.stream import NatsEventStream
from spotline.api.v1 import analytics_service_pb2 as pb
from spotline.api.v1 import analytics_service_pb2_grpc
from spotline.application.analytics.handler import SPEC
from spotline.application.analytics.messages import (
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
    StatisticsScope,
    answer,
    keys_of,
)
from spotline.application.analytics.observations import Observation
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.analytics.store import LateCounts, StatisticsStore, issue_key
from spotline.application.market_view import ClockReading
from spotline.contracts.batch import packed, unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ProviderUnavailable
from spotline.contracts.subjects import StreamPart, filter_of
from spotline.domain.statistics.windows import WindowSpec
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.batch_statistics import batch, latest
from tests.fakes.jetstream import jetstream_of
from tests.fakes.processes import ROOT, ServiceProcesses, free_port
from tests.fakes.recorded_run import small_market
from tests.fakes.statistics_log import folded, generated, shuffled, stored

pytestmark = pytest.mark.integration

SPECS = ((300, 300), (900, 300), (3600, 1800))
OPTIONS = StatisticsOptions(
    windows=tuple(WindowSpec(size_s=size, hop_s=hop) for size, hop in SPECS),
    grace_s=20 * 86_400,
    history_s=30 * 86_400,
)
SETTINGS = {
    "SPOTLINE_STATISTICS_WINDOWS": ",".join(f"{size}/{hop}" for size, hop in SPECS),
    "SPOTLINE_STATISTICS_GRACE_S": str(OPTIONS.grace_s),
    "SPOTLINE_STATISTICS_HISTORY_S": str(OPTIONS.history_s),
}
STATISTICS = [filter_of(one) for one in SPEC.produces]


def disordered(seed: int, slots: int) -> list[StoredEntry]:
    """A run whose entries come up to a dozen slots late, some of them twice."""
    log = generated(seed, slots=slots, slot_s=300, jobs=5)
    return stored(log, shuffled(len(log), seed, reach=60))


async def publish(
    connection: NatsConnection, entries: list[StoredEntry], *, reach: int = 1
) -> None:
    """Store entries as they are, those that come twice, too.

    Of every `reach` neighbours, those of one cause and publisher come together, hence in one batch.
    """
    js = await jetstream_of(connection)
    for first in range(0, len(entries), reach):
        made = [one.envelope() for one in entries[first:][:reach]]
        made.sort(key=lambda envelope: (envelope.source, envelope.causation_id))
        together = itertools.groupby(made, key=lambda envelope: envelope.source)
        batches = [one for _, envelopes in together for one in packed(list(envelopes))]
        for number, one in enumerate(batches):
            envelope = one.envelope
            # The broker would drop the second one, which after its window it does not.
            message_id = f"{envelope.event_id}-{entries[first].seq}-{number}"
            headers = {**envelope.headers(), "Nats-Msg-Id": message_id}
            await js.publish(envelope.subject, envelope.payload, headers=headers)


async def everything(
    log: NatsEventStream, statistics: NatsEventStream
) -> tuple[list[StoredEntry], list[StoredEntry]]:
    """What went in, and what was issued."""
    taken = [
        event
        async for entry in log.read([], last_seq=await log.last_seq())
        for event in unpacked(entry)
    ]
    issued = [one async for one in statistics.read([], last_seq=await statistics.last_seq())]
    return taken, issued


class Issued:
    """The ids of what was issued, read as they come: reading all each time starves the workers."""

    def __init__(self, stream: NatsEventStream) -> None:
        self._stream = stream
        self._last_seq = 0
        self._ids: list[str] = []

    async def ids(self) -> list[str]:
        first_seq, self._last_seq = self._last_seq + 1, await self._stream.last_seq()
        async for entry in self._stream.read(
            STATISTICS, first_seq=first_seq, last_seq=self._last_seq
        ):
            self._ids.append(entry.headers["ce-id"])
        return self._ids


async def settled(
    log: NatsEventStream, statistics: NatsEventStream, options: StatisticsOptions = OPTIONS
) -> None:
    """Wait until all that is to be issued is there, and see that it is exactly that."""
    taken, _ = await everything(log, statistics)
    expected = {one.event_id: one.event for one in folded(taken, options)}
    assert expected
    so_far = Issued(statistics)
    async with asyncio.timeout(110):
        # The broker tells nobody; it is asked.
        while len(set(await so_far.ids())) < len(expected):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    taken, issued = await everything(log, statistics)
    assert len(issued) == len(expected), "something was issued twice"
    assert {one.headers["ce-id"]: event_of(one) for one in issued} == expected
    specs = [(one.size_s, one.hop_s) for one in options.windows]
    assert latest(event_of(one) for one in issued) == batch(taken, specs)


@asynccontextmanager
async def running(analytics: Analytics):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(analytics.run())
        try:
            yield
        finally:
            task.cancel()


async def test_disordered_log_ends_in_what_a_batch_says(
    nats_connection, event_stream, statistics_stream, broker
):
    await publish(nats_connection, disordered(5, 80))
    settings = AnalyticsSettings(nats_url=broker.url, options=OPTIONS)
    analytics = Analytics(settings, event_stream, statistics_stream)

    async with running(analytics):
        await settled(event_stream, statistics_stream)
        late = analytics.health().detail["late_merged"]
        await eventually(lambda: analytics.backlog == 0)

    assert late > 20
    assert analytics.health().detail["late_dropped"] == 0


async def test_nothing_is_left_where_it_was_started(
    event_stream, statistics_stream, broker, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    analytics = Analytics(AnalyticsSettings(nats_url=broker.url), event_stream, statistics_stream)

    async with running(analytics):
        await eventually(lambda: analytics.ready)

    assert list(tmp_path.iterdir()) == []


async def test_stopped_and_started_again_it_goes_on(
    nats_connection, event_stream, statistics_stream, broker
):
    entries = disordered(6, 60)
    settings = AnalyticsSettings(nats_url=broker.url, options=OPTIONS, worker="one")
    for part in (entries[:200], entries[200:]):
        await publish(nats_connection, part)
        analytics = Analytics(settings, event_stream, statistics_stream)
        async with running(analytics):
            await settled(event_stream, statistics_stream)


class Failing:
    """A log that takes a few times what is issued, and then does not."""

    def __init__(self, stream: NatsEventStream, times: int) -> None:
        self._stream = stream
        self._times = times

    def __getattr__(self, name):
        return getattr(self._stream, name)

    async def publish(self, envelopes):
        self._times -= 1
        if self._times < 0:
            raise ProviderUnavailable("the broker is away")
        return await self._stream.publish(envelopes)


async def test_what_could_not_be_stored_ends_it_and_is_not_passed_over(
    nats_connection, event_stream, statistics_stream, broker
):
    await publish(nats_connection, disordered(7, 60), reach=20)
    settings = AnalyticsSettings(nats_url=broker.url, options=OPTIONS)

    for times in (3, 11):
        with pytest.raises(ProviderUnavailable, match="the broker is away"):
            await Analytics(settings, event_stream, Failing(statistics_stream, times)).run()

    async with running(Analytics(settings, event_stream, statistics_stream)):
        await settled(event_stream, statistics_stream)


class Holding:
    """A log that takes nothing until it is let."""

    def __init__(self, stream: NatsEventStream) -> None:
        self._stream = stream
        self.let = asyncio.Event()
        self.reached = asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._stream, name)

    async def publish(self, envelopes):
        self.reached.set()
        await self.let.wait()
        return await self._stream.publish(envelopes)


async def test_backlog_is_all_that_waits_and_what_cannot_be_read_is_counted(
    nats_connection, event_stream, statistics_stream, broker
):
    entries = disordered(5, 80)
    broken = replace(entries[0], payload=b"\xff\xff", headers={**entries[0].headers, "ce-id": "?"})
    entries = [broken, *entries]
    await publish(nats_connection, entries)
    held = Holding(statistics_stream)
    analytics = Analytics(
        AnalyticsSettings(nats_url=broker.url, options=OPTIONS), event_stream, held
    )

    async with running(analytics):
        await held.reached.wait()
        await eventually(lambda: analytics.counters.dead_lettered == 1)
        behind = len(entries) - 1 - analytics.counters.handled
        # The one in hand is not behind itself, but handled neither.
        await eventually(lambda: analytics.backlog == behind)
        assert behind > 256
        assert not analytics.healthy
        assert analytics.health().detail["backlog"] == behind
        assert analytics.lag_s > 0

        held.let.set()
        await eventually(lambda: analytics.backlog == 0 and analytics.ready)
        assert analytics.healthy


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_restart_that_loads_for_longer_than_the_lease_goes_on(
    nats_connection, event_stream, statistics_stream, broker, monkeypatch
):
    entries = disordered(8, 60)
    settings = AnalyticsSettings(nats_url=broker.url, options=OPTIONS, worker="a", lease_s=2.0)
    async with running(Analytics(settings, event_stream, statistics_stream)):
        await publish(nats_connection, entries[:-40])
        await settled(event_stream, statistics_stream)
    await publish(nats_connection, entries[-40:])
    loaded_in_s = slowly_loaded(monkeypatch)
    one, two = (
        Analytics(replace(settings, worker=name), event_stream, statistics_stream)
        for name in ("one", "two")
    )

    async with running(one), running(two):
        await eventually(lambda: one.counters.handled + two.counters.handled >= 40, timeout_s=110)

    assert loaded_in_s() > settings.lease_s
    monkeypatch.undo()
    async with running(Analytics(settings, event_stream, statistics_stream)):
        await settled(event_stream, statistics_stream)


def slowly_loaded(monkeypatch):
    """Have observations loaded slowly; how long that has taken so far."""
    load, times_s = Observation.load, []

    def slowly(event_id: str, dumped: bytes) -> Observation:
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + 0.01:
            pass
        times_s.append(0.01)
        return load(event_id, dumped)

    monkeypatch.setattr(Observation, "load", slowly)
    monkeypatch.setattr("spotline.application.analytics.handler._SLICE", 8)
    return lambda: sum(times_s)


class Workers(ServiceProcesses):
    """`python -m services.analytics`, one process a worker."""

    def __init__(self, nats_url: str, folder: Path, lease_s: float) -> None:
        settings = {**SETTINGS, "SPOTLINE_LEASE_S": str(lease_s)}
        super().__init__(nats_url, folder, small_market(slots=2), **settings)
        self.addresses: dict[str, str] = {}

    async def start(self, service: str) -> None:
        """Start the worker of this name."""
        import sys

        self.addresses[service] = f"127.0.0.1:{free_port()}"
        env = {
            **self._env,
            "SPOTLINE_WORKER": service,
            "SPOTLINE_ANALYTICS_ADDRESS": self.addresses[service],
        }
        with self._log.open("ab") as log:
            self._running[service] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "services.analytics"),
                env=env,
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )


@asynccontextmanager
async def on_a_broker(folder: Path, *, lease_s: float = 60.0):
    async with (
        EmbeddedBroker(folder / "broker") as broker,
        NatsConnection(broker.url, name="test") as connection,
        Workers(broker.url, folder, lease_s) as workers,
    ):
        log = await NatsEventStream.open(connection)
        statistics = await NatsEventStream.open(connection, part=StreamPart.STATISTICS)
        yield connection, log, statistics, workers


async def more_issued(issued: Issued, workers: Workers, many: int) -> None:
    """Wait until that number of statistics is there."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while len(await issued.ids()) < many:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"fewer than {many} were issued; ended: {workers.dead()}\n{workers.said()}")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1])
async def test_killed_at_any_point_it_issues_the_same_once(tmp_path: Path, seed: int) -> None:
    dice = Random(seed)
    entries = disordered(seed, 150)
    # Rounded up: each part leads to hundreds, a rest of one entry to none.
    size = -(-len(entries) // 4)
    async with on_a_broker(tmp_path) as (connection, log, statistics, workers):
        await workers.start("one")
        issued = Issued(statistics)
        for place in range(0, len(entries), size):
            before = len(await issued.ids())
            await publish(connection, entries[place : place + size], reach=20)
            await more_issued(issued, workers, before + dice.randint(1, 60))
            await workers.kill("one")
            await workers.start("one")

        await settled(log, statistics)


async def asked_of_the_owner(client: AnalyticsClient, query: StatisticsQuery) -> StatisticsPage:
    """Ask again while the worker recovers the tables: one that pauses may lose them for a moment."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await client.query(query)
            except RpcFailed as error:
                if error.code != "UNAVAILABLE":
                    raise
            await asyncio.sleep(0.05)


@pytest.mark.slow  # of workers in general: test_faust_workers.py
@pytest.mark.timeout(240)
async def test_a_worker_takes_the_log_over_from_one_that_died(tmp_path: Path) -> None:
    entries = disordered(9, 120)
    half = len(entries) // 2
    # Longer than a busy machine lets a worker wait that is not dead.
    async with on_a_broker(tmp_path, lease_s=4.0) as (connection, log, statistics, workers):
        await workers.start("one")
        await publish(connection, entries[:half], reach=20)
        await more_issued(Issued(statistics), workers, 30)
        await workers.start("two")
        async with AnalyticsClient(workers.addresses["two"]) as second:
            with pytest.raises(RpcFailed, match=r"cannot be reached|another worker"):
                await second.keys()

            await workers.kill("one")
            await publish(connection, entries[half:], reach=20)
            await settled(log, statistics)

            # What the first one had issued can be asked of the second.
            whole = await asked_of_the_owner(
                second, StatisticsQuery(scope=StatisticsScope.TENANT, key="*", page_size=1000)
            )
        _, issued = await everything(log, statistics)
        named = {issue_key(event_of(one)) for one in issued}
        assert {issue_key(one) for one in whole.platform} == {
            one for one in named if one.startswith("platform") and one.endswith("*")
        }


# --- gRPC -------------------------------------------------------------------------------------


CLOCK = ClockReading(market_ns=1_200 * 10**9, slot=2, slot_s=600)


class Answering:
    """What was issued for a small run, without a broker."""

    def __init__(self, *, available: bool = True) -> None:
        self.store = StatisticsStore()
        log = generated(3, slots=30, slot_s=600)
        self.issues = folded(stored(log, range(len(log))), OPTIONS, store=self.store)
        self._available = available

    def query(self, query):
        self._need()
        return answer(query, self.store.issued, watermark_s=900, late=LateCounts(merged=4))

    def keys(self, query):
        self._need()
        return keys_of(query, self.store.issued)

    def clock(self):
        return CLOCK if self._available else None

    def _need(self):
        if not self._available:
            raise ProviderUnavailable("another worker has them")


@asynccontextmanager
async def client_of(source: Answering):
    server = AnalyticsServer(source, address="127.0.0.1:0")
    try:
        async with AnalyticsClient(await server.start()) as client:
            yield client
    finally:
        await server.stop(grace_s=0.2)


async def test_pages_together_are_every_window_in_order() -> None:
    source = Answering()
    offering = next(i.event.offering_id for i in source.issues if hasattr(i.event, "offering_id"))
    query = StatisticsQuery(scope=StatisticsScope.OFFERING, key=offering, page_size=7)
    found, pages = [], 0
    async with client_of(source) as client:
        while True:
            page = await client.query(query)
            found.extend(page.market)
            pages += 1
            if not page.next_page_token:
                break
            query = replace(query, page_token=page.next_page_token)
        backwards = await client.query(replace(query, page_token="", latest_first=True))

    expected = [i.event for i in source.issues if getattr(i.event, "offering_id", "") == offering]
    expected.sort(key=lambda one: (one.ts_event_ns, one.window_s, one.hop_s))
    assert pages > 2
    assert found == expected
    assert list(backwards.market) == expected[::-1][:7]
    assert (page.watermark_ns, page.late_merged) == (900 * 10**9, 4)
    assert page.clock == CLOCK


async def test_range_and_length_narrow_a_query() -> None:
    source = Answering()
    ends = sorted({i.event.ts_event_ns for i in source.issues if i.event.window_s == 900})
    async with client_of(source) as client:
        page = await client.query(
            StatisticsQuery(
                scope=StatisticsScope.TENANT,
                key="*",
                window_s=900,
                tumbling_only=True,
                from_ns=ends[3],
                until_ns=ends[20],
            )
        )

    assert page.platform
    for one in page.platform:
        assert one.window_s == 900
        assert one.ts_event_ns % (900 * 10**9) == 0
        assert ends[3] <= one.ts_event_ns < ends[20]


async def test_policy_is_answered_for_one_tenant_or_for_all() -> None:
    source = Answering()
    async with client_of(source) as client:
        keys = (await client.keys(KeysQuery(scope=StatisticsScope.POLICY))).keys
        tenants = (await client.keys(KeysQuery(scope=StatisticsScope.TENANT))).keys
        query = StatisticsQuery(scope=StatisticsScope.POLICY, key=keys[0].key)
        whole = await client.query(query)
        parts = [
            await client.query(replace(query, tenant=one.key)) for one in tenants if one.key != "*"
        ]

    assert {one.tenant for one in whole.platform} == {"*"}
    assert all([p.policy_id for p in one.policies] == [query.key] for one in whole.platform)
    assert any(part.platform for part in parts)


async def test_keys_come_in_pages() -> None:
    source = Answering()
    async with client_of(source) as client:
        every = (await client.keys()).keys
        first = await client.keys(KeysQuery(page_size=2))
        rest = await client.keys(KeysQuery(page_token=first.next_page_token))

    assert {one.scope for one in every} == set(StatisticsScope)
    assert first.keys + rest.keys == every
    assert first.clock == CLOCK
    assert all(one.windows and one.first_end_ns <= one.last_end_ns for one in every)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.QueryRequest(key="x"), "scope"),
        (pb.QueryRequest(scope="STATISTICS_SCOPE_OFFERING"), "key"),
        (pb.QueryRequest(scope="STATISTICS_SCOPE_TENANT", key="a", tenant="b"), "tenant"),
        (pb.QueryRequest(scope="STATISTICS_SCOPE_TENANT", key="a", window_s=-1), "window_s"),
        (pb.QueryRequest(scope="STATISTICS_SCOPE_TENANT", key="a", page_size=-1), "page_size"),
        (pb.QueryRequest(scope="STATISTICS_SCOPE_TENANT", key="a", page_token="1-2"), "page_token"),
        (
            pb.QueryRequest(scope="STATISTICS_SCOPE_TENANT", key="a", from_ns=9, until_ns=9),
            "until_ns",
        ),
        (pb.ListKeysRequest(page_size=-1), "page_size"),
        (pb.ListKeysRequest(page_token="nobody-x"), "page_token"),
    ],
)
async def test_bad_input_names_the_field(request_, field) -> None:
    server = AnalyticsServer(Answering(), address="127.0.0.1:0")
    channel = open_channel(await server.start())
    stub = analytics_service_pb2_grpc.AnalyticsServiceStub(channel)
    call = stub.Query if isinstance(request_, pb.QueryRequest) else stub.ListKeys
    try:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(request_, timeout=PATIENCE_S)
    finally:
        await channel.close()
        await server.stop(grace_s=0.2)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(refused.value.trailing_metadata())[FIELD_KEY] == field
    assert field in refused.value.details()


async def test_worker_without_the_tables_says_so() -> None:
    async with client_of(Answering(available=False)) as client:
        with pytest.raises(RpcFailed, match="another worker") as failed:
            await client.keys()

    assert failed.value.code == "UNAVAILABLE"
    assert not failed.value.unreachable
