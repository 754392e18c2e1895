"""A caller of IdentityService."""

from __future__ import annotations

from spotline.adapters.grpc.kit.calling import ANY_CLIENT, RpcClient
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.api.v1 import identity_service_pb2 as pb
from spotline.api.v1 import identity_service_pb2_grpc
from spotline.contracts.access import Caller, Role
from spotline.contracts.errors import ContractError

_ANSWER_TIMEOUT_S = 30.0


class IdentityClient(RpcClient):
    """Who one is to a server. May raise `RpcFailed`."""

    service = "allocator"

    def __init__(
        self, address: str, *, caller: str = ANY_CLIENT, identity: ClientIdentity | None = None
    ) -> None:
        super().__init__(address, caller=caller, identity=identity)
        self._stub = identity_service_pb2_grpc.IdentityServiceStub(self._channel)

    async def who_am_i(self) -> Caller | None:
        """Whom the token that is shown proves, None where the server asks nobody.

        Raises
        ------
        ContractError
            The server names a role that this release does not know.
        """
        said = await self._call(self._stub.WhoAmI, pb.WhoAmIRequest(), timeout_s=_ANSWER_TIMEOUT_S)
        if not said.role:
            return None
        known = {role.value: role for role in Role}
        if said.role not in known:
            raise ContractError(
                "WhoAmIResponse role", f"expected one of {', '.join(known)}, found {said.role!r}"
            )
        return Caller(
            subject=said.subject,
            role=known[said.role],
            tenant=said.tenant,
            credential_id=said.credential_id,
            job_id=said.job_id,
            generation=said.generation,
        )
