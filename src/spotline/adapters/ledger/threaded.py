"""The ledger as the actuator sees it: each call runs in a worker thread, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.cloud_actuator.agreed_mark import AgreedMark
from spotline.application.cloud_actuator.ports import (
    Admission,
    BilledInstance,
    LedgerEntry,
    LedgerIntent,
    Owner,
)
from spotline.domain.events.event import Event
from spotline.domain.ledger.billing import Charge, HeldInterval
from spotline.domain.ledger.bills import InstanceBill, Settlement
from spotline.domain.ledger.cooldowns import Cooldown
from spotline.domain.ledger.instance_life import InstanceLife
from spotline.domain.ledger.intents import HeldInstance, Intent
from spotline.domain.ledger.job_records import JobRecord


@asynccontextmanager
async def opened_ledger(url: str, owner_name: str) -> AsyncIterator[SqlLedger]:
    """Open a ledger in a worker thread, and close it there in the end; raises as `SqlLedger` does."""
    ledger = await asyncio.to_thread(SqlLedger, url, owner_name)
    try:
        yield ledger
    finally:
        await asyncio.to_thread(ledger.close)


class _Group:
    """Admissions that are written as one transaction."""

    def __init__(self) -> None:
        self.admissions: list[Admission] = []
        self.written = False


class ThreadedLedger:
    """Implements `Ledger` on a `SqlLedger`, which the caller opens and closes."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self._group = _Group()
        self._admitting = asyncio.Lock()

    @property
    def owner(self) -> Owner:
        """Whose ledger this is, at the epoch of this process."""
        return self._ledger.owner

    # --- what was done, and what is held ------------------------------------------------------

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

    async def launches_since(self, ts_ns: int) -> int:
        """Instances we set out to launch after `ts_ns` of market time."""
        return await asyncio.to_thread(self._ledger.launches_since, ts_ns)

    async def write_intents(self, intents: Sequence[Intent]) -> None:
        """Record intents, before any cloud is called. (command id, attempt) is unique."""
        await asyncio.to_thread(self._ledger.write_intents, intents)

    async def record(self, entry: LedgerEntry) -> None:
        """Record what was done; once per call key."""
        await asyncio.to_thread(self._ledger.record, entry)

    # --- lives --------------------------------------------------------------------------------

    async def lives(self) -> Sequence[InstanceLife]:
        """All instances and launches that have not ended, in the order they were first recorded."""
        return await asyncio.to_thread(self._ledger.lives)

    async def lives_of(self, subjects: Sequence[str]) -> Mapping[str, InstanceLife]:
        """Those of these instance ids and tokens that were ever recorded, ended ones too."""
        return await asyncio.to_thread(self._ledger.lives_of, subjects)

    async def cooldowns(self) -> Sequence[Cooldown]:
        """All cool-downs, over or not, ordered by scope and key."""
        return await asyncio.to_thread(self._ledger.cooldowns)

    async def taken(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Those of these cloud events that were dealt with before."""
        return await asyncio.to_thread(self._ledger.taken, event_ids)

    async def latest_ns(self) -> int:
        """The latest market time of any transition or intent, 0 if there is none."""
        return await asyncio.to_thread(self._ledger.latest_ns)

    async def latest_slot(self) -> int:
        """The latest slot in which anything was commanded or answered, -1 if there is none."""
        return await asyncio.to_thread(self._ledger.latest_slot)

    async def check_epoch(self) -> None:
        """Raise `OwnerFenced` when a newer epoch exists: a read, before each call of a cloud."""
        await asyncio.to_thread(self._ledger.check_epoch)

    async def agreed(self) -> AgreedMark | None:
        """Up to where the log was last seen to have all that the ledger holds of jobs and costs."""
        return await asyncio.to_thread(self._ledger.agreed)

    async def note_agreed(self, mark: AgreedMark) -> None:
        """Hold up to where the two were seen to agree, in place of what was held before."""
        await asyncio.to_thread(self._ledger.note_agreed, mark)

    async def raise_epoch(self, epoch: int) -> None:
        """Go on as the same owner at a later epoch; `owner` is that one then."""
        await asyncio.to_thread(self._ledger.raise_epoch, epoch)

    # --- money --------------------------------------------------------------------------------

    async def spend_by_job(self) -> Mapping[str, int]:
        """Micro-USD charged so far, by job, ordered by job id."""
        return await asyncio.to_thread(self._ledger.spend_by_job)

    async def charges_since(self, slot: int) -> Sequence[Charge]:
        """The charges of `slot` and later ones, by slot, job, offering, capacity type and start."""
        return await asyncio.to_thread(self._ledger.charges_since, slot)

    async def bills(self, job_id: str = "") -> Sequence[InstanceBill]:
        """The bill of every instance that was charged or settled, or of one job's, by instance id."""
        return await asyncio.to_thread(self._ledger.bills, job_id)

    async def settled(self, instance_ids: Sequence[str]) -> frozenset[str]:
        """Those of these instances of which somebody said what they cost in the end."""
        return await asyncio.to_thread(self._ledger.settled, instance_ids)

    async def unsettled(self, since_ns: int) -> Sequence[BilledInstance]:
        """Instances that have ended since then, and of which nobody said what they cost, by id."""
        return await asyncio.to_thread(self._ledger.unsettled, since_ns)

    async def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record what instances cost in the end, as one transaction."""
        await asyncio.to_thread(self._ledger.settle, settlements)

    # --- admissions ---------------------------------------------------------------------------

    async def admit(self, admissions: Sequence[Admission]) -> None:
        """Hold these jobs, as one transaction; those held already stay as they are.

        A call that comes during another's transaction shares the next one with all that wait.
        """
        group = self._group
        group.admissions += admissions
        async with self._admitting:
            if group.written:
                return
            if self._group is group:
                # Closed: a later call waits for the next group.
                self._group = _Group()
            # If this is cancelled or fails, the next that waits for this group writes it (again).
            await asyncio.to_thread(self._ledger.admit, group.admissions)
            group.written = True

    async def note_jobs(self, records: Sequence[JobRecord]) -> None:
        """Hold what the log says of jobs, as one transaction; idempotent by event id."""
        await asyncio.to_thread(self._ledger.note_jobs, records)

    async def job_records(self) -> Sequence[JobRecord]:
        """What the log said of jobs, in the order in which it was noted."""
        return await asyncio.to_thread(self._ledger.job_records)

    async def admitted_ids(self) -> Sequence[str]:
        """The ids of all jobs that are held, in order."""
        return await asyncio.to_thread(self._ledger.admitted_ids)

    async def admitted(self, job_ids: Sequence[str]) -> Mapping[str, Admission]:
        """Those of these jobs that are held: with another digest, it is another submission's."""
        return await asyncio.to_thread(self._ledger.admitted, job_ids)
