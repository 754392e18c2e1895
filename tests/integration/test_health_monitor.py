"""The monitor on a real broker: a log that lost its end, one that is gone, and who is heard."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from nats.js.api import ConsumerConfig

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.heartbeats import LARGEST_BYTES, MOST_SERVICES, HeardServices
from spotline.adapters.nats.stream import NatsEventStream
from spotline.application.health.conditions import HealthLimits
from spotline.application.health.system import NEEDED
from spotline.application.operations.messages import ServiceStatus
from spotline.bootstrap.health import HealthMonitor, HealthProbes
from spotline.contracts.mapping import encode_value
from spotline.contracts.subjects import health_subject
from spotline.runtime.health import Health, serve_health
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.events import overdue, published
from tests.fakes.jetstream import jetstream_of

pytestmark = pytest.mark.integration

LOOK_S = 0.05


@dataclass
class Host:
    """A service that says of itself that it is well, whatever happens to its log."""

    applied_seq: int = 0

    def health(self) -> Health:
        return Health(healthy=True)


@asynccontextmanager
async def monitored(url, connection, host, *, limits=None):
    """The endpoint of a process with one service `selector`; yields its probes and port."""
    probes = HealthProbes(limits=limits or HealthLimits())
    probes.note("selector", host, connection)
    monitor = HealthMonitor(NatsConnection(url), probes, look_s=LOOK_S)
    async with serve_health({"service": probes.overall}, alive=probes.alive) as port:
        running = asyncio.create_task(monitor.run())
        try:
            yield probes, port
        finally:
            running.cancel()
            await asyncio.wait((running,))
            assert running.cancelled(), running


async def get(port, path):
    def asked():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    return await asyncio.to_thread(asked)


async def until(port, status):
    """What /readyz says once it answers so."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await get(port, "/readyz"))[0] != status:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(LOOK_S)
    return found[1]["service"]


async def test_a_log_that_lost_its_end_makes_its_service_unready_with_the_reason(
    broker, nats_connection, event_stream
):
    seqs = await event_stream.publish(published([overdue(slot) for slot in range(20)]))
    host = Host(applied_seq=seqs[-1])
    async with monitored(broker.url, nats_connection, host) as (_, port):
        assert (await until(port, 200))["healthy"]
        # The server comes back with less than it acknowledged.
        js = await jetstream_of(nats_connection)
        await js.delete_stream(event_stream.name)
        remade = await NatsEventStream.open(nats_connection)
        await remade.publish(published([overdue(slot) for slot in range(5)]))
        said = await until(port, 503)
        # It may have been looked at before anything was stored again.
        while "ends at 5" not in said.get("selector.log", ""):
            said = await until(port, 503)
        assert said["selector.log"] == (
            "the log lost its end: it ends at 5, but this service has taken entries up to 20"
        )
        # A restart of this process would mend nothing.
        assert (await get(port, "/livez"))[0] == 200
        # It goes on with what is left.
        host.applied_seq = 5
        await until(port, 200)


async def test_a_stream_tells_its_end_and_how_far_its_places_have_come(
    broker, nats_connection, event_stream
):
    js = await jetstream_of(nats_connection)
    await event_stream.publish(published([overdue(slot) for slot in range(3)]))
    await js.add_consumer(
        event_stream.name, ConsumerConfig(durable_name="selector", ack_policy="explicit")
    )
    facts = await event_stream.facts(("selector", "nobody"))
    assert facts.last_seq == 3
    assert set(facts.places) == {"selector"}
    assert facts.places["selector"].floor_seq == 0
    assert facts.places["selector"].waiting == 3


async def test_a_log_that_is_gone_is_said_at_once(broker, nats_connection, event_stream):
    async with monitored(broker.url, nats_connection, Host()) as (_, port):
        await until(port, 200)
        js = await jetstream_of(nats_connection)
        await js.delete_stream(event_stream.name)
        said = await until(port, 503)
        assert said["selector.bus"].startswith("the broker has not told of the log for ")
        assert "there is no log" in said["selector.bus"]


async def test_entries_that_nobody_takes_are_told(broker, nats_connection, event_stream):
    js = await jetstream_of(nats_connection)
    await js.add_consumer(
        event_stream.name, ConsumerConfig(durable_name="selector", ack_policy="explicit")
    )
    limits = HealthLimits(stall_s=0.3)
    async with monitored(broker.url, nats_connection, Host(), limits=limits) as (_, port):
        await until(port, 200)
        await event_stream.publish(published([overdue(slot) for slot in range(3)]))
        said = await until(port, 503)
        assert said["selector.log"].startswith("3 entries wait, and none was taken for ")


async def test_a_task_that_ended_asks_for_a_restart(broker, nats_connection, event_stream):
    from spotline.bootstrap.facts import ended_tasks

    why = ""
    async with monitored(broker.url, nats_connection, Host()) as (probes, port):
        probes.probe("selector", ended_tasks({"HTTP": lambda: why}))
        await until(port, 200)
        assert (await get(port, "/livez")) == (200, {"alive": True})
        why = "OSError(9, 'Bad file descriptor')"
        said = await until(port, 503)
        assert said["selector.tasks"] == "HTTP has ended: OSError(9, 'Bad file descriptor')"
        assert (await get(port, "/livez")) == (503, {"alive": False})


# --- what is heard ----------------------------------------------------------------------------


@asynccontextmanager
async def listening(connection, *, limits=None, clock=None):
    arguments = {} if clock is None else {"clock": clock}
    heard = HeardServices(connection, limits or HealthLimits(), **arguments)
    running = asyncio.create_task(heard.run())
    try:
        yield heard
    finally:
        running.cancel()
        await asyncio.wait((running,))


def told(heard, name):
    return next((status for status in heard.statuses() if status.service == name), None)


async def tell(connection, service, payload):
    link = await connection.link(timeout_s=PATIENCE_S)
    await link.client.publish(health_subject(service), payload)


async def test_services_of_another_process_are_heard_and_then_silent(
    broker, nats_connection, event_stream
):
    now_s = 0.0
    async with listening(nats_connection, clock=lambda: now_s) as heard:
        assert not any(status.ready for status in heard.statuses())
        assert {status.service for status in heard.statuses()} == set(NEEDED)
        async with monitored(broker.url, nats_connection, Host()):
            await eventually(lambda: told(heard, "selector").ready)
        now_s = HealthLimits().heard_s
        silent = told(heard, "selector")
        assert not silent.ready
        assert silent.heard_s_ago == int(now_s)
        # What it said of itself last is still there.
        assert {condition.name for condition in silent.conditions} >= {"log", "bus", "heard"}


async def test_what_is_no_heartbeat_is_left_out_and_memory_stays_bounded(
    nats_connection, event_stream
):
    async with listening(nats_connection) as heard:
        good = encode_value(ServiceStatus(service="selector", ready=True, heard_s_ago=0))
        # Until it listens, nothing that is told is heard.
        async with asyncio.timeout(PATIENCE_S):
            while not told(heard, "selector").ready:
                await tell(nats_connection, "selector", good)
                await asyncio.sleep(LOOK_S)
        await tell(nats_connection, "forecaster", b"\xff garbage")
        await tell(nats_connection, "forecaster", good)
        await tell(nats_connection, "forecaster", good + b"\x00" * LARGEST_BYTES)
        for number in range(2 * MOST_SERVICES):
            name = f"invented_{number}"
            status = ServiceStatus(service=name, ready=True, heard_s_ago=0)
            await tell(nats_connection, name, encode_value(status))
        last = ServiceStatus(service="selector", ready=False, heard_s_ago=0)
        await tell(nats_connection, "selector", encode_value(last))
        await eventually(lambda: not told(heard, "selector").ready)

        assert told(heard, "forecaster").heard_s_ago == -1
        assert len(heard.statuses()) <= MOST_SERVICES + len(NEEDED)


async def test_who_listens_hears_again_after_the_connection_was_lost(broker, event_stream):
    async with (
        NatsConnection(broker.url, timeout_s=PATIENCE_S) as ears,
        listening(ears) as heard,
        monitored(broker.url, ears, Host()),
    ):
        await eventually(lambda: told(heard, "selector").ready)
        await ears.drop(await ears.link(timeout_s=PATIENCE_S))
        before = heard._heard["selector"].at_s
        await eventually(lambda: heard._heard["selector"].at_s > before)
