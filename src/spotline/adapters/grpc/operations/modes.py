"""Which accounts are acted on, and a person who has that changed."""

from __future__ import annotations

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.allocator.promoting import (
    CannotPromote,
    account_modes,
    check_mode_wanted,
)
from spotline.application.operations.messages import AccountModes, ModeSet, ModeWanted
from spotline.application.spec import derive_id
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.domain.events.modes import AccountModeSet
from spotline.runtime.callers import current_caller

# An account concerns all jobs: it is no part of the story of one.
_CORRELATION = "modes"
_SOMEBODY = "an operator"


class ModesRpcs(OperationsAsked):
    """Which accounts are acted on, and a person who has that changed."""

    @answers
    async def ListAccountModes(
        self, request: pb.ListAccountModesRequest, context: ServerContext
    ) -> AccountModes:
        """The mode of every account, and who set it, and why."""
        return AccountModes(accounts=account_modes(self._host.state), clock=self.clock())

    @answers
    async def SetAccountMode(
        self, request: pb.SetAccountModeRequest, context: ServerContext
    ) -> ModeSet:
        """Record the mode that a person wants an account in; the actuator goes by it from then on.

        The door writes it into the audit, as every write.
        """
        wanted = from_message(ModeWanted, request)
        if not wanted.request_id:
            raise _refused(
                CannotPromote("request_id", "request_id must not be empty: it names the effect")
            )

        async def set_mode() -> ModeSet:
            state = self._host.state
            try:
                check_mode_wanted(state, wanted.account, wanted.reason)
            except CannotPromote as error:
                raise _refused(error) from error
            clock, caller = self.clock(), current_caller()
            event = AccountModeSet(
                account=wanted.account,
                mode=wanted.mode,
                by=_SOMEBODY if caller is None else caller.subject,
                reason=wanted.reason,
                slot=-1 if clock is None else clock.slot,
                ts_event_ns=state.now_ns,
            )
            await self._host.publish_observation(
                event,
                event_id=derive_id(wanted.account, f"mode:{wanted.request_id}"),
                correlation_id=_CORRELATION,
            )
            return ModeSet(set=event)

        return await self._requests.once(request, _CORRELATION, set_mode)


def _refused(error: CannotPromote) -> RpcRefused:
    if not error.field:
        return RpcRefused(
            grpc.StatusCode.FAILED_PRECONDITION, str(error), reason=Reason.RUN_ON_PAPER
        )
    return RpcRefused(
        grpc.StatusCode.INVALID_ARGUMENT,
        str(error),
        reason=Reason.FIELD_INVALID,
        field=error.field,
    )
