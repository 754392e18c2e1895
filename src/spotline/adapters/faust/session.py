"""One connection per app, opened by its first user and closed by its last."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog
from nats.js import JetStreamContext

from spotline.adapters.nats.connection import FINAL, PASSING, BrokerLink, NatsConnection, redacted
from spotline.adapters.nats.identities import BusIdentity
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.patience import Patience

_log = structlog.get_logger(__name__)

ANSWER_S = 5.0

_PATIENCE_S = 60.0
_RETRY_S = 0.1

ResultT = TypeVar("ResultT")


class Session:
    """What producer and consumer of an app share.

    Reconnecting has no end; `patience_s` bounds how long a single question is asked again.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        patience_s: float = _PATIENCE_S,
        identity: BusIdentity | None = None,
    ) -> None:
        self.url = redacted(url)
        self._identity = identity
        self._server = url
        self._name = name
        self._patience_s = patience_s
        self._connection: NatsConnection | None = None
        self._users = 0
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Connect, unless that is done. Each call wants a `close`.

        Raises
        ------
        ConfigError
            The server is too old.
        ProviderUnavailable
            No server answers.
        """
        async with self._opening:
            if self._connection is None:
                connection = NatsConnection(self._server, name=self._name, identity=self._identity)
                self._connection = await connection.__aenter__()
            self._users += 1

    async def close(self) -> None:
        """Disconnect, if no other user is left."""
        async with self._opening:
            self._users = max(0, self._users - 1)
            connection = self._connection
            if connection is not None and not self._users:
                self._connection = None
                await connection.close()

    async def link(self, *, timeout_s: float | None = None) -> BrokerLink:
        """The live link, waiting for it if need be.

        Raises
        ------
        ProviderUnavailable
            None in time, or the session is closed.
        """
        connection = self._connection
        if connection is None:
            raise ProviderUnavailable(f"the session with {self.url} is closed")
        return await connection.link(timeout_s=self._patience_s if timeout_s is None else timeout_s)

    async def drop(self, link: BrokerLink) -> None:
        """Give up a link that does not answer."""
        if self._connection is not None:
            await self._connection.drop(link)

    async def ask(
        self,
        question: Callable[[JetStreamContext], Awaitable[ResultT]],
        *,
        patience_s: float | None = None,
    ) -> ResultT:
        """Ask the JetStream API, again while the connection is lost; errors as `ask_on`."""
        return await self.ask_on(
            lambda link: question(link.client.jetstream(timeout=ANSWER_S)), patience_s=patience_s
        )

    async def ask_on(
        self,
        question: Callable[[BrokerLink], Awaitable[ResultT]],
        *,
        patience_s: float | None = None,
    ) -> ResultT:
        """Ask something on a link, on another one while the connection is lost.

        Raises
        ------
        ProviderUnavailable
            No answer in time.
        nats.js.errors.APIError
            The answer is no, and would be again.
        """
        patience_s = self._patience_s if patience_s is None else patience_s
        patience, left_s = Patience(patience_s), patience_s
        while True:
            link = await self.link(timeout_s=left_s)
            try:
                return await question(link)
            except FINAL:
                raise
            except PASSING as error:
                left_s = patience.left_s()
                if left_s <= 0:
                    raise ProviderUnavailable(
                        f"JetStream at {self.url} did not answer for {patience_s:.0f} s: {error!r}"
                    ) from error
                _log.debug("faust_question_repeated", error=repr(error))
                await asyncio.sleep(_RETRY_S)
