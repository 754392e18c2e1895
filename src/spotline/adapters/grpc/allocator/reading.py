"""What owners read of a job: what its program wrote, and what has happened to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import grpc

from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.standing import status_of
from spotline.adapters.grpc.kit.errors import RpcRefused, invalid
from spotline.api.v1 import job_service_pb2 as pb
from spotline.api.v1 import market_pb2, output_pb2
from spotline.application.allocator.messages import JobStatus
from spotline.application.allocator.output import OutputStore
from spotline.application.allocator.ports import JobsHost
from spotline.application.market_view import ClockReading
from spotline.contracts.mapping import to_message
from spotline.contracts.reasons import Reason

_MOST_LAST = 1_000_000
# Another process may take a job's output, of which this one hears nothing.
_LOOK_AGAIN_S = 2.0
# An agent is told that its job is over, and hands over what its program wrote until then.
_TAIL_S = 2.0


class JobReading:
    """Streams output and happenings of jobs; `output` None keeps none."""

    def __init__(
        self,
        host: JobsHost,
        feed: JobFeed,
        output: OutputStore | None,
        clock: Callable[[], ClockReading | None],
    ) -> None:
        self._host = host
        self._feed = feed
        self._output = output
        self._clock = clock

    async def output(self, request: pb.ReadOutputRequest) -> AsyncIterator[pb.ReadOutputResponse]:
        """What a program wrote, oldest first, and with `follow` what comes until its job is over.

        Raises
        ------
        RpcRefused
            There is no such job, no output is kept, or the server stops.
        """
        if not 0 <= request.last <= _MOST_LAST:
            raise invalid(ValueError(f"last must be 0..{_MOST_LAST}, was {request.last}"))
        job = self._status(request.job_id).job
        store = self._output
        if store is None:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                "this server keeps no output of programs: it was started without a port of agents",
                reason=Reason.NO_OUTPUT,
            )
        next_seq = await store.begin(job.tenant, job.job_id, last=request.last)
        over_s: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            # Taken before it is read: what comes meanwhile is not missed.
            mark = store.mark(job.job_id)
            if over_s is None and self._status(job.job_id).state.over:
                over_s = loop.time()
            async for seq, chunk in store.read(job.tenant, job.job_id, first_seq=next_seq):
                next_seq = seq + 1
                message = cast("output_pb2.OutputChunk", to_message(chunk))
                yield pb.ReadOutputResponse(chunk=message)
            over = over_s is not None and loop.time() - over_s >= _TAIL_S
            if not request.follow or over:
                return
            self._refuse_at_end()
            wait_s = _LOOK_AGAIN_S
            if over_s is not None:
                wait_s = min(wait_s, max(over_s + _TAIL_S - loop.time(), 0.0))
            await store.arrival(job.job_id, mark, timeout_s=wait_s)

    async def events(self, request: pb.ReadEventsRequest) -> AsyncIterator[pb.ReadEventsResponse]:
        """What happened to a job, oldest first; `RpcRefused` as `output`."""
        if request.after_seq < 0:
            raise invalid(ValueError(f"after_seq must be >= 0, was {request.after_seq}"))
        status, history = self._status(request.job_id), self._feed.history
        job_id, after_seq = status.job.job_id, request.after_seq
        while True:
            over = self._status(job_id).state.over
            for happening in history.of(job_id, after_seq=after_seq):
                after_seq = happening.seq
                yield self._response(happening)
            if over or not request.follow:
                return
            self._refuse_at_end()
            await history.change(job_id, after_seq)

    def _response(self, happening: object) -> pb.ReadEventsResponse:
        clock = self._clock()
        response = pb.ReadEventsResponse(happening=cast("pb.JobHappening", to_message(happening)))
        if clock is not None:
            response.clock.CopyFrom(cast("market_pb2.MarketClock", to_message(clock)))
        return response

    def _refuse_at_end(self) -> None:
        if self._feed.history.ended:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "the allocator is stopping; read again",
                reason=Reason.SERVER_STOPPING,
            )

    def _status(self, job_id: str) -> JobStatus:
        return status_of(self._host.state, self._feed, job_id)
