"""The read model: where jobs stand, as JSON and as pages, folded from the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spotline.adapters.audit.tallied import DeniedCallers
from spotline.application.identity.audit import AuditDoor
from spotline.bootstrap.agents import host_of
from spotline.bootstrap.answering import ServedHost, answer_while_following
from spotline.bootstrap.facts import ended_tasks
from spotline.bootstrap.parts import BusAddress, PartHooks, open_stream
from spotline.contracts.envelope import Envelope
from spotline.domain.events.event import Event
from spotline.runtime.metrics import HTTP_STATUS
from spotline.runtime.service import Listener, ServiceHost
from spotline.runtime.telemetry import telemetry_for

if TYPE_CHECKING:
    from spotline.adapters.page.site import PageSite
    from spotline.adapters.web.guarding import WebFigures
    from spotline.adapters.web.identity import WebDoor
    from spotline.application.identity.ports import Authenticator
    from spotline.application.page.acting_ports import Acting

# Names that are every machine's.
_ANY_HOST = ("0.0.0.0", "[::]")  # noqa: S104


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInLink:
    """Whose token a link stands for that signs in once, and who is told its path.

    There is none where nobody is asked who he is, or where other machines reach the server.
    """

    token: str = field(repr=False)
    told: Callable[[str], None]


async def serve_read_model(
    bus: BusAddress,
    *,
    address: str,
    hosts: tuple[str, ...] = (),
    allocator_address: str = "",
    hooks: PartHooks,
    listening: Callable[[str], None] | None = None,
    link: SignInLink | None = None,
) -> None:
    """Fold where jobs stand, and answer HTTP at `address`; `listening` is told the bound address.

    `link` is told, before that, of a link that signs in once.

    Callers may name it by the loopback's names and by `hosts`. What is expected of jobs is asked of
    the allocator at `allocator_address`, and what people do is done by it; empty: neither is.

    Raises
    ------
    ConfigError
        The address is malformed or taken.
    """
    from spotline.adapters.page.sessions import is_loopback
    from spotline.adapters.web.app import ServedBeside, web_app
    from spotline.adapters.web.fold_views import FoldViews
    from spotline.adapters.web.guarding import WebFigures
    from spotline.adapters.web.serving import WebServer
    from spotline.application.read_model.handler import ReadModelHandler

    async with AsyncExitStack() as stack:
        connection, stream = await stack.enter_async_context(open_stream(bus, name="read_model"))
        asked = await _Asked.open(stack, allocator_address, hooks)
        figures = WebFigures()
        for hide in _shown_figures(figures):
            stack.callback(hide)
        identity = hooks.server_identity()
        authenticator = None if identity is None else identity.authenticator
        door, denied = await _door(stack, hooks, figures, authenticator)
        site = _site(stack, figures, door, asked)
        views = FoldViews(outlooks=asked.outlooks)
        host = ServiceHost(
            ReadModelHandler(),
            stream,
            on_applied=_heard_by(views.on_applied, _shown_on(site), hooks.on_applied),
        )
        views.attach(host)
        hooks.note("read_model", host, connection)
        # An address of one name is called by it; one that is every name's says nothing.
        own = () if host_of(address) in _ANY_HOST else (host_of(address),)
        app = web_app(
            views,
            hosts=(*own, *hosts),
            figures=figures,
            system=asked.system,
            authenticator=authenticator,
            denied=denied,
            beside=ServedBeside(routes=site.routes(), takes_form=site.takes_form),
        )
        tls = None
        if identity is not None:
            tls = identity.tls_context()
            await stack.enter_async_context(identity.kept_current(tls))

        def end_streams() -> None:
            views.end()
            site.end()

        def bound_to(bound: str) -> None:
            if link is not None and door.asks and is_loopback(host_of(bound)):
                link.told(site.link(link.token))
            if listening is not None:
                listening(bound)

        server = WebServer(app, address=address, end_streams=end_streams, tls=tls)
        hooks.probe("read_model", ended_tasks({"HTTP": lambda: server.ended}))
        async with asyncio.TaskGroup() as tasks:
            await answer_while_following(
                tasks, ServedHost(host=host, server=server, listening=bound_to)
            )


class _Asked:
    """What is asked of the allocator; None where nobody knows where it is."""

    def __init__(self) -> None:
        self.outlooks: Any = None
        self.system: Any = None
        self.limits: Any = None
        self.acting: Acting | None = None

    @classmethod
    async def open(cls, stack: AsyncExitStack, address: str, hooks: PartHooks) -> _Asked:
        """Clients of the allocator, closed with the stack."""
        from spotline.adapters.grpc.allocator.client import JobClient
        from spotline.adapters.grpc.operations.client import OperationsClient
        from spotline.adapters.page.acting import GrpcActing
        from spotline.adapters.page.asked_live import limits_of
        from spotline.adapters.web.asked_outlooks import AskedOutlooks
        from spotline.adapters.web.asked_system import AskedSystem

        asked = cls()
        if not address:
            return asked
        known = hooks.client_identity("read_model")
        asked.acting = GrpcActing(address, known)
        client = JobClient(address, caller="read_model", identity=known)
        asked.outlooks = AskedOutlooks(await stack.enter_async_context(client))
        stack.callback(asked.outlooks.close)
        operations = OperationsClient(address, caller="read_model", identity=known)
        asked.system = AskedSystem(await stack.enter_async_context(operations)).status
        asked.limits = limits_of(operations.limits)
        return asked


async def _door(
    stack: AsyncExitStack,
    hooks: PartHooks,
    figures: WebFigures,
    authenticator: Authenticator | None,
) -> tuple[WebDoor, DeniedCallers | None]:
    """Who is let in, and who records those that are not; what they write ends with the stack."""
    from spotline.adapters.web.identity import WebDoor

    denied = None
    trail = await stack.enter_async_context(hooks.trail("read_model"))
    if trail is not None:
        denied = DeniedCallers(trail, AuditDoor.HTTP)
        stack.callback(denied.close)
    return WebDoor(authenticator, figures.denials, denied, trail), denied


def _site(
    stack: AsyncExitStack,
    figures: WebFigures,
    door: WebDoor,
    asked: _Asked,
) -> PageSite:
    """The pages, whose threads end with the stack."""
    from spotline.adapters.page.acts_served import ActPages
    from spotline.adapters.page.asked_live import AskedExplainer, LiveAbout, LiveOutlooks
    from spotline.adapters.page.desk import PageDesk
    from spotline.adapters.page.pages import pages_with
    from spotline.adapters.page.site import PageSite, SiteParts
    from spotline.adapters.page.sources import PageSources, Workbench

    desk, bench, acting = PageDesk(), Workbench(), asked.acting
    stack.callback(desk.close)
    stack.callback(bench.close)
    about = LiveAbout(outlooks=asked.outlooks, system=asked.system, limits=asked.limits)
    stack.callback(about.close)
    sources = PageSources(
        explainer=None if acting is None else AskedExplainer(acting),
        outlooks=None if acting is None else LiveOutlooks(acting),
        desk=desk,
        bench=bench,
    )
    parts = SiteParts(
        door=door,
        source="running system",
        secure=door.asks,
        acts=acting is not None,
        about=about.of,
        figures=figures,
    )
    site = PageSite(desk, pages_with(sources), parts)
    if acting is not None:
        acts = ActPages(site, acting)
        site.add(acts.routes(), acts.paths())
    return site


def _shown_on(site: PageSite) -> Listener:
    from spotline.application.page.applied import applied

    def tell(event: Event, envelope: Envelope, seq: int) -> None:
        site.apply(applied(event, envelope, seq))

    return tell


def _heard_by(*listeners: Listener | None) -> Listener:
    """Tell all listeners of what was applied, in this order."""
    hearing = tuple(listener for listener in listeners if listener is not None)

    def tell(event: Any, envelope: Any, seq: int) -> None:
        for listener in hearing:
            listener(event, envelope, seq)

    return tell


def _shown_figures(figures: WebFigures) -> Sequence[Callable[[], None]]:
    """Show what the read model's server has done as metrics, until the results are called."""
    telemetry = telemetry_for("read_model")
    return (
        telemetry.observe(
            "spotline.http.requests",
            lambda: [
                (count, {HTTP_STATUS: str(status)})
                for status, count in tuple(figures.answered.items())
            ],
        ),
        telemetry.observe("spotline.http.watches", lambda: [(figures.watches, {})]),
        telemetry.observe("spotline.callers.denied", figures.denials.readings),
    )
