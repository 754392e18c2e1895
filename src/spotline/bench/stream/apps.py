"""What is timed: the same events counted by key, in the ways that are compared."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import faust
import nats
from faust.types import TP, Message
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from spotline.adapters.faust.hosting import data_folder, running
from spotline.adapters.faust.names import key_in, partition_filter, stream_name

TOPIC = "bench-events"
KEYS = 100
WINDOW_S = 60.0

_PULL_BATCH = 1000
_READY_S = 60.0


@dataclass(slots=True)
class Stopwatch:
    """Times from the first event to the `count`th; `done` is set at that one."""

    count: int
    seen: int = 0
    started_s: float = 0.0
    started_cpu_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    on_start: Callable[[], None] | None = None

    def note(self) -> None:
        """One more event was handled."""
        if not self.seen:
            if self.on_start is not None:
                self.on_start()
            self.started_s, self.started_cpu_s = time.perf_counter(), time.process_time()
        self.seen += 1
        if self.seen == self.count:
            self.done.set()

    def stop(self) -> None:
        """All is done, committing included."""
        self.wall_s = time.perf_counter() - self.started_s
        self.cpu_s = time.process_time() - self.started_cpu_s


async def fill(url: str, events: int) -> None:
    """Store `events` events in a topic of one partition."""
    app = _app(url, "filler")
    app.producer_only = True
    async with running(app):
        producer = app.producer
        await producer.create_topic(TOPIC, 1, 1)
        stored = [
            await producer.send(TOPIC, _key(number), _value(number), 0, None, None)
            for number in range(events)
        ]
        await asyncio.gather(*stored)


async def plain_pull(url: str, name: str, watch: Stopwatch) -> None:
    """nats-py's own pull subscription, and a dictionary."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE,
            deliver_policy=DeliverPolicy.ALL,
            filter_subject=partition_filter(TOPIC, 0),
            mem_storage=True,
        )
        consumer = await js.add_consumer(stream_name(TOPIC), config)
        pull = await js.pull_subscribe_bind(consumer.name, stream_name(TOPIC))
        sums: dict[bytes | None, int] = defaultdict(int)
        while watch.seen < watch.count:
            for message in await pull.fetch(_PULL_BATCH, timeout=5):
                watch.note()
                sums[key_in(message.subject.encode())] += json.loads(message.data)
        watch.stop()
    finally:
        await client.close()


async def agent(url: str, name: str, watch: Stopwatch) -> None:
    """An agent on the transport that only looks."""
    app = _app(url, name)

    @app.agent(_topic(app))
    async def look(stream: Any) -> None:
        async for _ in stream:
            watch.note()

    await _run(app, watch)


async def agent_with_table(url: str, name: str, watch: Stopwatch) -> None:
    """An agent on the transport with a tumbling window."""
    app = _app(url, name)
    table: Any = app.Table("sums", default=int, partitions=1).tumbling(WINDOW_S)

    @app.agent(_topic(app))
    async def add(stream: Any) -> None:
        async for key, value in stream.items():
            table[key] += value
            watch.note()

    await _run(app, watch)


async def agent_with_exact_table(url: str, name: str, watch: Stopwatch) -> None:
    """The same, with the last applied offset in each value."""
    app = _app(url, name)
    table: Any = app.Table("sums", default=_nothing, partitions=1).tumbling(WINDOW_S)

    @app.agent(_topic(app))
    async def add(stream: Any) -> None:
        async for event in stream.events():
            total, last = table[event.key].value()
            if event.message.offset > last:
                table[event.key] = (total + event.value, event.message.offset)
            watch.note()

    await _run(app, watch)


async def channel(url: str, name: str, watch: Stopwatch) -> None:
    """An agent on a channel in memory whose queue is full to begin with."""
    app = _app(url, name)
    events: Any = app.channel(maxsize=watch.count + 1)
    gate = asyncio.Event()

    @app.agent(events)
    async def look(stream: Any) -> None:
        await gate.wait()
        async for _ in stream:
            watch.note()

    async with running(app):
        await _fill_channel(app, look, watch.count)
        gate.set()
        await watch.done.wait()
        watch.stop()


async def channel_with_table(url: str, name: str, watch: Stopwatch) -> None:
    """The same with a tumbling window, whose changelog is on the transport."""
    app = _app(url, name)
    events: Any = app.channel(maxsize=watch.count + 1)
    table: Any = app.Table("sums", default=int, partitions=1).tumbling(WINDOW_S)
    gate = asyncio.Event()

    @app.agent(events)
    async def add(stream: Any) -> None:
        await gate.wait()
        async for key, value in stream.items():
            table[key] += value
            watch.note()

    async with running(app):
        await _ready(app)
        await _fill_channel(app, add, watch.count)
        gate.set()
        await watch.done.wait()
        await app.producer.flush()
        watch.stop()


Variant = Callable[[str, str, Stopwatch], Awaitable[None]]

VARIANTS: dict[str, Variant] = {
    "plain_pull": plain_pull,
    "agent": agent,
    "agent_with_table": agent_with_table,
    "agent_with_exact_table": agent_with_exact_table,
    "channel": channel,
    "channel_with_table": channel_with_table,
}


async def _run(app: faust.App, watch: Stopwatch) -> None:
    async with running(app):
        await watch.done.wait()
        await app.consumer.commit()
        watch.stop()


def _app(url: str, name: str) -> faust.App:
    return faust.App(
        name, broker=url, topic_partitions=1, web_enabled=False, datadir=data_folder(name)
    )


def _topic(app: faust.App) -> Any:
    # Faust takes int, though its types do not say so.
    value_type: Any = int
    return app.topic(TOPIC, key_type=str, value_type=value_type)


def _nothing() -> tuple[int, int]:
    return (0, 0)


def _key(number: int) -> bytes:
    return b"key-%d" % (number % KEYS)


def _value(number: int) -> bytes:
    return b"%d" % (number % 1000)


async def _ready(app: Any) -> None:
    async with asyncio.timeout(_READY_S):
        while not app.tables.actives_ready or app.rebalancing:  # noqa: ASYNC110 - Faust signals neither
            await asyncio.sleep(0.01)


async def _fill_channel(app: Any, of_agent: Any, count: int) -> None:
    """Put events where the agent's stream takes them from."""
    [actor] = of_agent._actors
    queue = actor.stream.channel.queue
    partition = TP(TOPIC, 0)
    for number in range(count):
        message = Message(
            *(TOPIC, 0, number + 1, time.time(), 1, None, _key(number), _value(number), None),
            tp=partition,
            generation_id=app.consumer_generation_id,
        )
        event = app.create_event(_key(number).decode(), number % 1000, None, message)
        queue.put_nowait(event)
