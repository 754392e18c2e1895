"""Whether a caller may do what he asks for."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spotline.contracts.access import Action, Caller, Reach


class DenialKind(Enum):
    """What a denial rests on."""

    ROLE = "role"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why not; `detail` tells nothing that the caller may not know."""

    kind: DenialKind
    detail: str


def role_denial(action: Action, caller: Caller) -> Denial | None:
    """Why the caller's role may not do this, None where it may."""
    if caller.role in action.roles:
        return None
    wanted = " or ".join(sorted(role.value for role in action.roles)) or "a join token"
    return Denial(
        kind=DenialKind.ROLE,
        detail=f"{action.name} asks for the role {wanted}; {caller.subject} is {caller.role.value}",
    )


def tenant_denial(action: Action, caller: Caller, tenant: str) -> Denial | None:
    """Why the caller may not do this to a tenant's things, None where he may.

    `tenant` is whose they are; empty where the request names none: then they are the caller's.
    """
    if action.reach is Reach.SYSTEM or not tenant or caller.sees(tenant):
        return None
    return Denial(
        kind=DenialKind.TENANT,
        detail=f"tenant: expected {caller.tenant!r}, which the token is of, found {tenant!r}",
    )
