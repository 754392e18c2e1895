"""What a credential says its holder is: a role, and whose."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.contracts.access import Role
from spotline.contracts.limits import name_problem

# Acts for one tenant only; an operator and a service act for all.
_OF_A_TENANT = frozenset({Role.OWNER})
_OF_NO_TENANT = frozenset({Role.OPERATOR, Role.SERVICE})


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleGrant:
    """A role, and the tenant it is for; empty: for none.

    Raises
    ------
    ValueError
        The role cannot be granted so; says which field, and what was expected.
    """

    role: Role
    tenant: str = ""

    def __post_init__(self) -> None:
        problem = name_problem(self.tenant)
        if problem:
            raise ValueError(f"tenant {problem}")
        if self.role is Role.INSTANCE:
            raise ValueError(
                "role must be owner, operator, viewer or service, was 'instance', which only an "
                "agent gets that joins"
            )
        if self.role in _OF_A_TENANT and not self.tenant:
            raise ValueError(
                f"tenant must be a tenant's name for the role {self.role.value}, was ''"
            )
        if self.role in _OF_NO_TENANT and self.tenant:
            raise ValueError(
                f"tenant must be empty for the role {self.role.value}, which acts for every tenant, "
                f"was {self.tenant!r}"
            )
