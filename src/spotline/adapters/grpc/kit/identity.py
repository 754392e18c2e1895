"""Stands before all other doors of a gRPC server: who calls, and whether he may.

What it checks is `contracts.access.GRPC_ACTIONS`. A method that has no row there is closed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import grpc
import structlog
from google.protobuf.message import Message

from spotline.adapters.grpc.kit.answering import refuse
from spotline.adapters.grpc.kit.auditing import Auditor
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext
from spotline.application.identity.bearer import bearer_token
from spotline.application.identity.permission import (
    Denial,
    DenialKind,
    role_denial,
    tenant_denial,
    whole_denial,
)
from spotline.application.identity.ports import Authenticator
from spotline.contracts.access import (
    ANY_CALLER,
    GRPC_ACTIONS,
    OPEN,
    Action,
    Caller,
    Does,
    Reach,
)
from spotline.contracts.errors import Unauthenticated
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import Denials, answer_for

_log = structlog.get_logger(__name__)

if TYPE_CHECKING:
    _ServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic to the type checker only.
    _ServerInterceptor = grpc.aio.ServerInterceptor

METADATA_KEY = "authorization"
_REASONS = {DenialKind.ROLE: Reason.ROLE_DENIED, DenialKind.TENANT: Reason.TENANT_DENIED}


class TenantRules(Protocol):
    """What a server knows of whose things its requests are about."""

    def bind(self, request: Any, tenant: str) -> str:
        """Fill in the tenant where it is left out; returns another one that is named, or empty."""
        ...

    def hidden_from(self, request: Any, tenant: str) -> RpcRefused | None:
        """The refusal of a request about what does not exist, or is another tenant's: the same.

        None where the request names nothing by its id, or something of this tenant's.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """Who makes a call, and by what he proved it."""

    token: str = field(repr=False)
    caller: Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class _Denied:
    """Who was turned away from what; `caller` is None where he did not prove who he is."""

    method: str
    error: RpcRefused
    caller: Caller | None
    writes: bool = False

    @classmethod
    def of(cls, caller: Caller, action: Action, error: RpcRefused) -> _Denied:
        """A caller whose role may do this, but not to that."""
        writes = action.does is Does.WRITE
        return cls(method=action.name, error=error, caller=caller, writes=writes)


class IdentityDoor(_ServerInterceptor):
    """Lets nobody in whom the table does not let in; health checks are open.

    Whom it turns away the auditor records; None: nobody does.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        rules: TenantRules,
        denials: Denials,
        auditor: Auditor | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._auditor = auditor
        self._rules = rules
        self._denials = denials

    async def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        """Learn who calls before anything is read."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or _is_of(method, OPEN):
            return handler
        caller = None
        try:
            token = _token(handler_call_details.invocation_metadata)
            caller = await self._caller(token)
            _check_role(method, caller)
        except RpcRefused as error:
            return self._closed(handler, _Denied(method=method, error=error, caller=caller))
        action = GRPC_ACTIONS.get(method)
        if action is None or handler.request_streaming:
            # Reflection; no stream of ours names a tenant.
            return handler
        return self._checking(handler, action, _Call(token=token, caller=caller))

    # --- who ------------------------------------------------------------------------------------

    async def _caller(self, token: str) -> Caller:
        try:
            return await self._authenticator.caller(token)
        except Unauthenticated as error:
            raise _unauthenticated(error) from error

    # --- whose ----------------------------------------------------------------------------------

    def _check_tenant(self, action: Action, caller: Caller, request: Any) -> None:
        """Bind a request to the caller's tenant; `RpcRefused` where it is about another's."""
        if not caller.tenant or action.reach is not Reach.TENANT:
            return
        if not isinstance(request, Message):
            return  # the next door says that it is none
        denial = tenant_denial(action, caller, self._rules.bind(request, caller.tenant))
        if denial is not None:
            raise _denied(denial)
        hidden = self._rules.hidden_from(request, caller.tenant)
        if hidden is not None:
            raise hidden

    def _checking(self, handler: Any, action: Action, call: _Call) -> Any:
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(action, call, handler.unary_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._once(action, call, handler.unary_unary),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def _once(
        self, action: Action, call: _Call, behavior: Callable[..., Any]
    ) -> Callable[..., Any]:
        async def answered(request: Any, context: ServerContext) -> Any:
            answer_for(call.caller)
            try:
                self._check_tenant(action, call.caller, request)
            except RpcRefused as error:
                await self._refuse(context, _Denied.of(call.caller, action, error), request)
            return await behavior(request, context)

        return answered

    def _streaming(
        self, action: Action, call: _Call, behavior: Callable[..., Any]
    ) -> Callable[..., Any]:
        async def answered(request: Any, context: ServerContext) -> AsyncIterator[Any]:
            answer_for(call.caller)
            try:
                self._check_tenant(action, call.caller, request)
                async with aclosing(behavior(request, context)) as responses:
                    async for response in responses:
                        # A watch may last for days, its token be revoked meanwhile.
                        await self._caller(call.token)
                        yield response
            except RpcRefused as error:
                await self._refuse(context, _Denied.of(call.caller, action, error), request)

        return answered

    # --- refusing -------------------------------------------------------------------------------

    def _closed(self, handler: Any, denied: _Denied) -> Any:
        """A method of the handler's kind that only refuses."""

        async def once(request: Any, context: ServerContext) -> Any:
            await self._refuse(context, denied)

        async def streaming(request: Any, context: ServerContext) -> AsyncIterator[Any]:
            nothing: tuple[Any, ...] = ()
            for response in nothing:
                yield response
            await self._refuse(context, denied)

        make: dict[tuple[bool, bool], Callable[..., Any]] = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        behavior = streaming if handler.response_streaming else once
        made = make[handler.request_streaming, handler.response_streaming]
        # What is refused is not read.
        return made(behavior, bytes, handler.response_serializer)

    async def _refuse(
        self, context: ServerContext, denied: _Denied, request: Any = None
    ) -> NoReturn:
        error = denied.error
        is_denial = error.reason in self._denials.by_reason
        # Another tenant's thing is refused as one that never was; to have tried to change it counts.
        if self._auditor is not None and (is_denial or denied.writes):
            self._auditor.denied(
                denied.method, error, context, caller=denied.caller, request=request
            )
        if is_denial:
            self._denials.note(error.reason)
            _log.warning(
                "caller_denied",
                method=denied.method,
                reason=error.reason.name.lower(),
                detail=str(error),
                peer=context.peer(),
            )
        await refuse(context, error)


def _check_role(method: str, caller: Caller) -> None:
    action = GRPC_ACTIONS.get(method)
    if action is None:
        if not _is_of(method, ANY_CALLER):
            closed = Denial(kind=DenialKind.ROLE, detail=f"{method} is open to nobody")
            raise _denied(closed)
        return
    denial = role_denial(action, caller) or whole_denial(action, caller)
    if denial is not None:
        raise _denied(denial)


def _token(metadata: Any) -> str:
    """The token that a call shows; `RpcRefused` where it shows none."""
    said = (
        value for key, value in metadata or () if key == METADATA_KEY and isinstance(value, str)
    )
    try:
        return bearer_token(next(said, None))
    except Unauthenticated as error:
        raise _unauthenticated(error) from error


def _unauthenticated(error: Unauthenticated) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAUTHENTICATED,
        str(error),
        reason=Reason.UNAUTHENTICATED,
        field=METADATA_KEY,
    )


def _is_of(method: str, patterns: Any) -> bool:
    return f"{method.rpartition('/')[0]}/*" in patterns


def _denied(denial: Denial) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.PERMISSION_DENIED,
        denial.detail,
        reason=_REASONS[denial.kind],
        field=denial.field,
    )
