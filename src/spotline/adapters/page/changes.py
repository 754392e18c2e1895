"""Tells pages that something has changed: not what, they are made again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from spotline.application.page.applied import Applied
from spotline.application.read_model.ports import ViewRefused
from spotline.contracts.reasons import Reason
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened

LEAST_APART_S = 0.5
QUIET_S = 15.0
_RETRY_MS = 2_000

Again = Callable[[], Awaitable[None]]
"""Asks whether a reader is still who he was; `ViewRefused` where he is not."""


@dataclass(frozen=True, slots=True)
class PageChange:
    """The last change: its entry of the log, and the open slot."""

    seq: int
    slot: int


class PageChanges:
    """The last change that each tenant may see, and the last of all. For one event loop."""

    def __init__(self) -> None:
        self._slot = -1
        # The empty tenant is whoever sees all.
        self._last: dict[str, int] = {"": 0}
        self._opened = 0
        self._changed = asyncio.Event()
        self._ended = False

    def note(self, told: Applied) -> None:
        """Take what was applied. Never waits."""
        event = told.event
        if isinstance(event, MarketOpened | SlotOpened):
            self._opened = told.seq
            self._slot = event.slot if isinstance(event, SlotOpened) else self._slot
        tenant = event.job.tenant if isinstance(event, JobSubmitted) else _tenant_of(event)
        self._last[""] = told.seq
        if tenant:
            self._last[tenant] = told.seq
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def end(self) -> None:
        """End all that follow: the server stops."""
        self._ended = True
        self._changed.set()

    def latest(self, tenant: str) -> PageChange:
        """The last change that a caller of a tenant (empty: of none) may see."""
        return PageChange(max(self._last.get(tenant, 0), self._opened), self._slot)

    async def after(self, seq: int, tenant: str) -> PageChange:
        """Wait for a change behind an entry of the log.

        Raises
        ------
        ViewRefused
            The server stops.
        """
        while (latest := self.latest(tenant)).seq <= seq:
            if self._ended:
                raise ViewRefused(Reason.SERVER_STOPPING, "the server is stopping")
            await self._changed.wait()
        return latest


def _tenant_of(event: object) -> str:
    found = getattr(event, "tenant", "")
    return found if isinstance(found, str) else ""


async def change_texts(
    changes: PageChanges,
    tenant: str,
    again: Again,
    *,
    apart_s: float = LEAST_APART_S,
    quiet_s: float = QUIET_S,
) -> AsyncIterator[str]:
    """Server-sent events to a page that follows: at most one in `apart_s` seconds.

    Ends with an event `end` where the reader may follow no more, or the server stops.
    """
    seq = changes.latest(tenant).seq
    yield f"retry: {_RETRY_MS}\n\n"
    while True:
        try:
            async with asyncio.timeout(quiet_s):
                change = await changes.after(seq, tenant)
        except TimeoutError:
            # A reader that went away is noticed when something is sent.
            yield ": nothing has changed\n\n"
            continue
        except ViewRefused as refused:
            yield _end_text(refused)
            return
        try:
            await again()
        except ViewRefused as refused:
            yield _end_text(refused)
            raise
        seq = change.seq
        told = json.dumps({"seq": change.seq, "slot": change.slot})
        yield f"event: change\ndata: {told}\n\n"
        # What changes meanwhile is told at once behind it.
        await asyncio.sleep(apart_s)


def _end_text(refused: ViewRefused) -> str:
    told = json.dumps({"reason": refused.reason.name, "detail": str(refused)})
    return f"event: end\ndata: {told}\n\n"
