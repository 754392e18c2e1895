"""The ledger as the actuator sees it: each call runs in a worker thread, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from spotline.adapters.ledger.sqlite import SqlLedger
from spotline.application.cloud_actuator.ports import LedgerEntry, LedgerIntent, Owner
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import HeldInterval
from spotline.domain.ledger.intents import HeldInstance, Intent


class ThreadedLedger:
    """Implements `Ledger` on a `SqlLedger`, which the caller opens and closes."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger

    @property
    def owner(self) -> Owner:
        """Whose ledger this is, at the epoch of this process."""
        return self._ledger.owner

    async def answers(self, call_key: str) -> tuple[Event, ...] | None:
        """What a call was answered, None if it was never finished."""
        return await asyncio.to_thread(self._ledger.answers, call_key)

    async def intents(self, command_ids: Sequence[str]) -> Mapping[str, LedgerIntent]:
        """The latest attempt at each of these commands that has any."""
        return await asyncio.to_thread(self._ledger.intents, command_ids)

    async def pending(self) -> Sequence[Intent]:
        """Intents without a result, in the order they were written."""
        return await asyncio.to_thread(self._ledger.pending)

    async def held(self) -> Sequence[HeldInstance]:
        """What we hold, in launch order."""
        return await asyncio.to_thread(self._ledger.held)

    async def intervals(self, slot: int, slot_s: int) -> Sequence[HeldInterval]:
        """Who held what when inside a slot, in launch order."""
        return await asyncio.to_thread(self._ledger.intervals, slot, slot_s)

    async def spend_by_job(self) -> Mapping[str, int]:
        """Micro-USD charged so far, by job, ordered by job id."""
        return await asyncio.to_thread(self._ledger.spend_by_job)

    async def launches_since(self, ts_ns: int) -> int:
        """Instances we set out to launch after `ts_ns` of market time."""
        return await asyncio.to_thread(self._ledger.launches_since, ts_ns)

    async def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        await asyncio.to_thread(self._ledger.write_intents, intents)

    async def record(self, entry: LedgerEntry) -> None:
        """Record what was done; once per call key."""
        await asyncio.to_thread(self._ledger.record, entry)
