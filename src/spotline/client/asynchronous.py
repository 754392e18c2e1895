"""The client for programs with an event loop."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from spotline.adapters.files.job_file import StatedJob, read_stated_job, stated_job_of
from spotline.adapters.files.mistake import bad_file
from spotline.adapters.files.packing import packed_job, store
from spotline.adapters.grpc.allocator.client import DEFAULT_ADDRESS, JobClient
from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.application.allocator.messages import (
    ChangeReceipt,
    JobQuery,
    JobState,
    JobStatus,
    JobUpdate,
    PlanAnswer,
    PlanRequest,
    SubmissionReceipt,
)
from spotline.application.allocator.updates import JobChange
from spotline.application.market_view import MarketStatus
from spotline.client.fetching import Fetched, fetch_result
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Deadline, Job, OnLimit
from spotline.domain.units import micro_usd_from_usd, ns_from_datetime

Submitted = Job | JobDraft | Path | str | Mapping[str, Any]


class AsyncClient:
    """Jobs of a running Spotline, to be used in `async with`.

    Every method may raise `RpcFailed`, whose `code`, `reason`, `field` and `violations` say why;
    `docs/clients.md` lists the reasons.

    Parameters
    ----------
    address
        HOST:PORT of the allocator's gRPC.
    """

    def __init__(self, address: str = DEFAULT_ADDRESS) -> None:
        self._jobs = JobClient(address)

    async def __aenter__(self) -> Self:
        await self._jobs.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._jobs.__aexit__(*exception)

    async def submit(self, job: Submitted) -> SubmissionReceipt:
        """Hand a job over; the same request again is the same job.

        The working directory that a file or mapping states is packed and stored at its checkpoint
        location; a deadline that is a while after the submission counts from market time.

        Parameters
        ----------
        job
            A job, a draft, the path of a job file, or a mapping with the fields of one, whose
            relative paths are taken from the present working directory.

        Raises
        ------
        BadFile
            The file or mapping is no job, or its working directory cannot be packed or stored; it
            names every field that is wrong.
        RpcFailed
            The server refused it.
        """
        if isinstance(job, (Job, JobDraft)):
            return await self._jobs.submit(job)
        stated = await self._owned(_stated(job))
        now_ns = await self._market_ns(stated)
        return await self._jobs.submit(await asyncio.to_thread(_packed_and_stored, stated, now_ns))

    async def plan(self, job: Submitted) -> PlanAnswer:
        """What could be done with a job, with cost and probability; nothing is bought or packed.

        Raises
        ------
        BadFile, RpcFailed
            As `submit`.
        """
        asked = job if isinstance(job, (Job, JobDraft)) else await self._unpacked(_stated(job))
        if isinstance(asked, JobDraft):
            return await self._jobs.plan(PlanRequest(draft=asked))
        return await self._jobs.plan(PlanRequest(job=asked))

    async def get(self, job_id: str) -> JobStatus:
        """Where a job stands."""
        return await self._jobs.get(job_id)

    async def jobs(
        self, *, tenant: str = "", state: JobState | None = None
    ) -> tuple[JobStatus, ...]:
        """Where several jobs stand, by job id: those of a tenant, in a state, or all."""
        return await self._jobs.list_all(JobQuery(tenant=tenant, state=state))

    async def update(
        self,
        job_id: str,
        *,
        deadline: datetime | None = None,
        value_usd: float | None = None,
        budget_usd: float | None = None,
        on_limit: OnLimit | None = None,
    ) -> ChangeReceipt:
        """Change what is stated of a job, and have a new plan for what is left of it.

        Parameters
        ----------
        deadline
            With a UTC offset; a soft deadline keeps the time that it lasts.
        budget_usd
            0 for no bound.

        Raises
        ------
        ValueError
            Nothing is to change, or the deadline has no UTC offset.
        """
        values: dict[str, Any] = {}
        if value_usd is not None:
            values["value_micro_usd"] = micro_usd_from_usd(value_usd)
        if budget_usd is not None:
            values["budget_micro_usd"] = micro_usd_from_usd(budget_usd)
        if on_limit is not None:
            values["on_limit"] = on_limit
        if deadline is None and not values:
            raise ValueError("one of deadline, value_usd, budget_usd and on_limit must be given")
        status = await self._jobs.get(job_id)
        if deadline is not None:
            values["deadline"] = _moved(status.job.deadline, deadline)
        change = JobChange(
            job_id=job_id,
            mask=tuple(values),
            etag=status.etag,
            request_id=uuid.uuid4().hex,
            **values,
        )
        return await self._jobs.update(change)

    async def cancel(self, job_id: str) -> bool:
        """Withdraw a job, at once; returns whether it was over already."""
        return await self._jobs.cancel(job_id, request_id=uuid.uuid4().hex)

    async def watch(self, job_id: str) -> AsyncIterator[JobUpdate]:
        """Where a job stands now and after every change, until it is over."""
        async for update in self._jobs.watch(job_id):
            yield update

    async def wait(self, job_id: str) -> JobStatus:
        """Wait until a job is over, and say how."""
        status = await self._jobs.get(job_id)
        if not status.state.over:
            async for update in self._jobs.watch(job_id):
                status = update.status
        return status

    async def fetch(self, job_id: str, folder: Path | str, *, unfinished: bool = False) -> Fetched:
        """Bring the result of a job into a folder, verified; `unfinished`: or its newest checkpoint.

        It is read from the job's checkpoint location, which must be reachable from here.

        Raises
        ------
        NothingToFetch
            There is none, or its bytes are not those that were committed.
        FileExistsError
            The folder holds something.
        """
        status = await self._jobs.get(job_id)
        return await asyncio.to_thread(
            fetch_result, status.job, Path(folder), unfinished=unfinished
        )

    async def market(self) -> MarketStatus:
        """What time it is in the market, and whether that goes on."""
        return await self._jobs.market()

    async def _owned(self, stated: StatedJob) -> StatedJob:
        """The file, as the token's tenant's where it does not say whose it is."""
        if not stated.needs_tenant:
            return stated
        async with IdentityClient(self._jobs.address) as client:
            caller = await client.who_am_i()
        return stated if caller is None else stated.of_tenant(caller.tenant)

    async def _market_ns(self, stated: StatedJob) -> int | None:
        """Market time where a deadline counts from it, else None."""
        if not stated.needs_clock:
            return None
        clock = (await self._jobs.market()).clock
        return None if clock is None else clock.market_ns

    async def _unpacked(self, stated: StatedJob) -> Job | JobDraft:
        """The job as it would be submitted now, without what would be packed for it."""
        if stated.workdir is not None and not stated.workdir.is_dir():
            raise bad_file(stated.where, "run.workdir", "a folder", f"none at {stated.workdir}")
        stated = await self._owned(stated)
        return stated.resolved(now_ns=await self._market_ns(stated))


def _stated(job: Path | str | Mapping[str, Any]) -> StatedJob:
    if isinstance(job, Mapping):
        return stated_job_of(job, where="the job", folder=Path())
    return read_stated_job(Path(job))


def _packed_and_stored(stated: StatedJob, now_ns: int | None) -> Job | JobDraft:
    """The job with its working directory, if it has one, where its instances find it."""
    with packed_job(stated, now_ns) as (job, archive):
        if archive is not None and job.run is not None and job.run.package is not None:
            store(archive, job.run.package, where=stated.where)
        return job


def _moved(deadline: Deadline, at: datetime) -> Deadline:
    if at.utcoffset() is None:
        raise ValueError(f"deadline must have a UTC offset, was {at.isoformat()}")
    at_ns = ns_from_datetime(at)
    return replace(deadline, at_ns=at_ns, expires_ns=at_ns + deadline.expires_ns - deadline.at_ns)
