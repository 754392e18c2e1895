"""The system over HTTP, and that the allocator does not tell."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.web.app import web_app
from spotline.adapters.web.asked_system import AskedSystem
from spotline.adapters.web.fold_views import FoldViews
from spotline.adapters.web.serving import WebServer
from spotline.application.market_view import ClockReading
from spotline.application.operations.messages import Condition, ServiceStatus, SystemStatus

WELL = SystemStatus(
    healthy=True,
    services=tuple(
        ServiceStatus(
            service=name,
            ready=True,
            heard_s_ago=0,
            conditions=(Condition(name="log", healthy=True, detail="at 5 of 5"),),
        )
        for name in ("allocator", "selector")
    ),
    clock=ClockReading(market_ns=1_772_323_200_000_000_000, slot=3, slot_s=600),
    parked=2,
)


class Teller:
    """Answers with a status, or fails."""

    def __init__(self, status: SystemStatus | None) -> None:
        self.told = status

    async def status(self) -> SystemStatus:
        if self.told is None:
            raise RpcFailed("UNAVAILABLE", "the allocator cannot be reached", unreachable=True)
        return self.told


async def answered(teller: Teller | None) -> tuple[int, dict]:
    system = None if teller is None else AskedSystem(teller).status
    server = WebServer(web_app(FoldViews(), system=system), address="127.0.0.1:0")
    address = await server.start()
    try:
        return await asyncio.to_thread(get, f"http://{address}/v1/system")
    finally:
        await server.stop()


def get(url: str) -> tuple[int, dict]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


async def test_the_system_is_told_as_the_allocator_tells_it() -> None:
    status, said = await answered(Teller(WELL))
    assert status == 200
    assert said["healthy"] is True
    assert said["clock"]["slot"] == 3
    assert said["parked"] == 2
    assert said["services"][0]["conditions"] == [
        {"name": "log", "healthy": True, "detail": "at 5 of 5", "continue_with": None}
    ]


async def test_an_allocator_that_does_not_answer_is_what_is_told() -> None:
    status, said = await answered(Teller(None))
    assert status == 503
    assert said["healthy"] is False
    assert said["conditions"][0]["detail"] == "the allocator cannot be reached"


async def test_a_server_without_an_allocator_says_that_it_has_none() -> None:
    status, said = await answered(None)
    assert status == 503
    assert "not told where the allocator is" in said["detail"]


async def test_a_server_that_ended_by_itself_says_why() -> None:
    server = WebServer(web_app(FoldViews()), address="127.0.0.1:0")
    await server.start()
    assert server.ended == ""
    assert server._serving is not None
    server._serving.cancel()
    await asyncio.wait((server._serving,))
    assert server.ended == "it was cancelled or ended by itself"
    await server.stop()
    assert server.ended == ""
