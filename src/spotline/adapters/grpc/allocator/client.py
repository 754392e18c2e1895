"""The client of jobs and plans that CLI and demo use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from google.protobuf.field_mask_pb2 import FieldMask

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.grpc.kit.errors import RpcFailed, failure_of
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.api.v1 import (
    allocator_service_pb2_grpc,
    job_pb2,
    job_service_pb2,
    job_service_pb2_grpc,
)
from spotline.application.admission import job_id_for
from spotline.application.allocator.happenings import JobHappening
from spotline.application.allocator.messages import (
    ChangeReceipt,
    ComparisonAnswer,
    ComparisonRequest,
    ExitReport,
    JobPage,
    JobQuery,
    JobStatus,
    JobUpdate,
    PlanAnswer,
    PlanRequest,
    ProgressReport,
    Submission,
    SubmissionReceipt,
)
from spotline.application.allocator.output import OutputChunk
from spotline.application.allocator.updates import JobChange
from spotline.application.explaining.messages import DecisionExplanation, DecisionQuery
from spotline.application.market_view import MarketStatus
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job

JobT = TypeVar("JobT", Job, JobDraft)

DEFAULT_ADDRESS = "127.0.0.1:7070"

_CALL_TIMEOUT_S = 20.0
# Longer than the allocator waits for the configurator.
_COMPLETE_TIMEOUT_S = 60.0
_PLAN_TIMEOUT_S = 300.0
# The first explanation reads the log from its beginning.
_EXPLAIN_TIMEOUT_S = 300.0
_PAUSE_S = 0.05
# How long a watch waits for an allocator that is being started again.
_REWATCH_TIMEOUT_S = 30.0


class JobClient(RpcClient):
    """Jobs and plans over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "allocator"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        caller: str = ANY_CLIENT,
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._jobs = job_service_pb2_grpc.JobServiceStub(self._channel)
        self._allocator = allocator_service_pb2_grpc.AllocatorServiceStub(self._channel)

    async def submit(self, job: Job | JobDraft, *, least_on_time_ppm: int = 0) -> SubmissionReceipt:
        """Hand a job over, or a draft of one to be completed.

        Its id follows from tenant and client request id, whatever it says. It is refused unless it
        is as likely to be on time as `least_on_time_ppm`, parts per million; 0: whatever is
        expected of it.
        """
        if isinstance(job, JobDraft):
            submission, timeout_s = Submission(draft=with_own_id(job)), _COMPLETE_TIMEOUT_S
        else:
            submission, timeout_s = Submission(job=with_own_id(job)), _CALL_TIMEOUT_S
        submission = replace(
            submission, request_id=job.client_request_id, least_on_time_ppm=least_on_time_ppm
        )
        if least_on_time_ppm:
            timeout_s = max(timeout_s, _PLAN_TIMEOUT_S)
        return await self._ask(
            self._jobs.Submit, submission, SubmissionReceipt, timeout_s=timeout_s
        )

    async def get(self, job_id: str) -> JobStatus:
        """Where one job stands."""
        request = job_service_pb2.GetRequest(job_id=job_id)
        response = await self._call(self._jobs.Get, request, timeout_s=_CALL_TIMEOUT_S)
        return from_message(JobStatus, response.status)

    async def list(self, query: JobQuery | None = None) -> JobPage:
        """One page of jobs, by job id."""
        return await self._ask(
            self._jobs.List, query or JobQuery(), JobPage, timeout_s=_CALL_TIMEOUT_S
        )

    async def list_all(self, query: JobQuery | None = None) -> tuple[JobStatus, ...]:
        """Every job a query finds, page by page."""
        page = await self.list(query)
        statuses = list(page.statuses)
        while page.next_page_token:
            page = await self.list(replace(query or JobQuery(), page_token=page.next_page_token))
            statuses.extend(page.statuses)
        return tuple(statuses)

    async def cancel(self, job_id: str, *, request_id: str = "") -> bool:
        """Withdraw a job; returns whether it was over already."""
        request = job_service_pb2.CancelRequest(job_id=job_id, request_id=request_id)
        response = await self._call(self._jobs.Cancel, request, timeout_s=_CALL_TIMEOUT_S)
        return bool(response.already_closed)

    async def report(self, report: ProgressReport) -> None:
        """Say how much of its work a job has done; the greatest report counts."""
        message = to_message(report)
        await self._call(self._jobs.ReportProgress, message, timeout_s=_CALL_TIMEOUT_S)

    async def report_exit(self, report: ExitReport) -> None:
        """Say that a job's training program has ended."""
        message = to_message(report)
        await self._call(self._jobs.ReportExit, message, timeout_s=_CALL_TIMEOUT_S)

    async def update(self, change: JobChange) -> ChangeReceipt:
        """Change a job; answered with how it stands and what could be done with it now."""
        values: dict[str, Any] = {
            name: getattr(change, name) for name in ("value_micro_usd", "budget_micro_usd")
        }
        if change.deadline is not None:
            values["deadline"] = to_message(change.deadline)
        if change.on_limit is not None:
            values["on_limit"] = job_pb2.OnLimit.Value(f"ON_LIMIT_{change.on_limit.name}")
        request = job_service_pb2.UpdateJobRequest(
            job_id=change.job_id,
            update_mask=FieldMask(paths=change.mask),
            etag=change.etag,
            request_id=change.request_id,
            **values,
        )
        response = await self._call(self._jobs.UpdateJob, request, timeout_s=_PLAN_TIMEOUT_S)
        return from_message(ChangeReceipt, response)

    async def market(self, offering_id: str = "", *, with_offerings: bool = False) -> MarketStatus:
        """What time it is in the market, and whether that goes on, with the open slot's quotes.

        With an offering its quotes of the latest slots, none where it is not known. What offerings
        are is said where it is asked.
        """
        request = job_service_pb2.GetMarketRequest(
            offering_id=offering_id, with_offerings=with_offerings
        )
        response = await self._call(self._jobs.GetMarket, request, timeout_s=_CALL_TIMEOUT_S)
        return from_message(MarketStatus, response)

    async def watch(self, job_id: str) -> AsyncIterator[JobUpdate]:
        """Where a job stands now, and after every change until it is over.

        A watch that breaks because the allocator restarts is taken up again for a while; its first
        update then has an empty `change` again.
        """
        connected = False
        while True:
            stream = self._jobs.Watch(
                job_service_pb2.WatchRequest(job_id=job_id), wait_for_ready=connected
            )
            try:
                async for response in stream:
                    connected = True
                    yield from_message(JobUpdate, response)
                return
            except grpc.aio.AioRpcError as error:
                if not connected or not _passing(error):
                    raise failure_of(error, self.address) from error
            finally:
                stream.cancel()
            await self._ready_again()

    async def output(
        self, job_id: str, *, follow: bool = False, last: int = 0
    ) -> AsyncIterator[OutputChunk]:
        """What a job's program wrote, oldest first; with `follow`, and what comes until it is over.

        Of what is kept the `last` pieces, or all of them (0).
        """
        request = job_service_pb2.ReadOutputRequest(job_id=job_id, follow=follow, last=last)
        stream = self._jobs.ReadOutput(request)
        try:
            async for response in stream:
                yield from_message(OutputChunk, response.chunk)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error, self.address) from error
        finally:
            stream.cancel()

    async def happenings(
        self, job_id: str, *, follow: bool = False, after_seq: int = 0
    ) -> AsyncIterator[JobHappening]:
        """What happened to a job after a place in the log; with `follow`, until it is over.

        Going on after an allocator was started again is the caller's: `after_seq` says where.
        """
        request = job_service_pb2.ReadEventsRequest(
            job_id=job_id, follow=follow, after_seq=after_seq
        )
        stream = self._jobs.ReadEvents(request)
        try:
            async for response in stream:
                yield from_message(JobHappening, response.happening)
        except grpc.aio.AioRpcError as error:
            raise failure_of(error, self.address) from error
        finally:
            stream.cancel()

    async def explain(self, query: DecisionQuery) -> DecisionExplanation:
        """Why a decision was what it was; takes seconds where the log is long."""
        return await self._ask(
            self._jobs.ExplainDecision, query, DecisionExplanation, timeout_s=_EXPLAIN_TIMEOUT_S
        )

    async def _ready_again(self) -> None:
        try:
            async with asyncio.timeout(_REWATCH_TIMEOUT_S):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise RpcFailed(
                grpc.StatusCode.UNAVAILABLE.name,
                f"the allocator at {self.address} went away and has not come back",
                unreachable=True,
            ) from error

    async def plan(self, request: PlanRequest) -> PlanAnswer:
        """What several policies would do with a job or draft, or a plan of several; buys nothing."""
        job = None if request.job is None else with_own_id(request.job)
        draft = None if request.draft is None else with_own_id(request.draft)
        several = tuple(with_own_id(job) for job in request.jobs)
        named = replace(request, job=job, draft=draft, jobs=several)
        return await self._ask(self._allocator.Plan, named, PlanAnswer, timeout_s=_PLAN_TIMEOUT_S)

    async def compare(self, request: ComparisonRequest) -> ComparisonAnswer:
        """Replay policies for a job on given slots."""
        return await self._ask(
            self._allocator.ComparePolicies, request, ComparisonAnswer, timeout_s=_PLAN_TIMEOUT_S
        )


def with_own_id(job: JobT) -> JobT:
    """The job under the id that follows from its tenant and client request id."""
    return replace(job, job_id=job_id_for(job.tenant, job.client_request_id))


def _passing(error: grpc.aio.AioRpcError) -> bool:
    return error.code() in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
