"""The placer's gRPC server."""

from __future__ import annotations

from typing import Any

import grpc

from spotline.adapters.grpc.identity.servicer import IdentityServicer
from spotline.adapters.grpc.kit.errors import RpcRefused
from spotline.adapters.grpc.kit.serving import GrpcServer
from spotline.adapters.grpc.placer.servicer import (
    PlacementServicer,
    PlacerHost,
    unknown_pipeline,
)
from spotline.api.v1 import (
    identity_service_pb2,
    identity_service_pb2_grpc,
    placement_service_pb2,
    placement_service_pb2_grpc,
)
from spotline.application.placer.options import PlacerOptions
from spotline.contracts.limits import name_problem
from spotline.runtime.applied import AppliedFeed


class PlacerServer(GrpcServer):
    """Serves the placer's RPC from `host` until stopped.

    Parameters
    ----------
    host, feed
        The running placer, and what listens to it. Start the server when it has recovered.
    options
        What an explanation assumes where its request names nothing else.
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    """

    name = "placer"
    services = (
        placement_service_pb2.DESCRIPTOR.services_by_name["PlacementService"].full_name,
        # Whose a pipeline is that a file does not say: the token's.
        identity_service_pb2.DESCRIPTOR.services_by_name["IdentityService"].full_name,
    )

    def __init__(
        self, host: PlacerHost, feed: AppliedFeed, options: PlacerOptions, *, address: str
    ) -> None:
        super().__init__(address)
        self._host = host
        self._servicer = PlacementServicer(host, feed, options)

    def hidden_from(self, request: Any, tenant: str) -> RpcRefused | None:
        """A pipeline that is not, or is another tenant's, is none to this tenant."""
        job_id: str = getattr(request, "job_id", "")
        if not job_id or name_problem(job_id):
            return None  # what reads it says so
        run = self._host.state.runs.get(job_id)
        theirs = run is not None and run.pipeline.tenant == tenant
        return None if theirs else unknown_pipeline(job_id, tenant)

    def register(self, server: grpc.aio.Server) -> None:
        """Add the services."""
        placement_service_pb2_grpc.add_PlacementServiceServicer_to_server(self._servicer, server)
        identity_service_pb2_grpc.add_IdentityServiceServicer_to_server(IdentityServicer(), server)
