"""What a world remembers of its log, and how a service opens it: settled, as in the product."""

from __future__ import annotations

import asyncio
from pathlib import Path

from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.incarnations import LogRemembered
from spotline.application.installation import (
    Installation,
    LedgerNotes,
    StoreIdentity,
    log_remembered,
    with_log_noted,
)
from spotline.bench.faults.points import Lifeline
from spotline.bench.faults.stream import MemoryBroker, MemoryStream, Pause
from spotline.runtime.log_settling import last_entry, settled_log

OWNER = "default"
INSTALLATION = Installation(installation_id="0" * 31 + "1")


class WorldStore:
    """The store of a run.

    Attributes
    ----------
    unsettled
        Whether the log is to be settled before any service opens it, as a start of the store does.
    """

    def __init__(self, broker: MemoryBroker, ledger_file: Path, pause: Pause) -> None:
        self.unsettled = False
        self._broker, self._ledger_file, self._pause = broker, ledger_file, pause
        self._identity = StoreIdentity(installation=INSTALLATION, made_by="", last_used_by="")
        self._settling = asyncio.Lock()
        self._recorded = (0, 0)

    async def opened(self, line: Lifeline, remembered: LogRemembered | None = None) -> MemoryStream:
        """The log as a service opens it: settled, by all that the service knows of it."""
        stream = MemoryStream(self._broker, pause=self._pause)
        await settled_log(stream, remembered)
        line.check()
        return stream

    def remembered(self, ledger: SqlLedger | None) -> LogRemembered:
        """The log as store and ledger remember it."""
        notes = LedgerNotes()
        if ledger is not None:
            notes = LedgerNotes(
                installation_id=ledger.installation_id,
                incarnation=ledger.incarnation,
                latest_slot=ledger.latest_slot(),
            )
        return log_remembered(self._identity, notes, self._recorded)

    def note(self, stream: MemoryStream, digest: str = "") -> None:
        """Keep which log there is, how far it was seen, and the last entry's digest."""
        self._identity = with_log_noted(
            self._identity,
            incarnation=stream.incarnation,
            created=stream.continuity.created,
            known_seq=stream.continuity.known_seq,
            digest=digest,
        )

    async def note_end(self) -> None:
        """Keep how the log ends, as a system does that stops; nobody else may remember it."""
        stream = MemoryStream(self._broker)
        await stream.look()
        _, digest = await last_entry(stream)
        self.note(stream, digest)

    def record(self) -> None:
        """Record the log as far as it goes, as `up` does beside its services."""
        self._recorded = (self._identity.incarnation, self._broker.last_seq)

    async def settle_first(self) -> None:
        """Settle the log where that is due; whoever comes meanwhile waits for it."""
        async with self._settling:
            if self.unsettled:
                await self._settle()
                self.unsettled = False

    async def _settle(self) -> None:
        ledger = None
        if self._ledger_file.exists():
            ledger = SqlLedger.looked_at(ledger_url(self._ledger_file), OWNER)
        try:
            stream = MemoryStream(self._broker, pause=self._pause)
            await settled_log(stream, self.remembered(ledger))
            self.note(stream)
        finally:
            if ledger is not None:
                ledger.close()
