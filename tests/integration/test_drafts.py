"""Submit and Plan of jobs that leave out what a configurator fills in, over real gRPC."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.configurator.client import ConfiguratorClient
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.api.v1 import job_service_pb2_grpc
from spotline.application.admission import job_id_for
from spotline.application.allocator.messages import PlanRequest, Submission
from spotline.contracts.mapping import to_message
from spotline.domain.configuration.configuration import Method
from spotline.domain.configuration.provenance import OriginKind
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, DeadlineKind, Throughput, Topology
from tests.eventually import eventually
from tests.fakes.allocator import (
    SLOT_NS,
    START_NS,
    FakeJobsHost,
    job,
    offering,
    opened_host,
    slot_opened,
)
from tests.fakes.configurator import FakeConfigurator

pytestmark = pytest.mark.integration

AT_NS = START_NS + 30 * SLOT_NS
DEADLINE = Deadline(kind=DeadlineKind.HARD, at_ns=AT_NS, expires_ns=AT_NS)


def draft(request_id: str = "d1") -> JobDraft:
    """Five instance-hours at the fake configurator's rates."""
    return JobDraft(
        tenant="research",
        client_request_id=request_id,
        name="a draft",
        model_name="granite-3.1-8b",
        tokens=1e7,
        deadline=DEADLINE,
        value_micro_usd=400_000_000,
    )


@asynccontextmanager
async def allocator(host: FakeJobsHost, configurator: FakeConfigurator | None):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(
        host,
        feed,
        address="127.0.0.1:0",
        configurator=configurator,
        await_admission=host.admits,
    )
    address = await server.start()
    try:
        async with JobClient(address) as client:
            yield client
    finally:
        await server.stop(grace_s=0.2)


def submitted(host: FakeJobsHost) -> list[JobSubmitted]:
    return [event for _, event in host.stored.values() if isinstance(event, JobSubmitted)]


# --- Submit -----------------------------------------------------------------------------------


async def test_a_draft_becomes_a_job_that_says_who_filled_in_what() -> None:
    host, configurator = opened_host(), FakeConfigurator()

    async with allocator(host, configurator) as client:
        receipt = await client.submit(draft())
        status = await client.get(receipt.job_id)

    assert receipt.job_id == job_id_for("research", "d1")
    assert not receipt.already_submitted
    assert receipt.configuration is not None
    assert status.job.configuration == receipt.configuration
    assert submitted(host)[0].job == status.job
    said_by = {one.parameter: one.said_by for one in receipt.configuration.origins}
    assert said_by["model_name"] == "user"
    assert said_by["batch_size"] == "default"
    assert said_by["throughput.p4d.24xlarge"] == "predicted by combined"


async def test_the_same_draft_is_the_same_job_although_the_market_moved() -> None:
    host, configurator = opened_host(), FakeConfigurator()

    async with allocator(host, configurator) as client:
        first = await client.submit(draft())
        configurator.tokens_per_hour = 3e6
        again = await client.submit(draft())

    assert again == replace(first, already_submitted=True)
    assert len(submitted(host)) == 1
    assert len(configurator.asked) == 1


async def test_a_known_draft_needs_no_configurator() -> None:
    host = opened_host()
    async with allocator(host, FakeConfigurator()) as client:
        first = await client.submit(draft())

    async with allocator(host, None) as client:
        again = await client.submit(draft())

    assert again == replace(first, already_submitted=True)


async def test_two_equal_drafts_that_race_are_one_job() -> None:
    host, configurator = opened_host(), FakeConfigurator()
    configurator.held = asyncio.Event()

    async with allocator(host, configurator) as client, asyncio.TaskGroup() as tasks:
        sent = [tasks.create_task(client.submit(draft()))]
        await eventually(lambda: len(configurator.asked) == 1)
        # The second is completed otherwise.
        configurator.tokens_per_hour = 3e6
        sent.append(tasks.create_task(client.submit(draft())))
        await eventually(lambda: len(configurator.asked) == 2)
        configurator.held.set()

    receipts = [one.result() for one in sent]
    assert sorted(one.already_submitted for one in receipts) == [False, True]
    assert receipts[0].configuration == receipts[1].configuration
    assert len(submitted(host)) == 1


FULL = replace(
    draft(),
    method=Method.LORA,
    gpu_model="A100-SXM4-80GB",
    gpus=16,
    tokens_per_sample=2048,
    batch_size=32,
    precision="bfloat16",
    topology=Topology.ANY,
    offerings=("p4d.24xlarge",),
    budget_micro_usd=900_000_000,
)


async def test_a_draft_that_states_much_is_recognised_again() -> None:
    async with allocator(opened_host(), FakeConfigurator()) as client:
        first = await client.submit(FULL)
        again = await client.submit(FULL)

    assert first.configuration is not None
    assert first.configuration.origin_of("batch_size").kind is OriginKind.USER
    assert again.already_submitted


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        (draft(), replace(draft(), tokens=2e7), "tokens"),
        (draft(), replace(draft(), value_micro_usd=1), "value_micro_usd"),
        (draft(), replace(draft(), model_name="granite-3.1-2b"), "model_name"),
        (draft(), replace(draft(), model_parameters=8_000_000_000), "model_parameters"),
        # What is stated now was filled in with the same value: still another request.
        (draft(), replace(draft(), batch_size=32), "batch_size"),
        (draft(), replace(draft(), topology=Topology.ONE_ZONE), "topology"),
        (draft(), replace(draft(), allowed_counts=(1, 2, 3, 4)), "allowed_counts"),
        (
            draft(),
            replace(draft(), throughputs=(Throughput(offering="*", alpha=1e6),)),
            "throughputs",
        ),
        (FULL, replace(FULL, batch_size=0), "batch_size"),
        (FULL, replace(FULL, gpu_model="V100"), "gpu_model"),
        (FULL, replace(FULL, gpus=0, allowed_counts=(2,)), "gpus"),
        (FULL, replace(FULL, offerings=()), "offerings"),
    ],
)
async def test_another_draft_under_the_same_request_id_is_refused(before, after, field) -> None:
    host = opened_host()

    async with allocator(host, FakeConfigurator()) as client:
        await client.submit(before)
        with pytest.raises(RpcFailed, match=f"differs in .*{field}") as caught:
            await client.submit(after)

    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.field == "draft.client_request_id"
    assert len(submitted(host)) == 1


async def test_a_draft_after_a_whole_job_of_its_request_id_is_refused() -> None:
    async with allocator(opened_host(), FakeConfigurator()) as client:
        await client.submit(job("d1"))
        with pytest.raises(RpcFailed, match="differs in throughputs, which were all stated"):
            await client.submit(draft())


async def test_without_a_configurator_it_is_said_what_to_do() -> None:
    host = opened_host()

    async with allocator(host, None) as client:
        with pytest.raises(RpcFailed, match="has no configurator; start one") as submitting:
            await client.submit(draft())
        with pytest.raises(RpcFailed, match="instances and throughput"):
            await client.plan(PlanRequest(draft=draft()))

    assert submitting.value.code == "FAILED_PRECONDITION"
    assert submitting.value.field == "draft"
    assert not submitted(host)


async def test_a_configurator_that_is_not_there_is_said_and_nothing_is_recorded() -> None:
    host = opened_host()

    async with ConfiguratorClient("127.0.0.1:1") as nobody, allocator(host, nobody) as client:
        with pytest.raises(RpcFailed, match=r"configurator at 127\.0\.0\.1:1 cannot be") as caught:
            await client.submit(draft())

    assert caught.value.code == "UNAVAILABLE"
    # Of the allocator that was asked, not of the configurator behind it.
    assert not caught.value.unreachable
    assert "nothing was recorded, try again" in str(caught.value)
    assert not submitted(host)


async def test_what_the_configurator_refuses_is_passed_on() -> None:
    host, configurator = opened_host(), FakeConfigurator()
    configurator.failure = RpcFailed(
        "INVALID_ARGUMENT", "draft.batch_size must be divisible by gpus", field="draft.batch_size"
    )

    async with allocator(host, configurator) as client:
        with pytest.raises(RpcFailed, match="divisible by gpus") as caught:
            await client.submit(replace(draft(), batch_size=7))

    assert caught.value.bad_input
    assert caught.value.field == "draft.batch_size"
    assert not submitted(host)


async def test_a_completed_job_is_checked_like_any_other() -> None:
    host = opened_host()

    async with allocator(host, FakeConfigurator(tokens_per_hour=1e3)) as client:
        with pytest.raises(RpcFailed, match="cannot be met") as caught:
            await client.submit(draft())

    assert caught.value.earliest_feasible_deadline
    assert caught.value.field == "draft.deadline"
    assert not submitted(host)


async def test_a_platform_may_leave_the_drafts_job_id_empty_but_not_make_one_up() -> None:
    host, configurator = opened_host(), FakeConfigurator()
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(
        host,
        feed,
        address="127.0.0.1:0",
        configurator=configurator,
        await_admission=host.admits,
    )
    address = await server.start()
    empty = to_message(Submission(draft=draft()))
    made_up = to_message(Submission(draft=replace(draft("d2"), job_id="mine")))

    async with open_channel(address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        answer = await stub.Submit(empty, timeout=60)
        with pytest.raises(grpc.aio.AioRpcError, match=r"draft\.job_id must be empty or"):
            await stub.Submit(made_up, timeout=60)
    await server.stop(grace_s=0.2)

    assert answer.job_id == job_id_for("research", "d1")


# --- Plan -------------------------------------------------------------------------------------


async def test_a_plan_of_a_draft_shows_how_it_was_completed() -> None:
    host, configurator = opened_host(), FakeConfigurator()

    async with allocator(host, configurator) as client:
        answer = await client.plan(PlanRequest(draft=draft(), policy_ids=("msu",)))

    assert answer.feasible
    assert answer.options[0].policy_id == "msu"
    assert answer.completion is not None
    assert answer.completion.considered == 3
    assert answer.completion.options[0].chosen
    assert answer.completion.job.job_id == job_id_for("research", "d1")
    assert not submitted(host)


async def test_a_plan_whose_deadline_nothing_meets_is_answered_with_the_earliest() -> None:
    configurator = FakeConfigurator()
    configurator.failure = RpcFailed(
        "FAILED_PRECONDITION",
        "draft.deadline cannot be met; ask for 2026-03-02T00:00:00Z or later",
        field="draft.deadline",
        earliest_feasible_deadline="2026-03-02T00:00:00Z",
    )

    async with allocator(opened_host(), configurator) as client:
        answer = await client.plan(PlanRequest(draft=draft()))
        with pytest.raises(RpcFailed, match="cannot be met") as submitting:
            await client.submit(draft())

    assert not answer.feasible
    assert answer.infeasible_reason == "draft.deadline cannot be met"
    assert answer.earliest_feasible_deadline_ns == START_NS + 24 * 6 * SLOT_NS
    assert submitting.value.earliest_feasible_deadline == "2026-03-02T00:00:00Z"


async def test_a_draft_is_planned_alone_and_on_the_live_market() -> None:
    quotes = slot_opened(0).quotes
    offerings = tuple(offering(one.quote.offering_id) for one in quotes)
    with_quotes = PlanRequest(draft=draft(), quotes=quotes, offerings=offerings, slot_s=600)

    async with allocator(opened_host(), FakeConfigurator()) as client:
        with pytest.raises(RpcFailed, match="draft must be planned alone") as together:
            await client.plan(PlanRequest(draft=draft(), jobs=(job("a"), job("b"))))
        with pytest.raises(RpcFailed, match="on the live market"):
            await client.plan(with_quotes)

    assert together.value.bad_input
