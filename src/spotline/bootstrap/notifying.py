"""Telling others what a running system is short of: its log followed into alerts, in a thread apart.

Nothing waits for it: it reads the log by a connection of its own, at its own pace, and where
something of it fails it begins again, as the log and its outbox hold all that it needs.
"""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from spotline.adapters.notify.delivering import AlertDelivery
from spotline.adapters.notify.outbox import OUTBOX_FILE, LetterState, Outbox
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
from spotline.contracts.errors import ConfigError, LogCut
from spotline.replay.recorded import ReadableLog
from spotline.runtime.metrics import Readings
from spotline.runtime.stream import EventStream
from spotline.runtime.telemetry import telemetry_for

_log = structlog.get_logger(__name__)

NOTIFIER = "notifier"
"""What it is called in metrics, and the service that it is where it runs apart."""

# As whom it reads where all services run in one process: as what records the log.
_READER = "event_log"
POLL_S = 1.0
"""How often the end of the log is asked for, in seconds."""

_AGAIN_S = (5.0, 300.0)
_LOCK_FILE = ".notify.lock"
_FIGURES = {
    "spotline.notifications.waiting": LetterState.WAITING,
    "spotline.notifications.taken": LetterState.TAKEN,
    "spotline.notifications.given_up": LetterState.GIVEN_UP,
}


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
    with delivering(told) as delivery:
        async with (
            open_stream(told.bus, name=_READER) as (_, stream),
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(delivery.run(), name="deliver")
            await followed(stream, fold_of(told, source), delivery, poll_s=POLL_S)


@contextmanager
def _alone_with(store: Path) -> Iterator[None]:
    """Keep every other process from sending what is in the store's outbox: it would be sent twice."""
    try:
        store.mkdir(parents=True, exist_ok=True)
        lock = (store / _LOCK_FILE).open("ab")
    except OSError as error:
        found = error.strerror or str(error)
        raise ConfigError(f"{store}: expected a folder to write to, found: {found}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{store}: expected an outbox that no other process sends from, found one that "
                "does; end it, or give another store"
            ) from error
        yield


def fold_of(told: Notifying, source: str) -> AlertFold:
    """An empty fold; `source` is the id of the installation, which makes its ids its own."""
    return AlertFold(source, About(selector=told.selector))


@contextmanager
def delivering(told: Notifying) -> Iterator[AlertDelivery]:
    """The outbox of the store with its receivers, and its figures shown as metrics.

    Raises
    ------
    ConfigError
        Another process has it, it is of another release, or the store cannot be used.
    """
    telemetry = telemetry_for(NOTIFIER)
    with ExitStack() as stack:
        stack.enter_context(_alone_with(told.store))
        outbox = Outbox(told.store / OUTBOX_FILE)
        stack.callback(outbox.close)
        delivery = AlertDelivery(outbox, told.targets)
        for name, state in _FIGURES.items():
            stack.callback(telemetry.observe(name, partial(_counted, delivery, state)))
        yield delivery


def _counted(delivery: AlertDelivery, state: LetterState) -> Readings:
    return [(delivery.count(state), {})]


@dataclass(slots=True)
class FollowPlace:
    """How far a log was folded: up to entry `applied_seq`, stored at `stored_ns`, of `last_seq`.

    Before the log was asked for its end, that is -1.
    """

    applied_seq: int = 0
    last_seq: int = -1
    stored_ns: int = 0


async def followed(
    stream: EventStream,
    fold: AlertFold,
    delivery: AlertDelivery,
    *,
    poll_s: float,
    place: FollowPlace | None = None,
    check: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Fold a log from its beginning on, and put what it shows into the outbox, until cancelled.

    Parameters
    ----------
    place
        Is kept up to date.
    check
        Raises `LogCut` where the log is no longer the one that was opened; called before new
        entries are read.

    Raises
    ------
    LogCut
        The log ends before what was read of it.
    """
    log, next_seq = ReadableLog(), 1
    place = FollowPlace() if place is None else place
    while True:
        place.last_seq = last_seq = await stream.last_seq()
        if last_seq < next_seq - 1:
            raise LogCut(
                "that is followed",
                f"entry {next_seq - 1:,} was read, it ends at {last_seq:,}",
                last_seq=last_seq,
                known_seq=next_seq - 1,
            )
        if last_seq >= next_seq:
            if check is not None:
                await check()
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
                place.applied_seq, place.stored_ns = entry.seq, entry.stored_ns
            next_seq = last_seq + 1
            place.applied_seq = last_seq
        await asyncio.sleep(poll_s)
