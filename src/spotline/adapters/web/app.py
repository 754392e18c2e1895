"""The read model as JSON over HTTP; `docs/http.md` says what each path answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from spotline.adapters.audit.tallied import DeniedCallers
from spotline.adapters.web.asking import (
    asked_fleet,
    asked_happenings,
    asked_jobs,
    asked_nothing,
    asked_watch,
)
from spotline.adapters.web.encoding import answer, encoded, iso_of_ns, json_text
from spotline.adapters.web.guarding import Guard, TakesForm, WebFigures, WebLimits, no_form
from spotline.adapters.web.identity import Reader, WebDoor
from spotline.adapters.web.problems import plain_problem, refusal
from spotline.adapters.web.streaming import EVENT_STREAM, end_text, events_of
from spotline.application.identity.ports import Authenticator
from spotline.application.operations.messages import SystemStatus
from spotline.application.read_model.ports import ViewRefused, Views
from spotline.contracts.access import HTTP_ACTIONS

_JSON = "application/json"

SystemTelling = Callable[[], Awaitable[SystemStatus]]
"""Tells how the system is; it answers always."""

Answering = Callable[[Request, Reader], Awaitable[Response]]
_Served = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBeside:
    """What a server answers beside the views, and where of it a form is taken."""

    routes: Sequence[BaseRoute] = ()
    takes_form: TakesForm = no_form


def web_app(
    views: Views,
    *,
    limits: WebLimits | None = None,
    hosts: tuple[str, ...] = (),
    figures: WebFigures | None = None,
    system: SystemTelling | None = None,
    authenticator: Authenticator | None = None,
    denied: DeniedCallers | None = None,
    beside: ServedBeside | None = None,
) -> ASGIApp:
    """The app that serves `views`; `hosts` as `Guard` has them. It counts in `figures`.

    How the whole system is, `system` tells; None: nobody does. With an `authenticator` every caller
    is asked who he is, but for `/healthz`. Who is turned away is recorded as `denied`; None: nowhere.
    What is served `beside` them asks by itself who calls.
    """
    limits, figures = limits or WebLimits(), figures or WebFigures()
    door = WebDoor(authenticator, figures.denials, denied)
    asked = _Answers(views, limits, figures, system, door)
    routes = [
        Route(path, _admitted(path, method, door), methods=["GET"])
        for path, method in (
            ("/v1/jobs", asked.jobs),
            ("/v1/jobs/{job_id}", asked.job),
            ("/v1/jobs/{job_id}/events", asked.events),
            ("/v1/market", asked.market),
            ("/v1/fleet", asked.fleet),
            ("/v1/watch", asked.watch),
            ("/v1/system", asked.system),
        )
    ]
    routes.append(Route("/healthz", _answered(asked.health), methods=["GET"]))
    beside = beside or ServedBeside()
    app = Starlette(routes=[*routes, *beside.routes], exception_handlers={HTTPException: _other})
    # A path is what it is: no redirect to one that ends otherwise.
    app.router.redirect_slashes = False
    return Guard(app, limits, hosts, figures, beside.takes_form)


def _admitted(path: str, method: Answering, door: WebDoor) -> _Served:
    """A route that is answered only to those who may ask."""
    action = HTTP_ACTIONS[f"GET {path}"]

    async def admitted(request: Request) -> Response:
        try:
            return await method(request, await door.admit(request, action))
        except ViewRefused as refused:
            door.note(request, refused, action)
            raise

    return _answered(admitted)


def _answered(method: _Served) -> _Served:
    async def answered(request: Request) -> Response:
        try:
            return await method(request)
        except ViewRefused as refused:
            return refusal(refused)

    return answered


async def _other(request: Request, error: Exception) -> Response:
    status = HTTPStatus(error.status_code) if isinstance(error, HTTPException) else HTTPStatus(500)
    if status is HTTPStatus.NOT_FOUND:
        paths = "/v1/jobs, /v1/jobs/ID, /v1/jobs/ID/events, /v1/market, /v1/fleet, /v1/watch, /v1/system"
        return plain_problem(status, f"path: expected one of {paths}, found another")
    return plain_problem(status, status.description)


class _Answers:
    """What is answered at each path."""

    def __init__(
        self,
        views: Views,
        limits: WebLimits,
        figures: WebFigures,
        system: SystemTelling | None,
        door: WebDoor,
    ) -> None:
        self._views = views
        self._door = door
        self._system = system
        self._limits = limits
        self._figures = figures

    async def jobs(self, request: Request, reader: Reader) -> Response:
        """A page of jobs."""
        query = asked_jobs(request.url.query, reader.tenant_for)
        page = await self._views.jobs(query)
        return self._json(
            jobs=page.statuses, next_page_token=page.next_page_token or None, fleet=page.fleet
        )

    async def job(self, request: Request, reader: Reader) -> Response:
        """One job."""
        asked_nothing(request.url.query)
        job_id = request.path_params["job_id"]
        return self._json(job=await self._views.job(job_id, tenant=reader.tenant))

    async def events(self, request: Request, reader: Reader) -> Response:
        """What happened to a job."""
        query = replace(asked_happenings(request.url.query), tenant=reader.tenant)
        page = await self._views.happenings(request.path_params["job_id"], query)
        return self._json(events=page.happenings, next_after_seq=page.next_after_seq or None)

    async def market(self, request: Request, reader: Reader) -> Response:
        """The market."""
        asked_nothing(request.url.query)
        board = await self._views.market()
        status = board.status
        return self._json(
            state=status.state,
            next_slot_start=iso_of_ns(status.next_slot_start_ns),
            ends=iso_of_ns(status.ends_ns),
            source=status.source or None,
            offerings=board.offerings,
            quotes=board.quotes,
        )

    async def fleet(self, request: Request, reader: Reader) -> Response:
        """What all jobs hold together."""
        tenant = reader.tenant_for(asked_fleet(request.url.query))
        return self._json(fleet=await self._views.fleet(tenant))

    async def watch(self, request: Request, reader: Reader) -> Response:
        """Changes, as they come."""
        query = asked_watch(request.url.query, request.headers)
        query = replace(query, tenant=reader.tenant_for(query.tenant))
        if request.method == "HEAD":
            return Response(media_type=EVENT_STREAM)
        self._figures.check_room(self._limits, reader.tenant)
        watch = await self._views.watch(query)

        async def counted() -> Any:
            with self._figures.following(reader.tenant):
                try:
                    async for event in events_of(watch):
                        await self._door.check_again(reader)
                        yield event
                except ViewRefused as refused:
                    # Its token was revoked, or has expired, while it followed.
                    self._door.note(request, refused, reader.action)
                    yield end_text(refused)

        # What stands between must not hold events back.
        unbuffered = {"X-Accel-Buffering": "no"}
        return StreamingResponse(counted(), headers=unbuffered, media_type=EVENT_STREAM)

    async def system(self, request: Request, reader: Reader) -> Response:
        """How every service is, and the system as a whole; 503 where nobody can tell."""
        asked_nothing(request.url.query)
        if self._system is None:
            return plain_problem(
                HTTPStatus.SERVICE_UNAVAILABLE, "this server was not told where the allocator is"
            )
        told = await self._system()
        known = told.clock is not None or len(told.services) > 1
        status = HTTPStatus.OK if known else HTTPStatus.SERVICE_UNAVAILABLE
        said = {name: part for name, part in encoded(told).items() if name != "clock"}
        return Response(json_text(answer(told.clock, **said)), status, media_type=_JSON)

    async def health(self, request: Request) -> Response:
        """Whether the answers are up to date."""
        asked_nothing(request.url.query)
        said = dict(self._views.health())
        status = HTTPStatus.OK if said.get("healthy") else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json_text({"service": said}), status, media_type=_JSON)

    def _json(self, **parts: Any) -> Response:
        return Response(json_text(answer(self._views.clock(), **parts)), media_type=_JSON)
