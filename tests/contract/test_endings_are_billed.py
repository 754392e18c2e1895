"""Selector and actuator together: what a job that ends inside a slot is said to cost is its bill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    LaunchRefused,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobCancelled, JobClosed, JobExited
from spotline.domain.market.market import Market
from tests.fakes.actuator import Rig
from tests.fakes.selector import SelectorWorld, job_of, market_of

WHOSE = {"job_id": "job-1", "tenant": "t"}


class BilledWorld:
    """A selector whose commands a real actuator carries out, with a ledger and a simulated cloud."""

    def __init__(self, rig: Rig, market: Market, **changes: object) -> None:
        self.selector = SelectorWorld(job_of(**changes), market=market)
        self.rig = rig
        self.decided: list[Event] = []

    async def take(self, events: Iterable[Event]) -> None:
        """Carry out what was decided, and all that follows from it."""
        for event in events:
            self.decided.append(event)
            if not isinstance(event, (ProvisioningCommanded, SlotDecided)):
                continue
            for answer in await self.rig.feed(event):
                if isinstance(answer, (LaunchRefused, CapacityLost, CapacityReported)):
                    await self.take(self.selector.feed(answer))

    async def next_slot(self) -> None:
        """Open, decide and settle the next slot."""
        opened = self.selector.open()
        self.decided += opened
        await self.rig.feed(self.selector.state.current)
        await self.take(self.selector.decide())

    @property
    def bill(self) -> int:
        """All that the actuator charged."""
        return sum(e.cost_micro_usd for e in self.rig.published if isinstance(e, CostAccrued))


def ends_as(world: BilledWorld) -> JobClosed:
    (closed,) = [event for event in world.decided if isinstance(event, JobClosed)]
    return closed


def cancelled(world: BilledWorld, offset_s: int) -> Event:
    return JobCancelled(**WHOSE, ts_event_ns=world.selector.at(offset_s))


def exited(world: BilledWorld, offset_s: int) -> Event:
    ts_event_ns = world.selector.at(offset_s)
    return JobExited(**WHOSE, generation=1, exit_code=1, detail="", ts_event_ns=ts_event_ns)


@pytest.mark.parametrize("ending", [cancelled, exited])
@pytest.mark.parametrize(("slots", "offset_s"), [(40, 1), (40, 777), (40, 1799), (3, 0)])
def test_what_a_job_cost_is_its_bill(
    tmp_path: Path, ending: Callable[[BilledWorld, int], Event], slots: int, offset_s: int
) -> None:
    async def run() -> BilledWorld:
        rig = Rig(tmp_path)
        await rig.actuation.start()
        world = BilledWorld(rig, market_of(slots=slots), slots=200, work_slots=30.0)
        for _ in range(3):
            await world.next_slot()
        await world.take(world.selector.feed(ending(world, offset_s)))
        if slots > 3:
            # A slot is billed when the next one opens.
            await world.next_slot()
        rig.close()
        return world

    world = asyncio.run(run())

    assert ends_as(world).cost_micro_usd == world.bill > 0
    assert not world.selector.run_of().held_lots


def test_a_failed_job_pays_nothing_while_it_waits(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        rig = Rig(tmp_path)
        await rig.actuation.start()
        world = BilledWorld(rig, market_of(), slots=200, work_slots=30.0, retries=5)
        await world.next_slot()
        # Two waits of a minute each are over before the next slot; the third one is not.
        for generation in range(1, 8):
            moment = JobExited(
                **WHOSE,
                generation=generation,
                exit_code=1,
                detail="",
                ts_event_ns=world.selector.at(1700),
            )
            await world.take(world.selector.feed(moment))
            before = world.bill
            await world.next_slot()
            if world.selector.run_of().not_before_ns > world.selector.at(0):
                billed = world.bill - before
                await world.next_slot()
                rig.close()
                return billed, world.bill - before - billed
        raise AssertionError("no wait reached into a slot")

    of_the_failure, of_the_wait = asyncio.run(run())

    assert of_the_failure > 0
    assert of_the_wait == 0
