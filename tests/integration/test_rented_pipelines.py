"""Pipelines on rented GPUs through the whole system: real broker, ledger and cloud, one log."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from spotline.adapters.files.geography.geography_file import parse_geography, read_geography
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.placer.client import PlacerClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.placer.messages import PlaceReceipt
from spotline.application.spec import Timer
from spotline.bootstrap.followers import serve_market_ingest
from spotline.bootstrap.parts import BusAddress, PartHooks, open_stream
from spotline.bootstrap.system import LEDGER_OWNER, SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.errors import ConfigError
from spotline.domain.events.capacity import CapacityReported, CostAccrued
from spotline.domain.market.generate import generate
from spotline.replay.handlers import handlers_of
from spotline.replay.verify import verify
from tests.fakes.placer import START_NS, id_of, of_type, pipeline
from tests.fakes.recorded_run import environment, manifest_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

# neocloud's spot count is 16 in slots 0 to 3 and 15 from slot 4 on.
MARKET = generate("mixed", seed=3, slots=6, slot_s=1800, start_ns=START_NS)
GEOGRAPHY = """
regions:
  - {id: neo, gpus: 16, energy_usd_per_kwh: 0.1, offering: "neocloud:neo-1:a100-1x", spot: true}
  - {id: east, gpus: 8, energy_usd_per_kwh: 0.3, offering: "cloud:east-1a:a100-1x"}
links:
  - {from: neo, to: east, gbit_per_s: 8, egress_usd_per_gb: 0.02}
"""
EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
LONG = {"iterations": 5_000, "min_gpus": 8}


async def first_placed(client: PlacerClient, name: str) -> PlaceReceipt:
    """Hand a pipeline over as soon as regions are known."""
    async with asyncio.timeout(100):
        while True:
            try:
                return await client.place(pipeline(name, **LONG))
            except RpcFailed as error:
                if error.code != "UNAVAILABLE":
                    raise
            await asyncio.sleep(0.02)


def billed(log: list[StoredEntry], name: str) -> int:
    bills = of_type([event_of(entry) for entry in log], CostAccrued)
    return sum(bill.cost_micro_usd for bill in bills if bill.job_id == id_of(name))


async def test_pipelines_are_rented_lose_an_instance_go_elsewhere_and_are_billed(
    tmp_path: Path,
) -> None:
    file = tmp_path / "geography.yaml"
    file.write_text(GEOGRAPHY)
    go, over = asyncio.Event(), asyncio.Event()

    async def gate(timer: Timer) -> None:
        if timer.timer_id != "slot:0":
            await go.wait()

    def watch(event, envelope, seq) -> None:
        if isinstance(event, CapacityReported) and event.settled and event.slot == 5:
            over.set()

    options = SystemOptions(
        market=MARKET, store=tmp_path, geography=file, ingest=IngestOptions(slot_interval_s=0)
    )
    async with (
        running_system(options, gate=gate, listeners={"market_ingest": watch}) as system,
        PlacerClient(system.placer_address) as client,
    ):
        first = await first_placed(client, "one")
        second = await client.place(pipeline("two", **LONG))
        go.set()
        async with asyncio.timeout(100):
            await over.wait()
        async with open_stream(system.bus, name="test") as (_, stream), asyncio.timeout(100):
            while True:
                last_seq = await stream.last_seq()
                log = [
                    event
                    async for entry in stream.read([], last_seq=last_seq)
                    for event in unpacked(entry)
                ]
                found = {one.pipeline.client_request_id: one for one in await client.list_all()}
                if all(one.ledger_micro_usd == billed(log, n) > 0 for n, one in found.items()):
                    break
    ledger = SqlLedger(ledger_url(tmp_path / "ledger.sqlite"), LEDGER_OWNER)
    spent = ledger.spend_by_job()
    held = sorted((one.job_id, one.offering_id) for one in ledger.held())
    ledger.close()

    assert [share.region_id for share in first.status.placement.path] == ["neo"]
    assert [share.region_id for share in second.status.placement.path] == ["neo"]
    # The sixteenth instance went: one pipeline has seven there now, and one where it is dearer.
    paths = {
        name: {share.region_id: share.gpus for share in one.placement.path}
        for name, one in found.items()
    }
    assert sorted(map(len, paths.values())) == [1, 2]
    assert sum(path.get("neo", 0) for path in paths.values()) == 15
    offerings = {"neo": "neocloud:neo-1:a100-1x", "east": "cloud:east-1a:a100-1x"}
    assert held == sorted(
        (id_of(name), offerings[region])
        for name, path in paths.items()
        for region, gpus in path.items()
        for _ in range(gpus)
    )
    assert spent == {id_of(name): billed(log, name) for name in found}

    report = verify(log, handlers_of(options.settings()), manifest_of(log), here=environment())
    assert report.divergences == ()
    assert report.exit_code == 0


def test_the_example_rents_what_the_generated_market_offers() -> None:
    geography = read_geography(EXAMPLES / "geography-rented.yaml")

    rented = {one.region.offering_id for one in geography.regions.values()}
    assert rented <= {offering.offering_id for offering in MARKET.offerings}


async def test_a_region_rented_as_what_the_market_lacks_is_refused_at_start(tmp_path: Path) -> None:
    geography = parse_geography(
        "regions:\n  - {id: x, gpus: 8, energy_usd_per_kwh: 0.1, offering: nobody}\n", where="x"
    )
    with pytest.raises(ConfigError, match="offering of region x must be one of the market's"):
        await serve_market_ingest(
            BusAddress(nats_url="nats://127.0.0.1:1"),
            MARKET,
            IngestOptions(),
            PartHooks(),
            geography=geography,
        )
