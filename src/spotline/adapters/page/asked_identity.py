"""Who a caller is, asked of the allocator: for pages that are served apart from it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from spotline.adapters.grpc.identity.client import IdentityClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.identity.endpoints import ClientIdentity
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.access import Caller
from spotline.contracts.errors import Unauthenticated
from spotline.contracts.reasons import Reason

# As long may a token that was revoked go on being shown what was folded before.
FRESH_S = 5.0
_MOST_KNOWN = 256


class AskedIdentity:
    """An `Authenticator` that asks a running system; an answer counts for `fresh_s` seconds."""

    def __init__(
        self,
        address: str,
        trusts: ClientIdentity,
        *,
        fresh_s: float = FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._trusts = trusts
        self._fresh_s = fresh_s
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Caller]] = OrderedDict()

    async def caller(self, token: str) -> Caller:
        """Whose a token is; see `Authenticator`.

        Raises
        ------
        ViewRefused
            The system does not answer: nobody can say who this is.
        """
        known = self._known.get(token)
        if known is not None and self._clock() < known[0] + self._fresh_s:
            return known[1]
        identity = replace(self._trusts, token=token, tokens={}, token_file=None)
        try:
            async with IdentityClient(self._address, caller="web", identity=identity) as client:
                caller = await client.who_am_i()
        except RpcFailed as failed:
            self._known.pop(token, None)
            if failed.unreachable:
                raise ViewRefused(Reason.SERVER_STOPPING, str(failed)) from failed
            raise Unauthenticated(str(failed)) from failed
        if caller is None:
            raise Unauthenticated("the system asks nobody who he is")
        self._known[token] = (self._clock(), caller)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return caller
