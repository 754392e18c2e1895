"""The pages over HTTP: each is made from the book at the place that is asked for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from spotline.adapters.page.asked import PageAsked, whole_number
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.rendering import rendered
from spotline.adapters.page.shell import Destination, Shell
from spotline.adapters.page.static_files import PageFiles
from spotline.adapters.web.identity import Reader
from spotline.adapters.web.problems import status_of
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.book import PageBook
from spotline.application.page.jobs import SeenJob
from spotline.application.page.now import rows_of, standing_of
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.access import Action, Does, DoorKind, Reach, Role
from spotline.contracts.reasons import Reason

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

_PLACES_KEPT = 4

Model = Mapping[str, Any]
"""What a template is given, by name."""

Build = Callable[[PageState, PageAsked, Model], Model]
"""Makes a page of a state; pure.

Its last argument is what `Gather` found, with `about` (what is known beside the log) and `rows` (the
jobs that the caller may see).
"""

Gather = Callable[[PageAsked], Awaitable[Model]]
"""Asks others for what is not in the book, before the page is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSpec:
    """One page: where it is, what makes it, and what it is called in the navigation.

    `name` is empty for pages that are not in the navigation; `under` is the path of the one they
    belong to. `whole` pages show all tenants' together: a caller of one tenant may not see them.
    `download` is the name of the file that one is which is no page, a table of comma-separated
    values.
    """

    path: str
    template: str
    build: Build
    name: str = ""
    under: str = ""
    whole: bool = False
    gather: Gather | None = None
    download: str = ""


_ANYBODY = Action(
    door=DoorKind.HTTP, name="GET", does=Does.READ, reach=Reach.SYSTEM, roles=frozenset(Role)
)

Admit = Callable[[Request, PageSpec], Awaitable[Reader]]
"""Says who asks for a page; `ViewRefused` where he may not."""

SignIn = Callable[[Request, ViewRefused], Response]
"""What is answered to whoever has not proved who he is."""


async def anybody(request: Request, page: PageSpec) -> Reader:
    """Ask nobody who he is: everybody sees everything."""
    return Reader(_ANYBODY)


async def nothing_about(asked: PageAsked) -> About:
    """Know nothing beside the log."""
    return NOTHING_KNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What all pages of a server have in common; without `sign_in` nobody can.

    `acts` says whether people can do something there.
    `about` says what is known beside the log.
    """

    source: str
    recorded: bool = False
    acts: bool = False
    admit: Admit = anybody
    sign_in: SignIn | None = None
    about: Callable[[PageAsked], Awaitable[About]] = nothing_about


class Pages:
    """Answers requests for pages."""

    def __init__(self, desk: PageDesk, pages: Sequence[PageSpec], frame: Frame) -> None:
        self._desk = desk
        self._pages = tuple(pages)
        self._frame = frame
        self._rows = RowsKept()

    def routes(self) -> list[BaseRoute]:
        """A route for each page, and what they load."""
        routes: list[BaseRoute] = [
            Route(page.path, self._answering(page), methods=["GET"]) for page in self._pages
        ]
        return [*routes, Mount("/static", PageFiles())]

    def _answering(self, page: PageSpec) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            try:
                reader = await self._frame.admit(request, page)
                query = dict(request.query_params)
                asked = PageAsked(
                    path=request.url.path,
                    params=request.path_params,
                    query=query,
                    caller=reader.caller,
                    token=reader.token,
                    at=whole_number("at", query.get("at")),
                )
                gathered = {} if page.gather is None else await page.gather(asked)
                found = {"about": await self._frame.about(asked), **gathered}
                shell = self._shell(page, asked)
                text = await self._desk.ask(
                    lambda book: _made(page, asked, found, shell, book, self._rows)
                )
                return _download(page.download, text) if page.download else html(text)
            except ViewRefused as refused:
                return self.refusal(request, refused)

        return answer

    def refusal(self, request: Request, refused: ViewRefused) -> Response:
        """A page that says why there is none."""
        if refused.reason is Reason.UNAUTHENTICATED and self._frame.sign_in is not None:
            return self._frame.sign_in(request, refused)
        shell = self.bare_shell(request.url.path)
        status = status_of(refused)
        text = rendered("refused.html", shell=shell, status=status, refused=refused)
        return html(text, status)

    def bare_shell(self, path: str, reader: Reader | None = None, *, under: str = "") -> Shell:
        """The frame of what is made of no place in the log; without a reader it leads nowhere."""
        if reader is None:
            return Shell(path=path, source=self._frame.source, bare=True)
        caller = reader.caller
        return Shell(
            path=path,
            destinations=self._destinations(under or path, reader.tenant),
            subject="" if caller is None else caller.subject,
            role="" if caller is None else caller.role.value,
            tenant=reader.tenant,
            source=self._frame.source,
            acts=self._frame.acts,
            bare=True,
        )

    def _destinations(self, here: str, tenant: str) -> tuple[Destination, ...]:
        return tuple(
            Destination(name=other.name, path=other.path, current=other.path == here)
            for other in self._pages
            if other.name and not (other.whole and tenant)
        )

    def _shell(self, page: PageSpec, asked: PageAsked) -> Shell:
        caller = asked.caller
        return Shell(
            path=asked.path,
            query=asked.query,
            destinations=self._destinations(page.under or page.path, asked.tenant),
            subject="" if caller is None else caller.subject,
            role="" if caller is None else caller.role.value,
            tenant=asked.tenant,
            source=self._frame.source,
            recorded=self._frame.recorded,
            acts=self._frame.acts,
            at=asked.at,
        )


def html(text: str, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """A page, with what browsers are told of it.

    Of a page without a referrer a browser does not say whose forms are.
    """
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "same-origin"}
    if status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="spotline"'
    return HTMLResponse(text, status_code=status, headers=headers)


def _download(name: str, text: str) -> Response:
    """A table that is kept as a file."""
    headers = {
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


class RowsKept:
    """The rows of all jobs at the places that were looked at last: every page is made with them.

    The same place has the same rows, for the same tenant and expectations. Only the desk's thread
    may ask.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str], tuple[About, Sequence[SeenJob]]] = OrderedDict()

    def of(self, state: PageState, about: About, tenant: str) -> Sequence[SeenJob]:
        """All jobs that a tenant (empty: anybody) may see."""
        key = state.applied, tenant
        known = self._kept.get(key)
        if known is None or known[0].outlooks is not about.outlooks:
            known = about, rows_of(state, about, tenant)
            self._kept[key] = known
        self._kept.move_to_end(key)
        while len(self._kept) > _PLACES_KEPT:
            self._kept.popitem(last=False)
        return known[1]


def _made(
    page: PageSpec, asked: PageAsked, found: Model, shell: Shell, book: PageBook, kept: RowsKept
) -> str:
    """A page from the book, in its thread."""
    state, about = book.at(asked.at), found["about"]
    rows = kept.of(state, about, asked.tenant)
    standing = standing_of(state, rows, about, asked.tenant)
    placed = replace(
        shell,
        clock=state.clock(),
        seq=state.seq,
        first_slot=book.first_slot,
        last_slot=book.last_slot,
        left_out=len(state.left_out),
        alerts=standing.alerts,
        spent_today_micro_usd=standing.spent_today_micro_usd,
        cap_today_micro_usd=standing.cap_today_micro_usd,
    )
    return rendered(
        page.template,
        shell=placed,
        state=state,
        **page.build(state, asked, {**found, "rows": rows}),
    )
