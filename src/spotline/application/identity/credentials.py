"""What a credential proved, and for how long that may be remembered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from spotline.contracts.access import Caller

MOST_TOKEN_BYTES = 8 * 1024
"""A longer token is refused unread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedCaller:
    """Whom a token proves.

    Parameters
    ----------
    good_until_s
        Seconds since the epoch until which the same token proves the same; 0: ask every time.
    """

    caller: Caller
    good_until_s: float = 0.0


class TokenReader(Protocol):
    """Knows tokens of one kind."""

    def recognises(self, token: str) -> bool:
        """Whether a token has the form of this kind, whoever made it."""
        ...

    def state(self) -> object:
        """Equal as long as what was proved stays so: another one after a revocation."""
        ...

    async def read(self, token: str) -> ProvedCaller:
        """Whom a token of this kind proves.

        Raises
        ------
        Unauthenticated
            Nobody; says why, and never the token.
        """
        ...
