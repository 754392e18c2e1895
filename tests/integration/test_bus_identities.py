"""Every identity of the bus, and what it may and may not: tried on a real server."""

import asyncio
import json
import ssl

import nats.errors
import pytest

from spotline.adapters.nats.client import HeedfulClient
from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.identities import BusIdentity, IdentitiesInFolder, OneIdentity
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.nats.tenants import ensure_history
from spotline.bootstrap.bus_identities import opened_identities
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.bus_access import (
    FOLLOWERS,
    IDENTITIES,
    SETS_UP,
    all_streams,
    history_subject,
    inbox_prefix,
    reader_names,
    tenant_identity,
)
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.contracts.publishers import PUBLISHERS, SERVICES, STORE
from spotline.contracts.subjects import (
    EVENT_TYPES,
    ONLY_IN_BATCHES,
    PREFIX,
    ROUTES,
    StreamPart,
    batch_subject,
    dead_letter_subject,
    health_subject,
    own_filter_of,
    stream_name,
)
from spotline.runtime.broker import EmbeddedBroker, reload_running
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.bus_identities import guarded_bus
from tests.fakes.events import envelope, overdue

pytestmark = pytest.mark.integration

LOG = stream_name()
DECISIONS = stream_name(part=StreamPart.DECISIONS)
COMMAND = f"{PREFIX}provisioning.command.tenant-0.job-0"
API = "$JS.API"


def subject_in(kind, identity):
    """A subject on which this identity would publish an event of a kind."""
    own = own_filter_of(EVENT_TYPES[kind], identity)
    return own.replace(".>", ".tenant-0.job-0")


def publishes(identity, kind):
    """What the table says, in other words than those that make the configuration."""
    if kind in ONLY_IN_BATCHES:
        return identity == "selector"
    if kind == "log.incarnation":
        return identity in SETS_UP
    if kind in ("job.submitted", "job.cancelled") and identity in SETS_UP:
        return True
    if kind == "cost" and identity == STORE:
        return True
    return identity in PUBLISHERS[kind]


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_publishes_its_own_kinds_and_no_other(tmp_path, identity):
    async with guarded_bus(tmp_path) as bus, bus.trying(identity) as trying:
        found = {kind: await trying.may_publish(subject_in(kind, identity)) for kind in EVENT_TYPES}
    assert found == {kind: publishes(identity, kind) for kind in EVENT_TYPES}


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_speaks_for_no_other_service(tmp_path, identity):
    async with guarded_bus(tmp_path) as bus, bus.trying(identity) as trying:
        for service in sorted(SERVICES | FOLLOWERS):
            own = service == identity and service in SERVICES
            assert await trying.may_publish(batch_subject(service)) is own
            assert await trying.may_publish(dead_letter_subject(service)) is own
            heartbeat = identity in (service, "health")
            assert await trying.may_publish(health_subject(service)) is heartbeat
            for kind in (
                kind for kind, kind_type in EVENT_TYPES.items() if ROUTES[kind_type].by_source
            ):
                named = await trying.may_publish(f"{PREFIX}{kind}.{service}")
                assert named is (own and service in PUBLISHERS[kind]), kind
                # As releases before wrote it: nobody's.
                assert not await trying.may_publish(f"{PREFIX}{kind}")
        retries = identity == "allocator"
        assert await trying.may_publish(batch_subject("operator")) is retries
        assert await trying.may_publish(f"{PREFIX}output.tenant-0.job-0") is retries
        assert not await trying.may_publish(batch_subject("somebody"))
        assert not await trying.may_publish("anything.else")


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_hears_what_it_is_answered_and_no_more(tmp_path, identity):
    other = next(name for name in IDENTITIES if name != identity)
    async with guarded_bus(tmp_path) as bus, bus.trying(identity) as trying:
        assert await trying.may_hear(f"{inbox_prefix(identity)}.>")
        for subject in ("_INBOX.>", ">", "*", "*.>", f"{inbox_prefix(other)}.>", "$JS.>", "$SYS.>"):
            assert not await trying.may_hear(subject), subject
        operator = identity == "operator"
        assert await trying.may_hear(f"{PREFIX}>") is operator
        assert await trying.may_hear(f"{PREFIX}decision.>") is operator
        assert await trying.may_hear(health_subject("*")) is (operator or identity == "allocator")


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_makes_no_streams_and_removes_none_unless_it_sets_up(tmp_path, identity):
    async with guarded_bus(tmp_path) as bus, bus.trying(identity) as trying:
        for stream in (*all_streams(0), "ANOTHER"):
            known = stream != "ANOTHER"
            # A body that is refused whoever asks: nothing is changed by the trial.
            for question in ("CREATE", "UPDATE"):
                may = await trying.may_publish(f"{API}.STREAM.{question}.{stream}", b"{}")
                assert may is (known and identity in SETS_UP), (question, stream)
            for question in ("DELETE", "MSG.DELETE", "RESTORE", "LEADER.STEPDOWN"):
                assert not await trying.may_publish(f"{API}.STREAM.{question}.{stream}", b"{")
            purges = identity in ("forecaster", STORE) and stream.startswith("OBJ_")
            assert await trying.may_publish(f"{API}.STREAM.PURGE.{stream}", b"{") is purges
            for direct in (f"{API}.DIRECT.GET.{stream}", f"{API}.DIRECT.GET.{stream}.{COMMAND}"):
                assert not await trying.may_publish(direct, b"{}"), direct
        assert not await trying.may_publish("$JS.API.META.LEADER.STEPDOWN")
        assert not await trying.may_publish("$SYS.REQ.SERVER.PING")


@pytest.mark.parametrize("identity", IDENTITIES)
async def test_an_identity_touches_no_place_but_its_own(tmp_path, identity):
    own = {identity, *reader_names(identity)}
    own |= {"fan_out"} if identity == "selector" else set()
    own |= {"event_log"} if identity == "event_log" else set()
    places = [*sorted(SERVICES), "fan_out", "event_log", "anything"]
    places += [reader_names(name)[0] for name in IDENTITIES]
    async with guarded_bus(tmp_path) as bus, bus.trying(identity) as trying:
        for place in places:
            for subject in (
                f"{API}.CONSUMER.DURABLE.CREATE.{LOG}.{place}",
                f"{API}.CONSUMER.CREATE.{LOG}.{place}",
                f"{API}.CONSUMER.CREATE.{LOG}.{place}.{COMMAND}",
                f"{API}.CONSUMER.MSG.NEXT.{LOG}.{place}",
                f"{API}.CONSUMER.DELETE.{LOG}.{place}",
                f"$JS.ACK.{LOG}.{place}.1.1.1.1.0",
            ):
                if await trying.may_publish(subject, b"{"):
                    assert place in own, subject
        assert not await trying.may_publish(f"{API}.CONSUMER.CREATE.{LOG}", b"{")


async def test_a_read_consumer_of_a_service_reads_and_its_place_is_kept(tmp_path):
    async with guarded_bus(tmp_path) as bus:
        async with open_stream(bus.address, name="selector") as (_, stream):
            seqs = await stream.publish(
                [envelope(overdue(slot), source="selector") for slot in (1, 2)]
            )
            entries = [e async for e in stream.read((), last_seq=seqs[-1])]
            assert [entry.seq for entry in entries] == list(seqs)
            place = await stream.subscribe("selector", ())
            got = await place.fetch(limit=9, timeout_s=PATIENCE_S)
            await place.ack(got[-1])
            await place.close()
        async with open_stream(bus.address, name="selector") as (_, stream):
            assert (await stream.subscribe("selector", ())).floor_seq == seqs[-1]


async def test_an_event_that_may_not_be_published_is_not_stored_and_says_so(tmp_path):
    async with (
        guarded_bus(tmp_path) as bus,
        bus.address.connection("placer") as connection,
    ):
        stream = NatsEventStream(connection, publish_timeout_s=2.0)
        with pytest.raises(ProviderUnavailable, match="permissions violation"):
            await stream.publish([envelope(overdue(1), source="selector")])
        assert await stream.last_seq() == 0


async def test_an_answer_that_is_sent_elsewhere_forges_no_event(tmp_path):
    """The server answers on any subject its asker names; nobody's content must get there."""
    craft = {"ce-type": "provisioning.command", "ce-source": "selector", "ce-id": "f" * 32}
    async with guarded_bus(tmp_path) as bus, bus.trying("forecaster") as forger:
        own = subject_in("forecast.issued", "forecaster")
        assert await forger.may_publish(own, b"crafted", headers=craft, reply=COMMAND)
        reader = reader_names("forecaster")[0]
        wanted = {"stream_name": LOG, "config": {"name": reader, "ack_policy": "none"}}
        await forger.ask(f"{API}.CONSUMER.CREATE.{LOG}.{reader}", **wanted)
        for question, body in (
            (f"{API}.CONSUMER.MSG.NEXT.{LOG}.{reader}", {"batch": 10, "no_wait": True}),
            (f"{API}.STREAM.MSG.GET.{LOG}", {"seq": 1}),
            (f"{API}.STREAM.INFO.{LOG}", {}),
            (f"{API}.DIRECT.GET.{LOG}", {"seq": 1}),
        ):
            await forger.may_publish(question, json.dumps(body).encode(), reply=COMMAND)
        await forger.ask(f"{API}.CONSUMER.DELETE.{LOG}.{reader}")
        wanted["config"]["deliver_subject"] = COMMAND
        await forger.ask(f"{API}.CONSUMER.CREATE.{LOG}.{reader}", **wanted)
        async with open_stream(bus.address, name="operator") as (_, stream):
            entries = [e async for e in stream.read((), last_seq=await stream.last_seq())]
    assert entries[0].subject == own
    forged = [
        e
        for e in entries
        if e.subject == COMMAND and (e.payload == b"crafted" or "ce-type" in e.headers)
    ]
    assert forged == []
    # What the server itself said is there, and nobody can take it for an event.
    assert {e.subject for e in entries} == {own, COMMAND}


async def test_a_tenant_hears_its_own_decisions_from_the_beginning_on(tmp_path):
    async with guarded_bus(tmp_path, "acme", "other") as bus, bus.trying("selector") as selector:
        kinds = ("decision", "job.closed", "capacity.lost")

        async def decide(index):
            for tenant in ("acme", "other"):
                for kind in kinds:
                    await selector.client.request(
                        f"{PREFIX}{kind}.{tenant}.j{index}", tenant.encode(), timeout=PATIENCE_S
                    )

        await decide(1)
        async with bus.trying(tenant_identity("acme")) as acme:
            history, live = [], []

            async def note(message):
                history.append((message.subject, message.data))

            async def note_live(message):
                live.append((message.subject, message.data))

            await acme.client.subscribe(history_subject("acme"), cb=note)
            for kind in kinds:
                await acme.client.subscribe(f"{PREFIX}{kind}.acme.>", cb=note_live)
            await acme.client.flush(PATIENCE_S)
            await decide(2)
            own = [f"{PREFIX}{kind}.acme.j{index}" for index in (1, 2) for kind in kinds]
            await eventually(lambda: [subject for subject, _ in history] == own)
            await eventually(lambda: [subject for subject, _ in live] == own[3:])
        assert {data for _, data in (*history, *live)} == {b"acme"}
        # Back again, it goes on where it came; the operator can have it begin once more.
        async with bus.trying(tenant_identity("acme")) as acme:
            again = []

            async def note_again(message):
                again.append(message.subject)

            async with bus.address.connection(STORE) as connection:
                link = await connection.link(timeout_s=PATIENCE_S)
                await ensure_history(link.jetstream(), "acme", again=True)
            await acme.client.subscribe(history_subject("acme"), cb=note_again)
            await acme.client.flush(PATIENCE_S)
            await eventually(lambda: again == own)


async def test_a_tenant_says_nothing_and_hears_nobody_else(tmp_path):
    async with guarded_bus(tmp_path, "acme", "other") as bus:
        async with bus.trying(tenant_identity("acme")) as acme:
            for subject in (
                *(subject_in(kind, "selector") for kind in EVENT_TYPES),
                *(f"{PREFIX}decision.{tenant}.j1" for tenant in ("acme", "other")),
                *(f"{API}.STREAM.{word}.{DECISIONS}" for word in ("INFO", "MSG.GET", "DELETE")),
                f"{API}.DIRECT.GET.{DECISIONS}",
                f"{API}.DIRECT.GET.{DECISIONS}.{PREFIX}decision.other.j1",
                *(f"{API}.CONSUMER.MSG.NEXT.{DECISIONS}.tenant-{who}" for who in ("acme", "other")),
                f"{API}.CONSUMER.CREATE.{DECISIONS}",
                f"{API}.CONSUMER.CREATE.{DECISIONS}.mine.{PREFIX}decision.acme.>",
                f"{API}.CONSUMER.LIST.{DECISIONS}",
                f"$JS.ACK.{DECISIONS}.tenant-acme.1.1.1.1.0",
                f"{API}.INFO",
                f"{inbox_prefix('selector')}.x",
            ):
                assert not await acme.may_publish(subject, b"{}", reply=COMMAND), subject
            for subject in (
                *("_INBOX.>", ">", f"{PREFIX}>", f"{PREFIX}decision.>", f"{PREFIX}decision.*.j1"),
                f"{PREFIX}decision.other.>",
                f"{PREFIX}capacity.report",
                f"{PREFIX}selection.weights",
                f"{PREFIX}batch.*",
                history_subject("other"),
                f"{inbox_prefix('operator')}.>",
                health_subject("*"),
            ):
                assert not await acme.may_hear(subject), subject
        async with open_stream(bus.address, name="operator") as (_, stream):
            assert await stream.last_seq() == 0


async def test_a_tenant_whose_name_another_may_share_gets_no_identity(tmp_path):
    identities = opened_identities(tmp_path / "identity")
    for tenant in ("Acme", "a.b", "a b", ""):
        with pytest.raises(ConfigError, match="tenant"):
            identities.add_tenant(tenant)


async def test_a_wrong_key_none_and_plain_text_are_refused_with_words(tmp_path):
    async with guarded_bus(tmp_path) as bus:
        elsewhere = opened_identities(tmp_path / "another")
        ours = bus.identities.of("selector")
        wrong = BusIdentity(name="selector", seed=elsewhere.of("selector").seed, ca=ours.ca)
        with pytest.raises(ConfigError, match="does not know the key of selector"):
            async with NatsConnection(bus.url, timeout_s=PATIENCE_S, identity=wrong):
                pass
        stranger = BusIdentity(name="selector", seed=ours.seed, ca=elsewhere.of("selector").ca)
        with pytest.raises(ConfigError, match="not the one that was certified"):
            async with NatsConnection(bus.url, timeout_s=PATIENCE_S, identity=stranger):
                pass
        with pytest.raises(ConfigError, match="certified"):
            async with NatsConnection(bus.url, timeout_s=PATIENCE_S):
                pass
        trusting = HeedfulClient()
        context = ssl.create_default_context(cafile=str(ours.ca))
        with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
            await trusting.connect(bus.url, tls=context, allow_reconnect=False)
        await trusting.close()
        host, port = bus.url.rpartition("//")[2].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false}\r\nPUB spotline.v1.market.slot 0\r\n\r\nPING\r\n')
        assert b"PONG" not in await asyncio.wait_for(reader.read(), PATIENCE_S)
        writer.close()
        async with open_stream(bus.address, name="operator") as (_, stream):
            assert await stream.last_seq() == 0


async def test_keys_are_changed_while_services_are_connected(tmp_path):
    async with guarded_bus(tmp_path) as bus:
        async with open_stream(bus.address, name="selector") as (connection, stream):
            before = await connection.link(timeout_s=PATIENCE_S)
            old = (tmp_path / "selector.seed", bus.identities.of("selector").seed.read_text())
            old[0].write_text(old[1])
            bus.identities.rotate()
            assert reload_running(bus.store, bus.identities.access())
            await eventually(lambda: before.lost)
            await stream.publish([envelope(overdue(1), source="selector")])
        stale = BusIdentity(name="selector", seed=old[0], ca=bus.identities.of("selector").ca)
        with pytest.raises(ConfigError, match="does not know the key"):
            async with NatsConnection(bus.url, timeout_s=PATIENCE_S, identity=stale):
                pass


async def test_a_broker_without_identities_has_nothing_to_read_again(tmp_path):
    identities = opened_identities(tmp_path / "identity")
    async with EmbeddedBroker(tmp_path / "broker"):
        assert not reload_running(tmp_path / "broker", identities.access())


async def test_a_service_waits_for_streams_that_it_may_not_make(tmp_path):
    identities = opened_identities(tmp_path / "identity")
    async with EmbeddedBroker(tmp_path / "broker", access=identities.access()) as broker:
        bus = BusAddress(nats_url=broker.url, identity=identities)

        async def open_log():
            async with open_stream(bus, name="selector") as (_, stream):
                return await stream.last_seq()

        opening = asyncio.create_task(open_log())
        async with open_stream(bus, name="cloud_actuator"):
            assert await asyncio.wait_for(opening, PATIENCE_S) == 0


async def test_a_process_with_one_seed_connects_as_that_identity(tmp_path):
    async with guarded_bus(tmp_path) as bus:
        folder = bus.identities.folder
        one = OneIdentity(folder / "selector.seed", folder / "ca.pem")
        address = BusAddress(nats_url=bus.url, identity=one)
        async with open_stream(address, name="fan_out") as (_, stream):
            assert await stream.last_seq() == 0


def test_a_seed_must_be_named_as_an_identity(tmp_path):
    folder = IdentitiesInFolder(opened_identities(tmp_path / "identity").folder)
    other = tmp_path / "somebody.seed"
    other.write_text((folder.folder / "selector.seed").read_text())
    with pytest.raises(ConfigError, match=r"SPOTLINE_NATS_SEED.*somebody\.seed"):
        OneIdentity(other, folder.folder / "ca.pem")


def test_keys_are_their_owners_alone(tmp_path):
    identities = opened_identities(tmp_path / "identity")
    assert identities.folder.stat().st_mode & 0o777 == 0o700
    assert {f.stat().st_mode & 0o777 for f in identities.folder.iterdir()} == {0o600}
    identities.folder.chmod(0o755)
    with pytest.raises(ConfigError, match="read by others"):
        opened_identities(tmp_path / "identity")
