"""What goes wrong over gRPC: refusals as a server states them, failures as a client sees them."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, ParamSpec, TypeVar

import grpc
from google.protobuf.message import Message

from spotline.application.admission import Refused
from spotline.contracts.errors import ContractError, ProviderUnavailable, SpotlineError
from spotline.contracts.mapping import to_message
from spotline.domain.units import utc_iso

# Trailing metadata. Every refusal of ours names a field (perhaps ""): without it, the status is
# gRPC's own, such as a connection that failed.
FIELD_KEY = "spotline-field"
EARLIEST_DEADLINE_KEY = "earliest-feasible-deadline"

# A request carries every running job and a slot's whole market: gRPC's default of 4 MB would be
# reached at a few thousand jobs.
MESSAGE_BYTES = 64 << 20

ServerContext = grpc.aio.ServicerContext[Any, Any]
Params = ParamSpec("Params")
ServicerT = TypeVar("ServicerT")
RequestT = TypeVar("RequestT")


class RpcRefused(SpotlineError):
    """The server will not do what was asked; raised inside, sent as a status."""

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        *,
        field: str = "",
        earliest_feasible_deadline_ns: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.earliest_feasible_deadline_ns = earliest_feasible_deadline_ns

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        """The field at fault, and the earliest feasible deadline where that is the matter."""
        metadata = [(FIELD_KEY, self.field.encode("ascii", "replace").decode())]
        if self.earliest_feasible_deadline_ns:
            metadata.append((EARLIEST_DEADLINE_KEY, utc_iso(self.earliest_feasible_deadline_ns)))
        return tuple(metadata)


def refusal_of(refused: Refused) -> RpcRefused:
    """Turn an admission refusal into a status: input that can be mended is INVALID_ARGUMENT."""
    earliest_ns = refused.earliest_feasible_deadline_ns
    lasting = refused.permanent or earliest_ns
    message = f"{refused.field} {refused.message}"
    if earliest_ns:
        message = f"{message}; ask for {utc_iso(earliest_ns)} or later"
    return RpcRefused(
        grpc.StatusCode.FAILED_PRECONDITION if lasting else grpc.StatusCode.INVALID_ARGUMENT,
        message,
        field=refused.field,
        earliest_feasible_deadline_ns=earliest_ns,
    )


def invalid(error: ValueError) -> RpcRefused:
    """Turn a value error, whose message begins with the field, into INVALID_ARGUMENT."""
    field = str(error).partition(" ")[0].rstrip(":")
    return RpcRefused(grpc.StatusCode.INVALID_ARGUMENT, str(error), field=field)


async def refuse(
    context: ServerContext, error: RpcRefused | ContractError | ProviderUnavailable
) -> NoReturn:
    """End the call with the status of `error`."""
    if isinstance(error, ContractError):
        # "SubmitRequest job.work": the message's name says nothing to who filled in the field.
        field = error.where.partition(" ")[2] or error.where
        error = RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT, f"{field}: {error.problem}", field=field
        )
    elif isinstance(error, ProviderUnavailable):
        error = RpcRefused(
            grpc.StatusCode.UNAVAILABLE,
            f"the event bus does not take it now ({error}); nothing was recorded, try again",
        )
    await context.abort(error.code, str(error), error.trailing_metadata())


def answers(
    method: Callable[[ServicerT, RequestT, ServerContext], Awaitable[object]],
) -> Callable[[ServicerT, RequestT, ServerContext], Awaitable[Any]]:
    """Send what a unary method answers as a message, what it refuses as a status.

    A bug stays UNKNOWN.
    """

    @functools.wraps(method)
    async def answered(servicer: ServicerT, request: RequestT, context: ServerContext) -> Message:
        try:
            answer = await method(servicer, request, context)
            return answer if isinstance(answer, Message) else to_message(answer)
        except (RpcRefused, ContractError, ProviderUnavailable) as error:
            await refuse(context, error)

    return answered


# --- as a client sees it ----------------------------------------------------------------------


class RpcFailed(SpotlineError):
    """A call failed. `code` is the status's name, `field` what the server found at fault.

    `unreachable` says that there was no answer, as opposed to an answer that refuses.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str = "",
        earliest_feasible_deadline: str = "",
        unreachable: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.field = field
        self.earliest_feasible_deadline = earliest_feasible_deadline
        self.unreachable = unreachable

    @property
    def bad_input(self) -> bool:
        """Whether the request itself was wrong."""
        return self.code == grpc.StatusCode.INVALID_ARGUMENT.name


def failure_of(
    error: grpc.aio.AioRpcError, address: str, *, service: str = "allocator"
) -> RpcFailed:
    """Read what a failed call to a service says."""
    metadata: Any = error.trailing_metadata() or ()
    trailing = {str(key): str(value) for key, value in metadata}
    code = error.code()
    details = error.details() or code.name
    answered = FIELD_KEY in trailing
    unreachable = not answered and code in (
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )
    if unreachable:
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED
        what = "did not answer in time" if late else "cannot be reached"
        details = f"the {service} at {address} {what} ({details})"
    return RpcFailed(
        code.name,
        details,
        field=trailing.get(FIELD_KEY, ""),
        earliest_feasible_deadline=trailing.get(EARLIEST_DEADLINE_KEY, ""),
        unreachable=unreachable,
    )
