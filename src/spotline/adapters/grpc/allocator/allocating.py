"""The selector's one call: every failure is an answer, and no request is too large to be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import grpc

from spotline.adapters.grpc.kit.calling import open_channel
from spotline.adapters.grpc.kit.errors import failure_of
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.api.v1 import allocator_service_pb2, allocator_service_pb2_grpc
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.allocation.parts import ends_of_parts, part_of
from spotline.application.spec import Call
from spotline.contracts.errors import ContractError, InvariantViolation
from spotline.contracts.limits import MESSAGE_BYTES
from spotline.contracts.mapping import digest, from_message, to_message
from spotline.domain.beliefs.probes import ProbeWorth
from spotline.domain.events.allocation import AllocationAnswered, CallOutcome
from spotline.domain.events.event import Event
from spotline.domain.policies.answer import JobAnswer

_PAUSE_S = 0.05
# Quotes, forecast and what is taken come with every part; the rest of a message is theirs.
_PART_BYTES = MESSAGE_BYTES // 2

# It is not there, or is ending: gRPC cancels what it has not taken up.
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

_Answer = tuple[CallOutcome, str, AllocateAnswer]
_NOTHING = AllocateAnswer(answers=())


class AllocateCallPort:
    """Performs the selector's `allocate` calls; every failure is an answer.

    An allocator that is not there is waited for until `timeout_s` is over. A request that is larger
    than `part_bytes` is sent in parts, one after the other, and answered as the whole would be: jobs
    with much to say cost the others no decision. One whose bids are cleared is decided here instead.
    """

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        part_bytes: int = _PART_BYTES,
        identity: ClientIdentity | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._part_bytes = part_bytes
        self._channel = open_channel(address, caller="selector", identity=identity)
        self._stub = allocator_service_pb2_grpc.AllocatorServiceStub(self._channel)

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)

    async def perform(self, call: Call) -> Sequence[Event]:
        """Ask the allocator; returns one `AllocationAnswered`, also where there was no answer.

        Raises
        ------
        InvariantViolation
            The call is not one of an `AllocateRequest`.
        """
        request = call.request
        if not isinstance(request, AllocateRequest):
            raise InvariantViolation(f"call {call.name} is not for the allocator")
        outcome, detail, answer = await self._ask_in_parts(request, call.digest)
        return (
            AllocationAnswered(
                slot=request.slot,
                revision=request.revision,
                request_digest=call.digest,
                outcome=outcome,
                answers=answer.answers,
                detail=detail,
                spot_worth=answer.spot_worth,
                fairness=answer.fairness,
                probe_worths=answer.probe_worths,
            ),
        )

    async def _ask_in_parts(self, request: AllocateRequest, whole_digest: str) -> _Answer:
        give_up_at = asyncio.get_running_loop().time() + self._timeout_s
        message = cast("allocator_service_pb2.AllocateRequest", to_message(request))
        if message.ByteSize() <= self._part_bytes:
            return await self._ask(message, whole_digest, give_up_at)
        if request.clearing:
            # Bids are cleared together or not at all; deciding is pure.
            return CallOutcome.ANSWERED, "", await asyncio.to_thread(allocate, request)
        ends = ends_of_parts(
            request, most=self._part_bytes, size_of=lambda part: to_message(part).ByteSize()
        )
        answers: tuple[JobAnswer, ...] = ()
        worths: tuple[ProbeWorth, ...] = ()
        for end in ends:
            part = part_of(request, len(answers), end, answers)
            message = cast("allocator_service_pb2.AllocateRequest", to_message(part))
            if message.ByteSize() > MESSAGE_BYTES:
                # One job of an older log is too large for any message; deciding is pure.
                decided = await asyncio.to_thread(allocate, part)
                answers, worths = answers + decided.answers, worths + decided.probe_worths
                continue
            outcome, detail, more = await self._ask(message, digest(part), give_up_at)
            if outcome is not CallOutcome.ANSWERED:
                return outcome, detail, _NOTHING
            given = len(more.answers)
            if given != len(part.tasks):
                return CallOutcome.REFUSED, f"{len(part.tasks)} tasks had {given} answers", _NOTHING
            answers, worths = answers + more.answers, worths + more.probe_worths
        return CallOutcome.ANSWERED, "", AllocateAnswer(answers=answers, probe_worths=worths)

    async def _ask(
        self,
        message: allocator_service_pb2.AllocateRequest,
        asked_digest: str,
        give_up_at: float,
    ) -> _Answer:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                response = await self._stub.Allocate(
                    message,
                    timeout=max(0.001, give_up_at - clock()),
                    wait_for_ready=True,
                )
                answer = from_message(AllocateAnswer, response)
            except ContractError as error:
                return CallOutcome.REFUSED, f"the answer cannot be read: {error}", _NOTHING
            except grpc.aio.AioRpcError as error:
                code, detail = error.code(), error.details() or error.code().name
                if code is grpc.StatusCode.DEADLINE_EXCEEDED:
                    return self._late(detail)
                # It may also have no room, and say so with when to come again.
                passing = code in _PASSING or failure_of(error, "").retry_s > 0
                if not passing:
                    return CallOutcome.REFUSED, f"{code.name}: {detail}", _NOTHING
                if clock() + _PAUSE_S >= give_up_at:
                    return CallOutcome.UNAVAILABLE, detail, _NOTHING
                # It went away during the call; deciding is pure, so asking again is safe.
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.request_digest != asked_digest:
                detail = f"the answer was for another request than {asked_digest}"
                return CallOutcome.REFUSED, detail, _NOTHING
            return CallOutcome.ANSWERED, "", answer

    def _late(self, detail: str) -> _Answer:
        connected = self._channel.get_state() is grpc.ChannelConnectivity.READY
        outcome = CallOutcome.TIMED_OUT if connected else CallOutcome.UNAVAILABLE
        return outcome, f"no answer within {self._timeout_s:g} s: {detail}", _NOTHING
