"""What the doors need of whoever knows identities."""

from __future__ import annotations

from typing import Protocol

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
