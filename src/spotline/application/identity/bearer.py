"""How a caller shows a token: `Authorization: Bearer TOKEN` (RFC 6750, section 2.1)."""

from __future__ import annotations

from spotline.contracts.errors import Unauthenticated

_SCHEME = "bearer"


def bearer_token(said: str | None) -> str:
    """The token of an `authorization` field; None: there was no such field.

    Raises
    ------
    Unauthenticated
        There is none, or it is of another scheme; never says what was shown.
    """
    if said is None:
        raise Unauthenticated(
            "authorization: expected `Bearer TOKEN`, found nothing; name a token (SPOTLINE_TOKEN, "
            "or a context: spotline context add)"
        )
    scheme, _, token = said.partition(" ")
    token = token.strip()
    if scheme.lower() != _SCHEME or not token:
        raise Unauthenticated("authorization: expected `Bearer TOKEN`, found another form")
    return token
