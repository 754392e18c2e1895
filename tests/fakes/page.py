"""A site of pages over HTTP without a broker, and a browser's part in it: cookies and forms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.pages import PAGES
from spotline.adapters.page.site import PageSite, SiteParts
from spotline.adapters.web.app import ServedBeside, web_app
from spotline.adapters.web.fold_views import FoldViews
from spotline.adapters.web.guarding import FORM, WebFigures, WebLimits
from spotline.adapters.web.identity import WebDoor
from spotline.adapters.web.serving import WebServer
from spotline.application.identity.ports import AuditTrail, Authenticator
from spotline.application.page.applied import applied
from spotline.contracts.build import envelope_for
from spotline.domain.events.event import Event
from tests.fakes.web import Answer, FedHost, RunningWeb

_CSRF = re.compile(r'name="csrf" value="([0-9a-f]+)"')


@dataclass(slots=True)
class Browser:
    """Asks a server as a browser does: keeps its cookie, says of which site a form is."""

    web: RunningWeb
    cookie: str = ""

    async def get(self, path: str, **headers: str) -> Answer:
        """Open an address, without following where it leads."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await asyncio.to_thread(self.web.ask, path, headers=self._with_cookie(sent))

    async def post(
        self, path: str, fields: Mapping[str, str], *, site: str | None = "same-origin", **more: Any
    ) -> Answer:
        """Send a form of a page of this `site`; None: it is not said."""
        headers = {"Content-Type": FORM, **more}
        if site is not None:
            headers["Sec-Fetch-Site"] = site
        answer = await asyncio.to_thread(
            self.web.ask,
            path,
            method="POST",
            headers=self._with_cookie(headers),
            body=urlencode(fields).encode(),
        )
        kept = answer.headers.get("set-cookie")
        if kept is not None:
            self.cookie = kept.partition(";")[0]
        return answer

    async def sign_in(self, token: str, onward: str = "/jobs") -> Answer:
        """Sign in by the form."""
        csrf = csrf_of(await self.get("/sign-in"))
        return await self.post("/sign-in", {"token": token, "csrf": csrf, "next": onward})

    def _with_cookie(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, "Cookie": self.cookie} if self.cookie else dict(headers)


def csrf_of(answer: Answer) -> str:
    """What a page's form carries."""
    found = _CSRF.search(answer.body.decode())
    assert found is not None, answer.body.decode()
    return found.group(1)


@dataclass(slots=True)
class RunningSite:
    """A server with pages on a free port."""

    web: RunningWeb
    site: PageSite
    figures: WebFigures
    _seq: int = field(default=0)

    def browser(self) -> Browser:
        """One that has never been here."""
        return Browser(self.web)

    def feed(self, *events: Event) -> None:
        """Apply events to the views and to the pages, each in an entry of its own."""
        for event in events:
            self._seq += 1
            self.web.host.feed(event)
            envelope = envelope_for(
                event,
                event_id=f"event-{self._seq}",
                source="test",
                causation_id="",
                correlation_id="c",
            )
            self.site.apply(applied(event, envelope, self._seq))


@asynccontextmanager
async def running_site(
    *,
    authenticator: Authenticator | None = None,
    limits: WebLimits | None = None,
    prepare: Callable[[PageSite], None] = lambda site: None,
    trail: AuditTrail | None = None,
    **parts: Any,
) -> AsyncIterator[RunningSite]:
    """A server of views and pages on a free loopback port, until the block is left."""
    figures, desk, views = WebFigures(), PageDesk(), FoldViews()
    limits = limits or WebLimits()
    door = WebDoor(authenticator, figures.denials, trail=trail)
    site = PageSite(
        desk,
        PAGES,
        SiteParts(door=door, source="test", figures=figures, limits=limits, **parts),
    )
    prepare(site)
    host = FedHost(views)

    def end() -> None:
        views.end()
        site.end()

    server = WebServer(
        web_app(
            views,
            limits=limits,
            figures=figures,
            authenticator=authenticator,
            beside=ServedBeside(routes=site.routes(), takes_form=site.takes_form),
        ),
        address="127.0.0.1:0",
        limits=limits,
        end_streams=end,
    )
    address = await server.start()
    try:
        yield RunningSite(RunningWeb(host, views, server, address), site, figures)
    finally:
        await server.stop()
        desk.close()
