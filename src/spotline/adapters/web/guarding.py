"""What stands between callers and the answers: bounds, hosts, security headers, timeouts.

The server is for programs and pages of the same origin: there is no CORS, and a page elsewhere that
names this machine by a name of its own (DNS rebinding) is refused by the host. It is for reading but
for the paths that take a form.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spotline.adapters.web.problems import plain_problem
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import Denials

_log = structlog.get_logger(__name__)

METHODS = ("GET", "HEAD")
FORM = "application/x-www-form-urlencoded"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_SECURITY = (
    ("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)
_CLOSE = {"Connection": "close"}
ABORT = "abort"
"""Under which name a request's state holds what ends its connection at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebLimits:
    """What a server bounds.

    Parameters
    ----------
    most_connections, most_requests
        At a time; what is more is refused.
    most_watches, most_watches_a_tenant
        Of the requests, those that follow changes; and of them those of callers of one tenant.
    header_bytes, query_bytes, path_bytes, form_bytes
        Of one request; a form only where one is taken.
    request_s, idle_s, send_s
        Seconds of wall time: to send a request, between two of a connection, to take a part of an
        answer.
    """

    most_connections: int = 512
    most_requests: int = 128
    most_watches: int = 64
    most_watches_a_tenant: int = 16
    header_bytes: int = 16_384
    query_bytes: int = 2_048
    path_bytes: int = 512
    form_bytes: int = 65_536
    request_s: float = 10.0
    idle_s: int = 10
    send_s: float = 30.0


@dataclass(slots=True)
class WebFigures:
    """What a server has done: answers by status and denials since the start, readers that follow.

    `watches_of` are those readers that are of a tenant.
    """

    answered: Counter[int] = field(default_factory=lambda: Counter({HTTPStatus.OK.value: 0}))
    watches: int = 0
    watches_of: Counter[str] = field(default_factory=Counter)
    denials: Denials = field(default_factory=Denials)

    def check_room(self, limits: WebLimits, tenant: str) -> None:
        """Refuse one more that follows; of one tenant's callers not all places are.

        Raises
        ------
        ViewRefused
            There is no room.
        """
        of_tenant = self.watches_of[tenant] if tenant else 0
        if of_tenant >= limits.most_watches_a_tenant:
            said = f"{of_tenant} readers of tenant {tenant!r} follow changes already"
        elif self.watches >= limits.most_watches:
            said = f"{self.watches} readers follow changes already"
        else:
            return
        raise ViewRefused(Reason.TOO_MANY_REQUESTS, f"{said}; try again later")

    @contextmanager
    def following(self, tenant: str) -> Iterator[None]:
        """Count a reader that follows, until the block is left."""
        self.watches += 1
        self.watches_of[tenant] += 1
        try:
            yield
        finally:
            self.watches -= 1
            self.watches_of[tenant] -= 1
            if not self.watches_of[tenant]:
                del self.watches_of[tenant]


TakesForm = Callable[[str], bool]
"""Whether a form is taken at a path."""


def no_form(path: str) -> bool:
    """Take none anywhere."""
    return False


class Guard:
    """ASGI around the app: refuses what it does not serve, and waits for nobody too long.

    Parameters
    ----------
    hosts
        Names by which callers may speak of this server, beside the loopback's; `*`: any.
    takes_form
        Where a form may be posted; everywhere else there is reading alone.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: WebLimits,
        hosts: tuple[str, ...] = (),
        figures: WebFigures | None = None,
        takes_form: TakesForm = no_form,
    ) -> None:
        self._takes_form = takes_form
        self._figures = figures or WebFigures()
        self._app = app
        self._limits = limits
        self._hosts = frozenset(name.lower() for name in (*LOOPBACK_NAMES, *hosts))
        self._requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        patient = _Patient(send, self._limits.send_s, self._figures)
        refused = self._refusal(scope)
        answer: ASGIApp = self._app if refused is None else refused
        self._requests += 1
        try:
            await answer(scope, receive, patient)
        except _TooSlow:
            _log.warning("reader_dropped", path=scope["path"], after_s=self._limits.send_s)
            await _hang_up(scope, receive)
        finally:
            self._requests -= 1

    def _refusal(self, scope: Scope) -> Response | None:
        limits, headers = self._limits, Headers(scope=scope)
        posted = scope["method"] == "POST" and self._takes_form(scope["path"])
        if scope["method"] not in METHODS and not posted:
            allowed = {"Allow": ", ".join(METHODS), **_CLOSE}
            said = f"method: expected {' or '.join(METHODS)}, found {scope['method'][:20]!r}"
            return plain_problem(HTTPStatus.METHOD_NOT_ALLOWED, said, allowed)
        told_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        if told_bytes > limits.header_bytes:
            said = f"headers: expected at most {limits.header_bytes} bytes, found {told_bytes}"
            return plain_problem(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, said, _CLOSE)
        refused = self._form_refusal(headers) if posted else _body_refusal(headers)
        if refused is not None:
            return refused
        for name, part, most in (
            ("path", scope["raw_path"], limits.path_bytes),
            ("query", scope["query_string"], limits.query_bytes),
        ):
            if len(part) > most:
                said = f"{name}: expected at most {most} bytes, found {len(part)}"
                return plain_problem(HTTPStatus.REQUEST_URI_TOO_LONG, said, _CLOSE)
        if not self._is_host(headers.get("host", "")):
            said = f"Host: expected a name of this server, found {headers.get('host', '')[:80]!r}"
            return plain_problem(HTTPStatus.MISDIRECTED_REQUEST, said)
        if self._requests >= limits.most_requests:
            said = f"{limits.most_requests} requests are being answered; try again"
            return plain_problem(HTTPStatus.SERVICE_UNAVAILABLE, said, _CLOSE)
        return None

    def _form_refusal(self, headers: Headers) -> Response | None:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != FORM:
            said = f"Content-Type: expected {FORM}, found {kind[:80]!r}"
            return plain_problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, said, _CLOSE)
        size = headers.get("content-length", "")
        if not (size.isascii() and size.isdecimal()) or "transfer-encoding" in headers:
            said = "Content-Length: expected how long the form is, found nothing that says so"
            return plain_problem(HTTPStatus.LENGTH_REQUIRED, said, _CLOSE)
        if len(size) > len(str(self._limits.form_bytes)) or int(size) > self._limits.form_bytes:
            said = f"body: expected at most {self._limits.form_bytes} bytes, found {size[:20]}"
            return plain_problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, _CLOSE)
        return None

    def _is_host(self, host: str) -> bool:
        if "*" in self._hosts:
            return True
        name, colon, port = host.rpartition(":")
        # An address of IPv6 has colons of its own, within brackets.
        named = name if colon and port.isdecimal() else host
        return named.lower() in self._hosts


def _body_refusal(headers: Headers) -> Response | None:
    if headers.get("content-length", "0").strip() != "0" or "transfer-encoding" in headers:
        said = "body: expected none, found one"
        return plain_problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, said, _CLOSE)
    return None


class _TooSlow(Exception):
    """A caller does not take its answer."""


class _Patient:
    """Sends with the security headers, and waits `most_s` for a caller that does not read."""

    def __init__(self, send: Send, most_s: float, figures: WebFigures) -> None:
        self._send = send
        self._figures = figures
        self._most_s = most_s

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._figures.answered[message["status"]] += 1
            headers = MutableHeaders(scope=message)
            for name, value in _SECURITY:
                headers.setdefault(name, value)
        try:
            async with asyncio.timeout(self._most_s):
                await self._send(message)
        except TimeoutError:
            raise _TooSlow from None


async def _hang_up(scope: Scope, receive: Receive) -> None:
    """End the connection without waiting for what was not read."""
    abort: Callable[[], None] | None = scope.get("state", {}).get(ABORT)
    if abort is None:
        return
    abort()
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while (await receive())["type"] != "http.disconnect":
                pass
