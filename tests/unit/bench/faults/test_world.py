"""What a world knows of its own log."""

import random

from spotline.bench.faults.families.interface import FaultFamily
from spotline.bench.faults.scenario import scenario_of
from spotline.bench.faults.virtual_time import run_virtually
from spotline.bench.faults.world import FaultWorld
from spotline.contracts.build import envelope_for
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.events.lifecycle import JobClosed


def test_events_are_those_that_the_log_holds_now(tmp_path):
    def store(world, slot):
        event = SlotDecided(slot=slot, revision=0, offset_s=0, commands=0)
        envelope = envelope_for(
            event, event_id=f"id-{slot}", source="selector", causation_id="", correlation_id=""
        )
        world.broker.store(envelope.subject, envelope.headers(), envelope.payload)

    def slots(world):
        return [event.slot for event in world.events(SlotDecided)]

    async def run():
        scenario = scenario_of(0)
        world = FaultWorld(scenario, FaultFamily(scenario, random.Random(0)), tmp_path)
        store(world, 0)
        store(world, 1)
        first = slots(world)
        world.broker.store("spotline.v1.provisioning.slot", {}, b"\xff")
        world.broker.cut(1)
        store(world, 7)
        return first, slots(world), list(world.events(JobClosed))

    assert run_virtually(run) == ([0, 1], [0, 7], [])
