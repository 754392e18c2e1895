"""`GET /readyz` (`/healthz`): 200 while events flow, 503 otherwise, with JSON that says why.

`GET /livez` beside it: 503 where only a restart helps. `GET /metrics`: the metrics of the process,
where they are turned on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

FREE_PORT = 0

PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"

_REQUEST_S = 5.0
_REASONS = {200: "OK", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a component is well, and what it says of itself."""

    healthy: bool
    detail: Mapping[str, str | int | bool] = field(default_factory=dict)


@asynccontextmanager
async def serve_health(
    probes: Mapping[str, Callable[[], Health]],
    *,
    host: str = "127.0.0.1",
    port: int = FREE_PORT,
    metrics: Callable[[], bytes] | None = None,
    alive: Callable[[], bool] = lambda: True,
) -> AsyncIterator[int]:
    """Answer health checks inside `async with`; its value is the port listened on.

    Parameters
    ----------
    probes
        A name and a quick, synchronous question for every component.
    host
        127.0.0.1, or 0.0.0.0 in a container.
    port
        TCP port, `FREE_PORT` for any free one.
    metrics
        Renders the metrics for a scrape, in a thread; None answers 404.
    alive
        Whether no restart is needed; that the process answers at all is asked with it.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readline()
                while (await reader.readline()).strip():
                    pass
                writer.write(await _response(request, probes, metrics, alive))
                await writer.drain()
        except (TimeoutError, OSError, ValueError):
            return  # a client that does not finish its request gets no answer
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, port)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _response(
    request: bytes,
    probes: Mapping[str, Callable[[], Health]],
    metrics: Callable[[], bytes] | None,
    alive: Callable[[], bool],
) -> bytes:
    method, _, rest = request.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    status, kind, content = 404, "application/json", b"{}"
    if path == "/metrics" and metrics is not None:
        status, kind = 200, PROMETHEUS_TEXT
        # What is read for it may wait for a file.
        content = await asyncio.to_thread(metrics)
    elif path == "/livez":
        lives = alive()
        status, content = (200 if lives else 503), json.dumps({"alive": lives}).encode()
    elif path in ("/healthz", "/readyz"):
        health = {name: probe() for name, probe in sorted(probes.items())}
        status = 200 if all(service.healthy for service in health.values()) else 503
        body = {
            name: {"healthy": service.healthy, **service.detail} for name, service in health.items()
        }
        content = json.dumps(body).encode()
    if status != 404 and method not in ("GET", "HEAD"):
        status, kind, content = 405, "application/json", b"{}"
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else content)
