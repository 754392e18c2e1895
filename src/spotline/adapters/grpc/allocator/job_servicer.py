"""JobService: what platforms say becomes observations, what they ask is read from the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import grpc

from spotline.adapters.grpc.allocator.completing import completed
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, answers, refusal_of, refuse
from spotline.api.v1 import allocator_service_pb2, job_pb2, job_service_pb2_grpc
from spotline.api.v1 import job_service_pb2 as pb
from spotline.application.admission import Accepted, Refused, job_id_for
from spotline.application.allocator.drafts import check_draft
from spotline.application.allocator.handler import check_submission
from spotline.application.allocator.messages import (
    JobPage,
    JobQuery,
    JobStatus,
    JobUpdate,
    ProgressReport,
    Submission,
    SubmissionReceipt,
)
from spotline.application.allocator.ports import ConfiguratorPort, JobsHost
from spotline.application.paging import page_of_ids
from spotline.application.spec import derive_id
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import InvariantViolation
from spotline.contracts.mapping import from_message, to_message
from spotline.contracts.subjects import KINDS
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import (
    JobCancelled,
    JobClosed,
    JobProgressReported,
    JobSubmitted,
)
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.runtime.applied import AppliedFeed

_QUEUED_UPDATES = 256
_APPLY_TIMEOUT_S = 10.0


class JobFeed:
    """What the host applies, handed on to callers that wait for a job or watch one.

    `arrivals` are the submissions, by job id.
    """

    def __init__(self) -> None:
        self._seqs: dict[str, int] = {}
        self.arrivals = AppliedFeed(_submitted_job)
        self._watches: dict[str, set[Watch]] = {}

    def on_applied(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Listen to the host: every applied event with its seq, in order. Never waits."""
        job_id = event.job.job_id if isinstance(event, JobSubmitted) else _job_id_of(event)
        if not job_id:
            return
        self._seqs[job_id] = max(seq, self._seqs.get(job_id, 0))
        self.arrivals.on_applied(event, envelope, seq)
        for watch in self._watches.get(job_id, ()):
            watch.put(KINDS[type(event)], seq, closes=isinstance(event, JobClosed))

    def seq_of(self, job_id: str) -> int:
        """The seq of the last event of a job that this process has seen applied, 0 for none."""
        return self._seqs.get(job_id, 0)

    def watch(self, job_id: str) -> Watch:
        """Follow a job from now on; close it in the end."""
        watch = Watch(self, job_id)
        self._watches.setdefault(job_id, set()).add(watch)
        return watch

    def end(self) -> None:
        """End every watch: the server stops."""
        for watches in self._watches.values():
            for watch in watches:
                watch.end()

    def forget(self, watch: Watch) -> None:
        """Stop feeding a watch. Safe to repeat."""
        watches = self._watches.get(watch.job_id)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[watch.job_id]


class Watch:
    """One watcher's bounded queue; it is dropped rather than let to hold back the rest."""

    def __init__(self, feed: JobFeed, job_id: str) -> None:
        self.job_id = job_id
        self._broken: RpcRefused | None = None
        self._feed = feed
        self._queue: asyncio.Queue[tuple[str, int, bool]] = asyncio.Queue(_QUEUED_UPDATES)

    def put(self, change: str, seq: int, *, closes: bool) -> None:
        """Queue a change; the watch breaks where it is too far behind."""
        try:
            self._queue.put_nowait((change, seq, closes))
        except asyncio.QueueFull:
            self._broken = RpcRefused(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the watch fell {_QUEUED_UPDATES} changes behind; watch again",
            )

    def end(self) -> None:
        """Break the watch: its server stops."""
        self._broken = RpcRefused(
            grpc.StatusCode.UNAVAILABLE, "the allocator is stopping; watch again"
        )
        if self._queue.empty():
            self._queue.put_nowait(("", 0, True))

    async def next(self) -> tuple[str, int, bool]:
        """Wait for the next change: its kind, its seq, and whether the job is over with it.

        Raises
        ------
        RpcRefused
            The watch is broken; nothing more follows.
        """
        change = await self._queue.get()
        if self._broken is not None:
            raise self._broken
        return change

    def close(self) -> None:
        """Stop following."""
        self._feed.forget(self)


def name_job(request: pb.SubmitRequest | allocator_service_pb2.PlanRequest) -> None:
    """Fill in the id of the request's job where it is empty: a platform need not know the rule."""
    if request.HasField("job"):
        _name(request.job)
    if request.HasField("draft"):
        _name(request.draft)


def _name(job: job_pb2.Job | job_pb2.JobDraft) -> None:
    if not job.job_id and job.client_request_id:
        job.job_id = job_id_for(job.tenant, job.client_request_id)


def _submitted_job(event: Event) -> str | None:
    return event.job.job_id if isinstance(event, JobSubmitted) else None


def _job_id_of(event: Event) -> str:
    return str(getattr(event, "job_id", ""))


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Serves `JobService` from the host's read model."""

    def __init__(
        self, host: JobsHost, feed: JobFeed, configurator: ConfiguratorPort | None = None
    ) -> None:
        self._host = host
        self._feed = feed
        self._configurator = configurator

    def end_watches(self) -> None:
        """End every watch, for they would not end by themselves."""
        self._feed.end()

    @answers
    async def Submit(self, request: pb.SubmitRequest, context: ServerContext) -> SubmissionReceipt:
        """Check, record, and answer when the read model shows it."""
        name_job(request)
        asked = from_message(Submission, request)
        if self._host.state.market() is None:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE, "no market is open yet; try again when one is"
            )
        if asked.draft is not None:
            return await self._submit_draft(asked.draft)
        if asked.job is None:
            raise InvariantViolation("a submission holds neither a job nor a draft")
        checked = _taken(check_submission(self._host.state, asked.job))
        if not checked.already_submitted:
            await self._record(asked.job)
            # Two different jobs may have raced for one request id: the log's first is the job.
            _taken(check_submission(self._host.state, asked.job))
        return self._receipt(checked)

    async def _submit_draft(self, draft: JobDraft) -> SubmissionReceipt:
        known = check_draft(self._host.state, draft)
        if known is not None:
            return self._receipt(_taken(known))
        completion = await completed(self._configurator, draft)
        # Another may have submitted it meanwhile, and been given another job for it.
        known = check_draft(self._host.state, draft)
        if known is not None:
            return self._receipt(_taken(known))
        checked = check_submission(self._host.state, completion.job)
        if isinstance(checked, Refused):
            # The market moved on since it was completed.
            raise refusal_of(replace(checked, field=checked.field.replace("job.", "draft.", 1)))
        await self._record(completion.job)
        recorded = check_draft(self._host.state, draft)
        if recorded is not None:
            _taken(recorded)
        return self._receipt(checked)

    async def _record(self, job: Job) -> None:
        """Record a job, and wait until the read model shows it."""
        event = JobSubmitted(job=job, ts_event_ns=self._host.state.now_ns)
        seq = await self._host.publish_observation(
            event, event_id=derive_id(job.job_id, "submitted"), correlation_id=job.job_id
        )
        try:
            async with asyncio.timeout(_APPLY_TIMEOUT_S):
                await self._feed.arrivals.until(
                    job.job_id, lambda: job.job_id in self._host.state.statuses
                )
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded as entry {seq}, but not applied within {_APPLY_TIMEOUT_S:g} s; "
                "submit it again to learn more",
            ) from None

    def _receipt(self, accepted: Accepted) -> SubmissionReceipt:
        job = self._host.state.submitted(accepted.job_id)
        return SubmissionReceipt(
            job_id=accepted.job_id,
            already_submitted=accepted.already_submitted,
            configuration=None if job is None else job.configuration,
        )

    @answers
    async def Get(self, request: pb.GetRequest, context: ServerContext) -> pb.GetResponse:
        """Where one job stands."""
        status = cast("pb.JobStatus", to_message(self._status(request.job_id)))
        return pb.GetResponse(status=status)

    @answers
    async def List(self, request: pb.ListRequest, context: ServerContext) -> JobPage:
        """Where several stand; the page token is the last job id of the page before."""
        query = from_message(JobQuery, request)
        shown, next_page_token = page_of_ids(
            query,
            (
                job_id
                for job_id, status in self._host.state.statuses.items()
                if query.tenant in ("", status.job.tenant) and query.state in (None, status.state)
            ),
        )
        return JobPage(
            statuses=tuple(self._status(job_id) for job_id in shown),
            next_page_token=next_page_token,
        )

    @answers
    async def Cancel(self, request: pb.CancelRequest, context: ServerContext) -> pb.CancelResponse:
        """Record a withdrawal; the selector closes the job."""
        status = self._status(request.job_id)
        if status.state.over:
            return pb.CancelResponse(already_closed=True)
        await self._host.publish_observation(
            JobCancelled(job_id=request.job_id, tenant=status.job.tenant),
            event_id=derive_id(request.job_id, "cancelled"),
            correlation_id=request.job_id,
        )
        return pb.CancelResponse(already_closed=False)

    @answers
    async def ReportProgress(
        self, request: pb.ReportProgressRequest, context: ServerContext
    ) -> pb.ReportProgressResponse:
        """Record how far a job says it is; the greatest report counts."""
        report = from_message(ProgressReport, request)
        status = self._status(report.job_id)
        if report.tenant != status.job.tenant:
            raise _unknown_job(report.job_id, f" of tenant {report.tenant}")
        work = status.job.work
        if report.done > work.amount:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"done must be <= the job's work ({work.amount:g} {work.unit}), "
                f"was {report.done:g}",
                field="done",
            )
        if status.state.over:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"job {report.job_id} is over ({status.state.value}); nothing was recorded",
            )
        await self._host.publish_observation(
            JobProgressReported(
                job_id=report.job_id,
                tenant=report.tenant,
                done=report.done,
                ts_event_ns=report.ts_event_ns,
                rate_per_hour=report.rate_per_hour,
                instances=report.instances,
            ),
            event_id=derive_id(report.job_id, _report_kind(report)),
            correlation_id=report.job_id,
        )
        return pb.ReportProgressResponse()

    async def Watch(
        self, request: pb.WatchRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchResponse]:
        """Where a job stands now, and after every change, until it is over."""
        # Followed before it is first read: no change falls between the two.
        watch = self._feed.watch(request.job_id)
        try:
            status = self._status(request.job_id)
            yield _update(status, "")
            closed = status.state.over
            while not closed:
                change, seq, closed = await watch.next()
                yield _update(replace(self._status(request.job_id), seq=seq), change)
        except RpcRefused as error:
            await refuse(context, error)
        finally:
            watch.close()

    def _status(self, job_id: str) -> JobStatus:
        status = self._host.state.statuses.get(job_id)
        if status is None:
            raise _unknown_job(job_id)
        return replace(status, seq=self._feed.seq_of(job_id))


def _report_kind(report: ProgressReport) -> str:
    """What tells a report from others of its job: sent again, it is the same; a new one, not."""
    kind = f"progress:{report.done!r}"
    if report.ts_event_ns or report.instances:
        kind += f":{report.ts_event_ns}:{report.rate_per_hour!r}:{report.instances}"
    return kind


def _unknown_job(job_id: str, of: str = "") -> RpcRefused:
    if not job_id:
        return RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT, "job_id must not be empty", field="job_id"
        )
    return RpcRefused(
        grpc.StatusCode.NOT_FOUND,
        f"there is no job {job_id}{of}; `spotline status` lists all",
        field="job_id",
    )


def _taken(checked: Accepted | Refused) -> Accepted:
    if isinstance(checked, Refused):
        raise refusal_of(checked)
    return checked


def _update(status: JobStatus, change: str) -> pb.WatchResponse:
    update = JobUpdate(status=status, change=change, seq=status.seq)
    return cast("pb.WatchResponse", to_message(update))
