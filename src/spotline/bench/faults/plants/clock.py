"""Bugs that wrong clocks bring out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from spotline.application.market_ingest.handler import IngestHandler, IngestState
from spotline.application.spec import Timer
from spotline.bench.faults.plants.interface import Plant, Replacement
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.domain.units import NS_PER_S
from spotline.runtime.service import ServiceHost


def _what_is_older_than_the_last_is_left_out() -> Sequence[Replacement]:
    handle = ServiceHost._handle_entry
    latest_ns: dict[int, int] = {}

    async def impatient(self: Any, entry: StoredEntry) -> None:
        before_ns = latest_ns.get(id(self), 0)
        latest_ns[id(self)] = max(before_ns, entry.stored_ns)
        if entry.stored_ns < before_ns - 60 * NS_PER_S:
            return
        await handle(self, entry)

    return (Replacement(where=ServiceHost, name="_handle_entry", value=impatient),)


def _slots_open_at_the_time_of_the_process() -> Sequence[Replacement]:
    events_of = IngestHandler.slot_events

    def by_process(self: IngestHandler, slot: int) -> tuple[Event, ...]:
        passed_ns = int(asyncio.get_running_loop().time()) * NS_PER_S
        return tuple(
            replace(event, ts_event_ns=event.ts_event_ns + passed_ns)
            if isinstance(event, SlotOpened)
            else event
            for event in events_of(self, slot)
        )

    return (Replacement(where=IngestHandler, name="slot_events", value=by_process),)


def _a_pause_skips_slots() -> Sequence[Replacement]:
    due = IngestHandler.due
    # With the handler itself: the id of one that is gone may be another's.
    seen: dict[int, tuple[IngestHandler, float]] = {}
    paused_in: dict[int, int] = {}

    def skipping(self: IngestHandler, state: IngestState) -> Sequence[Timer]:
        now_s = asyncio.get_running_loop().time()
        _, before_s = seen.get(id(self), (self, now_s))
        seen[id(self)] = self, now_s
        if now_s - before_s > 50:
            paused_in[id(self)] = state.slot
        # What it was about to open when it was paused still opens; the one after that is left out.
        elif paused_in.get(id(self), state.slot) < state.slot:
            del paused_in[id(self)]
            state.slot += 1
        return due(self, state)

    return (Replacement(where=IngestHandler, name="due", value=skipping),)


PLANTS = (
    Plant(
        name="what_is_older_than_the_last_is_left_out",
        what="an entry that was stored at an earlier time than the one before it is dropped",
        replacements=_what_is_older_than_the_last_is_left_out,
        seed=2,
    ),
    Plant(
        name="slots_open_at_the_time_of_the_process",
        what="market time follows the clock of market_ingest's machine",
        replacements=_slots_open_at_the_time_of_the_process,
    ),
    Plant(
        name="a_pause_skips_slots",
        what="after a pause market_ingest goes on where the clock is",
        replacements=_a_pause_skips_slots,
        seed=9,
    ),
)
