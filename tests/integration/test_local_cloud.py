"""The local cloud through the whole system: real processes, a compressed market, kills, a restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from spotline.adapters.clouds.local import processes
from spotline.adapters.clouds.local.cloud import LocalCloud
from spotline.adapters.clouds.local.settings import LocalCloudSettings
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Timer
from spotline.bootstrap.clouds import chosen_cloud, local_folder
from spotline.bootstrap.pace import pace_of
from spotline.bootstrap.parts import open_stream
from spotline.bootstrap.system import RunningSystem, SystemOptions, running_system
from spotline.contracts.batch import unpacked
from spotline.contracts.build import event_of
from spotline.contracts.envelope import Envelope
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityLost, CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.market import SlotOpened
from spotline.domain.market.generate import generate
from spotline.domain.units import NS_PER_S
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.verify import verify
from tests.eventually import eventually
from tests.fakes.local_cloud import below
from tests.fakes.placer import START_NS, of_type
from tests.fakes.recorded_run import environment, manifest_of

pytestmark = pytest.mark.integration

SLOT_S, SPEED = 1800, 1800.0
SOON = generate("mixed", seed=3, slots=72, slot_s=SLOT_S, start_ns=START_NS)
JOB = min(generated_jobs(SOON, 8, 3), key=lambda job: job.start_ns)
# A slot a second: it must not be over before the second system has seen some of it.
WHOLE = generate("mixed", seed=3, slots=400, slot_s=SLOT_S, start_ns=START_NS)
MARKET = WHOLE.between((JOB.start_ns - START_NS) // (SLOT_S * NS_PER_S), WHOLE.slots)


def options_of(store: Path) -> SystemOptions:
    pace = pace_of(
        speed=SPEED, slots_per_s=0.0, wall_clock=False, own_market=False, in_wall_time=True
    )
    return SystemOptions(
        market=MARKET,
        store=store,
        cloud=chosen_cloud("local", command="sleep 300", most_instances=64, stop_grace_s=2.0),
        ingest=pace.ingest(SLOT_S, wait_for_work=False),
        market_s_per_s=pace.market_s_per_s,
        selector=SelectorOptions(rehearsals=2),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    # Whatever became of the test, no process of its instances stays.
    settings = LocalCloudSettings(command="sleep 300")
    cloud = LocalCloud(local_folder(tmp_path), settings, market_s_per_s=SPEED)
    cloud.take_back([instance.instance_id for instance in cloud.alive()])
    cloud.close()


class Heard:
    """What the actuator's log says, as it is applied."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def hear(self, event: Event, _envelope: Envelope, _seq: int) -> None:
        self.events.append(event)

    def held(self) -> tuple[str, ...]:
        """Instances of the latest report."""
        reports = of_type(self.events, CapacityReported)
        return (
            tuple(one for job in reports[-1].holdings for one in job.instance_ids)
            if reports
            else ()
        )

    def settled(self) -> int:
        """The latest slot if all of it is settled, else -1."""
        opened, reports = of_type(self.events, SlotOpened), of_type(self.events, CapacityReported)
        if not (opened and reports and reports[-1].settled):
            return -1
        return reports[-1].slot if reports[-1].slot == opened[-1].slot else -1

    def lost(self) -> set[str]:
        return {one for event in of_type(self.events, CapacityLost) for one in event.instance_ids}


class Clock:
    """Lets the market's slots open only while the test waits for something to come of them.

    The job has seconds: none of them passes while it is the test that takes its time.
    """

    def __init__(self, heard: Heard) -> None:
        self._heard = heard
        self._going = asyncio.Event()
        self._next: int | None = None

    async def gate(self, timer: Timer) -> None:
        slot = int(timer.timer_id.removeprefix("slot:"))
        if slot and not self._going.is_set():
            self._next = slot
            await self._going.wait()

    async def stand_at(self, condition: Callable[[], object]) -> None:
        """Let slots open until one is over and settled in whose end `condition` is true."""
        while True:
            self._next = None
            self._going.set()
            # Not often: to look for processes takes as long as a slot's decisions.
            await eventually(condition, every_s=0.2)
            self._going.clear()
            # The next one is about to open: what the market wanted back in this one has been taken.
            await eventually(lambda: self._next and self._heard.settled() == self._next - 1)
            if condition():
                return


async def logged(system: RunningSystem) -> Sequence[Envelope]:
    async with open_stream(system.bus, name="test") as (_, stream), asyncio.timeout(60):
        return [entry async for entry in stream.read([], last_seq=await stream.last_seq())]


async def test_a_job_holds_processes_that_are_lost_and_replaced_and_outlive_the_system(
    store: Path,
) -> None:
    options = options_of(store)
    first, second = Heard(), Heard()
    clock = Clock(first)

    async with running_system(
        options, gate=clock.gate, listeners={"selector": first.hear}
    ) as system:
        await eventually(lambda: of_type(first.events, SlotOpened))
        async with JobClient(system.allocator_address) as client:
            await submit_until_taken(client, JOB)
        await clock.stand_at(lambda: first.held() and all(map(below, first.held())))
        victim = first.held()[0]
        for process in below(victim):
            processes.send(process, signal.SIGKILL)
        await eventually(lambda: victim in first.lost())
        assert below(victim) == []
        await clock.stand_at(lambda: first.held() and victim not in first.held())
        log = await logged(system)
        kept = first.held()
    assert kept
    assert all(map(below, kept)), "instances end with the system"

    async with running_system(options, listeners={"selector": second.hear}) as system:
        opened = of_type([event_of(one) for entry in log for one in unpacked(entry)], SlotOpened)
        last = opened[-1].slot
        await eventually(
            lambda: any(event.slot > last + 1 for event in of_type(second.events, SlotOpened))
        )
        log = await logged(system)

    events = [event_of(one) for entry in log for one in unpacked(entry)]
    slots = of_type(events, SlotOpened)
    # A stop leaves no gap and no jump in market time.
    assert [event.slot for event in slots] == list(range(len(slots)))
    assert {later.ts_event_ns - one.ts_event_ns for one, later in pairwise(slots)} == {
        SLOT_S * NS_PER_S
    }
    for lost in of_type(events, CapacityLost):
        assert 0 <= lost.offset_s < SLOT_S
    report = verify(log, handlers_of(options.settings()), manifest_of(log), here=environment())
    assert (report.divergences, report.exit_code) == ((), 0)
    assert report.decisions["selector"] > 0
