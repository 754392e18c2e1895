"""One tenant floods a real server: the others are answered, and what was refused may come again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from spotline.adapters.files.job_file import parse_job_file
from spotline.adapters.grpc.allocator.client import JobClient, with_own_id
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import STATUS_KEY, RpcFailed
from spotline.api.v1 import job_service_pb2, job_service_pb2_grpc
from spotline.application.allocator.messages import JobQuery, Submission
from spotline.contracts.limits import CallerLimits
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason
from tests.eventually import PATIENCE_S
from tests.fakes.bad_input import KNOWN_JOB, AskedSystem

pytestmark = pytest.mark.integration

SUBMITS, HUGE = 1_000, 4
# A call whose time is over ends as either, by which side's word of it comes first.
UNKNOWN_END = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
NOT_YET = {Reason.NOT_APPLIED_YET.name, Reason.NOT_ADMITTED_YET.name}
JOB = parse_job_file(KNOWN_JOB)
AnswerT = TypeVar("AnswerT")


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    with AskedSystem(tmp_path_factory.mktemp("flooded")) as system:
        yield system


def submission(number: int, *, name: str = ""):
    request_id = f"flood-{number}"
    flooding = replace(JOB, tenant="loud", client_request_id=request_id, name=name)
    return to_message(Submission(job=with_own_id(flooding), request_id=request_id))


def details_of(error: grpc.aio.AioRpcError) -> dict[str, object]:
    found = {}
    status = Status.FromString(dict(error.trailing_metadata())[STATUS_KEY])
    for packed in status.details:
        for kind in (details.ErrorInfo, details.RetryInfo, details.BadRequest):
            detail = kind()
            if packed.Unpack(detail):
                found[kind.__name__] = detail
    return found


async def answer_to(stub, request) -> object:
    """The answer or the refusal; what is recorded and not yet applied is asked for as it says.

    On a busy machine that takes longer than the server waits, and to be refused then says nothing
    of what was recorded.
    """
    recorded = False
    while True:
        try:
            return await stub.Submit(request, timeout=PATIENCE_S)
        except grpc.aio.AioRpcError as error:
            if error.code() in UNKNOWN_END:
                # Whether it was recorded is not known: the same submission again says so.
                recorded = True
                continue
            found = details_of(error)
            recorded |= found["ErrorInfo"].reason in NOT_YET
            if not recorded:
                return error
            await asyncio.sleep(found["RetryInfo"].retry_delay.ToNanoseconds() / 1e9)


async def patiently(call: Callable[[], Awaitable[AnswerT]]) -> AnswerT:
    """Ask again where something is only not yet applied, or a busy machine was too slow to answer.

    It is the same question each time; how long the answer takes is not measured here.
    """
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            return await call()
        except RpcFailed as refused:
            late = asyncio.get_running_loop().time() >= deadline
            slow = refused.reason in NOT_YET or refused.code == "DEADLINE_EXCEEDED"
            if late or not slow:
                raise


async def flood(address: str) -> list[object]:
    """1,000 submits at once, some with a name of 3 MB."""
    # The huge ones first: they take longest to arrive.
    requests = [
        submission(number, name="x" * 3_000_000 if number < HUGE else "")
        for number in range(SUBMITS)
    ]
    async with open_channel(address) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        return await asyncio.gather(*(answer_to(stub, request) for request in requests))


async def test_a_flood_is_told_to_come_again_and_others_are_answered(asked) -> None:
    address = asked.system.allocator_address
    async with JobClient(address) as quiet, JobClient(address) as client:
        # On a loop of its own, or the others would wait behind what this process sends.
        flooding = asyncio.create_task(asyncio.to_thread(asyncio.run, flood(address)))
        answered = 0
        while not flooding.done():
            named = replace(JOB, tenant="quiet", client_request_id=f"q{answered}")
            await patiently(quiet.market)
            await patiently(partial(quiet.submit, named))
            answered += 1
        outcomes = flooding.result()

        accepted = {said.job_id for said in outcomes if not isinstance(said, BaseException)}
        refused = [said for said in outcomes if isinstance(said, BaseException)]
        held = {status.job.job_id for status in await client.list_all(JobQuery(tenant="loud"))}
        quiet_jobs = await client.list_all(JobQuery(tenant="quiet"))

    assert answered > 0
    assert len(quiet_jobs) == answered
    assert accepted == held, "what was accepted is kept, what was refused is not there"
    codes = Counter(said.code() for said in refused)
    assert codes[grpc.StatusCode.INVALID_ARGUMENT] + codes[
        grpc.StatusCode.RESOURCE_EXHAUSTED
    ] == len(refused)
    for said in refused:
        found = details_of(said)
        if said.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
            assert found["ErrorInfo"].reason == "TOO_MANY_REQUESTS"
            assert found["RetryInfo"].retry_delay.ToNanoseconds() > 0
        else:
            (violation,) = found["BadRequest"].field_violations
            assert violation.field == "job.name"
    assert codes[grpc.StatusCode.RESOURCE_EXHAUSTED] > 0, "it must have been too much at a time"
    assert len(accepted) >= CallerLimits().most_calls_a_tenant - HUGE


@pytest.mark.slow
async def test_a_client_that_waits_as_it_is_told_gets_all_in(asked) -> None:
    jobs = [replace(JOB, tenant="patient", client_request_id=f"p{n}") for n in range(600)]
    async with JobClient(asked.system.allocator_address) as client:
        receipts = await asyncio.gather(*(patiently(partial(client.submit, job)) for job in jobs))
        held = await client.list_all(JobQuery(tenant="patient"))

    assert {receipt.job_id for receipt in receipts} == {status.job.job_id for status in held}
    assert len(held) == len(jobs)


async def test_a_message_beyond_the_limit_is_refused_and_the_server_goes_on(asked) -> None:
    address = asked.system.allocator_address
    async with grpc.aio.insecure_channel(
        address, options=(("grpc.max_send_message_length", -1),)
    ) as channel:
        stub = job_service_pb2_grpc.JobServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Get(job_service_pb2.GetRequest(job_id="x" * (9 << 20)), timeout=60)
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await stub.Get(job_service_pb2.GetRequest(job_id="nix"), timeout=60)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
