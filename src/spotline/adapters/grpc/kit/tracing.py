"""Spans and metrics of gRPC calls, on both sides; the context of a trace goes with the call.

Own code rather than OpenTelemetry's instrumentation for gRPC; docs/adr/0019-telemetry.md says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc

from spotline.runtime.telemetry import Telemetry

# gRPC hands any of these through unchanged: its types say no more than `object`.
_Handler = Any
_Details = Any

if TYPE_CHECKING:
    _ServerInterceptor = grpc.aio.ServerInterceptor[Any, Any]
    _OnceInterceptor = grpc.aio.UnaryUnaryClientInterceptor[Any, Any]
    _StreamInterceptor = grpc.aio.UnaryStreamClientInterceptor[Any, Any]
else:
    # Generic to the type checker only.
    _ServerInterceptor = grpc.aio.ServerInterceptor
    _OnceInterceptor = grpc.aio.UnaryUnaryClientInterceptor
    _StreamInterceptor = grpc.aio.UnaryStreamClientInterceptor


def server_interceptors(
    telemetry: Telemetry, services: Sequence[str]
) -> tuple[_ServerInterceptor, ...]:
    """What a server of these services is to be opened with; nothing while telemetry is off."""
    return (_Answering(telemetry, frozenset(services)),) if telemetry.on else ()


def client_interceptors(telemetry: Telemetry) -> tuple[Any, ...]:
    """What a channel is to be opened with; nothing while telemetry is off."""
    return (_AskingOnce(telemetry), _AskingStream(telemetry)) if telemetry.on else ()


class _Answering(_ServerInterceptor):
    """Health checks and reflection are left alone: they are not traced."""

    def __init__(self, telemetry: Telemetry, services: frozenset[str]) -> None:
        self._telemetry = telemetry
        self._services = services

    async def intercept_service(
        self, continuation: Callable[[_Details], Any], handler_call_details: _Details
    ) -> _Handler:
        handler = await continuation(handler_call_details)
        method = _method(handler_call_details.method)
        if handler is None or method.partition("/")[0] not in self._services:
            return handler
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._once(method, handler.unary_unary),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._streaming(method, handler.unary_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return handler  # none of ours takes a stream

    def _once(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answered(request: Any, context: Any) -> Any:
            with self._telemetry.answering(method, _headers(context)) as call:
                call.code = grpc.StatusCode.UNKNOWN.name
                try:
                    response = await behavior(request, context)
                except BaseException as error:
                    call.code = _code(context, error)
                    raise
                call.code = _code(context, None)
                return response

        return answered

    def _streaming(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answered(request: Any, context: Any) -> AsyncIterator[Any]:
            with self._telemetry.answering(method, _headers(context), current=False) as call:
                call.code = grpc.StatusCode.UNKNOWN.name
                try:
                    async with aclosing(behavior(request, context)) as responses:
                        async for response in responses:
                            yield response
                except BaseException as error:
                    call.code = _code(context, error)
                    raise
                call.code = _code(context, None)

        return answered


class _AskingOnce(_OnceInterceptor):
    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: _Details, request: Any
    ) -> Any:
        with self._telemetry.asking(_method(client_call_details.method)) as asking:
            asking.code = grpc.StatusCode.CANCELLED.name
            call = await continuation(_with(client_call_details, asking.headers), request)
            try:
                asking.code = (await call.code()).name
            except asyncio.CancelledError:
                # The caller is gone: without this the call would live on until its time-out.
                call.cancel()
                raise
            return call


class _AskingStream(_StreamInterceptor):
    """The span is over when the stream is open: it may stay open for days."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: _Details, request: Any
    ) -> Any:
        with self._telemetry.asking(_method(client_call_details.method)) as asking:
            return await continuation(_with(client_call_details, asking.headers), request)


def _with(details: _Details, headers: Mapping[str, str]) -> grpc.aio.ClientCallDetails:
    metadata = grpc.aio.Metadata(*(details.metadata or ()))
    for name, value in headers.items():
        metadata.add(name, value)
    return grpc.aio.ClientCallDetails(
        details.method, details.timeout, metadata, details.credentials, details.wait_for_ready
    )


def _method(method: str | bytes) -> str:
    named = method.decode() if isinstance(method, bytes) else method
    return named.removeprefix("/")


def _headers(context: Any) -> dict[str, str]:
    return {
        str(key): value
        for key, value in context.invocation_metadata() or ()
        if isinstance(value, str)
    }


def _code(context: Any, error: BaseException | None) -> str:
    """The status a call ends with: what was set, else what gRPC makes of `error`."""
    code = context.code()
    if isinstance(code, grpc.StatusCode) and code is not grpc.StatusCode.OK:
        return code.name
    if error is None:
        return grpc.StatusCode.OK.name
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return grpc.StatusCode.UNKNOWN.name
    left_s = context.time_remaining()
    late = left_s is not None and left_s <= 0
    return (grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED).name
