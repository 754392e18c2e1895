"""How the system is, asked of the allocator: it alone hears all services."""

from __future__ import annotations

from typing import Protocol

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.application.health.conditions import ConditionKind
from spotline.application.health.system import NEVER_S
from spotline.application.operations.messages import Condition, ServiceStatus, SystemStatus


class SystemTeller(Protocol):
    """Tells how the system is; the client of the operations is one."""

    async def status(self) -> SystemStatus:
        """How every service is, and the system as a whole.

        Raises
        ------
        RpcFailed
            It is refused, or no answer comes in time.
        """
        ...


class AskedSystem:
    """The system as the allocator tells it, or that the allocator does not tell."""

    def __init__(self, allocator: SystemTeller) -> None:
        self._allocator = allocator

    async def status(self) -> SystemStatus:
        """How the system is. Where the allocator does not answer, that is what is told."""
        try:
            return await self._allocator.status()
        except RpcFailed as error:
            silent = Condition(
                name=ConditionKind.HEARD.value,
                healthy=False,
                detail=str(error),
                continue_with="start the allocator, or see its own log",
            )
            return SystemStatus(
                healthy=False,
                services=(
                    ServiceStatus(
                        service="allocator",
                        ready=False,
                        heard_s_ago=NEVER_S,
                        conditions=(silent,),
                    ),
                ),
                conditions=(silent,),
            )
