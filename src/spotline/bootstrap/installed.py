"""Whose a store is: found before anything is touched, kept once it may be used."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from spotline import __version__
from spotline.adapters.eventlog.segments import recorded_end
from spotline.adapters.nats.continuity import Continuity
from spotline.adapters.nats.stream import NatsEventStream
from spotline.adapters.store_file import (
    new_identity,
    new_installation,
    read_identity,
    write_identity,
)
from spotline.application.incarnations import LogRemembered
from spotline.application.installation import (
    Installation,
    LedgerNotes,
    StoreIdentity,
    log_remembered,
    store_differences,
    with_log_noted,
)
from spotline.application.market_ingest.continuing import MarketIdentity
from spotline.contracts.errors import ConfigError, LogCut, ProviderUnavailable
from spotline.runtime.log_settling import last_entry
from spotline.runtime.time_limit import time_limit

if TYPE_CHECKING:
    from spotline.adapters.ledger.sql import SqlLedger

_log = structlog.get_logger(__name__)

# What ends waits so long for a broker that may have gone before it.
_NOTE_S = 3.0

LEDGER_FILE = "ledger.sqlite"
LOG_FOLDER = "log"
LEDGER_OWNER = "default"


def checked_store(
    store: Path, market: MarketIdentity, *, partition: int, from_now: bool
) -> StoreIdentity:
    """What the store says of itself, or a new identity where it says nothing; writes nothing.

    Raises
    ------
    ConfigError
        It was made with another market, geography or partition, or used by a newer release.
    """
    identity = read_identity(store)
    if identity is None:
        return new_identity(new_installation())
    problems = [
        f"market: {problem}"
        for problem in store_differences(identity, market, partition=partition, from_now=from_now)
    ]
    if problems:
        made = identity.market.source if identity.market is not None else ""
        problems[-1] += (
            f" (the store {store} was made with {made!r}, given is {market.source!r}: give the "
            "market and geography that it began with, or another store)"
        )
        raise ConfigError("\n".join(problems))
    return identity


def used_store(store: Path, market: MarketIdentity, *, partition: int) -> StoreIdentity:
    """Keep in the store what it is used with, and by which release.

    Raises
    ------
    ConfigError
        It cannot be written to.
    """
    identity = _identity_of(store)
    used = replace(
        identity,
        last_used_by=__version__,
        market=identity.market or market,
        partitions=identity.partitions or (partition,),
    )
    if used != identity:
        write_identity(store, used)
    return used


def installation_of(store: Path) -> Installation:
    """Whose a store is; one that does not say so belongs to a new installation from now on.

    Raises
    ------
    ConfigError
        What it says cannot be read, or it cannot be written to.
    """
    return _identity_of(store).installation


def ledger_there(store: Path) -> SqlLedger | None:
    """The ledger of a store, opened to be read; None where there is none, or one of an older schema.

    Raises
    ------
    LedgerDamaged
        It is not what was written.
    """
    if not (store / LEDGER_FILE).exists():
        return None
    # SQLAlchemy takes long to import; most processes have no ledger.
    from spotline.adapters.ledger.opening import ledger_url
    from spotline.adapters.ledger.sql import SqlLedger

    try:
        return SqlLedger.looked_at(ledger_url(store / LEDGER_FILE), LEDGER_OWNER)
    except ConfigError:
        # The actuator brings it to this schema, or says why it cannot.
        return None


def remembered_log(store: Path, ledger: SqlLedger | None) -> LogRemembered:
    """The log as a store and its ledger remember it.

    A store that does not say whose it is takes that over from its ledger.

    Raises
    ------
    ConfigError
        Store and ledger belong to different installations, or one cannot be read.
    """
    claimed = "" if ledger is None else ledger.installation_id
    _identity_of(store, claimed)
    return remembered_of(store, ledger)


def remembered_of(store: Path, ledger: SqlLedger | None) -> LogRemembered:
    """As `remembered_log`, but writes nothing."""
    claimed = "" if ledger is None else ledger.installation_id
    identity = read_identity(store)
    if identity is None:
        identity = _new(claimed)
    whose = identity.installation.installation_id
    if claimed not in ("", whose):
        raise ConfigError(
            f"the ledger belongs to installation {claimed}, the store {store} to {whose}: give the "
            "store that belongs to it, or another ledger (look with spotline store check)"
        )
    notes = LedgerNotes()
    if ledger is not None:
        notes = LedgerNotes(
            installation_id=claimed,
            incarnation=ledger.incarnation,
            latest_slot=ledger.latest_slot(),
        )
    return log_remembered(identity, notes, recorded_end(store / LOG_FOLDER))


async def note_end(store: Path, stream: NatsEventStream) -> None:
    """Keep in the store which log it has, up to the last entry that is there now.

    Raises
    ------
    ConfigError
        The store cannot be written to.
    LogCut
        The log is not the one that was opened.
    ProviderUnavailable
        The broker does not answer.
    """
    await stream.ask(lambda link: stream.continuity.check(link.jetstream()))
    last_seq, digest = await last_entry(stream)
    stream.continuity.saw(last_seq)
    await asyncio.to_thread(note_log, store, stream.continuity, digest)


async def note_last(store: Path, stream: NatsEventStream) -> None:
    """As `note_end`, where something ends that must not wait or fail for it.

    A stopped log that loses its last entries has nobody else who remembers them.
    """
    try:
        async with time_limit(_NOTE_S):
            await note_end(store, stream)
    except (ConfigError, LogCut, ProviderUnavailable, TimeoutError) as error:
        _log.warning("log_end_not_noted", store=str(store), reason=str(error) or "no answer")


def note_log(store: Path, continuity: Continuity, digest: str = "") -> None:
    """Keep in the store which log it has, how far that was seen, and the last entry's digest.

    Raises
    ------
    ConfigError
        It cannot be written to.
    """
    identity = _identity_of(store)
    noted = with_log_noted(
        identity,
        incarnation=continuity.incarnation,
        created=continuity.created,
        known_seq=continuity.known_seq,
        digest=digest,
    )
    if noted != identity:
        write_identity(store, noted)


def _identity_of(store: Path, claimed: str = "") -> StoreIdentity:
    identity = read_identity(store)
    if identity is None:
        store.mkdir(parents=True, exist_ok=True)
        identity = _new(claimed)
        write_identity(store, identity)
    return identity


def _new(claimed: str) -> StoreIdentity:
    return new_identity(Installation(installation_id=claimed) if claimed else new_installation())
