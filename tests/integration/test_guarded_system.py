"""A whole system whose bus lets nobody in without a key: it runs, starts again, and loses its log."""

import asyncio

import pytest

from spotline.adapters.nats.connection import NatsConnection
from spotline.adapters.nats.identities import CA_FILE
from spotline.bootstrap.bus_identities import (
    identities_of,
    opened_identities,
    rotate_identities,
)
from spotline.bootstrap.store_check import check_store, exit_code_of
from spotline.bootstrap.store_copies import back_up
from spotline.bootstrap.system import running_system
from spotline.contracts.errors import ConfigError
from spotline.contracts.subjects import filter_of
from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.bus_identities import GuardedBus
from tests.fakes.processes import SERVICES, ServiceProcesses
from tests.fakes.whole_system import (
    JOBS,
    MARKET,
    events_in,
    ledger_of,
    log_in,
    options,
    until_slot,
    wipe,
)

pytestmark = pytest.mark.integration


def refusals(store):
    """What the server refused to whom, of all that a run did."""
    said = (store / "broker" / "nats-server.log").read_text()
    return [line for line in said.splitlines() if "Violation" in line or "denied" in line.lower()]


async def test_a_system_with_identities_runs_starts_again_and_is_refused_nothing(tmp_path):
    async with until_slot(tmp_path, 1, JOBS, identity=True) as system:
        await eventually(lambda: system.probes.overall().healthy)
        url = system.bus.nats_url
        assert url.startswith("tls://")
        with pytest.raises(ConfigError):
            async with NatsConnection(url, timeout_s=PATIENCE_S):
                pass
        assert exit_code_of(await check_store(tmp_path, nats_url=url)) == 0
        await back_up(tmp_path, tmp_path.with_name("copy"), nats_url=url)
        assert rotate_identities(tmp_path)
        await eventually(lambda: system.probes.overall().healthy)
    async with until_slot(tmp_path, 2, identity=True) as system:
        await eventually(lambda: system.probes.overall().healthy)
        seed = identities_of(tmp_path).of("selector").seed
        assert seed.stat().st_mode & 0o777 == 0o600
    assert refusals(tmp_path) == []
    log = await log_in(tmp_path)
    slots = [e.slot for e in events_in(log) if isinstance(e, CapacityReported) and e.settled]
    assert {0, 1, 2} <= set(slots)
    spend, launched, _ = ledger_of(tmp_path)
    assert launched
    assert any(spend.values())


async def test_a_log_that_is_gone_is_said_by_whoever_sets_up(tmp_path):
    """The actuator says again what its ledger knows; whose it was, it may."""
    async with until_slot(tmp_path, 1, JOBS[:1], identity=True):
        pass
    await wipe(tmp_path)

    async def never(timer):
        await asyncio.Event().wait()

    said = set()

    def on_applied(event, envelope, seq):
        said.add(type(event))

    async with running_system(
        options(tmp_path, identity=True), gate=never, listeners={"market_ingest": on_applied}
    ):
        await eventually(lambda: {IncarnationBegun, JobSubmitted} <= said)
    assert refusals(tmp_path) == []


async def test_services_as_processes_have_a_key_each_and_no_more(tmp_path):
    """In any order: those that make no streams wait for the one that does."""
    identities = opened_identities(tmp_path / "identity")
    reported = asyncio.Event()

    async def note(message):
        reported.set()

    async with (
        EmbeddedBroker(tmp_path / "broker", access=identities.access()) as broker,
        GuardedBus(broker.url, identities, tmp_path / "broker").trying("operator") as operator,
        ServiceProcesses(broker.url, tmp_path, MARKET) as services,
    ):
        await operator.client.subscribe(filter_of(CapacityReported), cb=note)
        for service in sorted(SERVICES, key="cloud_actuator".__eq__):
            await services.start(
                service,
                SPOTLINE_NATS_SEED=str(identities.folder / f"{service}.seed"),
                SPOTLINE_NATS_CA=str(identities.folder / CA_FILE),
            )
        async with asyncio.timeout(2 * PATIENCE_S):
            await reported.wait()
        assert services.dead() == []
    assert refusals(tmp_path) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"SPOTLINE_NATS_SEED": "selector.seed"}, "expected both or neither"),
        ({"SPOTLINE_NATS_SEED": "x.seed", "SPOTLINE_NATS_CA": "ca.pem"}, "named as an identity"),
        (
            {"SPOTLINE_NATS_SEED": "selector.seed", "SPOTLINE_NATS_CA": "ca.pem"},
            "expected the seed",
        ),
    ],
)
async def test_a_service_with_a_wrong_key_says_so_and_ends(tmp_path, settings, said):
    (tmp_path / "selector.seed").write_text("SUNOTASEED")
    told = {name: str(tmp_path / file) for name, file in settings.items()}
    async with ServiceProcesses("tls://127.0.0.1:1", tmp_path, MARKET) as services:
        await services.start("selector", **told)
        await eventually(lambda: services.dead() == ["selector"])
    assert said in services.said()
    assert "SUNOTASEED" not in services.said()
