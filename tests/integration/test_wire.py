"""What a client of JobService may rely on: errors by field, request ids, pages, clock, updates."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from spotline.adapters.grpc.allocator import admitting
from spotline.adapters.grpc.allocator import client as client_module
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.errors import STATUS_KEY, RpcFailed
from spotline.api.v1 import job_service_pb2 as pb
from spotline.api.v1 import job_service_pb2_grpc
from spotline.application.allocator.messages import (
    ExitReport,
    JobQuery,
    ProgressReport,
    Submission,
)
from spotline.application.allocator.updates import JobChange
from spotline.application.market_view import ClockReading, MarketState
from spotline.contracts.limits import CallerLimits
from spotline.contracts.mapping import to_message
from spotline.domain.events.lifecycle import (
    AdmissionRecorded,
    JobCancelled,
    JobClosed,
    JobExited,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
    JobUpdated,
)
from spotline.domain.jobs.job import Deadline, DeadlineKind, OnLimit
from spotline.domain.modes import Mode
from tests.fakes.allocator import SLOT_NS, SLOT_S, START_NS, FakeJobsHost, job, opened_host

pytestmark = pytest.mark.integration

JOB = job()
CLOCK = ClockReading(market_ns=START_NS, slot=0, slot_s=SLOT_S, mode=Mode.LIVE)


@asynccontextmanager
async def serving(host: FakeJobsHost):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    address = await server.start()
    try:
        yield address
    finally:
        await server.stop(grace_s=0.2)


@asynccontextmanager
async def client_of(host: FakeJobsHost):
    async with serving(host) as address, JobClient(address) as client:
        yield client


@asynccontextmanager
async def plain_stub(host: FakeJobsHost):
    """The service as a client without Spotline's library sees it."""
    async with serving(host) as address, grpc.aio.insecure_channel(address) as channel:
        yield job_service_pb2_grpc.JobServiceStub(channel)


def events_of(host: FakeJobsHost, event_type):
    return [event for _, event in host.stored.values() if isinstance(event, event_type)]


def hard(slots: int) -> Deadline:
    at_ns = START_NS + slots * SLOT_NS
    return Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns)


def submission(**changes) -> pb.SubmitRequest:
    return to_message(Submission(job=replace(JOB, **changes)))


async def refused(call) -> tuple[grpc.StatusCode, dict[str, object]]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = Status.FromString(dict(caught.value.trailing_metadata())[STATUS_KEY])
    assert status.code == caught.value.code().value[0]
    found = {}
    for packed in status.details:
        for detail_type in (
            details.ErrorInfo,
            details.BadRequest,
            details.RetryInfo,
            details.PreconditionFailure,
        ):
            detail = detail_type()
            if packed.Unpack(detail):
                found[detail_type.__name__] = detail
    return caught.value.code(), found


# --- errors -----------------------------------------------------------------------------------


async def test_all_fields_at_fault_are_told_at_once() -> None:
    message = submission()
    message.job.tenant = ""
    message.job.work.unit = "parsecs"
    message.job.topology = 88

    async with plain_stub(opened_host()) as stub:
        code, found = await refused(stub.Submit(message))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert found["ErrorInfo"].reason == "FIELD_INVALID"
    fields = {said.field for said in found["BadRequest"].field_violations}
    assert fields == {"job.tenant", "job.work.unit", "job.topology"}


async def test_admission_tells_all_that_is_wrong_too() -> None:
    far = hard(60_000)
    wrong = submission(offerings=("nowhere", "*none*"), deadline=far, allowed_counts=(1, 999))

    async with plain_stub(opened_host()) as stub:
        _, found = await refused(stub.Submit(wrong))

    assert {said.field for said in found["BadRequest"].field_violations} == {
        "job.allowed_counts",
        "job.deadline",
        "job.offerings[0]",
        "job.offerings[1]",
    }


async def test_what_passes_says_when_to_try_again() -> None:
    down = opened_host()
    down.down = True

    async with plain_stub(FakeJobsHost()) as stub:
        code, found = await refused(stub.Submit(submission()))
    async with plain_stub(down) as stub:
        bus_code, bus = await refused(stub.Submit(submission()))

    assert code is bus_code is grpc.StatusCode.UNAVAILABLE
    assert found["ErrorInfo"].reason == "MARKET_NOT_OPEN"
    assert bus["ErrorInfo"].reason == "BUS_UNAVAILABLE"
    assert found["RetryInfo"].retry_delay.ToMilliseconds() > 0


async def test_an_infeasible_deadline_is_a_precondition_with_the_earliest() -> None:
    async with plain_stub(opened_host()) as stub:
        code, found = await refused(stub.Submit(submission(deadline=hard(3))))

    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert found["PreconditionFailure"].violations[0].subject == "job.deadline"
    assert found["ErrorInfo"].metadata["earliestFeasibleDeadline"] == "2026-03-01T02:20:00Z"


async def test_our_own_client_reads_all_of_it() -> None:
    async with client_of(opened_host()) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.submit(replace(JOB, offerings=("nowhere", "neither")))

    assert caught.value.reason == "FIELD_INVALID"
    assert [said.field for said in caught.value.violations] == [
        "job.offerings[0]",
        "job.offerings[1]",
    ]


# --- request ids ------------------------------------------------------------------------------


async def test_a_submission_without_any_id_gets_one_and_can_be_sent_again_with_it() -> None:
    host = opened_host()
    message = submission()
    message.job.job_id = message.job.client_request_id = ""

    async with plain_stub(host) as stub:
        first = await stub.Submit(message)
        other = await stub.Submit(message)
        message.request_id = first.request_id
        again = await stub.Submit(message)

    assert first.job_id != other.job_id
    assert (again.job_id, again.already_submitted) == (first.job_id, True)
    assert len(events_of(host, JobSubmitted)) == 2


async def test_cancelling_again_by_the_same_id_has_the_earlier_answer() -> None:
    host = opened_host()

    async with client_of(host) as client:
        await client.submit(JOB)
        assert await client.cancel(JOB.job_id, request_id="c1") is False
        host.record(closed())
        assert await client.cancel(JOB.job_id, request_id="c1") is False
        assert await client.cancel(JOB.job_id, request_id="c2") is True

    assert events_of(host, JobCancelled) == [
        JobCancelled(job_id=JOB.job_id, tenant=JOB.tenant, ts_event_ns=START_NS)
    ]


async def test_reports_are_told_apart_by_their_ids() -> None:
    host = opened_host()
    report = ProgressReport(
        job_id=JOB.job_id, tenant=JOB.tenant, done=2.0, generation=1, checkpointed=1.5
    )

    async with client_of(host) as client:
        await client.submit(JOB)
        for request_id in ("p1", "p1", "p2"):
            await client.report(replace(report, request_id=request_id))
        with pytest.raises(RpcFailed) as caught:
            await client.report(replace(report, done=3.0, request_id="p1"))

    assert caught.value.reason == "REQUEST_ID_REUSED"
    reported = events_of(host, JobProgressReported)
    assert [(one.generation, one.checkpointed) for one in reported] == [(1, 1.5)] * 2


async def test_an_exit_is_recorded_once_by_what_it_says_or_by_its_id() -> None:
    host = opened_host()
    report = ExitReport(
        job_id=JOB.job_id, tenant=JOB.tenant, generation=1, exit_code=137, detail="oom"
    )

    async with client_of(host) as client:
        await client.submit(JOB)
        await client.report_exit(report)
        await client.report_exit(report)
        await client.report_exit(replace(report, generation=2, request_id="e"))
        with pytest.raises(RpcFailed, match="of tenant another"):
            await client.report_exit(replace(report, tenant="another"))

    assert [(one.generation, one.exit_code) for one in events_of(host, JobExited)] == [
        (1, 137),
        (2, 137),
    ]


# --- pages and clock --------------------------------------------------------------------------


async def test_a_token_of_another_query_is_refused_by_name() -> None:
    async with client_of(opened_host()) as client:
        for number in range(3):
            await client.submit(job(f"r{number}"))
        page = await client.list(JobQuery(page_size=2))
        with pytest.raises(ValueError, match="page_token"):
            JobQuery(tenant="research", page_token=page.next_page_token)
        altered = pb.ListRequest(tenant="research", page_token=page.next_page_token)
        code, found = await refused(client._jobs.List(altered))
        rest = await client.list(JobQuery(page_size=9, page_token=page.next_page_token))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert found["BadRequest"].field_violations[0].field == "page_token"
    assert len(page.statuses) + len(rest.statuses) == 3


async def test_every_answer_carries_market_time_and_slot_length() -> None:
    host = opened_host()

    async with client_of(host) as client:
        submitted = await client.submit(JOB)
        listed = await client.list()
        market = await client.market()
        watch = client.watch(JOB.job_id)
        update = await anext(watch)
        await watch.aclose()

    assert submitted.clock == listed.clock == market.clock == update.clock == CLOCK
    assert (market.state, market.next_slot_start_ns) == (MarketState.OPEN, START_NS + SLOT_NS)


# --- admission --------------------------------------------------------------------------------


async def test_a_submission_is_acknowledged_when_the_ledger_holds_it_too(monkeypatch) -> None:
    host = opened_host()
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0")
    address = await server.start()
    recorded = AdmissionRecorded(job_id=JOB.job_id, tenant=JOB.tenant)
    try:
        async with JobClient(address) as client, asyncio.TaskGroup() as tasks:
            submitting = tasks.create_task(client.submit(JOB))
            await host.asked(1)
            assert JOB.job_id in host.state.statuses
            # A round trip later it still waits.
            await client.market()
            assert not submitting.done()
            host.record(recorded)
        assert not submitting.result().already_submitted

        monkeypatch.setattr(admitting, "_TIMEOUT_S", 0.05)
        async with JobClient(address) as client:
            with pytest.raises(RpcFailed) as caught:
                await client.submit(job("r2"))
            with pytest.raises(RpcFailed):
                await client.submit(job("r2"))
            host.record(AdmissionRecorded(job_id=job("r2").job_id, tenant=JOB.tenant))
            again = await client.submit(job("r2"))
    finally:
        await server.stop(grace_s=0.2)

    assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "NOT_ADMITTED_YET")
    assert again.already_submitted


async def test_a_job_of_an_older_log_needs_no_admission() -> None:
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS))
    host.admits = True

    async with client_of(host) as client:
        assert (await client.submit(JOB)).already_submitted


async def test_many_submissions_at_once_are_all_answered_or_told_to_come_again(
    monkeypatch,
) -> None:
    # More than gRPC itself would take before it cancels calls at random.
    monkeypatch.setattr(admitting, "_MOST_WAITING", 500)
    monkeypatch.setattr(client_module, "_CALL_TIMEOUT_S", 100.0)
    host = opened_host()
    host.admits = True
    jobs = [job(f"r{number}") for number in range(2000)]

    async with client_of(host) as client:
        outcomes = await asyncio.gather(
            *(client.submit(one) for one in jobs), return_exceptions=True
        )

    late = [outcome for outcome in outcomes if isinstance(outcome, RpcFailed)]
    taken = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(late) + len(taken) == len(jobs)
    assert {outcome.reason for outcome in late} <= {"TOO_MANY_REQUESTS"}
    assert {receipt.job_id for receipt in taken} == set(host.state.recorded)


async def test_a_tenant_with_as_many_jobs_as_it_may_have_is_told_when_to_come_again() -> None:
    host = opened_host()
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address="127.0.0.1:0", await_admission=host.admits)
    server.bound_by(CallerLimits(most_open_jobs_a_tenant=2))
    address = await server.start()
    try:
        async with JobClient(address) as client:
            first = await client.submit(job("r1"))
            await client.submit(job("r2"))
            with pytest.raises(RpcFailed) as caught:
                await client.submit(job("r3"))
            again = await client.submit(job("r2"))
            others = await client.submit(replace(job("r3"), tenant="another"))
            host.record(replace(closed(), job_id=first.job_id))
            await client.submit(job("r3"))
    finally:
        await server.stop(grace_s=0.2)

    assert (caught.value.code, caught.value.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_JOBS")
    assert caught.value.retry_s > 0
    assert again.already_submitted
    assert not others.already_submitted
    assert host.state.open_jobs == {JOB.tenant: 2, "another": 1}


async def test_the_log_tells_again_how_many_jobs_are_open() -> None:
    host = opened_host(JobSubmitted(job=JOB, ts_event_ns=START_NS))

    assert host.state.open_jobs == {JOB.tenant: 1}
    host.record(closed())
    host.record(closed())
    assert host.state.open_jobs == {}


async def test_a_job_of_megabytes_is_refused() -> None:
    message = submission()
    for number in range(20_000):
        message.job.throughputs.add(offering=f"{number:0100}")

    async with plain_stub(opened_host()) as stub:
        code, found = await refused(stub.Submit(message))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert [said.field for said in found["BadRequest"].field_violations] == ["job"]


async def test_a_page_holds_no_more_than_a_message() -> None:
    large = tuple(f"{number:0190}" for number in range(4_000))
    jobs = [replace(job(f"r{number}"), offerings=large) for number in range(30)]
    host = opened_host(*(JobSubmitted(job=one, ts_event_ns=START_NS) for one in jobs))

    async with client_of(host) as client:
        first = await client.list(JobQuery(page_size=1000))
        found = await client.list_all(JobQuery(page_size=1000))

    assert 0 < len(first.statuses) < len(jobs)
    assert {status.job.job_id for status in found} == {one.job_id for one in jobs}
    assert len(found) == len(jobs)


# --- updates ----------------------------------------------------------------------------------


def closed() -> JobClosed:
    return JobClosed(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        slot=4,
        outcome=JobOutcome.CANCELLED,
        policy_id="msu",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )


def change(etag: str = "", request_id: str = "", **values) -> JobChange:
    return JobChange(
        job_id=JOB.job_id, mask=tuple(values), etag=etag, request_id=request_id, **values
    )


async def test_an_update_is_recorded_applied_and_answered_with_a_plan() -> None:
    host = opened_host()

    async with client_of(host) as client:
        await client.submit(JOB)
        before = await client.get(JOB.job_id)
        receipt = await client.update(
            change(
                etag=before.etag,
                deadline=hard(40),
                budget_micro_usd=9_000_000,
                on_limit=OnLimit.STOP,
            )
        )
        again = await client.submit(JOB)

    wanted = replace(JOB, deadline=hard(40), budget_micro_usd=9_000_000, on_limit=OnLimit.STOP)
    assert receipt.status.job == wanted
    assert receipt.status.etag not in ("", before.etag)
    assert receipt.plan is not None
    assert receipt.plan.feasible
    assert receipt.clock == CLOCK
    assert events_of(host, JobUpdated) == [
        JobUpdated(job_id=JOB.job_id, tenant=JOB.tenant, job=wanted, ts_event_ns=START_NS)
    ]
    assert again.already_submitted


async def test_an_update_of_what_has_changed_meanwhile_is_aborted() -> None:
    host = opened_host()

    async with client_of(host) as client:
        await client.submit(JOB)
        etag = (await client.get(JOB.job_id)).etag
        first = await client.update(change(etag=etag, request_id="u1", value_micro_usd=5))
        with pytest.raises(RpcFailed) as caught:
            await client.update(change(etag=etag, request_id="u2", value_micro_usd=6))
        again = await client.update(change(etag=etag, request_id="u1", value_micro_usd=5))

    assert (caught.value.code, caught.value.reason) == ("ABORTED", "ETAG_MISMATCH")
    assert again == first
    assert len(events_of(host, JobUpdated)) == 1


async def test_an_update_sent_again_to_a_restarted_service_changes_nothing() -> None:
    host = opened_host()
    asked = change(request_id="u1", value_micro_usd=5)

    async with client_of(host) as client:
        await client.submit(JOB)
        asked = replace(asked, etag=(await client.get(JOB.job_id)).etag)
        first = await client.update(asked)
    async with client_of(host) as client:
        again = await client.update(asked)

    assert replace(again.status, seq=0) == replace(first.status, seq=0)
    assert len(events_of(host, JobUpdated)) == 1


@pytest.mark.parametrize(
    ("asked", "code", "field"),
    [
        (change(), "INVALID_ARGUMENT", "update_mask"),
        (replace(change(), mask=("work",)), "INVALID_ARGUMENT", "update_mask"),
        (replace(change(), mask=("deadline",)), "INVALID_ARGUMENT", "deadline"),
        (change(value_micro_usd=-1), "INVALID_ARGUMENT", "value_micro_usd"),
        (change(deadline=hard(3)), "FAILED_PRECONDITION", "deadline"),
        (replace(change(value_micro_usd=1), job_id="?"), "NOT_FOUND", "job_id"),
    ],
)
async def test_an_update_that_cannot_be_is_refused_by_field(asked, code, field) -> None:
    host = opened_host()

    async with client_of(host) as client:
        await client.submit(JOB)
        with pytest.raises(RpcFailed) as caught:
            await client.update(asked)

    assert (caught.value.code, caught.value.field) == (code, field)
    assert not events_of(host, JobUpdated)
    if code == "FAILED_PRECONDITION":
        assert caught.value.earliest_feasible_deadline == "2026-03-01T02:20:00Z"


async def test_a_job_that_is_over_is_not_updated() -> None:
    host = opened_host()

    async with client_of(host) as client:
        await client.submit(JOB)
        host.record(closed())
        with pytest.raises(RpcFailed) as caught:
            await client.update(change(value_micro_usd=1))

    assert caught.value.reason == "JOB_OVER"
