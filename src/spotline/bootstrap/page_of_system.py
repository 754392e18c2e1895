"""Serving the pages of a running system from elsewhere, with nothing but its gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import urlencode

import structlog

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.adapters.identity.endpoints import ClientIdentity, client_identity
from spotline.adapters.page.acting import GrpcActing
from spotline.adapters.page.acts_served import ActPages
from spotline.adapters.page.asked_identity import AskedIdentity
from spotline.adapters.page.asked_live import AskedExplainer, LiveAbout, LiveOutlooks, limits_of
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import pages_with
from spotline.adapters.page.sessions import BrowserSessions
from spotline.adapters.page.site import SIGN_IN, PageSite, SiteParts
from spotline.adapters.page.sources import PageSources, Workbench
from spotline.adapters.web.asked_system import AskedSystem
from spotline.adapters.web.guarding import Guard, WebFigures, WebLimits
from spotline.adapters.web.identity import WebDoor
from spotline.adapters.web.serving import WebServer
from spotline.application.page.applied import Applied, applied
from spotline.application.read_model.handler import SPEC
from spotline.contracts.access import Role
from spotline.replay.recorded import ReadableLog

_log = structlog.get_logger(__name__)

# A system that is started again is there soon.
_AGAIN_S = 2.0


@dataclass(slots=True)
class FollowedLog:
    """A running system's log, read over gRPC into pages.

    Parameters
    ----------
    take
        Takes each event that pages are folded from.
    next_seq
        The next entry that is to be read.
    """

    client: OperationsClient
    take: Callable[[Applied], None]
    next_seq: int = 1
    caught_up: asyncio.Event = field(default_factory=asyncio.Event)
    again_s: float = _AGAIN_S
    _readable: ReadableLog = field(default_factory=ReadableLog)

    async def run(self) -> None:
        """Follow until cancelled; where the system is away for a while, go on when it is back.

        Raises
        ------
        RpcFailed
            It refuses.
        """
        while True:
            try:
                await self._follow()
            except RpcFailed as failed:
                if not failed.unreachable and not failed.retry_s:
                    raise
                _log.warning("log_not_read", error=str(failed), next_seq=self.next_seq)
            await asyncio.sleep(self.again_s)

    async def _follow(self) -> None:
        async for entries, last_seq in self.client.read_log(self.next_seq, follow=True):
            for entry in entries:
                for event in self._readable.events_of(entry):
                    if isinstance(event.event, SPEC.consumes):
                        self.take(
                            applied(event.event, event.envelope, event.seq, wall_ns=event.stored_ns)
                        )
                self.next_seq = entry.seq + 1
            if self.next_seq > last_seq:
                self.caught_up.set()


async def serve_running(
    system: str, *, address: str, told: Callable[[str], None], limits: WebLimits | None = None
) -> None:
    """Serve the pages of the system whose allocator is at `system` until cancelled.

    `told` gets the address of the first page, with a code that signs this machine's user in, once.

    Raises
    ------
    ConfigError
        The address is malformed or taken.
    RpcFailed
        The system cannot be reached at the start, or does not let this user read its log.
    """
    identity = client_identity(system)
    sessions, figures, limits = BrowserSessions(), WebFigures(), limits or WebLimits()
    door = WebDoor(None if identity is None else AskedIdentity(system, identity), figures.denials)
    async with AsyncExitStack() as stack:
        desk, bench = PageDesk(), Workbench()
        stack.callback(desk.close)
        stack.callback(bench.close)
        client = await stack.enter_async_context(
            OperationsClient(system, caller="web", identity=identity)
        )
        about = LiveAbout(system=AskedSystem(client).status, limits=limits_of(client.limits))
        stack.callback(about.close)
        acting = GrpcActing(system, identity)
        sources = PageSources(
            explainer=AskedExplainer(acting), outlooks=LiveOutlooks(acting), desk=desk, bench=bench
        )
        parts = SiteParts(
            door=door,
            source=f"running system at {system}",
            acts=True,
            about=about.of,
            sessions=sessions,
            figures=figures,
            limits=limits,
        )
        site = PageSite(desk, pages_with(sources), parts)
        acts = ActPages(site, acting)
        site.add(acts.routes(), acts.paths())
        # The first words are refused, or lost, where people see it.
        await client.status()
        server = WebServer(
            Guard(site.app(), limits, (), figures, site.takes_form),
            address=address,
            limits=limits,
            end_streams=site.end,
        )
        bound = await server.start()
        stack.push_async_callback(server.stop)
        log = FollowedLog(client=client, take=site.apply)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(log.run(), name="follow")
                await log.caught_up.wait()
                told(_first_page(bound, sessions, identity))
        except ExceptionGroup as group:
            refused, _ = group.split(RpcFailed)
            if refused is None:
                raise
            raise refused.exceptions[0] from None


def _first_page(bound: str, sessions: BrowserSessions, identity: ClientIdentity | None) -> str:
    if identity is None:
        return f"http://{bound}/"
    # What watches is enough to look; who has another token signs in with that to act.
    token = identity.token_of(frozenset({Role.OPERATOR, Role.VIEWER, Role.SERVICE}))
    return f"http://{bound}{SIGN_IN}?{urlencode({'code': sessions.offer(token)})}"
