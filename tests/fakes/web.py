"""A read model over HTTP without a broker: a fold that a test feeds, and a client of its own."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from spotline.adapters.web.app import web_app
from spotline.adapters.web.fold_views import FoldViews
from spotline.adapters.web.guarding import WebLimits
from spotline.adapters.web.serving import WebServer
from spotline.application.allocator.jobs_state import JobsState
from spotline.application.identity.ports import Authenticator
from spotline.application.read_model.handler import ReadModelHandler
from spotline.contracts.build import envelope_for
from spotline.domain.events.event import Event
from spotline.runtime.health import Health


class FedHost:
    """Applies what a test says; entries of the log are numbered from 1."""

    def __init__(self, views: FoldViews) -> None:
        self.handler = ReadModelHandler()
        self.state: JobsState = self.handler.initial()
        self.healthy = True
        self.seq = 0
        self._views = views
        views.attach(self)

    def health(self) -> Health:
        return Health(healthy=self.healthy, detail={"phase": "live"})

    async def publish_observation(self, event: Event, *, event_id: str, correlation_id: str) -> int:
        raise AssertionError("the read model records nothing")

    def feed(self, *events: Event, together: bool = False) -> None:
        """Apply events, each in an entry of its own or `together` in one."""
        for number, event in enumerate(events):
            self.seq += not together or not number
            self.handler.evolve(self.state, event)
            envelope = envelope_for(
                event,
                event_id=f"event-{self.seq}-{number}",
                source="test",
                causation_id="",
                correlation_id="c",
            )
            self._views.on_applied(event, envelope, self.seq)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class RunningWeb:
    """A server on a free port, and the host behind it."""

    host: FedHost
    views: FoldViews
    server: WebServer
    address: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Ask once, on a connection of its own; blocks, so call it in a thread."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            response = connection.getresponse()
            told = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, told, response.read())
        finally:
            connection.close()


@asynccontextmanager
async def running_web(
    *, limits: WebLimits | None = None, authenticator: Authenticator | None = None
) -> AsyncIterator[RunningWeb]:
    """A server on a free loopback port, until the block is left."""
    views = FoldViews()
    host = FedHost(views)
    server = WebServer(
        web_app(views, limits=limits, authenticator=authenticator),
        address="127.0.0.1:0",
        limits=limits,
        end_streams=views.end,
    )
    address = await server.start()
    try:
        yield RunningWeb(host, views, server, address)
    finally:
        await server.stop()


class EventReader:
    """Reads server-sent events off one connection, each as its fields; call it in a thread."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        self._connection.request("GET", path, headers=dict(headers or {}))
        self.response = self._connection.getresponse()

    def next(self) -> dict[str, str]:
        """The next event that has data; empty at the end of the stream."""
        while True:
            fields: dict[str, str] = {}
            while line := self.response.readline().decode():
                if line == "\n":
                    break
                name, _, value = line.rstrip("\n").partition(": ")
                fields[name] = value
            if not line or "data" in fields:
                return fields

    def close(self) -> None:
        self._connection.close()
