"""Records every call that changes something, before it does and before it is answered.

Which calls these are says `contracts.access.GRPC_ACTIONS`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote

import grpc
from google.protobuf.message import Message

from spotline.adapters.audit.tallied import REPORTS_WINDOW_S, DeniedCallers, TalliedActs, made_by
from spotline.adapters.grpc.kit.answering import refuse
from spotline.adapters.grpc.kit.errors import RpcRefused, ServerContext, reason_told
from spotline.application.identity.audit import BEGUN, DONE, Act, AuditDoor
from spotline.application.identity.ports import AuditTrail
from spotline.contracts.access import COUNTED, GRPC_ACTIONS, Caller, Does
from spotline.contracts.errors import AuditUnavailable
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import current_caller

if TYPE_CHECKING:
    _ServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]
else:
    # Generic to the type checker only.
    _ServerInterceptor = grpc.aio.ServerInterceptor

TenantOf = Callable[[Any], str]

# What of a request or its answer says what it was about: ids and names, nothing that people write.
_ABOUT = (
    *("job_id", "client_request_id", "freeze_id", "event_id", "instance_id", "instance_ids"),
    *("notice_id", "service", "scope", "key", "account", "mode", "generation"),
    *("retried_as", "recorded"),
)
_PARTS = ("job", "draft", "pipeline", "status", "freeze", "ended")
_MOST_NAMED = 4
_REQUEST_ID = "request_id"
_RETRY_S = 5.0


class Auditor:
    """What a server records of its calls."""

    def __init__(self, trail: AuditTrail, tenant_of: TenantOf) -> None:
        self.trail = trail
        self._tenant_of = tenant_of
        self._denied = DeniedCallers(trail, AuditDoor.GRPC)
        self._counted = TalliedActs(trail, singles=1, window_s=REPORTS_WINDOW_S)

    def denied(
        self,
        method: str,
        error: RpcRefused,
        context: ServerContext,
        *,
        caller: Caller | None = None,
        request: Any = None,
    ) -> None:
        """Record that a caller was turned away before his call was looked at."""
        self._denied.note(
            method,
            error.code.name,
            error.reason,
            caller=caller,
            peer=_peer(context),
            target=about(request),
        )

    def counted(self, act: Act) -> None:
        """Record a report by its sum."""
        self._counted.note((act.subject, act.action, act.target, act.outcome), act)

    def act(self, method: str, request: Any, context: ServerContext) -> Act:
        """A call that begins, by whoever makes it as far as that is known."""
        act = Act(
            ts_ns=time.time_ns(),
            door=AuditDoor.GRPC,
            action=method,
            outcome=BEGUN,
            target=about(request),
            peer=_peer(context),
            request_id=getattr(request, _REQUEST_ID, ""),
        )
        return self.signed(act, request)

    def signed(self, act: Act, request: Any = None) -> Act:
        """The act with the caller as he is known by now: instances are once they are answered."""
        act = made_by(act, current_caller())
        if not act.tenant and isinstance(request, Message):
            act = replace(act, tenant=self._tenant_of(request))
        return act

    def close(self) -> None:
        """Record what was only counted so far. Safe to repeat."""
        self._denied.close()
        self._counted.close()


class AuditedCalls(_ServerInterceptor):
    """Stands last before the methods: what it sees has passed all other doors."""

    def __init__(self, auditor: Auditor) -> None:
        self._auditor = auditor

    async def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        """Have what changes something recorded."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        action = GRPC_ACTIONS.get(method)
        if handler is None or action is None or action.does is Does.READ:
            return handler
        if handler.response_streaming:
            raise AssertionError(f"{method} changes something and answers with a stream")
        behavior = handler.stream_unary if handler.request_streaming else handler.unary_unary
        made = (
            grpc.stream_unary_rpc_method_handler
            if handler.request_streaming
            else grpc.unary_unary_rpc_method_handler
        )
        around = self._counted if method in COUNTED else self._each
        return made(
            around(method, behavior), handler.request_deserializer, handler.response_serializer
        )

    def _each(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answered(request: Any, context: ServerContext) -> Any:
            auditor = self._auditor
            began = auditor.act(method, request, context)
            try:
                seq = await auditor.trail.write(began)
            except AuditUnavailable as error:
                await refuse(context, _unrecorded(error))

            async def settle(outcome: str, reason: str = "", target: str = "") -> None:
                ended = replace(began, ts_ns=time.time_ns(), outcome=outcome, reason=reason)
                ended = replace(ended, of_seq=seq, target=target or began.target)
                await auditor.trail.settle(auditor.signed(ended, request))

            return await _settled(behavior, request, context, settle)

        return answered

    def _counted(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answered(request: Any, context: ServerContext) -> Any:
            auditor = self._auditor
            began = auditor.act(method, request, context)

            async def settle(outcome: str, reason: str = "", target: str = "") -> None:
                ended = replace(began, ts_ns=time.time_ns(), outcome=outcome, reason=reason)
                auditor.counted(auditor.signed(ended, request))

            return await _settled(behavior, request, context, settle)

        return answered


Settle = Callable[..., Awaitable[None]]


async def _settled(
    behavior: Callable[..., Any], request: Any, context: ServerContext, settle: Settle
) -> Any:
    """Do what is asked; what came of it is recorded before the caller learns it."""
    held = _Held(context, settle)
    try:
        response = await behavior(request, held)
    except BaseException as error:
        if not held.told:
            await settle(*_outcome_of(error))
        raise
    await settle(DONE, target=about(request, response))
    return response


class _Held:
    """A call's context, which records a refusal before it sends it."""

    def __init__(self, context: ServerContext, settle: Settle) -> None:
        self._context = context
        self._settle = settle
        self.told = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        """End the call with a status."""
        self.told = True
        await self._settle(code.name, reason_told(trailing_metadata))
        await self._context.abort(code, details, trailing_metadata)


def _outcome_of(error: BaseException) -> tuple[str, str]:
    """How a call ended that no status ended; gRPC makes UNKNOWN of what is no refusal."""
    if isinstance(error, RpcRefused):
        return error.code.name, error.reason.name
    if isinstance(error, asyncio.CancelledError):
        return grpc.StatusCode.CANCELLED.name, ""
    return grpc.StatusCode.UNKNOWN.name, type(error).__name__


def _unrecorded(error: AuditUnavailable) -> RpcRefused:
    return RpcRefused(
        grpc.StatusCode.UNAVAILABLE,
        f"it cannot be recorded in the audit, so nothing was done ({error})",
        reason=Reason.AUDIT_UNAVAILABLE,
        retry_s=_RETRY_S,
    )


def _peer(context: ServerContext) -> str:
    return unquote(context.peer())


def about(*messages: Any) -> str:
    """What messages name by their ids, each once: `job_id=..., generation=...`; empty for nothing."""
    named = (
        name
        for message in messages
        if isinstance(message, Message)
        for name in _named(message, deeper=2)
    )
    return ", ".join(dict.fromkeys(named))


def _named(message: Any, *, deeper: int) -> Iterator[str]:
    fields = message.DESCRIPTOR.fields_by_name
    for name in _ABOUT:
        if name not in fields or fields[name].message_type is not None:
            continue
        value = getattr(message, name)
        if fields[name].is_repeated:
            more = len(value) - _MOST_NAMED
            value = "+".join(map(str, value[:_MOST_NAMED])) + (f"+{more} more" if more > 0 else "")
        elif fields[name].enum_type is not None and value:
            # A newer client's value has no name here.
            known = fields[name].enum_type.values_by_number.get(value)
            value = value if known is None else known.name
        if value:
            yield f"{name}={value}"
    if not deeper:
        return
    for name in _PARTS:
        if name not in fields or fields[name].message_type is None:
            continue
        part = getattr(message, name)
        parts = part[:_MOST_NAMED] if fields[name].is_repeated else (part,)
        for each in parts:
            yield from _named(each, deeper=deeper - 1)
