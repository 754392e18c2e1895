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
    """Why not; `detail` tells nothing that the caller may not know, `field` what is at fault."""

    kind: DenialKind
    detail: str
    field: str = ""


def role_denial(action: Action, caller: Caller) -> Denial | None:
    """Why the caller's role may not do this, None where it may."""
    if caller.role in action.roles:
        return None
    wanted = " or ".join(sorted(role.value for role in action.roles)) or "a join token"
    return Denial(
        kind=DenialKind.ROLE,
        detail=f"{action.name} asks for the role {wanted}; {caller.subject} is {caller.role.value}",
    )


def whole_denial(action: Action, caller: Caller) -> Denial | None:
    """Why a caller that is bound to a tenant may not do this, None where he may."""
    if action.reach is not Reach.WHOLE or not caller.tenant:
        return None
    return Denial(
        kind=DenialKind.TENANT,
        detail=f"{action.name} is about all tenants; {caller.subject} is of {caller.tenant!r}",
    )


def tenant_denial(action: Action, caller: Caller, tenant: str) -> Denial | None:
    """Why the caller may not do this to a tenant's things, None where he may.

    `tenant` is whose they are; empty where the request names none: then they are the caller's.
    """
    if action.reach is not Reach.TENANT or not tenant or caller.sees(tenant):
        return None
    return Denial(
        kind=DenialKind.TENANT,
        detail=f"tenant: expected {caller.tenant!r}, which the token is of, found {tenant[:80]!r}",
        field="tenant",
    )
