"""Serves an app over HTTP beside other work of the same loop, within bounds."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from spotline.adapters.web.guarding import ABORT, WebLimits
from spotline.contracts.errors import ConfigError

_BACKLOG = 128
_STOP_S = 2


class WebServer:
    """An HTTP server.

    Parameters
    ----------
    address
        `host:port`; port 0 takes a free one, which `start` returns.
    end_streams
        Ends answers that would not end by themselves, once the server stops.
    tls
        What it speaks TLS with; None: it serves in the clear.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        address: str,
        limits: WebLimits | None = None,
        end_streams: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._app = app
        self._address = address
        self._limits = limits or WebLimits()
        self._end_streams = end_streams
        self._tls = tls
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Bind, and serve; returns the bound address.

        Raises
        ------
        ConfigError
            The address is malformed or taken.
        """
        host, bound = _bound(self._address)
        limits = self._limits
        config = uvicorn.Config(
            self._app,
            http=_protocol_with(limits.request_s),
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=limits.most_connections,
            timeout_keep_alive=limits.idle_s,
            timeout_graceful_shutdown=_STOP_S,
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        config.load()
        # Of uvicorn's own options there is none for a context that is there already.
        config.ssl = self._tls
        server = self._server = _Server(config)
        self._serving = asyncio.create_task(server.serve(sockets=[bound]), name="http")
        port = int(bound.getsockname()[1])
        started = asyncio.create_task(server.begun.wait())
        await asyncio.wait((started, self._serving), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._serving.done():
            # It ended before it listened: its error is the caller's.
            self._serving.result()
            raise ConfigError(f"cannot serve HTTP on {self._address}: the server ended at once")
        return f"{host}:{port}"

    @property
    def ended(self) -> str:
        """Why it serves no more although nobody stopped it; empty while it serves."""
        if self._server is None or self._serving is None or not self._serving.done():
            return ""
        error = None if self._serving.cancelled() else self._serving.exception()
        return "it was cancelled or ended by itself" if error is None else repr(error)

    async def stop(self) -> None:
        """Take no new requests, end those in progress, and return. Safe to repeat."""
        server, self._server = self._server, None
        if server is None or self._serving is None:
            return
        self._end_streams()
        server.should_exit = True
        if self._serving.done():
            # It ended by itself, which was told by `ended`; what it listened on is open still.
            await server.shutdown()
        else:
            await self._serving


class _Server(uvicorn.Server):
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


def _bound(address: str) -> tuple[str, socket.socket]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise ConfigError(f"HTTP address must be HOST:PORT, was {address!r}")
    bare = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    try:
        return host, _listening((bare, int(port)), family)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address} ({error.strerror or error}); is another read_model running "
            "there? Name another address, or port 0 for any free one"
        ) from error


def _listening(address: tuple[str, int], family: socket.AddressFamily) -> socket.socket:
    # Of sockets that say that they are TCP asyncio sends small parts at once; those of
    # `create_server` do not: each answer in parts would wait 40 ms for an acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
    except BaseException:
        bound.close()
        raise
    return bound


def _protocol_with(request_s: float) -> type[H11Protocol]:
    """A protocol that ends a connection on which a request does not arrive within `request_s`."""

    class HurriedProtocol(H11Protocol):
        _hurry: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state = {ABORT: transport.abort}
            self._look()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            self._relax()
            super().connection_lost(exc)

        def _look(self) -> None:
            if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
                self._relax()
            elif self._hurry is None and not self.transport.is_closing():
                self._hurry = self.loop.call_later(request_s, self.transport.abort)

        def _relax(self) -> None:
            if self._hurry is not None:
                self._hurry.cancel()
                self._hurry = None

    return HurriedProtocol
