"""AgentService: what agents say becomes facts and observations, what they are to do is told."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import cast

import grpc

from spotline.adapters.grpc.agent.keeper import GangKeeper
from spotline.adapters.grpc.agent.sessions import GangMember, Sessions
from spotline.adapters.grpc.kit.answering import answers, refuse, with_clock
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.identity.instances import Identity, sha256_of
from spotline.api.v1 import agent_service_pb2 as pb
from spotline.api.v1 import agent_service_pb2_grpc
from spotline.application.allocator.agent_messages import (
    AllocationState,
    CheckpointReport,
    JoinAnswer,
    JoinAsked,
    NoticeReport,
    RanksReport,
    RanksState,
    TrainingAllocation,
    WorkReport,
)
from spotline.application.allocator.gang import Gang
from spotline.application.allocator.messages import JobStatus
from spotline.application.allocator.output import OutputStore, SentOutput
from spotline.application.allocator.ports import JobsHost
from spotline.application.market_view import ClockReading
from spotline.application.spec import derive_id
from spotline.contracts.errors import ContractError, InvariantViolation, ProviderUnavailable
from spotline.contracts.mapping import from_message, to_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobProgressReported
from spotline.domain.events.training import (
    AgentJoined,
    CheckpointCommitted,
    CheckpointFailed,
    NoticeAcknowledged,
    TrainingRestarted,
)

_APPLIED_S = 10.0


class AgentServicer(agent_service_pb2_grpc.AgentServiceServicer):
    """Serves `AgentService`.

    Parameters
    ----------
    host
        The running allocator.
    keeper
        Its gangs; listens to the same host.
    output
        Where what programs write is kept.
    """

    def __init__(
        self, host: JobsHost, keeper: GangKeeper, sessions: Sessions, output: OutputStore
    ) -> None:
        self._host = host
        self._keeper = keeper
        self._sessions = sessions
        self._output = output
        self.joins_refused: Counter[Reason] = Counter()

    def clock(self) -> ClockReading | None:
        """Market time as of this moment, None before a market is known."""
        return self._keeper.clock()

    # --- joining --------------------------------------------------------------------------------

    @answers
    async def Join(self, request: pb.JoinRequest, context: ServerContext) -> JoinAnswer:
        """Trade a token, or an identity document, for a session; recorded before it is answered.

        Asked again with the same nonce it is the same agent: it gets its next session, also with a
        token that has expired since, unless nothing was heard of it for its lease.
        """
        try:
            return await self._joined(from_message(JoinAsked, request))
        except RpcRefused as error:
            self.joins_refused[error.reason] += 1
            raise

    async def _joined(self, asked: JoinAsked) -> JoinAnswer:
        token = self._sessions.token_of(asked)
        identity, times = token.identity, self._keeper.times
        gang, status = self._gang_of(identity)
        before = gang.joined.get(identity.instance_id)
        if before is None:
            self._sessions.refuse_expired(token)
            await self._record_join(gang, asked)
            before = gang.joined[identity.instance_id]
            self._sessions.refuse_another(asked, before)
            self._keeper.joined(gang, identity.instance_id)
        else:
            self._sessions.refuse_another(asked, before)
            if not self._keeper.in_lease(gang, identity.instance_id):
                self._sessions.refuse_late(asked, times.lease_s)
            self._keeper.heard(gang, identity.instance_id)
        return JoinAnswer(
            session=self._sessions.open(identity, asked.nonce),
            job=status.job,
            market_s_per_s=times.market_s_per_s,
            lease_s=times.lease_s,
            heartbeat_s=times.heartbeat_s,
            session_s=times.session_s,
        )

    def _gang_of(self, identity: Identity) -> tuple[Gang, JobStatus]:
        gang = self._host.state.gangs.get(identity.job_id)
        status = self._host.state.statuses.get(identity.job_id)
        if gang is None or status is None:
            raise RpcRefused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"there is no job {identity.job_id} whose program Spotline runs; end the instance",
                reason=Reason.NOT_RUN_HERE,
                field="join_token",
            )
        return gang, status

    async def _record_join(self, gang: Gang, asked: JoinAsked) -> None:
        """Record that an agent has joined, and wait until that is applied.

        Of two at once the log's first has joined.
        """
        instance_id = asked.instance_id
        # Before the log says that it has joined: else it would count as silent since our start.
        self._keeper.heard(gang, instance_id)
        changed = self._keeper.watch(gang.job_id)
        try:
            await self._record(
                gang,
                AgentJoined(
                    job_id=gang.job_id,
                    tenant=gang.tenant,
                    instance_id=instance_id,
                    token_sha256=sha256_of(asked.shown),
                    nonce_sha256=sha256_of(asked.nonce),
                    host=asked.host,
                    ts_event_ns=self._keeper.now_ns(),
                ),
                f"agent:{instance_id}",
            )
            async with asyncio.timeout(_APPLIED_S):
                while instance_id not in gang.joined:
                    await changed.wait()
                    changed.clear()
        except TimeoutError:
            raise RpcRefused(
                grpc.StatusCode.UNAVAILABLE,
                f"recorded, but not applied within {_APPLIED_S:g} s; join again with the same "
                "nonce",
                reason=Reason.NOT_APPLIED_YET,
            ) from None
        finally:
            self._keeper.forget(gang.job_id, changed)

    # --- what to do -----------------------------------------------------------------------------

    async def WatchAllocation(
        self, request: pb.WatchAllocationRequest, context: ServerContext
    ) -> AsyncIterator[pb.WatchAllocationResponse]:
        """What an instance is to do, and again after every change, until its job is over.

        The stream ends with its session, so also when the program is started anew: who watches on
        shows the next one.
        """
        try:
            caller = self._caller(context)
        except RpcRefused as error:
            await refuse(context, error)
        gang, instance_id = caller.gang, caller.instance_id
        changed = self._keeper.watch(gang.job_id)
        told: TrainingAllocation | None = None
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + caller.left_s
        try:
            while told is None or told.state is not AllocationState.OVER:
                changed.clear()
                if gang.generation != caller.generation:
                    return
                now = self._keeper.told(gang, instance_id)
                if now is not None and now != told:
                    told = now
                    yield self._told(now)
                    continue
                if self._keeper.ended:
                    await refuse(context, _stopping())
                async with asyncio.timeout_at(ends_at):
                    await changed.wait()
        except TimeoutError:
            return
        finally:
            self._keeper.forget(gang.job_id, changed)

    def _told(self, allocation: TrainingAllocation) -> pb.WatchAllocationResponse:
        message = cast("pb.TrainingAllocation", to_message(allocation))
        response = pb.WatchAllocationResponse(allocation=message)
        with_clock(response, self.clock())
        return response

    # --- reports --------------------------------------------------------------------------------

    @answers
    async def ReportHeartbeat(
        self, request: pb.ReportHeartbeatRequest, context: ServerContext
    ) -> pb.ReportHeartbeatResponse:
        """Note that the agent is there; nothing is recorded."""
        caller = self._caller(context)
        self._check_generation(caller.gang, request.generation, least=0)
        self._keeper.beat(caller.gang, caller.instance_id, request.generation)
        return pb.ReportHeartbeatResponse()

    @answers
    async def ReportRanks(
        self, request: pb.ReportRanksRequest, context: ServerContext
    ) -> pb.ReportRanksResponse:
        """Note what became of the program's processes; what follows is recorded."""
        caller = self._caller(context)
        report = from_message(RanksReport, request)
        self._check_generation(caller.gang, report.generation)
        if report.state is RanksState.STARTED:
            self._keeper.started(caller.gang, caller.instance_id, report.generation)
        else:
            self._keeper.stopped(
                caller.gang,
                caller.instance_id,
                report.generation,
                report.exit_code,
                report.detail,
            )
        return pb.ReportRanksResponse()

    @answers
    async def ReportWork(
        self, request: pb.ReportWorkRequest, context: ServerContext
    ) -> pb.ReportWorkResponse:
        """Record how much work is done, and with the first report how long it took to begin."""
        caller = self._caller(context)
        report = from_message(WorkReport, request)
        gang = caller.gang
        self._check_generation(gang, report.generation)
        self._check_member(caller, report.generation)
        status = self._host.state.statuses[gang.job_id]
        if status.state.over:
            # It would change nothing any more.
            return pb.ReportWorkResponse()
        if report.restart_s or report.resumed_sha256:
            await self._record(
                gang,
                TrainingRestarted(
                    job_id=gang.job_id,
                    tenant=gang.tenant,
                    generation=report.generation,
                    restart_s=report.restart_s,
                    load_s=report.load_s,
                    resumed_done=report.resumed_done,
                    resumed_sha256=report.resumed_sha256,
                    ts_event_ns=self._keeper.now_ns(),
                ),
                f"restarted:{report.generation}",
            )
        # A rate of a generation that is over does not say on how many instances it was measured.
        present = report.generation == gang.generation
        measured = present and report.rate_per_hour > 0
        whole = status.job.work.amount
        checkpointed = report.checkpointed
        await self._record(
            gang,
            JobProgressReported(
                job_id=gang.job_id,
                tenant=gang.tenant,
                done=min(report.done, whole),
                ts_event_ns=self._keeper.now_ns(),
                rate_per_hour=report.rate_per_hour if measured else 0.0,
                instances=len(gang.members) if measured else 0,
                generation=report.generation,
                checkpointed=None if checkpointed is None else min(checkpointed, whole),
            ),
            f"work:{report.generation}:{report.step}:{report.done!r}:{report.rate_per_hour!r}:"
            f"{report.checkpointed!r}",
        )
        return pb.ReportWorkResponse()

    @answers
    async def ReportCheckpoint(
        self, request: pb.ReportCheckpointRequest, context: ServerContext
    ) -> pb.ReportCheckpointResponse:
        """Record that a checkpoint is complete, or why it is not; also when the job is over."""
        caller = self._caller(context)
        report = from_message(CheckpointReport, request)
        gang = caller.gang
        self._check_generation(gang, report.generation)
        self._check_member(caller, report.generation)
        now_ns = self._keeper.now_ns()
        if report.fault is not None:
            event: Event = CheckpointFailed(
                job_id=gang.job_id,
                tenant=gang.tenant,
                generation=report.generation,
                step=report.step,
                fault=report.fault,
                detail=report.detail,
                ts_event_ns=now_ns,
            )
            what = f"checkpoint-failed:{report.generation}:{report.step}:{report.fault}"
        else:
            kind = report.kind
            if kind is None:
                raise InvariantViolation("a checkpoint report has neither kind nor fault")
            event = CheckpointCommitted(
                job_id=gang.job_id,
                tenant=gang.tenant,
                generation=report.generation,
                step=report.step,
                done=report.done,
                uri=report.uri,
                sha256=report.sha256,
                size_bytes=report.size_bytes,
                kind=kind,
                save_s=report.save_s,
                ts_event_ns=now_ns,
            )
            what = f"checkpoint:{report.generation}:{report.step}:{kind}:{report.sha256}"
        await self._record(gang, event, what)
        return pb.ReportCheckpointResponse()

    @answers
    async def AcknowledgeNotice(
        self, request: pb.AcknowledgeNoticeRequest, context: ServerContext
    ) -> pb.AcknowledgeNoticeResponse:
        """Record what was done on a notice."""
        caller = self._caller(context)
        report = from_message(NoticeReport, request)
        gang = caller.gang
        await self._record(
            gang,
            NoticeAcknowledged(
                job_id=gang.job_id,
                tenant=gang.tenant,
                instance_id=caller.instance_id,
                notice_id=report.notice_id,
                action=report.action,
                after_s=report.after_s,
                ts_event_ns=self._keeper.now_ns(),
            ),
            f"notice:{caller.instance_id}:{report.notice_id}:{report.action}",
        )
        return pb.AcknowledgeNoticeResponse()

    async def SendOutput(
        self, request_iterator: AsyncIterator[pb.SendOutputRequest], context: ServerContext
    ) -> pb.SendOutputResponse:
        """Store what the program wrote: nothing more is read before a piece is stored."""
        stored = 0
        try:
            self._caller(context)
            async for request in request_iterator:
                # With each piece: a stream is not to outlive its session.
                caller = self._caller(context)
                gang = caller.gang
                sent = from_message(SentOutput, request).chunk
                self._check_generation(gang, sent.generation, least=0)
                await self._output.append(
                    replace(
                        sent,
                        job_id=gang.job_id,
                        tenant=gang.tenant,
                        instance_id=caller.instance_id,
                    )
                )
                stored += 1
        except (RpcRefused, ContractError, ProviderUnavailable) as error:
            await refuse(context, error)
        return pb.SendOutputResponse(chunks=stored)

    # --- shared ---------------------------------------------------------------------------------

    def _caller(self, context: ServerContext) -> GangMember:
        caller = self._sessions.caller(context)
        self._keeper.heard(caller.gang, caller.instance_id)
        return caller

    @staticmethod
    def _check_generation(gang: Gang, generation: int, *, least: int = 1) -> None:
        if not least <= generation <= gang.generation:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"generation must be {least}..{gang.generation}, was {generation}",
                reason=Reason.FIELD_INVALID,
                field="generation",
            )

    @staticmethod
    def _check_member(caller: GangMember, generation: int) -> None:
        """Refuse a report of the present program by who runs no part of it.

        Who ran a former one is not known any more; what it says of that is no progress of this one.
        """
        gang = caller.gang
        if generation == gang.generation and caller.instance_id not in gang.members:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"generation {generation} does not run on {caller.instance_id}: expected a report of "
                "one of its members",
                reason=Reason.FIELD_INVALID,
                field="generation",
            )

    async def _record(self, gang: Gang, event: Event, what: str) -> None:
        """Record an observation under an id that follows from what it says."""
        await self._host.publish_observation(
            event, event_id=derive_id(gang.job_id, what), correlation_id=gang.job_id
        )


def _stopping() -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAVAILABLE,
        "the allocator is stopping; watch again",
        reason=Reason.SERVER_STOPPING,
    )
