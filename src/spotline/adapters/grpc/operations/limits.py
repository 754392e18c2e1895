"""The limits on money that are in force, and what is used of them."""

from __future__ import annotations

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.operations.messages import LimitsInForce
from spotline.application.operations.spending import limits_in_force
from spotline.application.selector.state import SelectorOptions


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
