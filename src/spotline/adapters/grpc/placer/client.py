"""Callers of the placer: training platforms and the commands."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.grpc.kit.errors import failing_as_rpc
from spotline.api.v1 import placement_service_pb2 as pb
from spotline.api.v1 import placement_service_pb2_grpc
from spotline.application.placer.messages import (
    Explanation,
    ExplanationRequest,
    PlacementPage,
    PlacementQuery,
    PlacementStatus,
    PlaceReceipt,
    PlaceRequest,
    ReleaseReceipt,
    ReleaseRequest,
)
from spotline.contracts.mapping import from_message, to_message
from spotline.domain.placement.submission import Pipeline

DEFAULT_ADDRESS = "127.0.0.1:7072"

_TIMEOUT_S = 30.0


class PlacerClient(RpcClient):
    """Placement over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "placer"

    def __init__(self, address: str = DEFAULT_ADDRESS, *, caller: str = ANY_CLIENT) -> None:
        super().__init__(address, caller=caller)
        self._stub = placement_service_pb2_grpc.PlacementServiceStub(self._channel)

    @failing_as_rpc
    async def place(self, pipeline: Pipeline) -> PlaceReceipt:
        """Hand a pipeline over; the same one again changes nothing."""
        response = await self._stub.Place(
            cast("pb.PlaceRequest", to_message(PlaceRequest(pipeline=pipeline))),
            timeout=_TIMEOUT_S,
        )
        return from_message(PlaceReceipt, response)

    @failing_as_rpc
    async def release(self, job_id: str, tenant: str) -> PlacementStatus:
        """Let a pipeline go."""
        response = await self._stub.Release(
            cast("pb.ReleaseRequest", to_message(ReleaseRequest(job_id=job_id, tenant=tenant))),
            timeout=_TIMEOUT_S,
        )
        return from_message(ReleaseReceipt, response).status

    @failing_as_rpc
    async def list(self, query: PlacementQuery | None = None) -> PlacementPage:
        """Where pipelines stand, one page."""
        response = await self._stub.ListPlacements(
            cast("pb.ListPlacementsRequest", to_message(query or PlacementQuery())),
            timeout=_TIMEOUT_S,
        )
        return from_message(PlacementPage, response)

    async def list_all(self, query: PlacementQuery | None = None) -> tuple[PlacementStatus, ...]:
        """Every pipeline a query finds, page by page."""
        wanted = query or PlacementQuery()
        page = await self.list(wanted)
        statuses = list(page.statuses)
        while page.next_page_token:
            page = await self.list(replace(wanted, page_token=page.next_page_token))
            statuses.extend(page.statuses)
        return tuple(statuses)

    @failing_as_rpc
    async def explain(self, request: ExplanationRequest) -> Explanation:
        """Where a pipeline could run now."""
        response = await self._stub.Explain(
            cast("pb.ExplainRequest", to_message(request)),
            timeout=_TIMEOUT_S,
        )
        return from_message(Explanation, response)
