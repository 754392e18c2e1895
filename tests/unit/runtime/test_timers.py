"""Timers by the wall clock, however it is set: on a clock that a test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pytest

from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.spec import Timer
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.generate import generate
from spotline.domain.market.reservations import moved
from spotline.domain.units import NS_PER_S
from spotline.runtime.timers import ArmedTimers
from tests.fakes.clock import TurnedClock

SLOT_S = 600
BEGAN_NS = 1_772_323_200 * NS_PER_S
MARKET = generate("mixed", seed=3, slots=200, slot_s=SLOT_S, start_ns=0)


class SetClock(TurnedClock):
    """A clock whose wall time may be set, beside the time that passes."""

    def __init__(self, wall_ns: int = BEGAN_NS) -> None:
        super().__init__()
        self.set_ns = wall_ns

    def now_ns(self) -> int:
        return self.set_ns + round(self.now_s() * NS_PER_S)

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            await super().sleep(seconds)


@dataclass
class Ingest:
    """market_ingest by the wall clock: its log outlives it."""

    clock: SetClock
    log: list[Event] = field(default_factory=list)
    settles: bool = True

    async def up(
        self, for_s: float, *, steps: Sequence[Callable[[], Awaitable[None]]] = ()
    ) -> None:
        """Run a process for so long; `steps` happen half-way."""
        market = moved(MARKET, BEGAN_NS)
        handler = IngestHandler(market, IngestOptions(barrier=False, wall_clock=True))
        state = handler.initial()
        for event in self.log:
            handler.evolve(state, event)

        async def record(timer: Timer) -> None:
            for event in timer.events:
                self.log.append(event)
                handler.evolve(state, event)
                if isinstance(event, SlotOpened) and self.settles:
                    settled = CapacityReported(
                        slot=event.slot, revision=0, offset_s=0, holdings=(), settled=True
                    )
                    handler.evolve(state, settled)
            timers.arm(handler.due(state), tasks)

        timers = ArmedTimers("market_ingest", record, None, self.clock)
        async with asyncio.TaskGroup() as tasks:
            timers.arm(handler.due(state), tasks)
            for half in range(2):
                await self._pass(for_s / 2)
                for step in steps if half == 0 else ():
                    await step()
            timers.cancel()

    async def _pass(self, seconds: float) -> None:
        for _ in range(round(seconds / 10)):
            await self._quiet()
            self.clock.turn(10.0)
        await self._quiet()

    async def _quiet(self) -> None:
        """Let everything run that can: until a while has brought nothing new."""
        idle, before = 0, -1
        while idle < 20:
            idle, before = (idle + 1 if len(self.log) == before else 0), len(self.log)
            await asyncio.sleep(0)

    @property
    def slots(self) -> list[SlotOpened]:
        return [event for event in self.log if isinstance(event, SlotOpened)]

    def check(self) -> None:
        """Each slot opened once, in order, at its own time, and the last is the present one."""
        assert [opened.slot for opened in self.slots] == list(range(len(self.slots)))
        for opened in self.slots:
            assert opened.ts_event_ns == BEGAN_NS + opened.slot * SLOT_S * NS_PER_S


async def test_slots_open_when_wall_time_comes_to_them() -> None:
    ingest = Ingest(SetClock())

    await ingest.up(3 * SLOT_S)

    ingest.check()
    assert ingest.slots[-1].slot == 3


@pytest.mark.parametrize("away_s", [0, 590, 6_000, 24 * 3600])
async def test_after_a_restart_market_time_is_wall_time_and_what_was_missed_opens_at_once(
    away_s: int,
) -> None:
    clock = SetClock()
    ingest = Ingest(clock)
    await ingest.up(5 * SLOT_S)
    clock.turn(away_s)

    await ingest.up(20)

    ingest.check()
    assert ingest.slots[-1].slot == (5 * SLOT_S + away_s + 20) // SLOT_S


async def test_a_machine_that_sleeps_for_hours_misses_no_slot() -> None:
    clock = SetClock()
    ingest = Ingest(clock)

    async def sleep() -> None:
        # Wall time goes on, what the process waits by does not.
        clock.set_ns += 5 * 3600 * NS_PER_S

    await ingest.up(2 * SLOT_S, steps=(sleep,))

    ingest.check()
    assert ingest.slots[-1].slot == (2 * SLOT_S + 5 * 3600) // SLOT_S


async def test_a_clock_that_is_set_back_opens_no_slot_twice_and_goes_on_where_it_was() -> None:
    clock = SetClock()
    ingest = Ingest(clock)

    async def set_back() -> None:
        clock.set_ns -= 3 * SLOT_S * NS_PER_S

    await ingest.up(8 * SLOT_S, steps=(set_back,))

    ingest.check()
    # Four slots before, then wall time comes there again.
    assert ingest.slots[-1].slot == 5


async def test_a_missed_slot_that_is_not_settled_holds_up_the_next_one_for_ten_seconds() -> None:
    clock = SetClock(BEGAN_NS + 10 * SLOT_S * NS_PER_S)
    ingest = Ingest(clock, settles=False)

    await ingest.up(40)

    ingest.check()
    assert [opened.slot for opened in ingest.slots] == [0, 1, 2, 3, 4]
