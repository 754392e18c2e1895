"""What the doors need of whoever knows identities."""

from __future__ import annotations

from typing import Protocol

from spotline.application.identity.audit import Act
from spotline.contracts.access import Caller


class Authenticator(Protocol):
    """Knows callers by what they show."""

    async def caller(self, token: str) -> Caller:
        """Whose a bearer token is.

        Raises
        ------
        Unauthenticated
            It proves nobody: unknown, expired, revoked, of another audience, too long; says which,
            and never the token.
        """
        ...


class AuditTrail(Protocol):
    """Where a service's acts are recorded: a chain of its own."""

    async def write(self, act: Act) -> int:
        """Record an act: it is on the disk when this returns its place in the chain.

        Raises
        ------
        AuditUnavailable
            It cannot be recorded: what it is about must not be done.
        """
        ...

    async def settle(self, act: Act) -> None:
        """Record what came of something that was begun; it is on the disk when this returns.

        What cannot be recorded now is owed: it is written before anything else, and never refused,
        as what it tells of is done.
        """
        ...

    def note(self, act: Act) -> None:
        """Record an act that nothing waits for, soon; what cannot be recorded is owed."""
        ...
