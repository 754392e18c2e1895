"""Changing a job: checked like a submission, recorded, and answered with a new plan."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Protocol
from weakref import WeakValueDictionary

import grpc

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.standing import etag_of, need_open, status_of
from spotline.adapters.grpc.kit.errors import RpcRefused, invalid, refusal_of, unreadable
from spotline.adapters.grpc.kit.filling_in import complete_deadline, own_request_id
from spotline.api.v1 import job_pb2
from spotline.api.v1 import job_service_pb2 as pb
from spotline.application.allocator.messages import (
    ChangeReceipt,
    JobStatus,
    PlanAnswer,
    PlanRequest,
)
from spotline.application.allocator.ports import JobsHost
from spotline.application.allocator.updates import (
    JobChange,
    bad_mask,
    changeable,
    changed,
    check_change,
    left_of,
)
from spotline.application.market_view import MarketView
from spotline.application.spec import derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.lifecycle import JobUpdated
from spotline.domain.jobs.job import Deadline, Job, OnLimit
from spotline.domain.jobs.outlook import JobOutlook

_TIMEOUT_S = 10.0
_ON_LIMIT = {
    job_pb2.ON_LIMIT_UNSPECIFIED: None,
    job_pb2.ON_LIMIT_WAIT: OnLimit.WAIT,
    job_pb2.ON_LIMIT_STOP: OnLimit.STOP,
    job_pb2.ON_LIMIT_FINISH: OnLimit.FINISH,
}


class Planning(Protocol):
    """Plans a job without holding up the loop."""

    async def planned(self, asked: PlanRequest, market: MarketView) -> PlanAnswer:
        """The plan; `RpcRefused` where there can be none."""
        ...

    async def expected(self, job: Job) -> JobOutlook | None:
        """What submitting a whole job now would bring, None where nothing can be said."""
        ...


class Changing:
    """Changes jobs, one change of a job at a time: an etag is compared with what it changes."""

    def __init__(self, host: JobsHost, feed: JobFeed, planning: Planning) -> None:
        self._host = host
        self._feed = feed
        self._planning = planning
        # A lock is here for as long as somebody has it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def change(self, request: pb.UpdateJobRequest) -> ChangeReceipt:
        """Check a change, record it and wait until it is applied.

        Raises
        ------
        RpcRefused
            There is no such job or it is over, it has changed since, or the change cannot be.
        """
        change = _read(request)
        turn = self._turns.setdefault(change.job_id, asyncio.Lock())
        async with turn:
            wanted = self._checked(change)
            if wanted is not None:
                await self._record(wanted, change)
        status = self._status(change.job_id)
        return ChangeReceipt(status=status, plan=await self._plan(status))

    def _checked(self, change: JobChange) -> Job | None:
        """The changed job, None where it is so already."""
        status, state = self._status(change.job_id), self._host.state
        before = state.owners(change.job_id)
        market = state.market()
        if before is None or market is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no market is open yet; try again when one is",
                reason=Reason.MARKET_NOT_OPEN,
            )
        try:
            wanted = changed(before, change)
        except ValueError as error:
            raise invalid(error) from error
        if wanted == before and (change.request_id or change.etag in ("", etag_of(before))):
            # Sent again, perhaps to another process: it has its effect.
            return None
        need_open(status)
        if change.etag and change.etag != etag_of(before):
            raise RpcRefused(
                grpc.StatusCode.ABORTED,
                f"etag must be {etag_of(before)}, was {change.etag[:80]}: the job has changed "
                "since; read its status again",
                reason=Reason.ETAG_MISMATCH,
                field="etag",
            )
        left = left_of(_at_believed_rates(wanted, status.job), status.progress_ppm)
        refused = check_change(market, left, change)
        if refused is not None:
            raise refusal_of(refused)
        return wanted

    async def _record(self, wanted: Job, change: JobChange) -> None:
        state = self._host.state
        request_id = change.request_id or own_request_id()
        seq = await self._host.publish_observation(
            JobUpdated(
                job_id=wanted.job_id,
                tenant=wanted.tenant,
                job=wanted,
                ts_event_ns=state.now_ns,
            ),
            event_id=derive_id(wanted.job_id, f"updated:{request_id}"),
            correlation_id=wanted.job_id,
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._feed.arrivals.until(
                    wanted.job_id, lambda: self._feed.seq_of(wanted.job_id) >= seq
                )
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded as entry {seq}, but not applied within {_TIMEOUT_S:g} s; send it again "
                "to learn more",
                reason=Reason.NOT_APPLIED_YET,
            ) from None

    async def _plan(self, status: JobStatus) -> PlanAnswer | None:
        market = self._host.state.market()
        left = None if status.state.over else left_of(status.job, status.progress_ppm)
        if left is None or market is None or not market.quotes or market.ended:
            return None
        return await self._planning.planned(PlanRequest(job=left), market)

    def _status(self, job_id: str) -> JobStatus:
        return status_of(self._host.state, self._feed, job_id)


def _read(request: pb.UpdateJobRequest) -> JobChange:
    mask = tuple(dict.fromkeys(request.update_mask.paths))
    problem = bad_mask(mask)
    if problem:
        raise invalid(ValueError(problem))
    deadline = None
    if "deadline" in mask and request.HasField("deadline"):
        try:
            deadline = from_message(Deadline, complete_deadline(request.deadline))
        except ContractError as error:
            raise unreadable(error) from error
    on_limit = _ON_LIMIT.get(request.on_limit)
    if "on_limit" in mask and request.on_limit not in _ON_LIMIT:
        raise invalid(ValueError(f"on_limit has the unknown number {request.on_limit}"))
    return JobChange(
        job_id=request.job_id,
        mask=mask,
        deadline=deadline,
        value_micro_usd=request.value_micro_usd,
        budget_micro_usd=request.budget_micro_usd,
        on_limit=on_limit,
        etag=request.etag,
        request_id=request.request_id,
    )


def _at_believed_rates(wanted: Job, now: Job) -> Job:
    """The wanted job, as fast as the job is believed to be now."""
    return replace(now, **changeable(wanted))
