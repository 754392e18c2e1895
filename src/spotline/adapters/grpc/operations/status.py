"""How every service is, and the system as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.health.conditions import HealthLimits
from spotline.application.health.system import system_status
from spotline.application.operations.messages import ServiceStatus, SystemStatus


class StatusRpcs(OperationsAsked):
    """How every service is, and the system as a whole."""

    _services: Callable[[], Sequence[ServiceStatus]] = tuple
    _limits: HealthLimits = HealthLimits()

    def watch(self, services: Callable[[], Sequence[ServiceStatus]], limits: HealthLimits) -> None:
        """Tell of these services from now on, None are known before."""
        self._services = services
        self._limits = limits

    @answers
    async def GetSystemStatus(
        self, request: pb.GetSystemStatusRequest, context: ServerContext
    ) -> SystemStatus:
        """Every service as it was heard last, and what the log tells of the system."""
        return system_status(
            self._operations,
            clock=self.clock(),
            services=self._services(),
            limits=self._limits,
        )
