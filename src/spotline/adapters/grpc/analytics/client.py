"""Callers of the analytics: the commands, dashboards."""

from __future__ import annotations

from typing import cast

from spotline.adapters.grpc.kit.calling import RpcClient
from spotline.adapters.grpc.kit.errors import failing_as_rpc
from spotline.api.v1 import analytics_service_pb2 as pb
from spotline.api.v1 import analytics_service_pb2_grpc
from spotline.application.analytics.messages import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
)
from spotline.contracts.mapping import from_message, to_message

DEFAULT_ADDRESS = "127.0.0.1:7073"

_TIMEOUT_S = 30.0


class AnalyticsClient(RpcClient):
    """Statistics over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "analytics"

    def __init__(self, address: str = DEFAULT_ADDRESS, *, caller: str = "client") -> None:
        super().__init__(address, caller=caller)
        self._stub = analytics_service_pb2_grpc.AnalyticsServiceStub(self._channel)

    @failing_as_rpc
    async def query(self, query: StatisticsQuery) -> StatisticsPage:
        """One page of windows."""
        response = await self._stub.Query(
            cast("pb.QueryRequest", to_message(query)), timeout=_TIMEOUT_S
        )
        return from_message(StatisticsPage, response)

    @failing_as_rpc
    async def keys(self, query: KeysQuery | None = None) -> KeysPage:
        """One page of keys."""
        response = await self._stub.ListKeys(
            cast("pb.ListKeysRequest", to_message(query or KeysQuery())), timeout=_TIMEOUT_S
        )
        return from_message(KeysPage, response)
