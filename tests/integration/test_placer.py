"""PlacementService over real gRPC: with a host that has no broker, and as a process on NATS."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from spotline.adapters.files.geography.geography_file import parse_geography
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.placer.client import PlacerClient
from spotline.adapters.grpc.placer.server import PlacerServer
from spotline.adapters.grpc.placer.servicer import pipeline_decided
from spotline.api.v1 import placement_service_pb2 as pb
from spotline.api.v1 import placement_service_pb2_grpc
from spotline.application.market_ingest.handler import IngestOptions
from spotline.application.placer.messages import (
    ExplanationRequest,
    PlacementPhase,
    PlacementQuery,
    pipeline_id_for,
)
from spotline.application.placer.options import PlacerOptions
from spotline.application.spec import Timer
from spotline.bootstrap.followers import serve_market_ingest
from spotline.bootstrap.parts import BusAddress, PartHooks
from spotline.bootstrap.servers import serve_placer
from spotline.contracts.mapping import to_message
from spotline.domain.market.generate import generate
from spotline.domain.placement.interface import CostBasis
from spotline.runtime.applied import AppliedFeed
from spotline.runtime.broker import EmbeddedBroker
from tests.fakes.placer import START_NS, FakePlacerHost, at, both_ways, id_of, pipeline, region
from tests.fakes.processes import ServiceProcesses, free_port

pytestmark = pytest.mark.integration

TWO = (region("a", 8, 0.1), region("b", 8, 0.2), *both_ways("a", "b"))
MARKET = generate("mixed", seed=3, slots=4, slot_s=1800, start_ns=START_NS)
GEOGRAPHY = """
regions:
  - {id: a, gpus: 8, energy_usd_per_kwh: 0.1}
  - {id: b, gpus: 8, energy_usd_per_kwh: 0.2}
links:
  - {from: a, to: b, gbit_per_s: 8}
"""


@asynccontextmanager
async def serving(host: FakePlacerHost):
    """The placer's server on a host without a broker; yields its address."""
    feed = AppliedFeed(pipeline_decided)
    host.listeners.append(feed.on_applied)
    server = PlacerServer(host, feed, PlacerOptions(), address="127.0.0.1:0")
    try:
        yield await server.start()
    finally:
        await server.stop(grace_s=0.2)


@asynccontextmanager
async def client_of(*events, host: FakePlacerHost | None = None):
    async with (
        serving(host or FakePlacerHost(*(events or TWO))) as address,
        PlacerClient(address) as client,
    ):
        yield client


def regions_of(status) -> dict[str, int]:
    assert status.placement is not None, status.reason
    return {share.region_id: share.gpus for share in status.placement.path}


# --- place, list, release ---------------------------------------------------------------------


async def test_a_pipeline_is_placed_listed_and_released() -> None:
    async with client_of() as client:
        placed = await client.place(pipeline())
        listed = await client.list()
        ended = await client.release(id_of("one"), "research")
        again = await client.release(id_of("one"), "research")
        running = await client.list(PlacementQuery(phase=PlacementPhase.RUNNING))

    assert (placed.status.phase, placed.already_submitted) == (PlacementPhase.RUNNING, False)
    assert regions_of(placed.status) == {"a": 8}
    assert listed.statuses == (placed.status,)
    assert ended.phase is PlacementPhase.RELEASED
    assert again == ended
    assert running.statuses == ()


async def test_the_same_request_again_is_recorded_once() -> None:
    host = FakePlacerHost(*TWO)
    async with client_of(host=host) as client:
        first = await client.place(pipeline())
        again = await client.place(pipeline())

    assert again == replace(first, already_submitted=True)
    assert len(host.stored) == 1


async def test_pages_follow_each_other_by_job_id() -> None:
    async with client_of() as client:
        for name in ("one", "two", "three"):
            await client.place(pipeline(name))
        first = await client.list(PlacementQuery(page_size=2))
        second = await client.list(PlacementQuery(page_size=2, page_token=first.next_page_token))
        none = await client.list(PlacementQuery(tenant="other"))

    listed = [one.pipeline.job_id for one in (*first.statuses, *second.statuses)]
    assert listed == sorted(id_of(name) for name in ("one", "two", "three"))
    assert (len(first.statuses), second.next_page_token, none.statuses) == (2, "", ())


async def test_without_an_id_the_request_names_the_job() -> None:
    async with serving(FakePlacerHost(*TWO)) as address, open_channel(address) as channel:
        stub = placement_service_pb2_grpc.PlacementServiceStub(channel)
        request = pb.PlaceRequest(pipeline=to_message(pipeline()))
        request.pipeline.job_id = ""
        named = [(await stub.Place(request, timeout=30)).status.pipeline.job_id for _ in range(2)]

    assert len(named[0]) == 32
    assert named[0] == named[1]


async def test_an_explanation_holds_nothing_and_marks_what_placing_takes() -> None:
    async with client_of() as client:
        before = await client.explain(ExplanationRequest(pipeline=pipeline()))
        rent = await client.explain(
            ExplanationRequest(pipeline=pipeline(), method_id="lcf", basis=CostBasis.RENT)
        )
        placed = await client.place(pipeline())

    (chosen,) = [path for path in before.paths if path.chosen]
    assert chosen.placement.path == placed.status.placement.path
    assert before.basis is CostBasis.ENERGY
    assert (rent.method_id, rent.basis) == ("lcf", CostBasis.RENT)


# --- refusals ---------------------------------------------------------------------------------


async def test_a_deadline_too_soon_is_refused_with_the_earliest() -> None:
    async with client_of() as client:
        with pytest.raises(RpcFailed) as caught:
            await client.place(pipeline(deadline_s=700.0))

    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.field == "pipeline.deadline_s"
    assert caught.value.earliest_feasible_deadline == "2026-01-01T00:13:20Z"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("iterations", 0, f"iterations of {id_of()} must be >= 1, was 0"),
        ("compute_s", float("nan"), "pipeline.compute_s: must be finite"),
        ("tenant", "", "pipeline.tenant: must not be empty"),
        ("max_gpus", 1, f"max_gpus of {id_of()} must be >= min_gpus (4), was 1"),
        ("deadline_s", -1.0, "deadline_s must be >= 0, was -1"),
        ("activation_bytes", 1e300, "activation_bytes must be <= 1e+15"),
    ],
)
async def test_bad_input_is_refused_with_field_and_expectation(field, value, said) -> None:
    host = FakePlacerHost(*TWO)
    request = pb.PlaceRequest(pipeline=to_message(pipeline()))
    setattr(request.pipeline, field, value)

    async with serving(host) as address, open_channel(address) as channel:
        stub = placement_service_pb2_grpc.PlacementServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Place(request, timeout=30)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in caught.value.details()
    assert host.stored == {}


async def test_a_request_without_an_id_gets_one_and_one_by_its_new_name_is_the_same() -> None:
    message = to_message(pipeline())
    message.client_request_id = message.job_id = ""

    async with serving(FakePlacerHost(*TWO)) as address, open_channel(address) as channel:
        stub = placement_service_pb2_grpc.PlacementServiceStub(channel)
        own = await stub.Place(pb.PlaceRequest(pipeline=message), timeout=30)
        named = await stub.Place(pb.PlaceRequest(pipeline=message, request_id="one"), timeout=30)
        again = await stub.Place(pb.PlaceRequest(pipeline=message, request_id="one"), timeout=30)

    assert own.status.pipeline.job_id != named.status.pipeline.job_id
    assert named.status.pipeline.job_id == id_of("one")
    assert again.already_submitted


@pytest.mark.parametrize("rpc", ["Place", "Explain"])
async def test_an_id_that_is_not_the_requests_own_is_refused_with_the_one_expected(rpc) -> None:
    host = FakePlacerHost(*TWO)
    kind = {"Place": pb.PlaceRequest, "Explain": pb.ExplainRequest}[rpc]
    request = kind(pipeline=to_message(pipeline("one")))
    # The id that another tenant's request will have.
    request.pipeline.job_id = pipeline_id_for("other", "theirs")

    async with serving(host) as address, open_channel(address) as channel:
        stub = placement_service_pb2_grpc.PlacementServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await getattr(stub, rpc)(request, timeout=30)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert dict(caught.value.trailing_metadata())["spotline-field"] == "pipeline.job_id"
    assert f"pipeline.job_id must be empty or {id_of('one')}" in caught.value.details()
    assert host.stored == {}


async def test_what_does_not_exist_is_refused_by_name() -> None:
    async with client_of() as client:
        with pytest.raises(RpcFailed, match=f"there is no pipeline {id_of()}") as unknown:
            await client.release(id_of("one"), "research")
        with pytest.raises(RpcFailed, match="unknown placement method 'x'") as method:
            await client.explain(ExplanationRequest(pipeline=pipeline(), method_id="x"))
        await client.place(pipeline())
        with pytest.raises(RpcFailed, match="used for another pipeline") as other:
            await client.place(pipeline(iterations=7))
        with pytest.raises(RpcFailed, match="of tenant other"):
            await client.release(id_of("one"), "other")

    assert (unknown.value.code, other.value.field) == ("NOT_FOUND", "pipeline.client_request_id")
    assert (method.value.code, method.value.field) == ("INVALID_ARGUMENT", "method")


async def test_without_regions_or_bus_it_says_that_nothing_was_recorded() -> None:
    host = FakePlacerHost()
    async with client_of(host=host) as client:
        with pytest.raises(RpcFailed, match="no region has been observed") as empty:
            await client.place(pipeline())
        host.record(region("a", 8))
        host.down = True
        with pytest.raises(RpcFailed, match="nothing was recorded") as down:
            await client.place(pipeline())

    assert empty.value.code == down.value.code == "UNAVAILABLE"


# --- with market_ingest -----------------------------------------------------------------------


async def once(work, until=lambda answer: True):
    """Ask until it is up, has seen the regions, and the answer is as wanted."""
    async with asyncio.timeout(100):
        while True:
            with suppress_unavailable():
                answer = await work()
                if until(answer):
                    return answer
            await asyncio.sleep(0.02)


@contextmanager
def suppress_unavailable():
    """Let pass that nobody answers yet."""
    try:
        yield
    except RpcFailed as error:
        if error.code != "UNAVAILABLE":
            raise


async def test_slots_bring_a_loss_that_moves_a_pipeline_and_time_that_ends_it(
    event_stream, broker
) -> None:
    lost = f"{GEOGRAPHY}region_changes:\n  - {{after_hours: 0.5, region: a, down: true}}\n"
    geography = parse_geography(lost, where="geography.yaml")
    bus, go = BusAddress(nats_url=broker.url), asyncio.Event()
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def gate(timer: Timer) -> None:
        if timer.timer_id != "slot:0":
            await go.wait()

    async with asyncio.TaskGroup() as group:
        placer = serve_placer(
            bus,
            PlacerOptions(),
            address="127.0.0.1:0",
            hooks=PartHooks(),
            listening=listening.set_result,
        )
        ingest = serve_market_ingest(
            bus, MARKET, IngestOptions(barrier=False), PartHooks(gate=gate), geography=geography
        )
        tasks = [group.create_task(work) for work in (placer, ingest)]
        async with PlacerClient(await listening) as client:
            placed = await once(lambda: client.place(pipeline(iterations=300)))
            go.set()
            page = await once(client.list, lambda page: page.statuses[0].phase.over)
        for task in tasks:
            task.cancel()

    (ended,) = page.statuses
    assert regions_of(placed.status) == {"a": 8}
    assert (ended.phase, ended.moves) == (PlacementPhase.COMPLETED, 1)
    # 220 of 300 iterations at its last checkpoint, half an hour after it began on a.
    assert ended.finish_ns == at(1800 + 30 + 80 * 8)


# --- as a process -----------------------------------------------------------------------------


@pytest.mark.timeout(240)
async def test_killed_and_started_again_it_answers_as_before(tmp_path: Path) -> None:
    file = tmp_path / "geography.yaml"
    file.write_text(GEOGRAPHY)
    address = f"127.0.0.1:{free_port()}"
    settings = {"SPOTLINE_PLACER_ADDRESS": address, "SPOTLINE_GEOGRAPHY": str(file)}
    async with (
        EmbeddedBroker(tmp_path / "broker") as broker,
        ServiceProcesses(broker.url, tmp_path, MARKET, **settings) as services,
        PlacerClient(address) as client,
    ):

        async def answered(work):
            async def asked():
                assert not services.dead(), services.said()
                return await work()

            return await once(asked)

        await services.start("placer")
        await services.start("market_ingest")
        one = await answered(lambda: client.place(pipeline("one")))
        await client.place(pipeline("two"))
        await client.place(pipeline("three"))
        await client.release(id_of("two"), "research")
        before = await client.list()
        explained = await client.explain(ExplanationRequest(pipeline=pipeline("four")))

        await services.kill("placer")
        await services.start("placer")
        after = await answered(client.list)
        again = await client.place(pipeline("one"))
        explained_again = await client.explain(ExplanationRequest(pipeline=pipeline("four")))

    assert after == before
    assert explained_again == explained
    assert again == replace(one, already_submitted=True)
    assert one.status.submitted_ns == at(0)
    phases = {one.pipeline.client_request_id: one.phase.value for one in after.statuses}
    assert phases == {"one": "running", "two": "released", "three": "running"}
