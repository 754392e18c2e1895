"""SIGKILL of everything that trains a job, in turn: it ends on time, with one bill."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.opening import ledger_url
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.allocator.messages import JobState
from spotline.bootstrap.clouds import local_folder
from spotline.demo.train.scenario import TrainingTask
from spotline.runtime.broker import EmbeddedBroker
from tests.eventually import eventually
from tests.fakes.ports import free_port
from tests.fakes.processes import SERVICES
from tests.fakes.short_training import SLOT_S, ShortTraining, counted_market
from tests.fakes.training_services import LocalInstances, TrainingServices, kill
from tests.integration.test_killed_services import submit_all

# A slot in half a second of wall time.
SPEED = 2.0 * SLOT_S
STEPS = 260
# Wall seconds from being asked to end to the end: the grace, what is added where it is over, and a
# machine that stops for a while.
MOST_LATE_S = 10 + 5 + 5
TRAINER = "numpy_trainer.py"
AGENT = " agent"


class World:
    """Broker, services and one job, whose parts are killed."""

    def __init__(self, short: ShortTraining, stack: AsyncExitStack) -> None:
        self.short = short
        self.store = short.folder / "store"
        self.instances = LocalInstances(local_folder(self.store))
        self._stack = stack
        self.broker: EmbeddedBroker
        self.services: TrainingServices

    async def start(self) -> None:
        self.broker = await self._stack.enter_async_context(
            EmbeddedBroker(self.short.folder / "broker", port=free_port())
        )
        self.services = await self._stack.enter_async_context(
            TrainingServices(self.broker.url, self.short.folder, self.short.market, speed=SPEED)
        )
        for service in SERVICES[:-1]:
            await self.services.start(service)
        async with (
            asyncio.timeout(120),
            grpc.aio.insecure_channel(self.services.address) as channel,
        ):
            await channel.channel_ready()
        await self.services.start("market_ingest")

    async def trained_on(self, updates: int = 5) -> None:
        """Wait until that many updates more were made."""
        before = self.short.updates()
        await eventually(lambda: self.short.updates() >= before + updates, timeout_s=90)

    async def kill_trainer(self) -> None:
        await eventually(lambda: self.instances.kill_newest(TRAINER))

    async def kill_agent(self) -> None:
        await eventually(lambda: self.instances.kill_newest(AGENT))

    async def kill_instance(self) -> None:
        newest = (await eventually(self.instances.running))[-1]
        self.instances.kill_whole(newest)

    async def kill_actuator(self) -> None:
        await self.services.kill("cloud_actuator")
        await self.services.start("cloud_actuator")

    async def kill_broker(self) -> None:
        port = int(self.broker.url.rsplit(":", 1)[1])
        kill(self.broker.server_pid)
        await self.broker.stopped()
        await self.broker.__aexit__(None, None, None)
        self.broker = EmbeddedBroker(self.short.folder / "broker", port=port)
        await self._stack.enter_async_context(self.broker)


async def killed_in_turn(
    folder: Path, steps: int, kills: list[Callable[[World], Awaitable[None]]]
) -> None:
    task = TrainingTask(
        name="killed", task=1, steps=steps, first_slot=1, deadline_slots=380, counts=(1, 2)
    )
    short = ShortTraining(folder=folder, market=counted_market([2] * 400), task=task)
    # A rank that somebody kills is a failure of the program: it is started again.
    job = replace(short.job(), retries=3)
    async with AsyncExitStack() as stack:
        world = World(short, stack)
        await world.start()
        await submit_all(world.services.address, [job])
        for next_kill in kills:
            await world.trained_on()
            await next_kill(world)
        async with JobClient(world.services.address) as client:
            async with asyncio.timeout(180):
                async for update in client.watch(job.job_id):
                    state = update.status.state
                    if state not in (JobState.PENDING, JobState.RUNNING, JobState.FINISHING):
                        break
        assert state is JobState.COMPLETED, world.services.said()
        await eventually(lambda: not world.instances.running(), timeout_s=60)
        account = short.account()
        assert account.problems == ()
        held_s = await eventually(world.instances.held_s, timeout_s=60)
        # The actuator learns of the last ends, and bills for them, a moment later.
        await eventually(lambda: not held_in(world.store / "ledger.sqlite"), timeout_s=60)
    ledger = SqlLedger(ledger_url(world.store / "ledger.sqlite"), "default")
    try:
        bills = ledger.bills()
        total = ledger.total_micro_usd()
        held = ledger.comparable()["instances"]
    finally:
        ledger.close()
    # One bill: every instance that there was, once, for as long as it was there.
    assert {bill.instance_id for bill in bills} <= set(held_s)
    assert sorted(row["instance_id"] for row in held) == sorted(held_s)
    assert sum(bill.micro_usd for bill in bills) == total > 0
    for row in held:
        billed_s = (row["end_slot"] - row["start_slot"]) * SLOT_S + (
            row["end_offset_s"] - row["start_offset_s"]
        )
        # Asked to end it has its grace, and one that hangs some seconds more.
        assert abs(billed_s - held_s[row["instance_id"]]) <= MOST_LATE_S * SPEED, row


def held_in(ledger: Path) -> int:
    """How many instances a ledger holds that is in use: opening it would fence its owner."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        held = "SELECT count(*) FROM instances WHERE end_slot IS NULL"
        return int(connection.execute(held).fetchone()[0])


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_job_whose_trainer_and_instance_are_killed_ends_on_time_with_one_bill(
    tmp_path: Path,
) -> None:
    await killed_in_turn(tmp_path, 120, [World.kill_trainer, World.kill_instance])


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_job_of_which_everything_is_killed_in_turn_ends_on_time_with_one_bill(
    tmp_path: Path,
) -> None:
    await killed_in_turn(
        tmp_path,
        STEPS,
        [
            World.kill_agent,
            World.kill_trainer,
            World.kill_instance,
            World.kill_actuator,
            World.kill_broker,
        ],
    )
