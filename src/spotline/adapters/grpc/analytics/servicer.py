"""AnalyticsService: read from the statistics that were issued."""

from __future__ import annotations

from typing import Any, Protocol

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.api.v1 import analytics_service_pb2 as pb
from spotline.api.v1 import analytics_service_pb2_grpc
from spotline.application.analytics.messages import (
    KeysPage,
    KeysQuery,
    StatisticsPage,
    StatisticsQuery,
)
from spotline.application.market_view import ClockReading
from spotline.contracts.errors import ProviderUnavailable
from spotline.contracts.mapping import from_message
from spotline.contracts.reasons import Reason


class StatisticsSource(Protocol):
    """The running analytics, as what serves its RPC needs it."""

    def query(self, query: StatisticsQuery) -> StatisticsPage:
        """The windows asked for.

        Raises
        ------
        ProviderUnavailable
            It cannot say now.
        """
        ...

    def keys(self, query: KeysQuery) -> KeysPage:
        """Of whom there are statistics; `ProviderUnavailable` as in `query`."""
        ...

    def clock(self) -> ClockReading | None:
        """Market time, None before it is known."""
        ...


class AnalyticsServicer(analytics_service_pb2_grpc.AnalyticsServiceServicer):
    """Serves `AnalyticsService`."""

    def __init__(self, source: StatisticsSource) -> None:
        self._source = source

    def clock(self) -> ClockReading | None:
        """Market time, None before a market is known."""
        return self._source.clock()

    @answers
    async def Query(self, request: pb.QueryRequest, context: ServerContext) -> StatisticsPage:
        """Windows of one key, a page at a time."""
        query = from_message(StatisticsQuery, request)
        try:
            return self._source.query(query)
        except ProviderUnavailable as error:
            raise _not_now(error) from error

    @answers
    async def ListKeys(self, request: pb.ListKeysRequest, context: ServerContext) -> KeysPage:
        """Of whom there are statistics, a page at a time."""
        query = from_message(KeysQuery, request)
        try:
            return self._source.keys(query)
        except ProviderUnavailable as error:
            raise _not_now(error) from error


def _not_now(error: ProviderUnavailable) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAVAILABLE,
        f"{error}; ask again, or another worker",
        reason=Reason.STATISTICS_UNAVAILABLE,
    )


class AnalyticsServer(GrpcServer):
    """Serves the analytics' RPC from `source` until stopped.

    Parameters
    ----------
    source
        The running analytics.
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    """

    name = "analytics"
    services = (pb.DESCRIPTOR.services_by_name["AnalyticsService"].full_name,)

    def __init__(self, source: StatisticsSource, *, address: str) -> None:
        super().__init__(address)
        self._servicer = AnalyticsServicer(source)

    def bind(self, request: Any, tenant: str) -> str:
        """A tenant's windows are asked for by key, a policy's by key and tenant."""
        scopes = pb.StatisticsScope
        if isinstance(request, pb.QueryRequest) and request.scope != scopes.Value(
            "STATISTICS_SCOPE_POLICY"
        ):
            of_tenant = request.scope == scopes.Value("STATISTICS_SCOPE_TENANT")
            request.key = request.key or (tenant if of_tenant else "")
            other = request.key if of_tenant and request.key != tenant else ""
            # A tenant beside another scope is refused by what reads it, unless it is another's.
            return other or (request.tenant if request.tenant != tenant else "")
        return super().bind(request, tenant)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service."""
        analytics_service_pb2_grpc.add_AnalyticsServiceServicer_to_server(self._servicer, server)
