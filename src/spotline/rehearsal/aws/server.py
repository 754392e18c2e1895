"""The rehearsal's HTTP server: one endpoint for all services, control and instance metadata.

A service is told by the scope of the signature, as on one endpoint it must be. `/_rehearsal/` is the
control endpoint, `/i-.../` an instance's metadata; every other path is AWS's.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spotline.rehearsal.aws.imds import MetadataService
from spotline.rehearsal.aws.service import AwsCall, AwsError, ConnectionLost, Registry
from spotline.rehearsal.aws.wire import protocols, signing
from spotline.rehearsal.aws.wire.models import ServiceDescription, by_signing_name, describe
from spotline.rehearsal.aws.wire.rest import WireRequest

_log = structlog.get_logger(__name__)

CONTROL = "/_rehearsal"
# Far above what any call of ours sends; SQS takes a quarter of it.
_MOST_BODY_BYTES = 1 << 20
_ABORT = "abort"
_BACKLOG = 128
_STOP_S = 2
# Longer than clients keep a connection that they do not use: what is closed as it is used again
# looks like a lost answer, and only those that were meant should.
_IDLE_S = 300


class AwsFront:
    """Reads calls off HTTP, lets their service answer, and writes what it says.

    Parameters
    ----------
    services
        Who answers.
    keys
        Which access keys there are.
    wall_ns
        Wall time: signatures and sessions go by the clocks of those who sign.
    """

    def __init__(
        self,
        *,
        services: Registry,
        keys: signing.KeyRing,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._services = services
        self._keys = keys
        self._wall_ns = wall_ns

    async def handle(self, request: Request) -> Response:
        """Answer one request over HTTP."""
        request_id = str(uuid.uuid4())
        body = b""
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > _MOST_BODY_BYTES:
                    return PlainTextResponse("RequestEntityTooLarge", status_code=413)
            answer = await self._answer(request, body, request_id)
        except ClientDisconnect:
            return Response(status_code=400)
        except ConnectionLost:
            return await _hang_up(request)
        return Response(answer.body, status_code=answer.status, headers=dict(answer.headers))

    async def _answer(self, request: Request, body: bytes, request_id: str) -> protocols.WireAnswer:
        # Until its service is known, a refusal is in the form that most services understand.
        service = describe("events" if "x-amz-target" in request.headers else "sts")
        try:
            signed = signing.SignedRequest(
                method=request.method,
                # As it was sent: what is signed is not what it decodes to.
                path=request.scope["raw_path"].decode("ascii").partition("?")[0],
                query=request.url.query,
                headers={name.lower(): value for name, value in request.headers.items()},
                body=body,
            )
            scope = signing.read_scope(signed)
            service = self._service(scope.signing_name)
            who = signing.verify(signed, scope, service.name, self._keys, self._wall_ns())
            operation, params = protocols.read_call(
                service,
                WireRequest(
                    body=body,
                    target=request.headers.get("x-amz-target", ""),
                    method=signed.method,
                    path=signed.path,
                    query=signed.query,
                ),
            )
            call = AwsCall(
                service=service.name,
                operation=operation.name,
                params=params,
                region=scope.region,
                account_id=who.account_id,
                access_key=who.access_key,
                request_id=request_id,
            )
            value = await self._services.services[service.name].answer(call)
            return protocols.write_answer(service, operation, value, request_id)
        except AwsError as error:
            return protocols.write_error(service, error, request_id)
        except ConnectionLost:
            raise
        except Exception as error:  # noqa: BLE001 - a caller gets an answer to our bugs, too
            _log.exception("rehearsal_failed", service=service.name, error=str(error))
            sentence = f"the rehearsal itself is wrong: {type(error).__name__}: {error}"
            ours = AwsError("InternalError", sentence, status=500)
            return protocols.write_error(service, ours, request_id)

    def _service(self, signing_name: str) -> ServiceDescription:
        name = by_signing_name().get(signing_name, "")
        if name not in self._services.services:
            raise AwsError(
                "UnknownOperationException",
                f"this rehearsal has {', '.join(sorted(self._services.services))} "
                f"and no service {signing_name!r}",
                status=404,
            )
        return describe(name)


async def _hang_up(request: Request) -> Response:
    """Close the connection in the middle; returns once it is closed, with an answer for nobody."""
    request.state.abort()
    while (await request.receive())["type"] != "http.disconnect":
        pass
    return Response(status_code=500)


def app(front: AwsFront, *, control: ASGIApp | None, metadata: MetadataService | None) -> Starlette:
    """Everything that the endpoint has.

    Parameters
    ----------
    control
        What answers below `/_rehearsal`.
    metadata
        What answers instances below `/i-...`.
    """
    routes: list[Route | Mount] = []
    if control is not None:
        routes.append(Mount(CONTROL, app=control))
    if metadata is not None:
        routes.append(Route("/i-{path:path}", metadata.handle, methods=["GET", "PUT", "HEAD"]))
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes.append(Route("/{path:path}", front.handle, methods=methods))
    return Starlette(routes=routes)


@contextlib.asynccontextmanager
async def serve(
    *,
    services: Registry,
    keys: signing.KeyRing,
    port: int = 0,
    control: ASGIApp | None = None,
    metadata: MetadataService | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
) -> AsyncIterator[str]:
    """Serve on loopback until the block is left; gives the endpoint's URL, without a final slash.

    Parameters
    ----------
    port
        0: any free one.

    Raises
    ------
    OSError
        The port is taken.
    """
    front = AwsFront(services=services, keys=keys, wall_ns=wall_ns)
    # Reading the models takes a quarter of a second, which no first call should wait for.
    await asyncio.to_thread(by_signing_name)
    bound = _listening(port)
    try:
        server = _Uvicorn(
            uvicorn.Config(
                app(front, control=control, metadata=metadata),
                http=_Abortable,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_IDLE_S,
                timeout_graceful_shutdown=_STOP_S,
            )
        )
        serving = asyncio.create_task(server.serve(sockets=[bound]), name="rehearsal-http")
        begun = asyncio.create_task(server.begun.wait(), name="rehearsal-http-begun")
        try:
            await asyncio.wait((begun, serving), return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
                raise OSError("the server ended before it listened")
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            begun.cancel()
            server.should_exit = True
            await serving
    finally:
        bound.close()


def _listening(port: int) -> socket.socket:
    # asyncio sends small packets at once only on sockets that name TCP as their protocol, which
    # those of `create_server` do not: each answer would wait 40 ms for an acknowledgement.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
        bound.listen(_BACKLOG)
    except OSError:
        bound.close()
        raise
    return bound


class _Uvicorn(uvicorn.Server):
    """Uvicorn's server; signals are the business of the process that it is part of."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.begun = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell so."""
        await super().startup(sockets)
        self.begun.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the handlers of signals as they are."""
        yield


class _Abortable(H11Protocol):
    """Hands the app what closes its connection without an answer."""

    def connection_made(self, transport: Any) -> None:
        """Keep what the app may call."""
        super().connection_made(transport)
        self.app_state = {_ABORT: transport.abort}
