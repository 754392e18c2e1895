"""AllocatorService and JobService over real gRPC on loopback, with a host that has no broker."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from spotline.adapters.grpc.allocator import allocator_servicer
from spotline.adapters.grpc.allocator.allocating import AllocateCallPort
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.server import RpcServer
from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import EARLIEST_DEADLINE_KEY, RpcFailed
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocator.messages import (
    ComparisonRequest,
    JobQuery,
    JobState,
    MarketSlot,
    PlanRequest,
    ProgressReport,
    QuotaLimit,
    Submission,
)
from spotline.application.allocator.planning import plan
from spotline.application.board.messages import FleetView, JobPhase, WaitingFor
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Call
from spotline.contracts.errors import ConfigError
from spotline.contracts.mapping import digest, to_message
from spotline.domain.events.allocation import AllocationDecided, CallOutcome
from spotline.domain.events.lifecycle import (
    JobAdmitted,
    JobCancelled,
    JobClosed,
    JobOutcome,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from tests.eventually import PATIENCE_S, eventually
from tests.fakes.allocator import (
    EAST,
    SLOT_NS,
    SLOT_S,
    START_NS,
    STORED_NS,
    FakeJobsHost,
    forecast_issued,
    job,
    offering,
    opened_host,
    slot_opened,
)
from tests.fakes.processes import free_port

pytestmark = pytest.mark.integration


@asynccontextmanager
async def serving(
    host: FakeJobsHost,
    address: str = "127.0.0.1:0",
    *,
    selector: SelectorOptions = SelectorOptions(),  # noqa: B008 - frozen
):
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    server = RpcServer(host, feed, address=address, await_admission=host.admits)
    server.hold_to(selector)
    bound = await server.start()
    try:
        yield bound
    finally:
        host.listeners.remove(feed.on_applied)
        await server.stop(grace_s=0.2)


@asynccontextmanager
async def client_of(host: FakeJobsHost):
    async with serving(host) as address, JobClient(address) as client:
        yield client


def admitted(one, slot: int = 1) -> JobAdmitted:
    return JobAdmitted(
        job_id=one.job_id,
        tenant=one.tenant,
        slot=slot,
        policy_id="msu",
        offering_id=EAST,
        deadline_slot=30,
        weight_ppb=1,
    )


def decided(one, slot: int = 1) -> AllocationDecided:
    return AllocationDecided(
        job_id=one.job_id,
        tenant=one.tenant,
        slot=slot,
        revision=0,
        offset_s=0,
        policy_id="msu",
        lots=(Lot(offering_id=EAST, spot=4),),
        reason=DecisionReason.POLICY,
        forecast_used=False,
        explanation="4 spot by msu",
    )


def closed(one, slot: int = 9) -> JobClosed:
    return JobClosed(
        job_id=one.job_id,
        tenant=one.tenant,
        slot=slot,
        outcome=JobOutcome.COMPLETED,
        policy_id="msu",
        cost_micro_usd=12_000_000,
        value_micro_usd=200_000_000,
        progress_ppm=1_000_000,
    )


def allocate_request() -> AllocateRequest:
    one = job()
    return AllocateRequest(
        slot=0,
        revision=0,
        offset_s=0,
        slot_s=SLOT_S,
        quotes=slot_opened(0).quotes,
        forecast=forecast_issued(0),
        reason=DecisionReason.POLICY,
        tasks=(
            JobTask(
                job=one,
                policy_id="ahap(3,1,0.5)",
                offering_id=EAST,
                instance_type="p4d.24xlarge",
                first_slot_start_ns=START_NS,
                elapsed_slots=0,
                progress_quanta=0,
                holding=Lot(offering_id=EAST),
                interrupted=False,
                pending_overhead_s=0,
                spent_micro_usd=0,
                memory=(),
                spot_firm=True,
            ),
        ),
    )


def call_of(request: AllocateRequest) -> Call:
    return Call(name="allocate", digest=digest(request), request=request)


# --- jobs -------------------------------------------------------------------------------------


async def test_a_submitted_job_is_recorded_once_and_shown() -> None:
    host = opened_host()
    one = job()

    async with client_of(host) as client:
        first = await client.submit(one)
        again = await client.submit(one)
        status = await client.get(one.job_id)

    assert (first.job_id, first.already_submitted) == (one.job_id, False)
    assert (again.job_id, again.already_submitted) == (one.job_id, True)
    assert status.job == one
    assert status.state is JobState.PENDING
    assert status.seq == 4
    assert len(host.stored) == 4


async def test_a_platform_may_leave_the_job_id_empty() -> None:
    host = opened_host()
    message = to_message(Submission(job=job()))
    message.job.job_id = ""

    async with serving(host) as address, open_channel(address) as channel:
        answer = await _raw(channel, "JobService/Submit", message)

    assert answer.job_id == job().job_id


async def test_submit_answers_when_the_job_is_applied() -> None:
    host = opened_host()
    host.apply_later = True

    async with client_of(host) as client, asyncio.TaskGroup() as tasks:
        submitting = tasks.create_task(client.submit(job()))
        await host.asked(1)
        assert not submitting.done()
        host.apply()

    assert submitting.result().job_id == job().job_id


async def test_two_different_jobs_under_one_request_id_race_and_one_is_refused() -> None:
    host = opened_host()
    host.apply_later = True
    jobs = (job(), job(value_usd=7))

    async with client_of(host) as client:

        async def both_stored() -> None:
            await host.asked(2)
            host.apply()

        *answers, _ = await asyncio.gather(
            *(client.submit(one) for one in jobs), both_stored(), return_exceptions=True
        )

    refused = [answer for answer in answers if isinstance(answer, RpcFailed)]
    assert len(refused) == 1
    assert refused[0].code == "FAILED_PRECONDITION"
    assert "value_micro_usd" in str(refused[0])


async def test_an_infeasible_deadline_is_answered_with_the_earliest_feasible_one() -> None:
    host = opened_host()

    async with client_of(host) as client:
        with pytest.raises(RpcFailed) as caught:
            await client.submit(job(deadline_slots=3))

    assert caught.value.code == "FAILED_PRECONDITION"
    assert caught.value.field == "job.deadline"
    # Two hours on four instances and a minute of launch, from slot 1: done with slot 13.
    assert caught.value.earliest_feasible_deadline == "2026-03-01T02:20:00Z"
    assert "2026-03-01T02:20:00Z" in str(caught.value)
    assert len(host.stored) == 3


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("work.amount", float("nan"), "job.work.amount: must be finite"),
        ("work.unit", "parsecs", "unit must be one of gpu_hours"),
        ("value_micro_usd", -1, "value_micro_usd must be >= 0, was -1"),
        ("tenant", "", "job.tenant: must not be empty"),
        ("topology", 99, "job.topology: has the unknown number 99"),
    ],
)
async def test_invalid_input_names_the_field(field, value, said) -> None:
    message = to_message(Submission(job=job()))
    *path, last = field.split(".")
    target = message.job
    for name in path:
        target = getattr(target, name)
    setattr(target, last, value)

    async with serving(opened_host()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(channel, "JobService/Submit", message)

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in caught.value.details()


async def test_without_a_market_nothing_is_taken() -> None:
    async with client_of(FakeJobsHost()) as client:
        with pytest.raises(RpcFailed, match="no market is open yet") as caught:
            await client.submit(job())

    assert caught.value.code == "UNAVAILABLE"
    assert not caught.value.unreachable


async def test_a_bus_that_is_down_is_said_and_nothing_is_recorded() -> None:
    host = opened_host()
    host.down = True

    async with client_of(host) as client:
        with pytest.raises(RpcFailed, match="nothing was recorded, try again") as caught:
            await client.submit(job())
        host.down = False
        receipt = await client.submit(job())

    assert caught.value.code == "UNAVAILABLE"
    assert not receipt.already_submitted


async def test_an_unknown_job_is_not_found() -> None:
    async with client_of(opened_host()) as client:
        for asking in (client.get("nix"), client.cancel("nix"), anext(client.watch("nix"))):
            with pytest.raises(RpcFailed, match="there is no job nix") as caught:
                await asking
            assert caught.value.code == "NOT_FOUND"


async def test_jobs_are_listed_by_id_in_pages() -> None:
    host = opened_host()

    async with client_of(host) as client:
        for request in range(5):
            await client.submit(job(f"r{request}", tenant="a" if request % 2 else "b"))
        host.record(admitted(job("r1", tenant="a")))
        pages = [await client.list(JobQuery(page_size=3))]
        pages.append(await client.list(JobQuery(page_size=3, page_token=pages[0].next_page_token)))
        every = await client.list_all(JobQuery(page_size=2))
        of_a = await client.list_all(JobQuery(tenant="a"))
        running = await client.list_all(JobQuery(state=JobState.RUNNING))

    ids = [status.job.job_id for status in every]
    assert ids == sorted(ids)
    assert [s.job.job_id for page in pages for s in page.statuses] == ids
    assert pages[1].next_page_token == ""
    assert {status.job.client_request_id for status in of_a} == {"r1", "r3"}
    assert [status.job.client_request_id for status in running] == ["r1"]


async def test_cancelling_is_recorded_once_and_not_after_the_end() -> None:
    host = opened_host()
    one = job()

    async with client_of(host) as client:
        await client.submit(one)
        assert await client.cancel(one.job_id) is False
        assert await client.cancel(one.job_id) is False
        host.record(closed(one))
        assert await client.cancel(one.job_id) is True

    events = [event for _, event in host.stored.values() if isinstance(event, JobCancelled)]
    assert events == [JobCancelled(job_id=one.job_id, tenant=one.tenant, ts_event_ns=START_NS)]


async def test_progress_is_recorded_and_checked() -> None:
    host = opened_host()
    one = job()
    report = ProgressReport(job_id=one.job_id, tenant=one.tenant, done=2.0)

    async with client_of(host) as client:
        await client.submit(one)
        await client.report(report)
        await client.report(report)
        status = await client.get(one.job_id)
        with pytest.raises(RpcFailed, match=r"done must be <= the job's work \(8 instance_hours\)"):
            await client.report(replace(report, done=9.0))
        with pytest.raises(RpcFailed, match="of tenant somebody"):
            await client.report(replace(report, tenant="somebody"))
        host.record(closed(one))
        with pytest.raises(RpcFailed, match="is over"):
            await client.report(report)

    assert status.progress_ppm == 250_000
    recorded = [e for _, e in host.stored.values() if isinstance(e, JobProgressReported)]
    assert [event.done for event in recorded] == [2.0]


async def test_a_rate_measured_anew_at_the_same_progress_is_another_report() -> None:
    host = opened_host()
    one = job()
    report = ProgressReport(
        job_id=one.job_id, tenant=one.tenant, done=2.0, rate_per_hour=1.5, instances=2
    )

    async with client_of(host) as client:
        await client.submit(one)
        await client.report(report)
        await client.report(replace(report, rate_per_hour=1.25))
        await client.report(report)

    recorded = [e for _, e in host.stored.values() if isinstance(e, JobProgressReported)]
    assert [event.rate_per_hour for event in recorded] == [1.5, 1.25]


async def test_a_watch_shows_every_change_until_the_job_is_over() -> None:
    host = opened_host()
    one = job()

    async with client_of(host) as client:
        await client.submit(one)
        updates = []
        async for update in client.watch(one.job_id):
            updates.append(update)
            if not update.change:
                host.record(admitted(one))
                host.record(decided(one))
                host.record(closed(one))

    assert [update.change for update in updates] == [
        "",
        "job.admitted",
        "decision",
        "job.closed",
    ]
    assert [update.seq for update in updates] == [4, 5, 6, 7]
    assert updates[-1].status.state is JobState.COMPLETED
    assert updates[-1].status.cost_micro_usd == 12_000_000


async def test_answers_show_where_jobs_stand_and_what_all_hold_with_wall_time() -> None:
    host = opened_host()
    one = job()

    async with client_of(host) as client:
        opened_seq = host.record(slot_opened(1))
        await client.submit(one)
        host.record(admitted(one))
        host.record(decided(one))
        got, page = await client.get(one.job_id), await client.list()
        updates = []
        async for update in client.watch(one.job_id):
            updates.append(update)
            if not update.change:
                host.record(closed(one))

    assert got.view.phase is JobPhase.WAITING
    assert got.view.waiting_for is WaitingFor.INSTANCES
    assert got.view.headline.startswith("waits for ")
    assert [status.view for status in page.statuses] == [got.view]
    assert page.fleet == FleetView(open_jobs=1)
    assert page.clock.wall_ns == STORED_NS + opened_seq
    assert [update.status.view.phase for update in updates] == [
        JobPhase.WAITING,
        JobPhase.COMPLETED,
    ]


async def test_a_watch_of_a_job_that_is_over_ends_at_once() -> None:
    host = opened_host()
    one = job()

    async with client_of(host) as client:
        await client.submit(one)
        host.record(closed(one))
        updates = [update async for update in client.watch(one.job_id)]

    assert [update.status.state for update in updates] == [JobState.COMPLETED]


async def test_a_watcher_that_does_not_read_is_dropped_and_may_watch_again() -> None:
    host = opened_host()
    one = job()
    feed = JobFeed()
    host.listeners.append(feed.on_applied)
    await host.publish_observation(_submitted(one), event_id="submitted", correlation_id=one.job_id)
    watch = feed.watch(one.job_id)

    for slot in range(300):
        host.record(decided(one, slot))

    with pytest.raises(Exception, match="fell 256 changes behind; watch again"):
        await watch.next()


async def test_a_watch_goes_on_when_the_allocator_is_back() -> None:
    host = opened_host()
    one = job()
    address = f"127.0.0.1:{free_port()}"
    states: list[tuple[str, JobState]] = []
    first_seen = asyncio.Event()

    async def follow(client: JobClient) -> None:
        async for update in client.watch(one.job_id):
            states.append((update.change, update.status.state))
            first_seen.set()

    async with JobClient(address) as client, asyncio.TaskGroup() as tasks:
        async with serving(host, address):
            await client.submit(one)
            following = tasks.create_task(follow(client))
            await first_seen.wait()
        host.record(admitted(one))
        first_seen.clear()
        async with serving(host, address):
            async with asyncio.timeout(PATIENCE_S):
                await first_seen.wait()
            host.record(closed(one))
            async with asyncio.timeout(PATIENCE_S):
                await following

    assert states == [
        ("", JobState.PENDING),
        ("", JobState.RUNNING),
        ("job.closed", JobState.COMPLETED),
    ]


# --- deciding and planning --------------------------------------------------------------------


async def test_a_call_is_answered_as_the_pure_function_answers() -> None:
    request = allocate_request()

    async with serving(opened_host()) as address:
        port = AllocateCallPort(address, timeout_s=100)
        (answered,) = await port.perform(call_of(request))
        await port.close()

    assert answered.outcome is CallOutcome.ANSWERED
    assert answered.answers == allocate(request).answers
    assert answered.request_digest == digest(request)
    assert answered.answers[0].lots == (Lot(offering_id=EAST, spot=4),)


async def test_a_refused_call_is_an_answer_with_the_reason() -> None:
    request = allocate_request()
    wrong = replace(request, tasks=(replace(request.tasks[0], policy_id="guess"),))

    async with serving(opened_host()) as address:
        port = AllocateCallPort(address, timeout_s=100)
        (answered,) = await port.perform(call_of(wrong))
        (mistaken,) = await port.perform(replace(call_of(request), digest="another"))
        await port.close()

    assert answered.outcome is CallOutcome.REFUSED
    assert "unknown policy 'guess'" in answered.detail
    assert mistaken.outcome is CallOutcome.REFUSED
    assert "another request" in mistaken.detail


def crowded_request(jobs: int, name: str = "") -> AllocateRequest:
    """Jobs that take from each other what there is."""
    request = allocate_request()
    (task,) = request.tasks
    policies = ("msu", "ahap(3,1,0.5)", "ahanp(0.5)")
    return replace(
        request,
        tasks=tuple(
            replace(
                task,
                job=replace(job(f"r{number}"), name=name),
                policy_id=policies[number % len(policies)],
            )
            for number in range(jobs)
        ),
    )


@pytest.mark.parametrize("part_bytes", [1, 700, 1_500, 3_000])
async def test_a_request_in_parts_is_answered_as_the_whole(part_bytes) -> None:
    request = crowded_request(12)
    assert to_message(request).ByteSize() > 3_000

    async with serving(opened_host()) as address:
        port = AllocateCallPort(address, timeout_s=100, part_bytes=part_bytes)
        (answered,) = await port.perform(call_of(request))
        await port.close()

    assert answered.outcome is CallOutcome.ANSWERED
    assert answered.answers == allocate(request).answers
    assert answered.request_digest == digest(request)
    lots = {answer.lots for answer in answered.answers}
    assert len(lots) > 1, "the jobs must take from each other"


async def test_jobs_with_names_of_megabytes_cost_nobody_a_decision() -> None:
    # 24 of them were 72 MB, more than any message may have: all jobs were decided by the fallback.
    request = crowded_request(24, name="x" * 3_000_000)
    huge = replace(request, tasks=(*crowded_request(1, name="y" * 9_000_000).tasks, *request.tasks))

    async with serving(opened_host()) as address:
        port = AllocateCallPort(address, timeout_s=100)
        (answered,) = await port.perform(call_of(request))
        (alone,) = await port.perform(call_of(huge))
        await port.close()

    assert answered.outcome is CallOutcome.ANSWERED
    assert answered.answers == allocate(request).answers
    assert alone.outcome is CallOutcome.ANSWERED
    assert alone.answers == allocate(huge).answers


async def test_nobody_there_is_unavailable_and_a_hanging_server_times_out() -> None:
    port = AllocateCallPort(f"127.0.0.1:{free_port()}", timeout_s=0.3)
    (nobody,) = await port.perform(call_of(allocate_request()))
    await port.close()

    async def hang(_: bytes, context: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "spotline.api.v1.AllocatorService",
                {"Allocate": grpc.unary_unary_rpc_method_handler(hang)},
            ),
        )
    )
    bound = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    port = AllocateCallPort(f"127.0.0.1:{bound}", timeout_s=0.5)
    async with asyncio.timeout(PATIENCE_S):
        await port._channel.channel_ready()
    (hanging,) = await port.perform(call_of(allocate_request()))
    await port.close()
    await server.stop(None)

    assert nobody.outcome is CallOutcome.UNAVAILABLE
    assert hanging.outcome is CallOutcome.TIMED_OUT


async def test_a_call_that_an_ending_allocator_cancels_is_asked_again() -> None:
    asked = 0

    async def end_first(_: bytes, context: grpc.aio.ServicerContext) -> bytes:
        nonlocal asked
        asked += 1
        # As gRPC answers what a server that ends has not taken up.
        code = grpc.StatusCode.CANCELLED if asked == 1 else grpc.StatusCode.INTERNAL
        await context.abort(code, "as told")
        return b""

    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                "spotline.api.v1.AllocatorService",
                {"Allocate": grpc.unary_unary_rpc_method_handler(end_first)},
            ),
        )
    )
    bound = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    port = AllocateCallPort(f"127.0.0.1:{bound}", timeout_s=PATIENCE_S)
    (answer,) = await port.perform(call_of(allocate_request()))
    await port.close()
    await server.stop(None)

    assert asked == 2
    assert (answer.outcome, answer.detail) == (CallOutcome.REFUSED, "INTERNAL: as told")


async def test_an_allocator_that_comes_back_in_time_is_found() -> None:
    address = f"127.0.0.1:{free_port()}"
    port = AllocateCallPort(address, timeout_s=2 * PATIENCE_S)

    async with serving(opened_host(), address):
        (before,) = await port.perform(call_of(allocate_request()))
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(port.perform(call_of(allocate_request())))
        await asyncio.sleep(0)
        assert not waiting.done()
        async with serving(opened_host(), address):
            async with asyncio.timeout(PATIENCE_S):
                (after,) = await waiting
    await port.close()

    assert before == after
    assert after.outcome is CallOutcome.ANSWERED


async def test_a_job_less_likely_to_be_on_time_than_asked_for_is_refused_and_not_recorded() -> None:
    host = opened_host()
    # Fourteen slots of work, ten to the deadline, which is soft.
    late = job(deadline_slots=10, late_slots=30)
    async with client_of(host) as client:
        with pytest.raises(RpcFailed, match="at least 50 %, was 0 %") as caught:
            await client.submit(late, least_on_time_ppm=500_000)
        stored = [event for _, event in host.stored.values() if isinstance(event, JobSubmitted)]
        taken = await client.submit(late)

    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", "DEADLINE_UNLIKELY")
    assert stored == []
    assert taken.outlook is None


async def test_a_job_that_is_likely_enough_is_taken_with_what_is_expected() -> None:
    async with client_of(opened_host()) as client:
        taken = await client.submit(job(), least_on_time_ppm=990_000)

    assert taken.outlook is not None
    assert taken.outlook.on_time_probability_ppm >= 990_000


async def test_a_plan_says_what_is_expected_and_the_loop_stays_free(monkeypatch) -> None:
    host = opened_host()
    begun, let = threading.Event(), threading.Event()

    def held(*asked, **options):
        begun.set()
        assert let.wait(PATIENCE_S)
        return plan(*asked, **options)

    monkeypatch.setattr(allocator_servicer, "plan", held)

    async with client_of(host) as client:
        async with asyncio.TaskGroup() as tasks:
            planning = tasks.create_task(client.plan(PlanRequest(job=job())))
            await eventually(begun.is_set)
            await client.list()
            was_planning = not planning.done()
            let.set()
        infeasible = await client.plan(PlanRequest(job=job(deadline_slots=3)))
        with pytest.raises(RpcFailed, match="unknown policy") as caught:
            await client.plan(PlanRequest(job=job(), policy_ids=("guess",)))

    answer = planning.result()
    assert was_planning
    assert answer.feasible
    assert answer.outlook is not None
    assert answer.likely_enough
    assert answer.options == ()
    assert not infeasible.feasible
    assert infeasible.earliest_feasible_deadline_ns == START_NS + 14 * SLOT_NS
    assert caught.value.bad_input
    assert len(host.stored) == 3


async def test_several_jobs_are_planned_together_or_a_reason_is_given() -> None:
    jobs = tuple(
        job(name, counts=(2,), instance_hours=1.0, deadline_slots=6, offerings=(EAST,))
        for name in ("a", "b")
    )
    limit = QuotaLimit(quota_pool="us-east-1", instances=1)

    async with client_of(opened_host()) as client:
        answer = await client.plan(PlanRequest(jobs=jobs))
        none = await client.plan(PlanRequest(jobs=jobs, quotas=(limit,)))
        with pytest.raises(RpcFailed, match="must be one of us-east-1") as caught:
            await client.plan(PlanRequest(jobs=jobs, quotas=(replace(limit, quota_pool="moon"),)))

    assert answer.joint is not None
    assert [one.job_id for one in answer.joint.schedules] == [one.job_id for one in jobs]
    assert all(one.finished_slot > 0 for one in answer.joint.schedules)
    assert (none.feasible, none.joint) == (False, None)
    assert "quota us-east-1 allows 1 instances" in none.infeasible_reason
    assert caught.value.bad_input
    assert caught.value.field == "quotas[0].quota_pool"


async def test_planning_needs_an_open_slot() -> None:
    async with client_of(FakeJobsHost()) as client:
        with pytest.raises(RpcFailed, match="no market is open yet"):
            await client.plan(PlanRequest(job=job()))


async def test_policies_are_compared_beside_the_clairvoyant() -> None:
    request = ComparisonRequest(
        job=job(offerings=(EAST,)),
        policy_ids=("on_demand_only", "msu"),
        slots=tuple(
            MarketSlot(slot=k, slot_start_ns=START_NS + k * SLOT_NS, quotes=slot_opened(k).quotes)
            for k in range(30)
        ),
        slot_s=SLOT_S,
        offerings=(offering(EAST),),
    )

    async with client_of(opened_host()) as client:
        answer = await client.compare(request)
        with pytest.raises(RpcFailed, match="slots must hold at least one") as caught:
            await client.compare(replace(request, slots=()))

    on_demand, msu = answer.comparisons
    assert on_demand.on_time
    assert msu.cost_micro_usd < on_demand.cost_micro_usd
    assert answer.clairvoyant.utility_micro_usd >= msu.utility_micro_usd
    assert caught.value.field == "slots"


# --- the server itself ------------------------------------------------------------------------


async def test_health_and_reflection_are_served() -> None:
    async with serving(opened_host()) as address, open_channel(address) as channel:
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="spotline.api.v1.JobService")
        )

        async def asking():
            yield reflection_pb2.ServerReflectionRequest(list_services="")

        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        names: set[str] = set()
        async for answer in stub.ServerReflectionInfo(asking()):
            names.update(one.name for one in answer.list_services_response.service)

    assert health.status == health_pb2.HealthCheckResponse.SERVING
    assert {"spotline.api.v1.JobService", "spotline.api.v1.AllocatorService"} <= names


async def test_a_taken_address_is_said() -> None:
    async with serving(opened_host()) as address:
        with pytest.raises(ConfigError, match="is another allocator running there"):
            await RpcServer(opened_host(), JobFeed(), address=address).start()


async def test_the_earliest_deadline_is_in_the_trailing_metadata() -> None:
    message = to_message(Submission(job=job(deadline_slots=3)))

    async with serving(opened_host()) as address, open_channel(address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _raw(channel, "JobService/Submit", message)

    trailing = dict(caught.value.trailing_metadata())
    assert trailing[EARLIEST_DEADLINE_KEY] == "2026-03-01T02:20:00Z"


def _submitted(one):

    return JobSubmitted(job=one, ts_event_ns=START_NS)


async def _raw(channel: grpc.aio.Channel, method: str, message: Message):
    from spotline.api.v1 import job_service_pb2

    call = channel.unary_unary(
        f"/spotline.api.v1.{method}",
        request_serializer=type(message).SerializeToString,
        response_deserializer=job_service_pb2.SubmitResponse.FromString,
    )
    return await call(message, timeout=30)
