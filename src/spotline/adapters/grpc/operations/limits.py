"""The limits on money that are in force, what is used of them, and a person who sets one."""

from __future__ import annotations

from dataclasses import replace

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.allocator.limit_setting import CannotSetLimit, limit_set
from spotline.application.operations.messages import LimitNowSet, LimitsInForce, LimitWanted
from spotline.application.operations.spending import limits_in_force
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import derive_id
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import current_caller

# Limits concern all jobs: they are no part of the story of one.
_CORRELATION = "limits"
_SOMEBODY = "an operator"


class LimitsRpcs(OperationsAsked):
    """The limits on money that are in force, and what is used of them."""

    _selector: SelectorOptions = SelectorOptions()

    def hold_to(self, selector: SelectorOptions) -> None:
        """Tell of the limits of a selector with such options from now on."""
        self._selector = selector

    @answers
    async def GetLimits(
        self, request: pb.GetLimitsRequest, context: ServerContext
    ) -> LimitsInForce:
        """Limits as the selector was told them, and what was billed against them."""
        state = self._host.state
        return limits_in_force(state.spending, self._selector, self.clock(), state.held_in_pools())

    @answers
    async def SetLimit(self, request: pb.SetLimitRequest, context: ServerContext) -> LimitNowSet:
        """Record the limit that a person wants; selector and actuator hold to it from then on.

        The door writes it into the audit, as every write.
        """
        wanted = from_message(LimitWanted, request)

        async def set_limit() -> LimitNowSet:
            state, caller, clock = self._host.state, current_caller(), self.clock()
            by = _SOMEBODY if caller is None else caller.subject
            try:
                event = limit_set(state.spending, self._selector, wanted, by)
            except CannotSetLimit as error:
                raise RpcRefused(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    str(error),
                    reason=Reason.FIELD_INVALID,
                    field=error.field,
                ) from error
            slot = -1 if clock is None else clock.slot
            event = replace(event, slot=slot, ts_event_ns=state.now_ns)
            await self._host.publish_observation(
                event,
                event_id=derive_id(event.at.says, f"limit:{wanted.request_id}"),
                correlation_id=_CORRELATION,
            )
            return LimitNowSet(set=event)

        return await self._requests.once(request, _CORRELATION, set_limit)
