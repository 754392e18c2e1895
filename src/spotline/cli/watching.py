"""Jobs followed line by line."""

# What knows gRPC is imported inside: it costs more than `--help` should.

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import typer

from spotline.cli.calls import whole_job_id
from spotline.cli.jobs_view import plain, print_json
from spotline.cli.status_view import update_line
from spotline.cli.tables import print_line

if TYPE_CHECKING:
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.application.allocator.messages import JobStatus, JobUpdate

_LOOK_FOR_JOBS_EVERY_S = 2.0
_QUEUED = 256
# Kinds of changes that come with every slot.
_EVERY_SLOT = ("job.advanced", "decision")


def is_done(status: JobStatus) -> bool:
    """Whether a job did its work, in time or late."""
    from spotline.application.allocator.messages import JobState

    return status.state in (JobState.COMPLETED, JobState.COMPLETED_LATE)


async def watch_job(address: str, prefix: str, *, as_json: bool) -> JobStatus:
    """Print a job's changes until it is over or its market has ended; returns how it stands then."""
    from spotline.adapters.grpc.allocator.client import JobClient

    async with JobClient(address) as client:
        last: JobUpdate | None = None
        changes = ChangeFilter()
        async for update in _until_over(client, await whole_job_id(client, prefix)):
            if as_json or changes.is_new(update):
                _print(update, as_json=as_json, whose="")
            last = update
    if last is None:
        raise typer.Exit(1)
    return last.status


async def watch_all(address: str, tenant: str, *, as_json: bool) -> None:
    """Print the changes of all jobs, those that come included, until it is interrupted."""
    from spotline.adapters.grpc.allocator.client import JobClient
    from spotline.cli.listing import listed_jobs

    seen: set[str] = set()
    changes = ChangeFilter()
    updates: asyncio.Queue[JobUpdate] = asyncio.Queue(maxsize=_QUEUED)

    async def follow(client: JobClient, job_id: str) -> None:
        async for update in _until_over(client, job_id):
            await updates.put(update)

    async def look(client: JobClient, tasks: asyncio.TaskGroup) -> None:
        while True:
            board = await listed_jobs(client, tenant)
            for status in board.statuses:
                if status.job.job_id not in seen and not status.state.over:
                    seen.add(status.job.job_id)
                    tasks.create_task(follow(client, status.job.job_id), name="follow")
            await asyncio.sleep(_LOOK_FOR_JOBS_EVERY_S)

    async with JobClient(address) as client, asyncio.TaskGroup() as tasks:
        tasks.create_task(look(client, tasks), name="look")
        while True:
            update = await updates.get()
            if as_json or changes.is_new(update):
                _print(update, as_json=as_json, whose=update.status.job.job_id[:8])


class ChangeFilter:
    """Tells which updates say something new: slots in which all goes on as before do not.

    A tenth of the work done is something new.
    """

    def __init__(self) -> None:
        self._said: dict[str, object] = {}

    def is_new(self, update: JobUpdate) -> bool:
        """Whether an update deserves a line, given those before of the same job."""
        status, view = update.status, update.status.view
        stands = (
            status.state,
            status.policy_id,
            status.offering_id,
            10 * status.progress_ppm // 1_000_000,
            status.lots if view is None else (view.phase, view.flags, view.held, view.wanted),
        )
        job_id = status.job.job_id
        before = self._said.get(job_id)
        self._said[job_id] = stands
        return update.change not in _EVERY_SLOT or stands != before


async def _until_over(client: JobClient, job_id: str) -> AsyncIterator[JobUpdate]:
    async for update in client.watch(job_id):
        yield update
        view = update.status.view
        if view is not None and view.phase.value == "market_ended":
            # Nothing would ever follow.
            return


def _print(update: JobUpdate, *, as_json: bool, whose: str) -> None:
    if as_json:
        print_json(plain(update), indent=None)
        return
    flagged = update.status.view is not None and update.status.view.flags
    line = update_line(update)
    print_line(f"{whose}  {line}" if whose else line, style="bold red" if flagged else "")
