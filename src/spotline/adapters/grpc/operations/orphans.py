"""Instances that belong to no job: listed, and ended because a person wants it."""

from __future__ import annotations

import grpc

from spotline.adapters.grpc.kit.answering import answers
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.adapters.grpc.operations.asked import OperationsAsked
from spotline.api.v1 import operations_service_pb2 as pb
from spotline.application.operations.messages import Orphans
from spotline.application.spec import derive_id
from spotline.contracts.errors import ContractError
from spotline.contracts.reasons import Reason
from spotline.domain.events.agreement import OrphanReapRequested

# An instance that nobody ordered has no job to go by.
_CORRELATION = "orphans"
_BY = "an operator"
_MOST_AT_ONCE = 1000


class OrphansRpcs(OperationsAsked):
    """Instances that belong to no job: listed, and ended because a person wants it."""

    @answers
    async def ListOrphans(self, request: pb.ListOrphansRequest, context: ServerContext) -> Orphans:
        """Those that were found and are not settled, oldest first."""
        found = self._operations.orphans.values()
        return Orphans(
            orphans=tuple(sorted(found, key=lambda one: (one.ts_event_ns, one.instance_id)))
        )

    @answers
    async def ReapOrphans(
        self, request: pb.ReapOrphansRequest, context: ServerContext
    ) -> pb.ReapOrphansResponse:
        """Record that a person wants them ended; the actuator ends those that it may."""
        if len(request.instance_ids) > _MOST_AT_ONCE:
            raise ContractError(
                "instance_ids",
                f"must be at most {_MOST_AT_ONCE}, were {len(request.instance_ids)}",
            )

        async def reap() -> tuple[str, ...]:
            known = self._operations.orphans
            wanted = tuple(sorted(set(request.instance_ids) or known))
            for instance_id in wanted:
                if instance_id not in known:
                    raise RpcRefused(
                        grpc.StatusCode.NOT_FOUND,
                        f"instance_ids must be those of orphans, {instance_id[:80]!r} is none; "
                        "list them",
                        reason=Reason.UNKNOWN_ORPHAN,
                        field="instance_ids",
                    )
            if wanted:
                # Asked again for the same ones with a new request it is asked of the cloud again.
                event_id = derive_id(":".join(wanted), f"reap:{request.request_id}")
                await self._host.publish_observation(
                    OrphanReapRequested(instance_ids=wanted, by=_BY),
                    event_id=event_id,
                    correlation_id=_CORRELATION,
                )
            return wanted

        wanted = await self._requests.once(request, _CORRELATION, reap)
        return pb.ReapOrphansResponse(instance_ids=wanted)
