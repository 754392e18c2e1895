"""The door of a gRPC server: names that no row or terminal should hold, and too much at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from spotline.adapters.grpc.kit.answering import refuse
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.contracts.errors import FieldViolation
from spotline.contracts.limits import CallerLimits, name_problem
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import current_caller

if TYPE_CHECKING:
    _ServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic to the type checker only.
    _ServerInterceptor = grpc.aio.ServerInterceptor

# Fields of requests that are a name or an id, wherever they stand.
NAMES = frozenset(
    {
        *("account", "client_request_id", "event_id", "freeze_id", "gpu_model", "host"),
        *("instance_id", "instance_ids", "instance_type", "job_id", "key", "law_id"),
        *("method_id", "model_id", "model_name", "name", "notice_id", "offering"),
        *("offering_id", "offerings", "policy_id", "policy_ids", "precision", "provider"),
        *("offering_ids", "plan", "reclaimed_offering_ids"),
        *("quota_pool", "region", "request_id", "service", "source_id", "tenant", "zone"),
    }
)
_MOST_TOLD = 20
_RETRY_S = 1.0
_ALLOCATE = "/spotline.api.v1.AllocatorService/Allocate"

TenantOf = Callable[[Any], str]
"""Whose a request is, empty where that cannot be said."""


class Lane(Enum):
    """What is counted together; the value says what it is, for people."""

    CALLS = "calls"
    STREAMS = "streams"
    ALLOCATIONS = "allocations"


class Doors:
    """Counts what is in flight, and has no room beyond its limits."""

    def __init__(self, limits: CallerLimits) -> None:
        self._most = {
            Lane.CALLS: (limits.most_calls, limits.most_calls_a_tenant),
            Lane.STREAMS: (limits.most_streams, limits.most_streams_a_tenant),
            Lane.ALLOCATIONS: (limits.most_allocations, limits.most_allocations),
        }
        self._held: Counter[Lane] = Counter()
        self._of_tenants: Counter[tuple[Lane, str]] = Counter()

    def held(self, lane: Lane) -> int:
        """How many are in flight."""
        return self._held[lane]

    @contextmanager
    def room(self, lane: Lane, tenant: str) -> Iterator[None]:
        """Take a place; a call of no known tenant counts towards all only.

        Raises
        ------
        RpcRefused
            There is none: RESOURCE_EXHAUSTED, with when to come again.
        """
        most, most_a_tenant = self._most[lane]
        if tenant and self._of_tenants[lane, tenant] >= most_a_tenant:
            raise _full(f"{most_a_tenant} {lane.value} of tenant {tenant!r} are in progress")
        if self._held[lane] >= most:
            raise _full(f"{most} {lane.value} are in progress")
        self._held[lane] += 1
        self._of_tenants[lane, tenant] += 1
        try:
            yield
        finally:
            self._held[lane] -= 1
            self._of_tenants[lane, tenant] -= 1
            if not self._of_tenants[lane, tenant]:
                del self._of_tenants[lane, tenant]


def _full(said: str) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"{said}; nothing was recorded, try again later",
        reason=Reason.TOO_MANY_REQUESTS,
        retry_s=_RETRY_S,
    )


class Door(_ServerInterceptor):
    """Stands before the methods of `services`; health and reflection are left alone."""

    def __init__(self, doors: Doors, services: Sequence[str], tenant_of: TenantOf) -> None:
        self._doors = doors
        self._services = frozenset(services)
        self._tenant_of = tenant_of

    async def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        """Have a method's requests pass the door first."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.strip("/").partition("/")[0] not in self._services:
            return handler
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._once(method, handler.unary_unary),
                _reading(handler.request_deserializer),
                handler.response_serializer,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(handler.unary_stream),
                _reading(handler.request_deserializer),
                handler.response_serializer,
            )
        return handler  # none of ours takes a stream

    def _whose(self, request: Message) -> str:
        """The tenant that a call counts for: the caller's own where that is proved, else as stated.

        What names no tenant, as questions about the market, would count for nobody otherwise.
        """
        caller = current_caller()
        return (caller.tenant if caller is not None else "") or self._tenant_of(request)

    def _once(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        # The selector asks of jobs that an older log holds, whatever their names.
        own = method == _ALLOCATE
        lane = Lane.ALLOCATIONS if own else Lane.CALLS

        async def answered(request: Message | _NoMessage, context: ServerContext) -> Any:
            try:
                request = _message(request)
                with self._doors.room(lane, "" if own else self._whose(request)):
                    if not own:
                        check_names(request)
                    return await behavior(request, context)
            except RpcRefused as error:
                await refuse(context, error)

        return answered

    def _streaming(self, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answered(
            request: Message | _NoMessage, context: ServerContext
        ) -> AsyncIterator[Any]:
            try:
                request = _message(request)
                with self._doors.room(Lane.STREAMS, self._whose(request)):
                    check_names(request)
                    async with aclosing(behavior(request, context)) as responses:
                        async for response in responses:
                            yield response
            except RpcRefused as error:
                await refuse(context, error)

        return answered


class _NoMessage:
    """Stands for a request that is none; gRPC itself would tell of it as a failure of the server."""


def _reading(deserializer: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return deserializer(data)
        except DecodeError:
            return _NoMessage()

    return read


def _message(request: Message | _NoMessage) -> Message:
    if isinstance(request, _NoMessage):
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "the request must be the message that this method takes, these bytes are none",
            reason=Reason.FIELD_INVALID,
        )
    return request


def stated_tenant(request: Any) -> str:
    """The tenant that a request names, itself or in what it submits; empty where none does."""
    for part in (request, *(getattr(request, name, None) for name in ("job", "draft", "pipeline"))):
        tenant = getattr(part, "tenant", "")
        if isinstance(tenant, str) and tenant:
            return tenant
    return ""


# --- names ------------------------------------------------------------------------------------


def check_names(request: Message) -> None:
    """Refuse a request that holds a name or an id that is too long, or more than one line.

    Raises
    ------
    RpcRefused
        INVALID_ARGUMENT, naming each such field.
    """
    wrong = []
    for violation in _wrong_names(request, ""):
        wrong.append(violation)
        if len(wrong) == _MOST_TOLD:
            break
    if wrong:
        raise RpcRefused(
            grpc.StatusCode.INVALID_ARGUMENT,
            f"{wrong[0].field} {wrong[0].description}",
            reason=Reason.FIELD_INVALID,
            violations=wrong,
        )


def _wrong_names(message: Message, where: str) -> Iterator[FieldViolation]:
    for field in _looked_at(message.DESCRIPTOR):
        value: Any = getattr(message, field.name)
        place = f"{where}{field.name}"
        if field.message_type is None:
            named = enumerate(value) if field.is_repeated else ((None, value),)
            for index, text in named:
                problem = name_problem(text)
                if problem:
                    at = place if index is None else f"{place}[{index}]"
                    yield FieldViolation(field=at, description=problem)
        elif field.is_repeated:
            for index, part in enumerate(value):
                yield from _wrong_names(part, f"{place}[{index}].")
        elif message.HasField(field.name):
            yield from _wrong_names(value, f"{place}.")


@cache
def _looked_at(kind: Descriptor) -> tuple[FieldDescriptor, ...]:
    """The fields of a message that are names, or messages that may hold some."""
    return tuple(
        field
        for field in kind.fields
        if (
            not field.message_type.GetOptions().map_entry
            if field.message_type is not None
            else field.type == FieldDescriptor.TYPE_STRING and field.name in NAMES
        )
    )
