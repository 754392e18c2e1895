"""IdentityService: tells a caller who it is."""

from __future__ import annotations

from spotline.adapters.grpc.kit.errors import ServerContext
from spotline.api.v1 import identity_service_pb2 as pb
from spotline.api.v1 import identity_service_pb2_grpc
from spotline.runtime.callers import current_caller


class IdentityServicer(identity_service_pb2_grpc.IdentityServiceServicer):
    """Tells what the door has learnt of the caller."""

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: ServerContext) -> pb.WhoAmIResponse:
        """Whom the token proves; nobody where this server asks nobody."""
        caller = current_caller()
        if caller is None:
            return pb.WhoAmIResponse()
        return pb.WhoAmIResponse(
            subject=caller.subject,
            role=caller.role.value,
            tenant=caller.tenant,
            credential_id=caller.credential_id,
            job_id=caller.job_id,
            generation=caller.generation,
        )
