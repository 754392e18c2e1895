"""A gang that lost a member stops paying at once: with the next revision it is whole or gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from spotline.adapters.clouds.simulated.faults import SimulatedCloudSettings
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Context
from spotline.contracts.mapping import digest
from spotline.domain.events.capacity import (
    CapacityLost,
    CapacityReported,
    CostAccrued,
    ProvisioningCommanded,
    SlotDecided,
)
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.policies.registry import policy_named
from spotline.replay.parts import answer_in_process
from tests.fakes.actuator import Rig
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, market_opened, slot_opened
from tests.fakes.training import RUN, reported

GANG = 4
SLOTS = 16


class Together:
    """A selector and an actuator with its ledger and its simulated cloud, event by event."""

    def __init__(self, directory: Path, seed: int) -> None:
        # One instance in ten is lost in a slot of ten minutes.
        settings = SimulatedCloudSettings(
            seed=seed, interruption_per_instance_hour=0.6, refusal_probability=0.3
        )
        self.rig = Rig(directory, settings=settings)
        self.handler = SelectHandler(
            SelectorOptions(rehearsals=0), digest=digest, pool=(policy_named("msu"),)
        )
        self.state = self.handler.initial()
        self.told: list[Event] = []
        self._seq = 0

    async def tell(self, event: Event) -> None:
        """Let both deal with an event, and with all that follows from it."""
        self.told.append(event)
        answers = await self.rig.feed(event)
        self._seq += 1
        self.handler.evolve(self.state, event)
        ctx = Context(seq=self._seq, now_ns=0, event_id=f"{self._seq:032x}", correlation_id="c")
        outcome = self.handler.decide(self.state, event, ctx)
        for output in outcome.events:
            self.handler.evolve(self.state, output)
        for output in outcome.events:
            self.told.append(output)
            if isinstance(output, (ProvisioningCommanded, SlotDecided)):
                for answer in await self.rig.feed(output):
                    await self.tell(answer)
        for call in outcome.calls:
            for answered in answer_in_process(call):
                await self.tell(answered)
        for answer in answers:
            await self.tell(answer)


def held_in(report: CapacityReported) -> int:
    return sum(lot.spot + lot.on_demand for held in report.holdings for lot in held.lots)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_part_of_a_gang_is_paid_for_no_second(tmp_path: Path, seed: int) -> None:
    one = replace(
        job(counts=(GANG,), instance_hours=12.0, offerings=(EAST,), start_ns=START_NS), run=RUN
    )
    together = Together(tmp_path, seed)
    await together.tell(market_opened(EAST))
    await together.tell(JobSubmitted(job=one, ts_event_ns=0))
    for slot in range(SLOTS):
        # At times there is nothing to put in the place of what was lost.
        spot = GANG if slot % 3 else 2 * GANG
        await together.tell(slot_opened(slot, spot=spot, offering_ids=(EAST,)))
        await together.tell(ForecastOverdue(slot=slot, waited_ms=1))
        await together.tell(reported(one, 1, 0.1 * slot))
    await together.tell(slot_opened(SLOTS, offering_ids=(EAST,)))
    together.rig.close()

    reports = [event for event in together.told if isinstance(event, CapacityReported)]
    broken = [(report, after) for report, after in pairwise(reports) if held_in(report) % GANG]
    assert broken
    for report, after in broken:
        # It is decided again at the very moment, until it is whole or gone.
        assert not report.settled
        assert (after.slot, after.revision) == (report.slot, report.revision + 1)
        assert (after.offset_s == report.offset_s) or held_in(after) % GANG
    assert {held_in(report) % GANG for report in reports if report.settled} == {0}
    stretches = list(held_through(together.told))
    assert {instances % GANG for instances, seconds in stretches if seconds} == {0}
    bills = [event for event in together.told if isinstance(event, CostAccrued)]
    assert sum(bill.instances * bill.held_s for bill in bills) == sum(
        instances * seconds for instances, seconds in stretches
    )


def held_through(told: list[Event]) -> Iterator[tuple[int, int]]:
    """Instances and the seconds that they were held for, stretch by stretch."""
    since_s = lost = 0
    for event in told:
        if isinstance(event, SlotDecided):
            since_s, lost = event.offset_s, 0
        elif isinstance(event, CapacityLost):
            lost += len(event.instance_ids)
        elif isinstance(event, CapacityReported):
            held = held_in(event)
            # What a loss ended was held until then.
            yield held + lost, event.offset_s - since_s
            if event.settled:
                yield held, SLOT_S - event.offset_s
