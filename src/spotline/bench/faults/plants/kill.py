"""Bugs that a process which ends anywhere brings out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spotline.adapters.ledger.sql import SqlLedger
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.contracts.envelope import StoredEntry
from spotline.domain.ledger.intents import Intent
from spotline.runtime.own_records import OwnRecords
from spotline.runtime.service import ServiceHost


def _acknowledged_before_it_is_done() -> Sequence[Replacement]:
    handle = ServiceHost._handle_entry

    async def hasty(self: Any, entry: StoredEntry) -> None:
        if self._subscription is not None:
            await self._subscription.ack(entry)
        await handle(self, entry)

    return (Replacement(where=ServiceHost, name="_handle_entry", value=hasty),)


def _own_decisions_are_not_read_back() -> Sequence[Replacement]:
    async def read_back(self: OwnRecords, first_seq: int, last_seq: int, floor_seq: int) -> None:
        return None

    return (Replacement(where=OwnRecords, name="read_back", value=read_back),)


def _intents_are_not_written() -> Sequence[Replacement]:
    def write_intents(self: SqlLedger, intents: Sequence[Intent]) -> None:
        return None

    return (Replacement(where=SqlLedger, name="write_intents", value=write_intents),)


PLANTS = (
    Plant(
        name="acknowledged_before_it_is_done",
        what="an entry is acknowledged before what follows from it is stored",
        replacements=_acknowledged_before_it_is_done,
    ),
    Plant(
        name="own_decisions_are_not_read_back",
        what="after a restart a service does not know what it had decided",
        replacements=_own_decisions_are_not_read_back,
        seed=7,
    ),
    Plant(
        name="intents_are_not_written",
        what="the actuator calls the cloud without an intent in the ledger",
        replacements=_intents_are_not_written,
    ),
)
