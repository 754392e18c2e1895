"""Acts over HTTP: a form, what follows from it, and what was done."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from spotline.adapters.page.app import html
from spotline.adapters.page.job_text import job_of_text
from spotline.adapters.page.rendering import rendered
from spotline.adapters.page.site import PageSite, Visit
from spotline.adapters.web.problems import status_of
from spotline.application.identity.permission import role_denial, whole_denial
from spotline.application.page.acting_ports import Acting
from spotline.application.page.acts import ActDone, Follows, FormSaid, PageAct
from spotline.application.page.acts_on_jobs import Cancel, Submit, Update
from spotline.application.page.acts_on_limits import SetALimit
from spotline.application.page.acts_on_system import (
    DropParked,
    GoOnBuying,
    Reap,
    RetryParked,
    SetMode,
    StopBuying,
)
from spotline.application.read_model.ports import InputProblem, ViewRefused, refused_input
from spotline.contracts.access import HTTP_ACTIONS

ACTS: Sequence[PageAct] = (
    Submit(job_of_text),
    Update(),
    Cancel(),
    StopBuying(),
    GoOnBuying(),
    SetMode(),
    SetALimit(),
    RetryParked(),
    DropParked(),
    Reap(),
)
INDEX = "/act"
_STEPS = ("edit", "ask", "do")
_OWN_FIELDS = frozenset({"csrf", "step", "request_id"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """A form as it was sent: who sent it, and what it says."""

    visit: Visit
    fields: Mapping[str, str] = field(default_factory=dict)

    def said(self) -> FormSaid:
        return FormSaid(self.fields, self.visit.reader.tenant)

    def values(self) -> dict[str, str]:
        return {name: said for name, said in self.fields.items() if name not in _OWN_FIELDS}


class ActPages:
    """Serves what people can do; each act is done in the caller's own name."""

    def __init__(self, site: PageSite, acting: Acting, acts: Sequence[PageAct] = ACTS) -> None:
        self._site = site
        self._acting = acting
        self._acts = tuple(acts)

    def paths(self) -> frozenset[str]:
        """Where forms are taken."""
        return frozenset(map(act_path, self._acts))

    def routes(self) -> list[BaseRoute]:
        """A form for each act, and the list of them."""
        routes: list[BaseRoute] = [Route(INDEX, self._index, methods=["GET"])]
        for act in self._acts:
            routes.append(Route(act_path(act), self._asking(act), methods=["GET"]))
            routes.append(Route(act_path(act), self._acting_on(act), methods=["POST"]))
        return routes

    async def _index(self, request: Request) -> Response:
        try:
            visit = await self._site.visit(request, HTTP_ACTIONS[f"GET {INDEX}"])
        except ViewRefused as refused:
            return self._site.pages.refusal(request, refused)
        listed = [(act, act_path(act), may_not(act, visit)) for act in self._acts]
        return self._page("acts.html", INDEX, visit, listed=listed)

    def _asking(self, act: PageAct) -> Callable[[Request], Awaitable[Response]]:
        async def asked(request: Request) -> Response:
            try:
                visit = await self._site.visit(request, HTTP_ACTIONS[f"GET {act_path(act)}"])
            except ViewRefused as refused:
                return self._site.pages.refusal(request, refused)
            return self._form_page(act, _Form(visit=visit, fields=dict(request.query_params)))

        return asked

    def _acting_on(self, act: PageAct) -> Callable[[Request], Awaitable[Response]]:
        action = HTTP_ACTIONS[f"POST {act_path(act)}"]

        async def acted(request: Request) -> Response:
            try:
                visit, fields = await self._site.visit_with_form(request, action)
            except ViewRefused as refused:
                return self._site.pages.refusal(request, refused)
            form = _Form(visit=visit, fields=fields)
            try:
                return await self._stepped(act, form)
            except ViewRefused as refused:
                return self._form_page(act, form, refused)

        return acted

    async def _stepped(self, act: PageAct, form: _Form) -> Response:
        step = form.fields.get("step", "")
        if step not in _STEPS:
            raise refused_input(
                InputProblem(field="step", expected=" or ".join(_STEPS), found=repr(step[:20]))
            )
        if step == "edit":
            return self._form_page(act, form)
        async with self._acting.of_caller(form.visit.reader.token) as acts:
            if step == "ask":
                return self._confirm_page(act, form, await act.follows(acts, form.said()))
            request_id = form.said().text("request_id", required=True, longest=64)
            return self._done_page(act, form, await act.do(acts, form.said(), request_id))

    # --- pages ----------------------------------------------------------------------------------

    def _form_page(self, act: PageAct, form: _Form, refused: ViewRefused | None = None) -> Response:
        status = HTTPStatus.OK if refused is None else act_status(refused)
        return self._page(
            "act.html",
            act_path(act),
            form.visit,
            status,
            act=act,
            values=form.values(),
            refused=refused,
            wrong=getattr(refused, "wrong", ()),
            may_not=may_not(act, form.visit),
        )

    def _confirm_page(self, act: PageAct, form: _Form, follows: Follows) -> Response:
        return self._page(
            "act_confirm.html",
            act_path(act),
            form.visit,
            act=act,
            values={**form.values(), **follows.keeps},
            follows=follows,
            request_id=uuid.uuid4().hex,
        )

    def _done_page(self, act: PageAct, form: _Form, done: ActDone) -> Response:
        return self._page("act_done.html", act_path(act), form.visit, act=act, done=done)

    def _page(
        self,
        template: str,
        path: str,
        visit: Visit,
        status: HTTPStatus = HTTPStatus.OK,
        **names: Any,
    ) -> Response:
        shell = self._site.pages.bare_shell(path, visit.reader)
        text = rendered(template, shell=shell, csrf=self._site.csrf(visit), path=path, **names)
        return html(text, status)


def act_path(act: PageAct) -> str:
    """Where an act is asked for."""
    return f"{INDEX}/{act.name}"


def may_not(act: PageAct, visit: Visit) -> str:
    """Why a caller may not, and which role would; empty where he may."""
    caller, action = visit.reader.caller, HTTP_ACTIONS[f"POST {act_path(act)}"]
    if caller is None:
        return ""
    if role_denial(action, caller) is not None:
        wanted = " or ".join(sorted(role.value for role in action.roles))
        return f"This takes the role {wanted}; you are signed in as {caller.role.value}."
    if whole_denial(action, caller) is not None:
        return f"This is about all tenants; you are signed in for {caller.tenant} alone."
    return ""


def act_status(refused: ViewRefused) -> HTTPStatus:
    """The status of a refusal by who does it; what has none of its own was not as it had to be."""
    status = status_of(refused)
    return HTTPStatus.CONFLICT if status is HTTPStatus.INTERNAL_SERVER_ERROR else status
