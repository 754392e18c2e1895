"""AllocatorService: decides and plans for all who ask; buys nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import grpc

from spotline.adapters.grpc.allocator.completing import completed
from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, invalid
from spotline.adapters.grpc.kit.filling_in import name_comparison, name_plan
from spotline.api.v1 import allocator_service_pb2 as pb
from spotline.api.v1 import allocator_service_pb2_grpc
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN
from spotline.application.allocator.messages import (
    ComparisonAnswer,
    ComparisonRequest,
    PlanAnswer,
    PlanRequest,
)
from spotline.application.allocator.planning import compare, market_of_request, plan
from spotline.application.allocator.ports import ConfiguratorPort, JobsHost
from spotline.application.configurator.messages import Completion
from spotline.application.market_view import ClockReading, MarketView
from spotline.application.outlook.following import snapshot_of_market
from spotline.application.outlook.outlook import job_outlook
from spotline.contracts.mapping import digest, from_message
from spotline.contracts.reasons import Reason
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import utc_iso

AnswerT = TypeVar("AnswerT")

# A plan takes seconds; more of them at once would only share the same cores.
_PLANNING_THREADS = 2


class AllocatorServicer(allocator_service_pb2_grpc.AllocatorServiceServicer):
    """Serves `AllocatorService`. All work is done in threads: the loop stays responsive.

    Decisions have a thread to themselves, so that no plan delays a slot.
    """

    def __init__(
        self,
        host: JobsHost,
        configurator: ConfiguratorPort | None = None,
        *,
        quote_margin: float = DEFAULT_QUOTE_MARGIN,
    ) -> None:
        self._host = host
        self._quote_margin = quote_margin
        self._configurator = configurator
        self._deciding = ThreadPoolExecutor(1, thread_name_prefix="spotline-allocate")
        self._planning = ThreadPoolExecutor(_PLANNING_THREADS, thread_name_prefix="spotline-plan")

    def clock(self) -> ClockReading | None:
        """Market time, None before a market is known."""
        return self._host.state.recent.clock()

    def close(self) -> None:
        """Let go of the threads; calls in progress end on their own."""
        self._deciding.shutdown(wait=False, cancel_futures=True)
        self._planning.shutdown(wait=False, cancel_futures=True)

    @answers
    async def Allocate(self, request: pb.AllocateRequest, context: ServerContext) -> AllocateAnswer:
        """Decide one slot for several jobs."""
        asked = from_message(AllocateRequest, request)
        return await self._run(self._deciding, lambda: _allocated(asked))

    @answers
    async def Plan(self, request: pb.PlanRequest, context: ServerContext) -> PlanAnswer:
        """Lay out what several policies would do with a job, or plan several at once."""
        name_plan(request)
        asked = from_message(PlanRequest, request)
        # Taken on the loop: a thread must not read what the host is changing.
        market = market_of_request(asked) or self._host.state.market()
        if market is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no market is open yet; try again when one is",
                reason=Reason.MARKET_NOT_OPEN,
            )
        if not market.quotes:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no slot has opened yet; try again when one has",
                reason=Reason.MARKET_NOT_OPEN,
            )
        completion = None
        if asked.draft is not None:
            found = await self._completed(asked, asked.draft)
            if isinstance(found, PlanAnswer):
                return found
            completion = found
            asked = replace(asked, draft=None, job=completion.job)
        return replace(await self.planned(asked, market), completion=completion)

    async def planned(self, asked: PlanRequest, market: MarketView) -> PlanAnswer:
        """Plan in a thread; `RpcRefused` names the field that makes it impossible."""
        following = self._host.state.following
        known = None
        if following is not None and not asked.quotes:
            known = following.snapshot()
        return await self._run(
            self._planning,
            lambda: plan(asked, market, quote_margin=self._quote_margin, known=known),
        )

    async def expected(self, job: Job) -> JobOutlook | None:
        """What submitting a whole job now would bring, worked out in a thread.

        None where nothing can be said: no slot is open, or nothing it can run on is quoted.
        """
        following, market = self._host.state.following, self._host.state.market()
        known = None if following is None else following.snapshot()
        if market is None or not market.quotes:
            return None
        return await self._run(
            self._planning, lambda: job_outlook(known or snapshot_of_market(market), job)
        )

    async def _completed(self, asked: PlanRequest, draft: JobDraft) -> Completion | PlanAnswer:
        """The completion of a draft, or the answer that its deadline cannot be met."""
        if asked.job is not None or asked.jobs:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                "draft must be planned alone; submit it, or state its instances and throughput, "
                "to plan it with others",
                reason=Reason.FIELD_INVALID,
                field="draft",
            )
        if asked.quotes:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                "quotes must not be given with a draft: it is completed on the live market",
                reason=Reason.FIELD_INVALID,
                field="quotes",
            )
        try:
            return await completed(self._configurator, draft)
        except RpcRefused as error:
            earliest_ns = error.earliest_feasible_deadline_ns
            if not earliest_ns:
                raise
            hint = f"; ask for {utc_iso(earliest_ns)} or later"
            return PlanAnswer(
                feasible=False,
                infeasible_reason=str(error).removesuffix(hint),
                earliest_feasible_deadline_ns=earliest_ns,
                options=(),
            )

    @answers
    async def ComparePolicies(
        self, request: pb.ComparePoliciesRequest, context: ServerContext
    ) -> ComparisonAnswer:
        """Replay policies for a job on given slots."""
        name_comparison(request)
        asked = from_message(ComparisonRequest, request)
        return await self._run(self._planning, lambda: compare(asked))

    async def _run(self, threads: ThreadPoolExecutor, work: Callable[[], AnswerT]) -> AnswerT:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        except ValueError as error:
            raise invalid(error) from error


def _allocated(asked: AllocateRequest) -> AllocateAnswer:
    return replace(allocate(asked), request_digest=digest(asked))
