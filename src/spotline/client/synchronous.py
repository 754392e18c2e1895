"""The client for plain programs: the asynchronous one, on an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from spotline.adapters.grpc.allocator.client import DEFAULT_ADDRESS
from spotline.application.allocator.messages import (
    ChangeReceipt,
    JobState,
    JobStatus,
    JobUpdate,
    PlanAnswer,
    SubmissionReceipt,
)
from spotline.application.market_view import MarketStatus
from spotline.client.asynchronous import AsyncClient, Submitted
from spotline.client.fetching import Fetched
from spotline.domain.jobs.job import OnLimit

ResultT = TypeVar("ResultT")

_END = object()
_NOT_OPEN = "the client must be used in `with`"


class Client:
    """Jobs of a running Spotline, to be used in `with`; see `AsyncClient` for each method.

    It may be used by several threads.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._address = address
        self._thread: _LoopThread | None = None
        self._client: AsyncClient | None = None

    def __enter__(self) -> Self:
        self._thread = _LoopThread()
        self._client = self._run(self._open())
        return self

    def __exit__(self, *exception: object) -> None:
        if self._client is not None:
            self._run(self._client.__aexit__(*exception))
        if self._thread is not None:
            self._thread.end()
        self._thread = self._client = None

    def submit(self, job: Submitted) -> SubmissionReceipt:
        """Hand a job over; the same request again is the same job."""
        return self._run(self._opened.submit(job))

    def plan(self, job: Submitted) -> PlanAnswer:
        """What could be done with a job, with cost and probability; nothing is bought."""
        return self._run(self._opened.plan(job))

    def get(self, job_id: str) -> JobStatus:
        """Where a job stands."""
        return self._run(self._opened.get(job_id))

    def jobs(self, *, tenant: str = "", state: JobState | None = None) -> tuple[JobStatus, ...]:
        """Where several jobs stand, by job id."""
        return self._run(self._opened.jobs(tenant=tenant, state=state))

    def update(
        self,
        job_id: str,
        *,
        deadline: datetime | None = None,
        value_usd: float | None = None,
        budget_usd: float | None = None,
        on_limit: OnLimit | None = None,
    ) -> ChangeReceipt:
        """Change what is stated of a job, and have a new plan for what is left of it."""
        change = self._opened.update(
            job_id,
            deadline=deadline,
            value_usd=value_usd,
            budget_usd=budget_usd,
            on_limit=on_limit,
        )
        return self._run(change)

    def cancel(self, job_id: str) -> bool:
        """Withdraw a job, at once; returns whether it was over already."""
        return self._run(self._opened.cancel(job_id))

    def watch(self, job_id: str) -> Iterator[JobUpdate]:
        """Where a job stands now and after every change, until it is over."""
        return self._each(self._opened.watch(job_id))

    def wait(self, job_id: str) -> JobStatus:
        """Wait until a job is over, and say how."""
        return self._run(self._opened.wait(job_id))

    def fetch(self, job_id: str, folder: Path | str, *, unfinished: bool = False) -> Fetched:
        """Bring the result of a job into a folder, verified; `unfinished`: or its newest checkpoint."""
        return self._run(self._opened.fetch(job_id, folder, unfinished=unfinished))

    def market(self) -> MarketStatus:
        """What time it is in the market, and whether that goes on."""
        return self._run(self._opened.market())

    async def _open(self) -> AsyncClient:
        # Made on the loop that it is used on: a channel of gRPC belongs to one.
        return await AsyncClient(self._address).__aenter__()

    @property
    def _opened(self) -> AsyncClient:
        if self._client is None:
            raise RuntimeError(_NOT_OPEN)
        return self._client

    def _run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        if self._thread is None:
            work.close()
            raise RuntimeError(_NOT_OPEN)
        running = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        try:
            return running.result()
        except KeyboardInterrupt:
            running.cancel()
            raise

    def _each(self, source: AsyncIterator[ResultT]) -> Iterator[ResultT]:
        """What an asynchronous iterator gives; it is closed where the caller leaves early."""
        try:
            while (item := self._run(_next(source))) is not _END:
                yield cast("ResultT", item)
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                self._run(close())


class _LoopThread:
    """An event loop that runs in a thread of its own until `end`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="spotline", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _next(source: AsyncIterator[ResultT]) -> ResultT | object:
    return await anext(source, _END)
