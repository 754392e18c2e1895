"""The pages as a site: who is signed in, where forms are taken, what follows the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import quote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from spotline.adapters.page.app import Frame, Pages, PageSpec, html, nothing_about
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.changes import PageChanges, change_texts
from spotline.adapters.page.desk import PageDesk
from spotline.adapters.page.forms import CSRF_FIELD, check_origin, posted
from spotline.adapters.page.rendering import rendered
from spotline.adapters.page.sessions import BrowserSessions, Tries
from spotline.adapters.web.guarding import WebFigures, WebLimits
from spotline.adapters.web.identity import Reader, WebDoor
from spotline.adapters.web.problems import status_of
from spotline.adapters.web.streaming import EVENT_STREAM
from spotline.application.identity.permission import role_denial
from spotline.application.page.about import About
from spotline.application.page.applied import Applied
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.access import HTTP_ACTIONS, ROLE_MEANINGS, Action, Caller
from spotline.contracts.reasons import Reason

SIGN_IN, SIGN_OUT, ACCOUNT = "/sign-in", "/sign-out", "/account"
CHANGES = "/page/changes"
_MOST_TOKEN = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """A request of somebody who was let in; `session_id` is empty where there is no session."""

    reader: Reader
    session_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParts:
    """What a site is made of.

    `secure` says whether it is reached by TLS: then a browser keeps its session to that alone.
    `acts` says whether people can do something by it, `about` what is known beside the log.
    """

    door: WebDoor
    source: str
    secure: bool = False
    acts: bool = False
    about: Callable[[PageAsked], Awaitable[About]] = nothing_about
    sessions: BrowserSessions = field(default_factory=BrowserSessions)
    tries: Tries = field(default_factory=Tries)
    figures: WebFigures = field(default_factory=WebFigures)
    limits: WebLimits = field(default_factory=WebLimits)


class PageSite:
    """Serves pages to those who may see them."""

    def __init__(self, desk: PageDesk, pages: Sequence[PageSpec], parts: SiteParts) -> None:
        self._desk = desk
        self._listed = tuple(pages)
        self._parts = parts
        self._changes = PageChanges()
        frame = Frame(
            source=parts.source,
            acts=parts.acts,
            about=parts.about,
            admit=self._admit_page,
            sign_in=self._asked_to_sign_in,
        )
        self.pages = Pages(desk, pages, frame)
        self._forms: set[str] = {SIGN_IN, SIGN_OUT}
        self._beside: list[BaseRoute] = []

    def apply(self, told: Applied) -> None:
        """Take what was applied. Never waits."""
        self._desk.apply(told)
        self._changes.note(told)

    def end(self) -> None:
        """End all that follow: the server stops."""
        self._changes.end()

    def takes_form(self, path: str) -> bool:
        """Whether a form may be posted there."""
        return path in self._forms

    def add(self, routes: Sequence[BaseRoute], forms: Iterable[str]) -> None:
        """Serve more, that asks by `visit` who calls; forms are taken at these paths."""
        self._beside.extend(routes)
        self._forms.update(forms)

    def routes(self) -> list[BaseRoute]:
        """All that is served."""
        own: list[BaseRoute] = [
            Route(CHANGES, self._follow, methods=["GET"]),
            Route(SIGN_IN, self._sign_in_form, methods=["GET"]),
            Route(SIGN_IN, self._sign_in, methods=["POST"]),
            Route(SIGN_OUT, self._sign_out, methods=["POST"]),
            Route(ACCOUNT, self._account, methods=["GET"]),
        ]
        if not any(page.path == "/" for page in self._listed) and self._listed:
            own.append(Route("/", self._first, methods=["GET"]))
        return [*self.pages.routes(), *own, *self._beside]

    def app(self) -> ASGIApp:
        """The site by itself, for a server that answers nothing else."""
        made = Starlette(routes=self.routes(), exception_handlers={HTTPException: self._other})
        made.router.redirect_slashes = False
        return made

    async def _other(self, request: Request, error: Exception) -> Response:
        status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else 500
        text = rendered(
            "missing.html", shell=self.pages.bare_shell(request.url.path), status=HTTPStatus(status)
        )
        return html(text, HTTPStatus(status))

    # --- who asks -------------------------------------------------------------------------------

    async def visit(self, request: Request, action: Action) -> Visit:
        """Who asks for an action, by his session, or by the token that he shows.

        Raises
        ------
        ViewRefused
            He has not proved who he is, or may not: it was counted.
        """
        session_id = request.cookies.get(self._cookie, "")
        try:
            token = self._parts.sessions.token(session_id) if self._asks and session_id else None
            reader = await self._parts.door.admit(request, action, token)
        except ViewRefused as refused:
            self._parts.door.note(request, refused, action)
            raise
        return Visit(reader=reader, session_id=session_id if self._asks else "")

    async def visit_with_form(
        self, request: Request, action: Action
    ) -> tuple[Visit, Mapping[str, str]]:
        """Who posts a form, and its fields; only from a page of this server and this session.

        Raises
        ------
        ViewRefused
            As `visit`; or another page has sent it.
        """
        visit = await self.visit(request, action)
        try:
            check_origin(request)
            fields = await posted(request)
            self._check_csrf(visit.session_id, fields)
        except ViewRefused as refused:
            self._parts.door.note(request, refused, action)
            raise
        return visit, fields

    def _check_csrf(self, session_id: str, fields: Mapping[str, str]) -> None:
        if not self._parts.sessions.check_csrf(session_id, fields.get(CSRF_FIELD, "")):
            raise ViewRefused(
                Reason.ROLE_DENIED,
                "the form is not of this session: open the page again, and send it again",
            )

    def csrf(self, visit: Visit) -> str:
        """What forms of a visit carry."""
        return self._parts.sessions.csrf(visit.session_id)

    @property
    def _asks(self) -> bool:
        return self._parts.door.asks

    @property
    def _cookie(self) -> str:
        # A browser takes this name from nobody but the host itself, over TLS, for all paths.
        return "__Host-spotline" if self._parts.secure else "spotline"

    async def _admit_page(self, request: Request, page: PageSpec) -> Reader:
        return (await self.visit(request, HTTP_ACTIONS[f"GET {page.path}"])).reader

    def link(self, token: str) -> str:
        """A path that signs in whoever follows it on this machine with a token: once, and soon."""
        code = self._parts.sessions.offer(token, of_this_machine=True)
        return f"{SIGN_IN}?{urlencode({'code': code})}"

    # --- what is served -------------------------------------------------------------------------

    async def _first(self, request: Request) -> Response:
        return RedirectResponse(self._listed[0].path, HTTPStatus.SEE_OTHER)

    async def _follow(self, request: Request) -> Response:
        try:
            reader = (await self.visit(request, HTTP_ACTIONS[f"GET {CHANGES}"])).reader
            self._parts.figures.check_room(self._parts.limits, reader.tenant)
        except ViewRefused as refused:
            return Response(str(refused), status_of(refused), media_type="text/plain")
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)

        async def followed() -> AsyncIterator[str]:
            with self._parts.figures.following(reader.tenant):
                texts = change_texts(
                    self._changes, reader.tenant, lambda: self._parts.door.check_again(reader)
                )
                try:
                    async for text in texts:
                        yield text
                except ViewRefused as refused:
                    # Its token was revoked, or has expired, while it followed.
                    self._parts.door.note(request, refused, reader.action)

        unbuffered = {"X-Accel-Buffering": "no"}
        return StreamingResponse(followed(), headers=unbuffered, media_type=EVENT_STREAM)

    def _asked_to_sign_in(self, request: Request, refused: ViewRefused) -> Response:
        """The form to sign in, in the place of a page."""
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        said = str(refused) if request.cookies.get(self._cookie) else ""
        return self._sign_in_page(here, said, HTTPStatus.UNAUTHORIZED)

    async def _sign_in_form(self, request: Request) -> Response:
        asked = request.query_params
        return self._sign_in_page(asked.get("next", "/"), code=asked.get("code", ""))

    def _sign_in_page(
        self, onward: str, said: str = "", status: HTTPStatus = HTTPStatus.OK, *, code: str = ""
    ) -> Response:
        text = rendered(
            "sign_in.html",
            shell=self.pages.bare_shell(SIGN_IN),
            csrf=self._parts.sessions.csrf(""),
            onward=own_path(onward),
            said=said,
            code=code,
            asks=self._asks,
        )
        return html(text, status)

    async def _sign_in(self, request: Request) -> Response:
        action = HTTP_ACTIONS[f"POST {SIGN_IN}"]
        peer = "" if request.client is None else request.client.host
        onward = "/"
        try:
            self._parts.tries.check(peer)
            check_origin(request)
            fields = await posted(request)
            onward = own_path(fields.get("next", "/"))
            self._check_csrf("", fields)
            code = fields.get("code", "")
            if code:
                stated = self._parts.sessions.taken(code, peer)
            else:
                stated = fields.get("token", "").strip()
            caller = await self._caller(action, stated)
            if code:
                # Nobody typed a token: that a link was used is known by this alone.
                await self._parts.door.record(request, action, caller, "link=used")
            session_id = self._parts.sessions.open(stated)
        except ViewRefused as refused:
            if refused.reason is Reason.UNAUTHENTICATED:
                self._parts.tries.failed(peer)
            self._parts.door.note(request, refused, action)
            return self._sign_in_page(onward, str(refused), status_of(refused))
        answer = RedirectResponse(onward, HTTPStatus.SEE_OTHER)
        self._set_cookie(answer, session_id)
        return answer

    async def _caller(self, action: Action, token: str) -> Caller:
        if not token or len(token) > _MOST_TOKEN or not token.isascii():
            raise ViewRefused(
                Reason.UNAUTHENTICATED,
                f"token: expected 1 to {_MOST_TOKEN} letters, digits and signs",
            )
        caller = await self._parts.door.caller(token)
        denial = role_denial(action, caller)
        if denial is not None:
            raise ViewRefused(Reason.ROLE_DENIED, denial.detail)
        return caller

    async def _sign_out(self, request: Request) -> Response:
        try:
            visit, _ = await self.visit_with_form(request, HTTP_ACTIONS[f"POST {SIGN_OUT}"])
        except ViewRefused as refused:
            return self.pages.refusal(request, refused)
        self._parts.sessions.close(visit.session_id)
        answer = RedirectResponse(SIGN_IN, HTTPStatus.SEE_OTHER)
        self._set_cookie(answer, "")
        return answer

    def _set_cookie(self, answer: Response, session_id: str) -> None:
        answer.set_cookie(
            self._cookie,
            session_id,
            max_age=None if session_id else 0,
            path="/",
            secure=self._parts.secure,
            httponly=True,
            samesite="strict",
        )

    async def _account(self, request: Request) -> Response:
        try:
            visit = await self.visit(request, HTTP_ACTIONS[f"GET {ACCOUNT}"])
        except ViewRefused as refused:
            return self.pages.refusal(request, refused)
        caller = visit.reader.caller
        text = rendered(
            "account.html",
            shell=self.pages.bare_shell(ACCOUNT, visit.reader),
            csrf=self.csrf(visit),
            caller=caller,
            meaning="" if caller is None else ROLE_MEANINGS[caller.role],
            in_session=bool(visit.session_id),
        )
        return html(text)


def own_path(stated: str) -> str:
    """A path of this server to go on to; the first page where it is another's, or none."""
    try:
        parts = urlsplit(stated)
    except ValueError:
        return "/"
    if (
        parts.scheme
        or parts.netloc
        or not stated.startswith("/")
        or stated.startswith(("//", "/\\"))
    ):
        return "/"
    return quote(stated, safe="/?&=%:,+-_.~")
