"""A log that lost its end has each charge once again, wherever it was cut."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from spotline.adapters.ledger.threaded import ThreadedLedger
from spotline.application.cloud_actuator.handler import ActuateHandler
from spotline.application.incarnations import LogRemembered
from spotline.bench.faults.stream import MemoryBroker, MemoryStream
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.domain.events.capacity import CostAccrued, SlotDecided
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.generate import generate
from spotline.domain.units import NS_PER_S
from spotline.runtime.log_settling import settled_log
from spotline.runtime.retelling import tell_again
from spotline.runtime.service import HostSettings, ServiceHost
from tests.fakes.actuator import Rig
from tests.fakes.played_log import PlayedLog

MARKET = generate("mixed", seed=3, slots=4, slot_s=600, start_ns=1_767_571_200 * NS_PER_S)
OFFERING_ID = MARKET.offerings[0].offering_id


class System:
    """An actuator on a log in memory, whose other services are played."""

    def __init__(self, folder):
        self.broker = MemoryBroker(now_ns=lambda: self.broker.last_seq)
        self.rig = Rig(folder)
        self.slots = 1
        self.known_seq, self.incarnation = 0, 1
        self.log = PlayedLog(MemoryStream(self.broker), MARKET, OFFERING_ID, self.now_ns)

    def now_ns(self):
        return MARKET.start_ns + (self.slots - 1) * MARKET.slot_s * NS_PER_S

    @asynccontextmanager
    async def running(self):
        """The actuator, started as its process starts it."""
        stream = MemoryStream(self.broker)
        remembered = LogRemembered(
            installation_id="0" * 32, last_seq=self.known_seq, incarnation=self.incarnation
        )
        self.incarnation = (await settled_log(stream, remembered)).incarnation
        await tell_again(stream, ThreadedLedger(self.rig.ledger), remembered)
        settings = HostSettings(idle_s=0.01)
        host = ServiceHost(ActuateHandler(), stream, calls=self.rig.perform, settings=settings)
        task = asyncio.create_task(host.run())
        try:
            await asyncio.wait_for(host.live(), 10)
            yield
        finally:
            host.stop()
            await task
            self.known_seq = self.broker.last_seq

    def events(self):
        """All that the log holds, with the entry in which it stands."""
        for entry in self.broker.entries:
            for one in unpacked(entry):
                yield entry.seq, event_of(one)

    def charged(self):
        """What the log says was charged."""
        return Counter(event for _, event in self.events() if isinstance(event, CostAccrued))

    async def billed(self):
        """What the ledger charged."""
        charges = await ThreadedLedger(self.rig.ledger).charges_since(0)
        return Counter(charge.cost for charge in charges)


@pytest.fixture
async def system(tmp_path):
    made = System(tmp_path)
    async with made.running():
        await made.log.begin()
        await made.log.decided(2, 1)
        # The second slot is followed by the last one, the fourth.
        made.log.skips = True
        for slots in (2, 4):
            made.slots = slots
            await made.log.decided(2, 1)
        await made.log.until(CostAccrued, lambda event: event.slot == 3)
    yield made
    made.rig.close()


async def test_what_the_actuator_answers_again_is_not_said_by_others(system):
    """Cut between the opening of a slot, or its last revision, and the charges that follow."""
    for kind in (SlotDecided, SlotOpened):
        system.broker.cut(max(seq for seq, event in system.events() if isinstance(event, kind)))

        async with system.running():
            pass

        assert system.charged() == await system.billed() != Counter()


async def test_wherever_a_log_is_cut_it_has_every_charge_once(system):
    for last_seq in range(system.broker.last_seq, 0, -1):
        system.broker.cut(last_seq)
        async with system.running():
            pass
        assert system.charged() == await system.billed(), last_seq
