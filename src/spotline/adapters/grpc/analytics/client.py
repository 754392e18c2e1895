"""Callers of the analytics: the commands, dashboards."""

from __future__ import annotations

from spotline.adapters.grpc.kit.calling import RpcClient
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.api.v1 import analytics_service_pb2_grpc
from spotline.application.analytics.messages import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
)

DEFAULT_ADDRESS = "127.0.0.1:7073"

_TIMEOUT_S = 30.0


class AnalyticsClient(RpcClient):
    """Statistics over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "analytics"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        caller: str = "client",
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._stub = analytics_service_pb2_grpc.AnalyticsServiceStub(self._channel)

    async def query(self, query: StatisticsQuery) -> StatisticsPage:
        """One page of windows."""
        return await self._ask(self._stub.Query, query, StatisticsPage, timeout_s=_TIMEOUT_S)

    async def keys(self, query: KeysQuery | None = None) -> KeysPage:
        """One page of keys."""
        return await self._ask(
            self._stub.ListKeys, query or KeysQuery(), KeysPage, timeout_s=_TIMEOUT_S
        )
