"""Every kind of token in turn, and a memory of what they proved."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.application.identity.credentials import MOST_TOKEN_BYTES, ProvedCaller, TokenReader
from spotline.contracts.access import Caller
from spotline.contracts.errors import Unauthenticated

_MOST_REMEMBERED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    proof: ProvedCaller
    reader: TokenReader
    state: object


class AuthenticatorChain:
    """The port `Authenticator`: asks the reader that knows a token's form.

    What was proved is remembered by the token's digest until it ends, or its reader's state
    changes: a revoked key is refused with the next call.
    """

    def __init__(self, readers: Sequence[TokenReader], *, now: Now = utc_now) -> None:
        self._readers = tuple(readers)
        self._now = now
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()

    async def caller(self, token: str) -> Caller:
        """Whose a bearer token is.

        Raises
        ------
        Unauthenticated
            It proves nobody: says why, and never the token.
        """
        # No character has less than a byte: what is too long is not even encoded.
        if len(token) > MOST_TOKEN_BYTES:
            raise Unauthenticated(
                f"the token is refused unread: it has over {MOST_TOKEN_BYTES} bytes"
            )
        if not token:
            raise Unauthenticated("there is no token")
        if not token.isascii() or not token.isprintable():
            raise Unauthenticated("the token is refused: it holds what no token has")
        digest = hashlib.sha256(token.encode()).digest()
        known = self._remembered.get(digest)
        if known is not None:
            if self._stands(known):
                self._remembered.move_to_end(digest)
                return known.proof.caller
            del self._remembered[digest]
        return await self._read(token, digest)

    def _stands(self, known: _Remembered) -> bool:
        in_time = known.proof.good_until_s > self._now().timestamp()
        return in_time and known.reader.state() == known.state

    async def _read(self, token: str, digest: bytes) -> Caller:
        for reader in self._readers:
            if not reader.recognises(token):
                continue
            # Before it is read: what changes meanwhile is read again with the next call.
            state = reader.state()
            proof = await reader.read(token)
            if proof.good_until_s:
                known = _Remembered(proof=proof, reader=reader, state=state)
                self._remembered[digest] = known
                while len(self._remembered) > _MOST_REMEMBERED:
                    self._remembered.popitem(last=False)
            return proof.caller
        raise Unauthenticated(
            "the token is of no kind that is known here: an API key (spl_...), a JWT of a configured "
            "issuer, or the session of an instance"
        )
