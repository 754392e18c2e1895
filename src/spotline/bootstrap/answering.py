"""A host that answers calls from its state: the server runs while the host follows the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from spotline.bootstrap.parts import AnyHost


class _Server(Protocol):
    async def start(self) -> str: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedHost:
    """A host and the server that answers from its state.

    `listening` is told the bound address; `show` keeps what the server says of its health up to
    date.
    """

    host: AnyHost
    server: _Server
    listening: Callable[[str], None] | None = None
    show: Callable[[], Coroutine[Any, Any, None]] | None = None


async def answer_while_following(
    tasks: asyncio.TaskGroup,
    serving: ServedHost,
    *,
    prepare: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Run the host, and the server from when it has recovered and `prepare` is done.

    The host is not well before its server listens: to get ready takes long where kernels are to be
    compiled first.
    """
    host, server = serving.host, serving.server
    host.answering = False
    showing = None
    follow = tasks.create_task(host.run(), name="follow")
    try:
        # Nothing is answered from a state that is not up to date.
        await host.live()
        if prepare is not None:
            await prepare()
        bound = await server.start()
        host.answering = True
        if serving.listening is not None:
            serving.listening(bound)
        if serving.show is not None:
            showing = tasks.create_task(serving.show(), name="ready")
        await asyncio.wait((follow,))
    finally:
        if showing is not None:
            showing.cancel()
        await server.stop()
