"""JobService: what platforms say becomes observations, what they ask is read from the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import grpc

from spotline.adapters.grpc.allocator.admitting import Acknowledging, likely_enough
from spotline.adapters.grpc.allocator.changing import Changing, Planning
from spotline.adapters.grpc.allocator.completing import completed
from spotline.adapters.grpc.allocator.explaining import Explaining
from spotline.adapters.grpc.allocator.job_feed import JobFeed
from spotline.adapters.grpc.allocator.reading import JobReading
from spotline.adapters.grpc.allocator.standing import (
    JobViews,
    need_open,
    status_of,
    unknown_job,
)
from spotline.adapters.grpc.kit.answering import RequestLog, answers, refuse
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, invalid, refusal_of
from spotline.adapters.grpc.kit.filling_in import name_submission
from spotline.api.v1 import job_service_pb2 as pb
from spotline.api.v1 import job_service_pb2_grpc
from spotline.application.admission import Accepted, Refused
from spotline.application.allocation.on_demand_quote import DEFAULT_QUOTE_MARGIN, valued
from spotline.application.allocator.drafts import check_draft
from spotline.application.allocator.handler import check_submission
from spotline.application.allocator.messages import (
    ChangeReceipt,
    ExitReport,
    JobPage,
    JobQuery,
    JobStatus,
    JobUpdate,
    ProgressReport,
    Submission,
    SubmissionReceipt,
)
from spotline.application.allocator.output import OutputStore
from spotline.application.allocator.ports import ConfiguratorPort, JobsHost
from spotline.application.explaining.messages import DecisionExplanation
from spotline.application.market_view import ClockReading, MarketStatus, without_account
from spotline.application.paging import page_of_ids
from spotline.application.spec import derive_id
from spotline.contracts.errors import InvariantViolation, ProviderUnavailable
from spotline.contracts.limits import MESSAGE_BYTES
from spotline.contracts.mapping import from_message, to_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.lifecycle import JobCancelled, JobExited, JobProgressReported
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.unattended import without_program

# Room for what is added to an answer.
_CLOCK_BYTES = 4_096


class JobServicer(job_service_pb2_grpc.JobServiceServicer):
    """Serves `JobService` from the host's read model.

    Parameters
    ----------
    planning
        Plans what is left of a job that was updated.
    await_admission
        Whether a submission is acknowledged only once the ledger holds it too. Off only where
        there is no actuator, which is what says so.
    output
        Where what programs write is kept; None: nowhere.
    quote_margin
        A job that states no value is worth (1 + this) x its on-demand quote, and may cost as much.
    views
        Where jobs stand as people are shown it; None: made here, without outlooks.

    Attributes
    ----------
    explaining
        Explains decisions; until it is set, none is.
    admitting
        Records submissions.
    """

    explaining = Explaining(None)

    def __init__(
        self,
        host: JobsHost,
        feed: JobFeed,
        planning: Planning,
        configurator: ConfiguratorPort | None = None,
        *,
        await_admission: bool = True,
        output: OutputStore | None = None,
        quote_margin: float = DEFAULT_QUOTE_MARGIN,
        views: JobViews | None = None,
    ) -> None:
        self._host = host
        self._views = views or JobViews(host, feed)
        self._quote_margin = quote_margin
        self._feed = feed
        self._planning = planning
        self._configurator = configurator
        self._requests = RequestLog()
        self.admitting = Acknowledging(host, feed, await_admission=await_admission)
        self._changing = Changing(host, feed, planning)
        self._reading = JobReading(host, feed, output, self.clock)

    def clock(self) -> ClockReading | None:
        """Market time, None before a market is known."""
        return self._views.clock()

    def end_watches(self) -> None:
        """End every watch, for they would not end by themselves."""
        self._feed.end()

    @answers
    async def Submit(self, request: pb.SubmitRequest, context: ServerContext) -> SubmissionReceipt:
        """Check, record, and answer when log and ledger hold it and the read model shows it."""
        name_submission(request)
        asked = from_message(Submission, request)
        if self._host.state.market() is None:
            raise _no_market()
        with self.admitting.room():
            if asked.draft is not None:
                return await self._submit_draft(asked.draft, asked.least_on_time_ppm)
            if asked.job is None:
                raise InvariantViolation("a submission holds neither a job nor a draft")
            checked = _taken(check_submission(self._host.state, asked.job))
            outlook = None
            if checked.already_submitted:
                await self.admitting.admitted(checked.job_id)
            else:
                job = self._valued(asked.job, "job")
                outlook = await likely_enough(self._planning, job, asked.least_on_time_ppm)
                await self.admitting.record(job)
                # Two different jobs may have raced for one request id: the log's first is the job.
                _taken(check_submission(self._host.state, asked.job))
            return replace(self._receipt(checked), outlook=outlook)

    async def _submit_draft(self, draft: JobDraft, least_on_time_ppm: int) -> SubmissionReceipt:
        known = check_draft(self._host.state, draft)
        if known is not None:
            return await self._known(known)
        completion = await completed(self._configurator, draft)
        # Another may have submitted it meanwhile, and been given another job for it.
        known = check_draft(self._host.state, draft)
        if known is not None:
            return await self._known(known)
        checked = check_submission(self._host.state, completion.job)
        if isinstance(checked, Refused):
            # The market moved on since it was completed.
            raise refusal_of(_of_draft(checked))
        job = self._valued(completion.job, "draft")
        outlook = await likely_enough(self._planning, job, least_on_time_ppm)
        await self.admitting.record(job)
        recorded = check_draft(self._host.state, draft)
        if recorded is not None:
            _taken(recorded)
        return replace(self._receipt(checked), outlook=outlook)

    def _valued(self, job: Job, field: str) -> Job:
        """The job with its value, from what on-demand costs now where its owner states none."""
        market = self._host.state.market()
        if market is None or (job.value_from_quote and not market.quotes):
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no slot has opened yet, so there is no price to quote; try again when one has, or "
                "state what the job is worth",
                reason=Reason.MARKET_NOT_OPEN,
            )
        try:
            worth = valued(market, job, margin=self._quote_margin, field=field)
        except ValueError as error:
            raise invalid(error) from error
        # On paper there are no machines to run a program on.
        return without_program(worth) if self._host.state.recent.mode.on_paper else worth

    async def _known(self, known: Accepted | Refused) -> SubmissionReceipt:
        accepted = _taken(known)
        await self.admitting.admitted(accepted.job_id)
        return self._receipt(accepted)

    def _receipt(self, accepted: Accepted) -> SubmissionReceipt:
        job = self._host.state.submitted(accepted.job_id)
        return SubmissionReceipt(
            job_id=accepted.job_id,
            already_submitted=accepted.already_submitted,
            configuration=None if job is None else job.configuration,
            request_id="" if job is None else job.client_request_id,
            on_demand_quote_micro_usd=0 if job is None else job.on_demand_quote_micro_usd,
        )

    @answers
    async def Get(self, request: pb.GetRequest, context: ServerContext) -> pb.GetResponse:
        """Where one job stands."""
        status = cast("pb.JobStatus", to_message(await self._views.status(request.job_id)))
        return pb.GetResponse(status=status)

    @answers
    async def List(self, request: pb.ListRequest, context: ServerContext) -> JobPage:
        """Where several stand, a page at a time."""
        query = from_message(JobQuery, request)
        shown, next_page_token = page_of_ids(
            query,
            (
                job_id
                for job_id, status in self._host.state.statuses.items()
                if query.tenant in ("", status.job.tenant) and query.state in (None, status.state)
            ),
        )
        page = JobPage(
            statuses=await self._views.statuses(shown),
            next_page_token=next_page_token,
            fleet=self._views.fleet(query.tenant),
        )
        return _fitting(page, query)

    @answers
    async def Cancel(self, request: pb.CancelRequest, context: ServerContext) -> pb.CancelResponse:
        """Record a withdrawal, which takes effect now; the selector closes the job."""

        async def cancel() -> pb.CancelResponse:
            status = self._status(request.job_id)
            if status.state.over:
                return pb.CancelResponse(already_closed=True)
            await self._host.publish_observation(
                JobCancelled(
                    job_id=request.job_id,
                    tenant=status.job.tenant,
                    ts_event_ns=self._host.state.now_ns,
                ),
                event_id=derive_id(request.job_id, "cancelled"),
                correlation_id=request.job_id,
            )
            return pb.CancelResponse(already_closed=False)

        return await self._requests.once(request, request.job_id, cancel)

    @answers
    async def UpdateJob(
        self, request: pb.UpdateJobRequest, context: ServerContext
    ) -> ChangeReceipt:
        """Check a change, record it, and answer when the read model shows it, with a new plan."""
        return await self._requests.once(
            request, request.job_id, lambda: self._changing.change(request)
        )

    @answers
    async def ReportProgress(
        self, request: pb.ReportProgressRequest, context: ServerContext
    ) -> pb.ReportProgressResponse:
        """Record how far a job says it is."""
        report = from_message(ProgressReport, request)

        async def record() -> pb.ReportProgressResponse:
            self._need_paid()
            work = self._open_job(report.job_id, report.tenant).work
            if report.done > work.amount:
                raise RpcRefused(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"done must be <= the job's work ({work.amount:g} {work.unit}), "
                    f"was {report.done:g}",
                    reason=Reason.FIELD_INVALID,
                    field="done",
                )
            await self._host.publish_observation(
                JobProgressReported(
                    job_id=report.job_id,
                    tenant=report.tenant,
                    done=report.done,
                    ts_event_ns=report.ts_event_ns,
                    rate_per_hour=report.rate_per_hour,
                    instances=report.instances,
                    generation=report.generation,
                    checkpointed=report.checkpointed,
                ),
                event_id=derive_id(report.job_id, _report_kind(report)),
                correlation_id=report.job_id,
            )
            return pb.ReportProgressResponse()

        return await self._requests.once(request, report.job_id, record)

    @answers
    async def ReportExit(
        self, request: pb.ReportExitRequest, context: ServerContext
    ) -> pb.ReportExitResponse:
        """Record that a job's program has ended."""
        report = from_message(ExitReport, request)

        async def record() -> pb.ReportExitResponse:
            self._need_paid()
            self._open_job(report.job_id, report.tenant)
            what = report.request_id or f"{report.generation}:{report.exit_code}:{report.detail}"
            await self._host.publish_observation(
                JobExited(
                    job_id=report.job_id,
                    tenant=report.tenant,
                    generation=report.generation,
                    exit_code=report.exit_code,
                    detail=report.detail,
                    ts_event_ns=self._host.state.now_ns,
                ),
                event_id=derive_id(report.job_id, f"exited:{what}"),
                correlation_id=report.job_id,
            )
            return pb.ReportExitResponse()

        return await self._requests.once(request, report.job_id, record)

    @answers
    async def GetMarket(self, request: pb.GetMarketRequest, context: ServerContext) -> MarketStatus:
        """Market time, whether it goes on, and quotes."""
        status = replace(self._host.state.market_status(), clock=self.clock())
        if request.offering_id:
            status = replace(status, quotes=self._host.state.recent.quotes_of(request.offering_id))
        if request.with_offerings:
            # Every role reads the market; what is paid for, and in which account, is the owner's.
            known = self._host.state.recent.offerings
            status = replace(status, offerings=tuple(map(without_account, known)))
        return status

    @answers
    async def ExplainDecision(
        self, request: pb.ExplainDecisionRequest, context: ServerContext
    ) -> DecisionExplanation:
        """Why a decision was what it was, worked out again from the log."""
        return await self.explaining.explain(request)

    def _need_paid(self) -> None:
        """Refuse what a program says where none runs: nothing on paper is evidence of how fast."""
        mode = self._host.state.recent.mode
        if mode.on_paper:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"this run is in mode {mode.value}: no program runs here, and its jobs go on as "
                "their rates say; report to the run that is live",
                reason=Reason.RUN_ON_PAPER,
            )

    def _open_job(self, job_id: str, tenant: str) -> Job:
        """A job of a tenant that is not over."""
        status = self._status(job_id)
        if tenant != status.job.tenant:
            raise unknown_job(job_id, f" of tenant {tenant}")
        need_open(status)
        return status.job

    async def Watch(
        self, request: pb.WatchRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchResponse]:
        """Where a job stands now, and after every change, until it is over."""
        # Followed before it is first read: no change falls between the two.
        watch = self._feed.watch(request.job_id)
        try:
            status = await self._views.status(request.job_id)
            yield self._update(status, "")
            closed = status.state.over
            while not closed:
                change, seq, closed = await watch.next()
                status = await self._views.status(request.job_id)
                yield self._update(replace(status, seq=seq), change)
        except RpcRefused as error:
            await refuse(context, error)
        finally:
            watch.close()

    async def ReadOutput(
        self, request: pb.ReadOutputRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadOutputResponse]:
        """What a job's program wrote."""
        try:
            async for response in self._reading.output(request):
                yield response
        except (RpcRefused, ProviderUnavailable) as error:
            await refuse(context, error)

    async def ReadEvents(
        self, request: pb.ReadEventsRequest, context: ServerContext
    ) -> AsyncIterator[pb.ReadEventsResponse]:
        """What has happened to a job."""
        try:
            async for response in self._reading.events(request):
                yield response
        except RpcRefused as error:
            await refuse(context, error)

    def _status(self, job_id: str) -> JobStatus:
        return status_of(self._host.state, self._feed, job_id)

    def _update(self, status: JobStatus, change: str) -> pb.WatchResponse:
        update = JobUpdate(status=status, change=change, seq=status.seq, clock=self.clock())
        return cast("pb.WatchResponse", to_message(update))


def _report_kind(report: ProgressReport) -> str:
    """What tells a report from others of its job: sent again, it is the same; a new one, not."""
    if report.request_id:
        return f"progress-request:{report.request_id}"
    kind = f"progress:{report.done!r}"
    if report.ts_event_ns or report.instances:
        kind += f":{report.ts_event_ns}:{report.rate_per_hour!r}:{report.instances}"
    if report.generation or report.checkpointed is not None:
        kind += f":{report.generation}:{report.checkpointed!r}"
    return kind


def _fitting(page: JobPage, query: JobQuery) -> JobPage:
    """As much of a page as a message may hold, one job at least."""
    while len(page.statuses) > 1 and to_message(page).ByteSize() > MESSAGE_BYTES - _CLOCK_BYTES:
        shown = page.statuses[: len(page.statuses) // 2]
        token = query.token_after(shown[-1].job.job_id)
        page = replace(page, statuses=shown, next_page_token=token)
    return page


def _no_market() -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAVAILABLE,
        "no market is open yet; try again when one is",
        reason=Reason.MARKET_NOT_OPEN,
    )


def _of_draft(refused: Refused) -> Refused:
    return replace(
        refused,
        field=refused.field.replace("job.", "draft.", 1),
        others=tuple(_of_draft(other) for other in refused.others),
    )


def _taken(checked: Accepted | Refused) -> Accepted:
    if isinstance(checked, Refused):
        raise refusal_of(checked)
    return checked
