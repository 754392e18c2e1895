"""Who asks over HTTP, and whether he may: `contracts.access.HTTP_ACTIONS`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import structlog
from starlette.requests import Request

from spotline.adapters.audit.tallied import DeniedCallers, made_by
from spotline.adapters.web.problems import status_of
from spotline.application.identity.audit import DONE, Act, AuditDoor
from spotline.application.identity.bearer import bearer_token
from spotline.application.identity.permission import (
    Denial,
    DenialKind,
    role_denial,
    tenant_denial,
    whole_denial,
)
from spotline.application.identity.ports import AuditTrail, Authenticator
from spotline.application.read_model.ports import InputProblem, ViewRefused
from spotline.contracts.access import Action, Caller
from spotline.contracts.errors import AuditUnavailable, Unauthenticated
from spotline.contracts.reasons import Reason
from spotline.runtime.callers import Denials, answer_for, current_caller

_log = structlog.get_logger(__name__)

_REASONS = {DenialKind.ROLE: Reason.ROLE_DENIED, DenialKind.TENANT: Reason.TENANT_DENIED}
_AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class Reader:
    """Whoever asks; `caller` is None where nobody is asked who he is: then he sees everything."""

    action: Action
    caller: Caller | None = None
    token: str = field(default="", repr=False)

    @property
    def tenant(self) -> str:
        """Whose things alone he sees; empty: everybody's."""
        return "" if self.caller is None else self.caller.tenant

    def tenant_for(self, stated: str) -> str:
        """The tenant of a request that states this one.

        Raises
        ------
        ViewRefused
            It is not the reader's.
        """
        if self.caller is None:
            return stated
        denial = tenant_denial(self.action, self.caller, stated)
        if denial is not None:
            found = InputProblem(
                field="tenant", expected=repr(self.tenant), found=repr(stated[:80])
            )
            raise ViewRefused(Reason.TENANT_DENIED, denial.detail, (found,))
        return stated or self.caller.tenant


class WebDoor:
    """Lets nobody in whom the table does not let in.

    Parameters
    ----------
    authenticator
        None: nobody is asked who he is.
    denied
        Records who was turned away; None: nobody does.
    trail
        Has what `record` is told; None: nobody keeps it.
    """

    def __init__(
        self,
        authenticator: Authenticator | None,
        denials: Denials,
        denied: DeniedCallers | None = None,
        trail: AuditTrail | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._trail = trail
        self._denied = denied
        self._denials = denials

    @property
    def asks(self) -> bool:
        """Whether anybody is asked who he is."""
        return self._authenticator is not None

    async def caller(self, token: str) -> Caller:
        """Whose a token is; `ViewRefused` where it is nobody's, or nobody is asked who he is."""
        if self._authenticator is None:
            raise ViewRefused(Reason.UNAUTHENTICATED, "this server asks nobody who he is")
        try:
            return await self._authenticator.caller(token)
        except Unauthenticated as error:
            raise ViewRefused(Reason.UNAUTHENTICATED, str(error)) from error

    async def admit(self, request: Request, action: Action, token: str | None = None) -> Reader:
        """Who asks, by the `token` that he was found to have; None: by that of the request's header.

        Raises
        ------
        ViewRefused
            He has not proved who he is, or may not.
        """
        if self._authenticator is None:
            return Reader(action)
        try:
            token = bearer_token(request.headers.get(_AUTHORIZATION)) if token is None else token
        except Unauthenticated as error:
            raise ViewRefused(Reason.UNAUTHENTICATED, str(error)) from error
        caller = await self.caller(token)
        answer_for(caller)
        denial = role_denial(action, caller) or whole_denial(action, caller)
        if denial is not None:
            raise _denied(denial)
        return Reader(action, caller, token)

    async def check_again(self, reader: Reader) -> None:
        """Ask whether a reader of a stream is still who he was; `ViewRefused` where he is not."""
        if self._authenticator is not None:
            await self.caller(reader.token)

    async def record(self, request: Request, action: Action, caller: Caller, target: str) -> None:
        """Have it in the audit that somebody does this, before it is done.

        Raises
        ------
        ViewRefused
            It cannot be written: then it must not be done.
        """
        if self._trail is None:
            return
        act = Act(
            ts_ns=time.time_ns(),
            door=AuditDoor.HTTP,
            action=action.name,
            outcome=DONE,
            peer="" if request.client is None else request.client.host,
            target=target,
        )
        try:
            await self._trail.write(made_by(act, caller))
        except AuditUnavailable as error:
            raise ViewRefused(
                Reason.AUDIT_UNAVAILABLE, f"{Reason.AUDIT_UNAVAILABLE.value}: {error}"
            ) from error

    def note(self, request: Request, refused: ViewRefused, action: Action) -> None:
        """Count and tell that a reader was turned away; other refusals are none of its business."""
        if refused.reason not in self._denials.by_reason:
            return
        self._denials.note(refused.reason)
        peer = "" if request.client is None else request.client.host
        if self._denied is not None:
            self._denied.note(
                action.name,
                str(status_of(refused).value),
                refused.reason,
                caller=current_caller(),
                peer=peer,
                target=request.path_params.get("job_id", ""),
            )
        _log.warning(
            "caller_denied",
            method=request.url.path[:80],
            reason=refused.reason.name.lower(),
            detail=str(refused),
            peer=peer,
        )


def _denied(denial: Denial) -> ViewRefused:
    return ViewRefused(_REASONS[denial.kind], denial.detail)
