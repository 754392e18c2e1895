"""Jobs trained for real: their programs on the local cloud, over a market that is replayed faster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import Recording
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.sql import SqlLedger
from spotline.application.spec import Timer
from spotline.bootstrap.parts import open_part, open_stream
from spotline.bootstrap.standing_costs import release_store
from spotline.bootstrap.system import LEDGER_OWNER, RunningSystem, SystemOptions, running_system
from spotline.contracts.envelope import Envelope
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.bills import InstanceBill

# Longer than the grace that an instance has to end.
_PATIENCE_S = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRun:
    """What a run left: its log, the ledger's bills, and when its slots opened (wall seconds).

    `took` are the instances that a rehearsed cloud took back, by its own bill.
    """

    log: Path
    jobs: tuple[Job, ...]
    ledger_micro_usd: int
    bills: tuple[InstanceBill, ...]
    slots_opened_s: tuple[float, ...]
    took: frozenset[str] = frozenset()


@dataclass(slots=True, kw_only=True)
class TrainProgress:
    """A run as its watcher sees it; `finished` when all jobs are over and nothing is held."""

    jobs: int
    slots: int
    slot: int = -1
    closed: set[str] = field(default_factory=set)
    held: int = 0
    opened_s: list[float] = field(default_factory=list)
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    told: Callable[[TrainProgress], None] | None = None

    def hear(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Follow what the selector applies."""
        match event:
            case SlotOpened():
                self.slot = event.slot
                self.opened_s.append(time.time())
            case JobClosed():
                self.closed.add(event.job_id)
            case CapacityReported():
                self.held = sum(
                    lot.spot + lot.on_demand for held in event.holdings for lot in held.lots
                )
                over = len(self.closed) >= self.jobs and not self.held
                if event.settled and (over or self.slot == self.slots - 1):
                    self.finished.set()
            case _:
                return
        if self.told is not None:
            self.told(self)


async def run_training(
    options: SystemOptions,
    jobs: Sequence[Job],
    log: Path,
    *,
    run_id: str,
    seeds: dict[str, int],
    told: Callable[[TrainProgress], None] | None = None,
    hold: Callable[[int], Awaitable[None]] | None = None,
    slots: int | None = None,
) -> TrainRun:
    """Run broker and services, submit the jobs over gRPC, and record until all are over.

    No slot opens before `hold` has returned for it; those of a live market open by its clock,
    and `slots` says after how many of them to end.

    Raises
    ------
    ConfigError
        The store or the log's directory is in use, or the cloud or broker cannot be used.
    RpcFailed
        A job was refused.
    """
    live = bool(options.feeds.feeds)
    most = options.recorded_market.slots if slots is None else slots
    progress = TrainProgress(jobs=len(jobs), slots=most, told=told)
    submitted = asyncio.Event()

    async def gate(timer: Timer) -> None:
        # The first slot opens the market that jobs are checked against.
        if timer.timer_id != "slot:0":
            await submitted.wait()
        if hold is not None:
            await hold(int(timer.timer_id.removeprefix("slot:")))
        if progress.finished.is_set():
            await asyncio.get_running_loop().create_future()

    try:
        async with running_system(
            options, gate=None if live else gate, listeners={"selector": progress.hear}
        ) as system:
            manifest = Manifest(
                run_id=run_id,
                stream=stream_name(options.partition),
                environment=environment(),
                settings=options.settings(),
                seeds=seeds,
                started_ns=time.time_ns(),
            )
            async with (
                JobClient(system.allocator_address) as client,
                open_stream(system.bus, name="event_log") as (connection, stream),
                asyncio.TaskGroup() as tasks,
            ):
                statistics = await open_part(connection, system.bus, StreamPart.STATISTICS)
                recording = Recording(stream, statistics, log, manifest)
                recorded = tasks.create_task(recording.run(), name="record")
                for job in jobs:
                    await submit_until_taken(client, job)
                submitted.set()
                await progress.finished.wait()
                await recording.stop()
                await recorded
    finally:
        # Instances outlive what started them: a run that ends early would leave them training.
        if (options.store / "ledger.sqlite").exists():
            await release_store(options.store, options.cloud, patience_s=_PATIENCE_S)
    # Opening the ledger fences its last owner, so only when the actuator has stopped.
    total, bills = await asyncio.to_thread(_ledger, system)
    return TrainRun(
        log=log,
        jobs=tuple(jobs),
        ledger_micro_usd=total,
        bills=bills,
        slots_opened_s=tuple(progress.opened_s),
    )


def _ledger(system: RunningSystem) -> tuple[int, tuple[InstanceBill, ...]]:
    ledger = SqlLedger(system.ledger_url, LEDGER_OWNER)
    try:
        return ledger.total_micro_usd(), tuple(ledger.bills())
    finally:
        ledger.close()
