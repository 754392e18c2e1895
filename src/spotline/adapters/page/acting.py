"""Does what people ask for over gRPC, each with his own token: the allocator asks and records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.application.page.acting_ports import Acts
from spotline.application.page.acts import ActRefused
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason

_CALLER = "read_model"
_BY_CODE: Mapping[str, Reason] = MappingProxyType(
    {
        "INVALID_ARGUMENT": Reason.FIELD_INVALID,
        "UNAUTHENTICATED": Reason.UNAUTHENTICATED,
        "PERMISSION_DENIED": Reason.ROLE_DENIED,
        "NOT_FOUND": Reason.UNKNOWN_JOB,
        "RESOURCE_EXHAUSTED": Reason.TOO_MANY_REQUESTS,
    }
)


@dataclass(frozen=True, slots=True)
class _Clients:
    """The clients of one caller."""

    jobs: JobClient
    operations: OperationsClient


class GrpcActing:
    """See `Acting`.

    Parameters
    ----------
    address
        The allocator's, `HOST:PORT`.
    trusts
        Whom its server is known by. Of it nothing is shown but a certificate, where it asks for one.
    """

    def __init__(self, address: str, trusts: ClientIdentity | None) -> None:
        self._address = address
        self._trusts = trusts

    @asynccontextmanager
    async def of_caller(self, token: str) -> AsyncIterator[Acts]:
        """In the name of whoever has this token; see `Acting`."""
        identity = self._identity(token)
        try:
            async with AsyncExitStack() as stack:
                jobs = JobClient(self._address, caller=_CALLER, identity=identity)
                operations = OperationsClient(self._address, caller=_CALLER, identity=identity)
                yield _Clients(
                    await stack.enter_async_context(jobs),
                    await stack.enter_async_context(operations),
                )
        except RpcFailed as failed:
            raise refused_by(failed) from failed

    def _identity(self, token: str) -> ClientIdentity | None:
        if self._trusts is None:
            return None
        # Its own tokens must never speak for a caller, whatever his may not do.
        return replace(self._trusts, token=token, tokens={}, token_file=None)


def refused_by(failed: RpcFailed) -> ViewRefused:
    """A refusal over gRPC as one of a page, with all that it says."""
    reason = Reason.__members__.get(failed.reason)
    if reason is None:
        reason = Reason.BUS_UNAVAILABLE if failed.unreachable else _BY_CODE.get(failed.code)
    message = str(failed)
    if failed.earliest_feasible_deadline and failed.earliest_feasible_deadline not in message:
        message = f"{message}; ask for {failed.earliest_feasible_deadline} or later"
    wrong = tuple(
        f"{violation.field} {violation.description}".strip() for violation in failed.violations
    )
    return ActRefused(reason or Reason.FIELD_INVALID, message, wrong if len(wrong) > 1 else ())
