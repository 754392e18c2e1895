"""The agent's client of `AgentService`: one TLS port that it dials, and nothing that it opens.

It uses neither the kit of the other clients nor telemetry, which would double the time that an
agent takes to start. HTTP proxies are gRPC's own business: it reads `grpc_proxy`, `https_proxy` and
`http_proxy`, and `no_proxy` for exceptions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from spotline.adapters.grpc.agent.messages import (
    AgentTask,
    CheckpointNews,
    Enrolled,
    MarketMoment,
    News,
    NoticeNews,
    Order,
    OrderState,
    OutputPiece,
    Peer,
    RanksNews,
    ToldNotice,
    WorkNews,
)
from spotline.api.v1 import agent_service_pb2 as api
from spotline.api.v1 import agent_service_pb2_grpc, output_pb2, training_pb2
from spotline.contracts.errors import ContractError, SpotlineError
from spotline.contracts.limits import MESSAGE_BYTES
from spotline.contracts.mapping import from_message
from spotline.domain.jobs.run import Run

_Metadata = tuple[tuple[str, str], ...]

_CALL_TIMEOUT_S = 10.0
_OUTPUT_TIMEOUT_S = 30.0

_STATES = {
    api.AllocationState.Value(f"ALLOCATION_STATE_{state.name}"): state for state in OrderState
}

_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
_UNKNOWN_CALLER = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


class AgentCallFailed(SpotlineError):
    """A call of the control plane failed.

    `refused`: it was understood, and the same call would be refused again. `unknown_caller`: the
    session, or the token, does not count.
    """

    def __init__(
        self, code: str, message: str, *, refused: bool = False, unknown_caller: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.refused = refused
        self.unknown_caller = unknown_caller


def _failed(error: grpc.aio.AioRpcError, address: str) -> AgentCallFailed:
    code = error.code()
    return AgentCallFailed(
        code.name,
        f"the control plane at {address}: {code.name}: {error.details() or 'no details'}",
        refused=code in _REFUSALS,
        unknown_caller=code in _UNKNOWN_CALLER,
    )


class AgentClient:
    """Calls `AgentService`, to be used as an asynchronous context manager.

    Parameters
    ----------
    address
        `host:port` of the control plane; its certificate must be for this host.
    ca_pem
        Certificate of the authority that signed it, PEM.
    contacted
        Called after every answer, with market time where the answer says it.
    """

    def __init__(
        self,
        address: str,
        ca_pem: bytes,
        contacted: Callable[[MarketMoment | None], None] = lambda _: None,
    ) -> None:
        self.address = address
        self._contacted = contacted
        self._metadata: _Metadata = ()
        self._channel = grpc.aio.secure_channel(
            address,
            grpc.ssl_channel_credentials(ca_pem),
            options=(
                ("grpc.max_receive_message_length", MESSAGE_BYTES),
                # The channel connects again by itself, with jitter; a call meanwhile fails at once,
                # and its caller pauses, too.
                ("grpc.initial_reconnect_backoff_ms", 200),
                ("grpc.max_reconnect_backoff_ms", 5000),
                # A peer that vanished without a word is noticed, and a proxy keeps the line open.
                ("grpc.keepalive_time_ms", 20_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.http2.max_pings_without_data", 0),
            ),
        )
        self._stub = agent_service_pb2_grpc.AgentServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def join(
        self,
        *,
        join_token: str,
        instance_id: str,
        nonce: str,
        host: str,
        release: str,
        identity_document: str = "",
        identity_signature: str = "",
    ) -> Enrolled:
        """Trade the token, or the signed document, for a session, which all later calls carry; again: for the next one.

        Raises
        ------
        AgentCallFailed
            It was refused, or there was no answer.
        ContractError
            The answer names no job that can be run.
        """
        request = api.JoinRequest(
            join_token=join_token,
            instance_id=instance_id,
            nonce=nonce,
            host=host,
            release=release,
            identity_document=identity_document,
            identity_signature=identity_signature,
        )
        # Without a session: one that counts no more would be refused, token or not.
        answer = await self._call(self._stub.Join, request, metadata=())
        enrolled = _read_enrolled(answer)
        self._metadata = (("authorization", f"Bearer {enrolled.session}"),)
        self._note_contact(answer)
        return enrolled

    async def watch(self) -> AsyncIterator[Order]:
        """Yield what to do, now and after every change, until the stream ends.

        Raises
        ------
        AgentCallFailed
            It was refused, or broke.
        """
        stream = self._stub.WatchAllocation(api.WatchAllocationRequest(), metadata=self._metadata)
        try:
            async for response in stream:
                self._note_contact(response)
                yield _read_order(response.allocation)
        except grpc.aio.AioRpcError as error:
            raise _failed(error, self.address) from error
        finally:
            stream.cancel()

    async def heartbeat(self, generation: int) -> None:
        """Say that the agent is there, and which generation runs here (0: none)."""
        request = api.ReportHeartbeatRequest(generation=generation)
        self._note_contact(await self._call(self._stub.ReportHeartbeat, request))

    async def tell(self, news: News) -> None:
        """Deliver one piece of news; told again it is the same news.

        Raises
        ------
        AgentCallFailed
            It was refused, or there was no answer.
        """
        method, request = self._written(news)
        self._note_contact(await self._call(method, request))

    async def send_output(self, pieces: Sequence[OutputPiece], task: AgentTask) -> None:
        """Hand over pieces of output, in order; all or none count as delivered.

        Raises
        ------
        AgentCallFailed
            It was refused, or there was no answer.
        """

        async def requests() -> AsyncIterator[api.SendOutputRequest]:
            for piece in pieces:
                yield api.SendOutputRequest(chunk=_written_piece(piece, task))

        answer = await self._call(self._stub.SendOutput, requests(), timeout_s=_OUTPUT_TIMEOUT_S)
        self._note_contact(answer)

    async def _call(
        self,
        method: Callable[..., Awaitable[Any]],
        request: object,
        *,
        timeout_s: float = _CALL_TIMEOUT_S,
        metadata: _Metadata | None = None,
    ) -> Any:
        shown = self._metadata if metadata is None else metadata
        try:
            return await method(request, timeout=timeout_s, metadata=shown)
        except grpc.aio.AioRpcError as error:
            raise _failed(error, self.address) from error

    def _note_contact(self, answer: Message) -> None:
        said = "clock" in answer.DESCRIPTOR.fields_by_name and answer.HasField("clock")
        clock = getattr(answer, "clock", None)
        moment = None
        if said and clock is not None:
            moment = MarketMoment(market_ns=clock.market_ns, slot=clock.slot)
        self._contacted(moment)

    def _written(self, news: News) -> tuple[Callable[..., Awaitable[Any]], Message]:
        match news:
            case RanksNews():
                return self._stub.ReportRanks, _written_ranks(news)
            case WorkNews():
                return self._stub.ReportWork, _written_work(news)
            case CheckpointNews():
                return self._stub.ReportCheckpoint, _written_checkpoint(news)
            case NoticeNews():
                return self._stub.AcknowledgeNotice, api.AcknowledgeNoticeRequest(
                    notice_id=news.notice_id,
                    action=training_pb2.NoticeAction.Value(f"NOTICE_ACTION_{news.action.name}"),
                    after_s=news.after_s,
                )


# --- messages and values ----------------------------------------------------------------------


def _read_enrolled(answer: api.JoinResponse) -> Enrolled:
    if not answer.job.HasField("run"):
        raise ContractError("JoinResponse job.run", "is missing: there is nothing to run")
    if not answer.session:
        raise ContractError("JoinResponse session", "must not be empty")
    task = AgentTask(
        job_id=answer.job.job_id,
        tenant=answer.job.tenant,
        run=from_message(Run, answer.job.run, where="JoinResponse job.run"),
        checkpoint_location=answer.job.checkpoint.location,
        checkpoint_interval_s=answer.job.checkpoint.interval_s,
    )
    try:
        return Enrolled(
            session=answer.session,
            task=task,
            market_s_per_s=answer.market_s_per_s,
            lease_s=float(answer.lease_s),
            heartbeat_s=answer.heartbeat_s,
            session_s=answer.session_s,
        )
    except ValueError as error:
        raise ContractError("JoinResponse", str(error)) from error


def _read_order(allocation: api.TrainingAllocation) -> Order:
    state = _STATES.get(allocation.state)
    if state is None:
        known = ", ".join(api.AllocationState.keys()[1:])
        raise ContractError(
            "WatchAllocationResponse allocation.state",
            f"is {allocation.state}; expected one of {known}",
        )
    return Order(
        job_id=allocation.job_id,
        generation=allocation.generation,
        state=state,
        peers=tuple(
            Peer(instance_id=member.instance_id, node_rank=member.node_rank, host=member.host)
            for member in allocation.members
        ),
        notices=tuple(
            ToldNotice(
                notice_id=notice.notice_id,
                instance_ids=tuple(notice.instance_ids),
                deadline_ns=notice.deadline_ns,
            )
            for notice in allocation.notices
        ),
        detail=allocation.detail,
    )


def _written_ranks(news: RanksNews) -> api.ReportRanksRequest:
    ended = news.exit_code is not None
    return api.ReportRanksRequest(
        generation=news.generation,
        state=api.RANKS_STATE_ENDED if ended else api.RANKS_STATE_STARTED,
        exit_code=news.exit_code or 0,
        detail=news.detail,
    )


def _written_work(news: WorkNews) -> api.ReportWorkRequest:
    request = api.ReportWorkRequest(
        generation=news.generation,
        step=news.step,
        done=news.done,
        rate_per_hour=news.rate_per_hour,
    )
    if news.checkpointed is not None:
        request.checkpointed = news.checkpointed
    if news.restart is not None:
        request.restart_s = news.restart.restart_s
        request.load_s = news.restart.load_s
        request.resumed_done = news.restart.resumed_done
        request.resumed_sha256 = news.restart.resumed_sha256
    return request


def _written_checkpoint(news: CheckpointNews) -> api.ReportCheckpointRequest:
    request = api.ReportCheckpointRequest(
        generation=news.generation,
        step=news.step,
        done=news.done,
        uri=news.uri,
        sha256=news.sha256,
        size_bytes=news.size_bytes,
        kind=training_pb2.CheckpointKind.Value(f"CHECKPOINT_KIND_{news.kind.name}"),
        save_s=news.save_s,
        detail=news.detail,
    )
    if news.fault is not None:
        request.fault = training_pb2.CheckpointFault.Value(f"CHECKPOINT_FAULT_{news.fault.name}")
    return request


def _written_piece(piece: OutputPiece, task: AgentTask) -> output_pb2.OutputChunk:
    return output_pb2.OutputChunk(
        job_id=task.job_id,
        tenant=task.tenant,
        generation=piece.generation,
        rank=piece.rank,
        index=piece.index,
        text=piece.text,
        ts_ns=piece.ts_ns,
    )
