"""Bugs that a broker which goes away brings out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.bench.faults.plants.losses import PLANTS as OF_LOSSES
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ProviderUnavailable
from spotline.runtime.own_records import OwnRecords
from spotline.runtime.service import ServiceHost


def _what_is_not_stored_is_forgotten() -> Sequence[Replacement]:
    store = OwnRecords.store

    async def forgetful(self: OwnRecords, envelopes: Sequence[Envelope]) -> list[int]:
        try:
            return await store(self, envelopes)
        except ProviderUnavailable:
            return [0 for _ in envelopes]

    return (Replacement(where=OwnRecords, name="store", value=forgetful),)


def _everything_stored_counts_as_done() -> Sequence[Replacement]:
    recover = ServiceHost._recover

    async def trusting(self: Any, floor_seq: int) -> None:
        await recover(self, max(floor_seq, await self._stream.last_seq()))

    return (Replacement(where=ServiceHost, name="_recover", value=trusting),)


def _a_lost_broker_is_waited_for_without_end() -> Sequence[Replacement]:
    run = ServiceHost.run

    async def stuck(self: Any) -> None:
        try:
            await run(self)
        except ProviderUnavailable:
            await asyncio.Event().wait()

    return (Replacement(where=ServiceHost, name="run", value=stuck),)


PLANTS = (
    Plant(
        name="what_is_not_stored_is_forgotten",
        what="events that could not be published in time are given up",
        replacements=_what_is_not_stored_is_forgotten,
    ),
    Plant(
        name="everything_stored_counts_as_done",
        what="what was stored while a service was down is not handled",
        replacements=_everything_stored_counts_as_done,
    ),
    Plant(
        name="a_lost_broker_is_waited_for_without_end",
        what="a service whose broker was away for long neither ends nor goes on",
        replacements=_a_lost_broker_is_waited_for_without_end,
    ),
    *OF_LOSSES,
)
