"""Callers of the placer: training platforms and the commands."""

from __future__ import annotations

from dataclasses import replace

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.identity.endpoints import ClientIdentity
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
from spotline.domain.placement.submission import Pipeline

DEFAULT_ADDRESS = "127.0.0.1:7072"

_TIMEOUT_S = 30.0


class PlacerClient(RpcClient):
    """Placement over gRPC, as domain values. Every method may raise `RpcFailed`."""

    service = "placer"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        caller: str = ANY_CLIENT,
        identity: ClientIdentity | None = None,
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._stub = placement_service_pb2_grpc.PlacementServiceStub(self._channel)

    async def place(self, pipeline: Pipeline) -> PlaceReceipt:
        """Hand a pipeline over; the same one again changes nothing."""
        request = PlaceRequest(pipeline=pipeline, request_id=pipeline.client_request_id)
        return await self._ask(self._stub.Place, request, PlaceReceipt, timeout_s=_TIMEOUT_S)

    async def release(self, job_id: str, tenant: str, *, request_id: str = "") -> PlacementStatus:
        """Let a pipeline go."""
        request = ReleaseRequest(job_id=job_id, tenant=tenant, request_id=request_id)
        receipt = await self._ask(self._stub.Release, request, ReleaseReceipt, timeout_s=_TIMEOUT_S)
        return receipt.status

    async def list(self, query: PlacementQuery | None = None) -> PlacementPage:
        """Where pipelines stand, one page."""
        return await self._ask(
            self._stub.ListPlacements,
            query or PlacementQuery(),
            PlacementPage,
            timeout_s=_TIMEOUT_S,
        )

    async def list_all(self, query: PlacementQuery | None = None) -> tuple[PlacementStatus, ...]:
        """Every pipeline a query finds, page by page."""
        wanted = query or PlacementQuery()
        page = await self.list(wanted)
        statuses = list(page.statuses)
        while page.next_page_token:
            page = await self.list(replace(wanted, page_token=page.next_page_token))
            statuses.extend(page.statuses)
        return tuple(statuses)

    async def explain(self, request: ExplanationRequest) -> Explanation:
        """Where a pipeline could run now."""
        return await self._ask(self._stub.Explain, request, Explanation, timeout_s=_TIMEOUT_S)
