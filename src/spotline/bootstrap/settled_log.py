"""A store's log as a system begins and ends with it: what the store knows of it, and how it ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import TracebackType

import structlog

from spotline.bootstrap.installed import ledger_there, note_end, note_last, remembered_log
from spotline.bootstrap.parts import BusAddress, open_stream
from spotline.contracts.errors import ConfigError, ProviderUnavailable

_log = structlog.get_logger(__name__)


async def settle_log(bus: BusAddress, store: Path) -> None:
    """Have the log go on as what it is before any service opens it, by all that the store knows."""
    ledger = await asyncio.to_thread(ledger_there, store)
    try:
        remembered = await asyncio.to_thread(remembered_log, store, ledger)
        async with open_stream(bus, name="store", remembered=remembered) as (_, stream):
            await note_end(store, stream)
    finally:
        if ledger is not None:
            ledger.close()


async def noted_at_the_end(
    bus: BusAddress,
    store: Path,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    """Keep in the store how the log ends; what ended by an error may have found it cut."""
    if kind is not None and not issubclass(kind, asyncio.CancelledError):
        return
    try:
        async with open_stream(bus, name="store") as (_, stream):
            await note_last(store, stream)
    except (ConfigError, ProviderUnavailable) as failed:
        _log.warning("log_end_not_noted", store=str(store), reason=str(failed))
