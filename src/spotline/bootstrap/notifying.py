"""Telling others what a running system is short of: its log followed into alerts, in a thread apart.

Nothing waits for it: it reads the log by a connection of its own, at its own pace, and where
something of it fails it begins again, as the log and its outbox hold all that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from spotline.adapters.notify.delivering import AlertDelivery
from spotline.adapters.notify.outbox import OUTBOX_FILE, Outbox
from spotline.adapters.page.desk import yield_to_others
from spotline.adapters.store_file import read_identity
from spotline.application.notify.fold import AlertFold
from spotline.application.notify.target import NotifyTarget
from spotline.application.page.about import About
from spotline.application.page.applied import applied
from spotline.application.read_model.handler import SPEC
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.own_loop import in_own_loop
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.errors import LogCut
from spotline.replay.recorded import ReadableLog
from spotline.runtime.stream import EventStream

_log = structlog.get_logger(__name__)

# Whose place on the bus it reads from: that which records the log.
_READER = "event_log"
_POLL_S = 1.0
_AGAIN_S = (5.0, 300.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifying:
    """Who is told, of which system: `selector` are the options that its limits come from."""

    targets: Sequence[NotifyTarget]
    bus: BusAddress
    store: Path
    selector: SelectorOptions


@asynccontextmanager
async def notifying(told: Notifying) -> AsyncIterator[None]:
    """Tell receivers while the block runs; without any, nothing runs.

    Nothing that goes wrong with it reaches the block; it is said in the log.
    """
    if not told.targets:
        yield
        return
    running = asyncio.create_task(_until_cancelled(told), name="notify")
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def _until_cancelled(told: Notifying) -> None:
    pause_s, longest_s = _AGAIN_S
    while True:
        try:
            await in_own_loop(lambda: _follow(told), name="notify")
        except Exception as error:  # noqa: BLE001 - said, and begun again: jobs go on without it
            _log.error(
                "notifying_failed", error=f"{type(error).__name__}: {error}", again_s=pause_s
            )
        await asyncio.sleep(pause_s)
        pause_s = min(longest_s, 2 * pause_s)


async def _follow(told: Notifying) -> None:
    yield_to_others()
    identity = read_identity(told.store)
    source = "" if identity is None else identity.installation.installation_id
    fold = AlertFold(source, About(selector=told.selector))
    with closing(Outbox(told.store / OUTBOX_FILE)) as outbox:
        delivery = AlertDelivery(outbox, told.targets)
        async with (
            open_stream(told.bus, name=_READER) as (_, stream),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(delivery.run(), name="deliver")
            await followed(stream, fold, delivery, poll_s=_POLL_S)


async def followed(
    stream: EventStream, fold: AlertFold, delivery: AlertDelivery, *, poll_s: float
) -> None:
    """Fold a log from its beginning on, and put what it shows into the outbox, until cancelled.

    Raises
    ------
    LogCut
        The log ends before what was read of it.
    """
    log, next_seq = ReadableLog(), 1
    while True:
        last_seq = await stream.last_seq()
        if last_seq < next_seq - 1:
            raise LogCut(
                "that is followed",
                f"entry {next_seq - 1:,} was read, it ends at {last_seq:,}",
                last_seq=last_seq,
                known_seq=next_seq - 1,
            )
        if last_seq >= next_seq:
            async for entry in stream.read((), first_seq=next_seq, last_seq=last_seq):
                for event in log.events_of(entry):
                    if isinstance(event.event, SPEC.consumes):
                        delivery.put(
                            fold.fold(
                                applied(
                                    event.event,
                                    event.envelope,
                                    event.seq,
                                    wall_ns=event.stored_ns,
                                )
                            )
                        )
            next_seq = last_seq + 1
        await asyncio.sleep(poll_s)
