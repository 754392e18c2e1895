"""PlacementService: what platforms hand over becomes observations, the rest is read off the state."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc

from spotline.adapters.grpc.kit.answering import RequestLog, answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, invalid
from spotline.adapters.grpc.kit.filling_in import check_stated, one_request_id
from spotline.api.v1 import placement_pb2, placement_service_pb2_grpc
from spotline.api.v1 import placement_service_pb2 as pb
from spotline.application.market_view import ClockReading
from spotline.application.paging import page_of_ids
from spotline.application.placer.messages import (
    Explanation,
    ExplanationRequest,
    PlacementPage,
    PlacementPhase,
    PlacementQuery,
    PlaceReceipt,
    PlaceRequest,
    ReleaseReceipt,
    ReleaseRequest,
    explain,
    pipeline_id_for,
)
from spotline.application.placer.options import PlacerOptions, named_method
from spotline.application.placer.pipeline_run import PipelineRun
from spotline.application.placer.state import PlacerState
from spotline.application.spec import derive_id
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.event import Event
from spotline.domain.events.placement import (
    PipelineReleased,
    PipelineSubmitted,
    PlacementDecided,
    PlacementEnded,
)
from spotline.domain.units import utc_iso
from spotline.runtime.applied import AppliedFeed

_APPLY_TIMEOUT_S = 10.0


class PlacerHost(Protocol):
    """The running placer, as what serves its RPC needs it."""

    @property
    def state(self) -> PlacerState:
        """The state as of the last applied event; only the host changes it."""
        ...

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        """Store an observation, once by `event_id`, and return its `seq`.

        Raises
        ------
        ProviderUnavailable
            The bus did not take it in time.
        """
        ...


def pipeline_decided(event: Event) -> str | None:
    """The pipeline that something was decided on, as a feed of what is applied asks."""
    return event.job_id if isinstance(event, PlacementDecided | PlacementEnded) else None


def name_pipeline(pipeline: placement_pb2.PipelineJob) -> None:
    """Fill in the id where it is empty: a platform need not know the rule.

    Raises
    ------
    RpcRefused
        Another id is given: it could be that of another tenant's pipeline.
    """
    if not (pipeline.tenant and pipeline.client_request_id):
        return  # what reads the message says so
    expected = pipeline_id_for(pipeline.tenant, pipeline.client_request_id)
    if pipeline.job_id not in ("", expected):
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"pipeline.job_id must be empty or {expected}, as tenant and client_request_id have "
            f"it, was {pipeline.job_id}",
            reason=Reason.FIELD_INVALID,
            field="pipeline.job_id",
        )
    pipeline.job_id = expected


class PlacementServicer(placement_service_pb2_grpc.PlacementServiceServicer):
    """Serves `PlacementService` from the host's state."""

    def __init__(self, host: PlacerHost, feed: AppliedFeed, options: PlacerOptions) -> None:
        self._host = host
        self._feed = feed
        self._options = options
        self._requests = RequestLog()
        # The solver and the state's arrays are for one thread at a time.
        self._explaining = asyncio.Lock()

    def clock(self) -> ClockReading | None:
        """Market time, None before the first slot."""
        return self._host.state.clock

    @answers
    async def Place(self, request: pb.PlaceRequest, context: ServerContext) -> PlaceReceipt:
        """Record, and answer when it is decided."""
        pipeline = request.pipeline
        check_stated(pipeline, "pipeline")
        request.request_id = one_request_id(request.request_id, pipeline.client_request_id)
        pipeline.client_request_id = request.request_id
        name_pipeline(pipeline)
        asked = from_message(PlaceRequest, request).pipeline
        self._need_regions()
        state = self._host.state
        known = state.runs.get(asked.job_id)
        if known is None:
            await self._host.publish_observation(
                PipelineSubmitted(pipeline=asked, ts_event_ns=state.now_ns),
                event_id=derive_id(asked.job_id, "pipeline-submitted"),
                correlation_id=asked.job_id,
            )
        await self._decided(asked.job_id, lambda run: run.decided)
        run = state.runs[asked.job_id]
        # Two different requests may have raced for one id: the log's first is the job.
        if run.pipeline != asked:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"client_request_id {asked.client_request_id!r} of tenant {asked.tenant} was used "
                "for another pipeline; name a new one",
                reason=Reason.REQUEST_ID_REUSED,
                field="pipeline.client_request_id",
            )
        if run.phase is PlacementPhase.REFUSED:
            raise _too_late(run)
        return PlaceReceipt(status=state.status(run), already_submitted=known is not None)

    @answers
    async def Release(self, request: pb.ReleaseRequest, context: ServerContext) -> ReleaseReceipt:
        """Record, and answer when it has ended; what is over stays as it ended."""
        asked = from_message(ReleaseRequest, request)
        return await self._requests.once(request, asked.job_id, lambda: self._release(asked))

    async def _release(self, asked: ReleaseRequest) -> ReleaseReceipt:
        state = self._host.state
        run = state.runs.get(asked.job_id)
        if run is None or run.pipeline.tenant != asked.tenant:
            raise unknown_pipeline(asked.job_id, asked.tenant)
        if not run.phase.over:
            await self._host.publish_observation(
                PipelineReleased(
                    job_id=asked.job_id, tenant=asked.tenant, ts_event_ns=state.now_ns
                ),
                event_id=derive_id(asked.job_id, "released"),
                correlation_id=asked.job_id,
            )
            await self._decided(asked.job_id, lambda run: run.phase.over)
        return ReleaseReceipt(status=state.status(run))

    @answers
    async def ListPlacements(
        self, request: pb.ListPlacementsRequest, context: ServerContext
    ) -> PlacementPage:
        """Where pipelines stand, a page at a time."""
        query = from_message(PlacementQuery, request)
        state = self._host.state
        shown, next_page_token = page_of_ids(
            query,
            (
                job_id
                for job_id, run in state.runs.items()
                if query.tenant in ("", run.pipeline.tenant) and query.phase in (None, run.phase)
            ),
        )
        return PlacementPage(
            statuses=tuple(state.status(state.runs[job_id]) for job_id in shown),
            next_page_token=next_page_token,
        )

    @answers
    async def Explain(self, request: pb.ExplainRequest, context: ServerContext) -> Explanation:
        """Where a pipeline could run now; in a thread, on what is free as it is asked."""
        name_pipeline(request.pipeline)
        asked = from_message(ExplanationRequest, request)
        try:
            method = named_method(asked.method_id or self._options.method)
        except ValueError as error:
            raise invalid(error) from error
        self._need_regions()
        basis = asked.basis or self._options.basis
        async with self._explaining:
            # Taken on the loop: a thread must not read what the host is changing.
            state = self._host.state
            moment = state.moment(basis)
            job = asked.pipeline.job(moment.now_s)
            return await asyncio.to_thread(explain, job, moment, method, basis)

    def _need_regions(self) -> None:
        if not self._host.state.regions:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                "no region has been observed yet; is market_ingest given a geography?",
                reason=Reason.NO_REGION_KNOWN,
            )

    async def _decided(self, job_id: str, condition: Callable[[PipelineRun], bool]) -> None:
        runs = self._host.state.runs

        def so() -> bool:
            run = runs.get(job_id)
            return run is not None and condition(run)

        try:
            async with asyncio.timeout(_APPLY_TIMEOUT_S):
                await self._feed.until(job_id, so)
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded, but not decided within {_APPLY_TIMEOUT_S:g} s; ask again to learn more "
                "(nothing is recorded twice)",
                reason=Reason.NOT_APPLIED_YET,
            ) from None


def unknown_pipeline(job_id: str, tenant: str) -> RpcRefused:
    """The refusal for a pipeline that a tenant does not have."""
    return RpcRefused(
        grpc.StatusCode.NOT_FOUND,
        f"there is no pipeline {job_id} of tenant {tenant}",
        reason=Reason.UNKNOWN_PIPELINE,
        field="job_id",
    )


def _too_late(run: PipelineRun) -> RpcRefused:
    earliest_ns = run.earliest_finish_ns
    message = f"pipeline.deadline_s: {run.reason}"
    if earliest_ns:
        message = f"{message}, at {utc_iso(earliest_ns)}"
    return RpcRefused(
        grpc.StatusCode.FAILED_PRECONDITION,
        message,
        reason=Reason.DEADLINE_INFEASIBLE,
        field="pipeline.deadline_s",
        earliest_feasible_deadline_ns=earliest_ns,
    )
