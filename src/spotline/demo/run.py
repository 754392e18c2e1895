"""The main job, end to end: a market, jobs over gRPC, decisions, money, and what it saved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import Recording
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.market.parquet import write_market
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Timer
from spotline.bootstrap.parts import AnyHost, open_part, open_stream
from spotline.bootstrap.system import LEDGER_OWNER, RunningSystem, SystemOptions, running_system
from spotline.contracts.envelope import Envelope
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.demo.platform import Ear, TrainingPlatform, TrueRates
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobAdvanced, JobClosed
from spotline.domain.events.market import SlotOpened
from spotline.domain.events.selection import PolicyWeightsUpdated
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.replay.log_market import MARKET_FILE
from spotline.replay.reconcile import LedgerSums
from spotline.replay.report import RunReport, configured_as_json


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRun:
    """What a finished run left: its log, the stream's last seq, and what the ledger says.

    `true_rates` says by job id how fast what were drafts really ran, `refused` by name why drafts
    were not taken.
    """

    log: Path
    events: int
    ledger: LedgerSums
    decided_micro_usd: int
    true_rates: Mapping[str, TrueRates]
    refused: Mapping[str, str]

    @property
    def ledger_micro_usd(self) -> int:
        """All that the ledger charged."""
        return sum(self.ledger.charged.values())

    def as_json(self, report: RunReport) -> dict[str, object]:
        """What the run came to, with its report, as `spotline demo --json` writes it."""
        configured = configured_as_json(report)
        for row in configured:
            truth = self.true_rates.get(str(row["job_id"]))
            row["true_factor_of_predicted"] = truth.factor if truth else None
        return {
            **report.as_json(),
            "configured": configured,
            "events": self.events,
            "log": str(self.log),
            "ledger_usd": self.ledger_micro_usd / 1e6,
            "decided_usd": self.decided_micro_usd / 1e6,
        }


@dataclass(slots=True)
class DemoProgress:
    """A run as its watcher sees it, kept up to date from what the selector applies.

    `teaching` are the jobs whose feedback the run waits for.
    """

    jobs: int
    slots: int
    teaching: set[str] = field(default_factory=set)
    slot: int = -1
    ts_event_ns: int = 0
    opened: SlotOpened | None = None
    admitted: int = 0
    closed: int = 0
    spent_micro_usd: int = 0
    spot: int = 0
    on_demand: int = 0
    settled: bool = False
    rounds: int = 0
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    told: Callable[[DemoProgress], None] | None = None

    def hear(self, event: Event, envelope: Envelope, seq: int) -> None:
        """Follow one applied event."""
        match event:
            case SlotOpened():
                self.slot, self.ts_event_ns, self.opened = event.slot, event.ts_event_ns, event
                self.settled = False
            case JobAdmitted():
                self.admitted += 1
            case JobAdvanced():
                self.spent_micro_usd += event.slot_cost_micro_usd
            case JobClosed():
                self.closed += 1
            case PolicyWeightsUpdated():
                self.rounds = event.round
                if event.rehearsed_slot < 0:
                    self.teaching.discard(event.job_id)
            case CapacityReported():
                lots = [lot for holding in event.holdings for lot in holding.lots]
                self.spot = sum(lot.spot for lot in lots)
                self.on_demand = sum(lot.on_demand for lot in lots)
                self.settled = event.settled
            case _:
                return
        over = self.closed >= self.jobs and not self.teaching
        if self.settled and (over or self.slot == self.slots - 1):
            self.finished.set()
        if self.told is not None:
            self.told(self)


async def run_demo(
    options: SystemOptions,
    jobs: Sequence[Job | JobDraft],
    log: Path,
    *,
    run_id: str,
    started_ns: int,
    seeds: dict[str, int],
    told: Callable[[DemoProgress], None] | None = None,
) -> DemoRun:
    """Run `jobs` on the market through broker, gRPC and simulated cloud; record it into `log`.

    A slot opens only after the jobs that start with it were submitted, so equal arguments give
    equal decisions. Drafts are completed by the configurator; a training platform runs them at
    rates of their own, drawn with `seeds["platform"]`, and reports their progress.

    Raises
    ------
    ConfigError
        The store or the log's directory is in use, or the broker cannot be used.
    """
    # A job that is not run at the rates it was submitted with may teach nothing.
    teaching = {job.job_id for job in jobs if isinstance(job, Job)}
    progress = DemoProgress(
        jobs=len(jobs), slots=options.recorded_market.slots, teaching=teaching, told=told
    )
    arrivals = _Arrivals(jobs, options, progress)
    selector, configurator = Ear(), Ear()

    def hear(event: Event, envelope: Envelope, seq: int) -> None:
        selector.hear(event, envelope, seq)
        progress.hear(event, envelope, seq)

    async with running_system(
        options,
        gate=arrivals.gate,
        listeners={"selector": hear, "configurator": configurator.hear},
    ) as system:
        manifest = Manifest(
            run_id=run_id,
            stream=stream_name(options.partition),
            environment=environment(),
            settings=options.settings(),
            seeds=seeds,
            started_ns=started_ns,
        )
        async with (
            JobClient(system.allocator_address) as client,
            open_stream(system.bus, name="event_log") as (connection, stream),
            asyncio.TaskGroup() as tasks,
        ):
            statistics = await open_part(connection, system.bus, StreamPart.STATISTICS)
            recording = Recording(stream, statistics, log, manifest)
            recorded = tasks.create_task(recording.run(), name="record")
            platform = TrainingPlatform(
                client,
                lambda: cast(
                    "SelectorState", cast("AnyHost", system.probes.hosts["selector"]).state
                ),
                selector=selector,
                configurator=configurator,
                slot_starts_ns=arrivals.starts_ns,
                seed=seeds.get("platform", 0),
            )
            arrivals.open(client, platform)
            await progress.finished.wait()
            arrivals.close()
            await recording.stop()
            events = await recorded
    # So that what-ifs on this log know the market beyond the run's end.
    await asyncio.to_thread(write_market, options.recorded_market, log / MARKET_FILE)
    # Opening the ledger fences its last owner, so only when the actuator has stopped.
    ledger = await asyncio.to_thread(_ledger_sums, system)
    return DemoRun(
        log=log,
        events=events,
        ledger=ledger,
        decided_micro_usd=progress.spent_micro_usd,
        true_rates=platform.rates,
        refused=platform.refused,
    )


def _ledger_sums(system: RunningSystem) -> LedgerSums:
    ledger = SqlLedger(system.ledger_url, LEDGER_OWNER)
    try:
        return LedgerSums(charged=ledger.spend_by_job(), bills=tuple(ledger.bills()))
    finally:
        ledger.close()


class _Arrivals:
    """Submits the jobs that start with a slot before it opens, and lets the platform report."""

    def __init__(
        self, jobs: Sequence[Job | JobDraft], options: SystemOptions, progress: DemoProgress
    ) -> None:
        self._progress = progress
        self.starts_ns: list[int] = options.recorded_market.slot_starts_ns().tolist()
        self._jobs = sorted(jobs, key=lambda job: (job.start_ns, job.job_id))
        self._opened: asyncio.Future[tuple[JobClient, TrainingPlatform]] = (
            asyncio.get_running_loop().create_future()
        )
        self._closed = False

    def open(self, client: JobClient, platform: TrainingPlatform) -> None:
        """Let slots open."""
        self._opened.set_result((client, platform))

    def close(self) -> None:
        """Let no further slot open."""
        self._closed = True

    async def gate(self, timer: Timer) -> None:
        """Wait until the slot of `timer` may open."""
        client, platform = await self._opened
        if self._closed:
            await asyncio.get_running_loop().create_future()
        slot = int(timer.timer_id.removeprefix("slot:"))
        await platform.report(slot)
        while self._jobs and self._jobs[0].start_ns <= self.starts_ns[slot]:
            job = self._jobs[0]
            if isinstance(job, JobDraft):
                taken = await platform.submit(job, slot)
                self._progress.jobs -= not taken
            else:
                await submit_until_taken(client, job)
            self._jobs.pop(0)
