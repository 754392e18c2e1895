"""Stops of buying that a person begins and ends."""

from __future__ import annotations

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.allocator.pausing import (
    CannotPause,
    check_pause,
    ended_by,
    pause_freeze,
)
from spotline.application.operations.messages import Pause, Paused, Resume, Resumed
from spotline.application.spec import derive_id
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.freeze import BuyingFrozen, BuyingUnfrozen

# The log's partition is one conversation: what concerns all of it has no job to go by.
_CORRELATION = "operations"
_BY = "an operator"


class FreezingRpcs(OperationsAsked):
    """Stops of buying that a person begins and ends."""

    @answers
    async def Pause(self, request: pb.PauseRequest, context: ServerContext) -> Paused:
        """Record a stop of buying; one that is in force already stays as it is."""

        async def pause() -> Paused:
            wanted = from_message(Pause, request)
            state = self._host.state
            try:
                check_pause(state, wanted)
            except CannotPause as error:
                raise _refused(error) from error
            clock = self.clock()
            freeze = pause_freeze(
                wanted, slot=-1 if clock is None else clock.slot, ts_event_ns=state.now_ns
            )
            known = self._operations.freezes.by_id.get(freeze.freeze_id)
            if known is not None:
                return Paused(freeze=known)
            await self._host.publish_observation(
                BuyingFrozen(freeze=freeze),
                event_id=derive_id(freeze.freeze_id, f"paused:{self._id_of(request.request_id)}"),
                correlation_id=_CORRELATION,
            )
            return Paused(freeze=freeze)

        return await self._requests.once(request, _CORRELATION, pause)

    @answers
    async def Resume(self, request: pb.ResumeRequest, context: ServerContext) -> Resumed:
        """Record the end of a stop of buying."""

        async def resume() -> Resumed:
            wanted = from_message(Resume, request)
            try:
                ended = ended_by(self._operations.freezes, wanted)
            except CannotPause as error:
                raise _refused(error) from error
            clock = self.clock()
            for freeze in ended:
                await self._host.publish_observation(
                    BuyingUnfrozen(
                        freeze_id=freeze.freeze_id,
                        by=_BY,
                        detail=wanted.detail,
                        slot=-1 if clock is None else clock.slot,
                        ts_event_ns=self._host.state.now_ns,
                    ),
                    event_id=derive_id(
                        freeze.freeze_id, f"resumed:{self._id_of(request.request_id)}"
                    ),
                    correlation_id=_CORRELATION,
                )
            return Resumed(ended=ended)

        return await self._requests.once(request, _CORRELATION, resume)

    @staticmethod
    def _id_of(request_id: str) -> str:
        if not request_id:
            raise RpcRefused(
                grpc.StatusCode.INVALID_ARGUMENT,
                "request_id must not be empty: the same id is the same effect",
                reason=Reason.FIELD_INVALID,
                field="request_id",
            )
        return request_id


def _refused(error: CannotPause) -> RpcRefused:
    code = grpc.StatusCode.NOT_FOUND if error.unknown else grpc.StatusCode.INVALID_ARGUMENT
    reason = error.reason if error.unknown else Reason.FIELD_INVALID
    return RpcRefused(code, str(error), reason=reason, field=error.field)
