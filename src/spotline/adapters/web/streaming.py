"""Changes as server-sent events: one for each, whose id is its place in the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from spotline.adapters.web.encoding import answer, iso_of_ns, json_text
from spotline.adapters.web.problems import problem_of
from spotline.application.read_model.messages import LogPlace, ViewChange
from spotline.application.read_model.ports import ViewRefused, ViewWatch

EVENT_STREAM = "text/event-stream"
# A reader that went away is noticed when something is sent.
QUIET_S = 15.0
_RETRY_MS = 1_000


def place_text(place: LogPlace) -> str:
    """A place as the id of an event."""
    return f"{place.seq}-{place.part}"


def change_text(change: ViewChange) -> str:
    """A change as an event."""
    data = answer(
        change.clock,
        id=place_text(change.place),
        seq=change.place.seq,
        change=change.change,
        job_id=change.job_id or None,
        tenant=change.tenant or None,
        ts_event=iso_of_ns(change.ts_event_ns),
        text=change.text or None,
        view=change.view,
    )
    return f"id: {place_text(change.place)}\nevent: change\ndata: {json_text(data)}\n\n"


def end_text(refused: ViewRefused) -> str:
    """Why nothing more follows, as an event; it has no id, so the last change's stays the last."""
    return f"event: end\ndata: {json_text(problem_of(refused))}\n\n"


async def events_of(watch: ViewWatch, *, quiet_s: float = QUIET_S) -> AsyncIterator[str]:
    """What is sent to a reader that follows changes, until it goes or falls behind."""
    try:
        yield f"retry: {_RETRY_MS}\n\n"
        while True:
            try:
                async with asyncio.timeout(quiet_s):
                    change = await watch.next()
            except TimeoutError:
                yield ": nothing has changed\n\n"
                continue
            except ViewRefused as refused:
                yield end_text(refused)
                return
            yield change_text(change)
    finally:
        watch.close()
