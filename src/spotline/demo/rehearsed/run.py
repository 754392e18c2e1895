"""The main job on a rehearsed cloud: live feeds, the real adapter over HTTP, and a bill to compare.

Everything is as `spotline up --cloud aws` has it, but that accounts begin live: nobody sends a bill.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from spotline.adapters.eventlog.manifest import Manifest, environment
from spotline.adapters.eventlog.writer import Recording
from spotline.adapters.files.spotline_yaml.reading import read_config
from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.ledger.sql import SqlLedger
from spotline.adapters.market.parquet import write_market
from spotline.application.cloud_actuator.agreeing import AgreementRules
from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.bootstrap.clouds import AWS, cloud_of
from spotline.bootstrap.identity import IdentityAt
from spotline.bootstrap.live import SILENT_AFTER_S, followed_market
from spotline.bootstrap.pace import pace_of
from spotline.bootstrap.parts import open_part, open_stream
from spotline.bootstrap.system import LEDGER_OWNER, RunningSystem, SystemOptions, running_system
from spotline.contracts.envelope import Envelope
from spotline.contracts.errors import ConfigError, ProviderUnavailable
from spotline.contracts.subjects import StreamPart, stream_name
from spotline.demo.rehearsed.planned import with_disks, with_savings_plan
from spotline.demo.rehearsed.process import (
    REHEARSAL_AWS,
    RehearsedAws,
    credentials_of,
    rehearsed_aws,
)
from spotline.demo.run import DemoProgress, DemoRun
from spotline.demo.submission import submit_until_taken
from spotline.domain.events.capacity import LaunchRefused
from spotline.domain.events.event import Event
from spotline.domain.jobs.job import Job
from spotline.domain.ledger.bills import InstanceBill
from spotline.domain.ledger.orphans import ReapMode, ReapRules, accounts_of
from spotline.domain.market.market import Market
from spotline.domain.market.market_clock import MarketClock
from spotline.domain.modes import Mode
from spotline.domain.units import NS_PER_S
from spotline.replay.reconcile import LedgerSums

_LOOK_S = 0.5
_SILENT_WALL_S = 20.0
# After the last job is over: instances end within minutes of market time, bills within an hour.
_SETTLES_S = 120.0
DISK_GB = 200
"""Disks of an instance, where nobody says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsing:
    """How a demo runs on a rehearsal.

    Parameters
    ----------
    fail
        Share of AWS's calls that fail.
    slot_wall_s
        Wall seconds of a slot: so fast does the rehearsal's time run.
    priors, identity
        As of `SystemOptions`.
    disk_gb
        Gigabytes of disks of an instance, where the market states none.
    plan_instances
        How many instances of the dearest type a savings plan pays for; 0: there is none.
    """

    market: Market
    jobs: Sequence[Job]
    folder: Path
    run_id: str
    seed: int
    fail: float
    slot_wall_s: float
    selector: SelectorOptions = field(default_factory=SelectorOptions)
    priors: bool = False
    identity: IdentityAt | None = None
    disk_gb: int = DISK_GB
    plan_instances: int = 0
    told: Callable[[DemoProgress], None] | None = None

    @property
    def speed(self) -> float:
        """Market seconds in a second of wall time."""
        return self.market.slot_s / self.slot_wall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedRun:
    """A run with what the cloud says of it.

    `disk_micro_usd` is the part of what was settled that disks cost. `orphans` are instances that lived on when all jobs were over and everything had been waited
    for, `refusals` launches that were refused, by class.
    """

    run: DemoRun
    settled_micro_usd: int
    disk_micro_usd: int
    cloud_billed_micro_usd: int
    orphans: tuple[str, ...]
    refusals: dict[str, int]
    calls: dict[str, Any]
    unsettled: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """What `spotline demo --cloud` adds to a demo's JSON."""
        return {
            "cloud": REHEARSAL_AWS,
            "settled_usd": self.settled_micro_usd / 1e6,
            "disk_usd": self.disk_micro_usd / 1e6,
            "cloud_billed_usd": self.cloud_billed_micro_usd / 1e6,
            "bills_agree": self.settled_micro_usd == self.cloud_billed_micro_usd,
            "unsettled": len(self.unsettled),
            "orphans": len(self.orphans),
            "refusals": self.refusals,
            "calls": self.calls,
        }


async def run_rehearsed(rehearsing: Rehearsing) -> RehearsedRun:
    """Run the jobs on a rehearsal of AWS until all are over, and everything has ended and is settled.

    Raises
    ------
    ConfigError
        The rehearsal does not begin, boto3 is missing, or the machine is too slow for its time.
    ProviderUnavailable
        The rehearsal ends by itself.
    """
    market_file = rehearsing.folder / "market.parquet"
    traded = with_savings_plan(
        with_disks(rehearsing.market, rehearsing.disk_gb), rehearsing.plan_instances
    )
    await asyncio.to_thread(write_market, traded, market_file)
    async with rehearsed_aws(
        market_file,
        rehearsing.folder / "rehearsal",
        fail=rehearsing.fail,
        seed=rehearsing.seed,
        speed=rehearsing.speed,
    ) as cloud:
        with credentials_of(cloud):
            return await _run(rehearsing, cloud)


async def _run(rehearsing: Rehearsing, cloud: RehearsedAws) -> RehearsedRun:
    options = await asyncio.to_thread(options_of, rehearsing, cloud)
    progress = DemoProgress(
        jobs=len(rehearsing.jobs), slots=1 << 60, told=rehearsing.told, teaching=set()
    )
    refusals: Counter[str] = Counter()

    def hear(event: Event, envelope: Envelope, seq: int) -> None:
        if isinstance(event, LaunchRefused) and event.refusal_class is not None:
            refusals[event.refusal_class.value] += 1
        progress.hear(event, envelope, seq)

    log = rehearsing.folder / "log"
    async with running_system(options, listeners={"selector": hear}) as system:
        manifest = Manifest(
            run_id=rehearsing.run_id,
            stream=stream_name(options.partition),
            environment=environment(),
            settings=options.settings(),
            seeds={"market": rehearsing.seed, "jobs": rehearsing.seed},
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
            await _submit(client, rehearsing, options.feeds.clock)
            await progress.finished.wait()
            await _all_settled(cloud, system)
            await recording.stop()
            events = await recorded
    # Of the last word: nothing of ours is asked of it any more.
    bill, state = await cloud.bill(), await cloud.state()
    bills, charged = await asyncio.to_thread(_of_ledger, system)
    ours = [line for line in bill["lines"] if not line["foreign"]]
    words = [one.settled for one in bills if one.settled]
    settled = {word.instance_id: word.micro_usd for word in words}
    return RehearsedRun(
        run=DemoRun(
            log=log,
            events=events,
            ledger=LedgerSums(charged=charged, bills=tuple(bills)),
            decided_micro_usd=progress.spent_micro_usd,
            true_rates={},
            refused={},
        ),
        settled_micro_usd=sum(settled.values()),
        disk_micro_usd=sum(word.disk_micro_usd for word in words),
        cloud_billed_micro_usd=int(bill["total_micro_usd"]),
        orphans=tuple(line["instance_id"] for line in ours if line["open"]),
        refusals=dict(sorted(refusals.items())),
        calls={"made": state["calls"], "failed": state["failed"]},
        unsettled=tuple(line["instance_id"] for line in ours if line["instance_id"] not in settled),
    )


def options_of(rehearsing: Rehearsing, cloud: RehearsedAws) -> SystemOptions:
    """The system as its `spotline.yaml` has it, on the rehearsal's own market.

    Raises
    ------
    ConfigError, ContractError
        The file is not what it should be.
    """
    config = read_config(cloud.config, os.environ)
    chosen = cloud_of(os.environ, AWS, Mode.LIVE, config)
    store = rehearsing.folder / "store"
    store.mkdir(parents=True, exist_ok=True)
    followed = followed_market(chosen, store, slot_s=rehearsing.market.slot_s)
    if followed is None:
        raise ConfigError(f"cloud {AWS} must follow a market of its own, and has none")
    pace = pace_of(
        speed=0.0,
        slots_per_s=0.0,
        wall_clock=False,
        own_market=True,
        in_wall_time=chosen.in_wall_time,
        live=followed.feeds.clock,
    )
    paced = pace.ingest(rehearsing.market.slot_s, wait_for_work=False)
    return SystemOptions(
        market=followed.market,
        store=store,
        cloud=chosen,
        ingest=replace(paced, price_sanity=True, stale_after_s=0),
        feeds=replace(followed.feeds, silent_after_s=_silent_after_s(followed.feeds.clock)),
        market_s_per_s=pace.market_s_per_s,
        # Nobody publishes what spot there is: whoever must be in time cannot count on it.
        selector=where_uncounted(rehearsing.selector),
        priors=rehearsing.priors,
        # What a lost answer left behind is ended by whoever finds it: all of it is ours.
        agreement=AgreementRules(reap=ReapRules(mode=ReapMode.REAP, accounts=accounts_of("*"))),
        outlooks=False,  # slots are too short to look ahead between them
        identity=rehearsing.identity,
    )


def _silent_after_s(clock: MarketClock) -> int:
    """How long a feed may be silent, market time: calls take as long as ever, and time runs fast."""
    return max(SILENT_AFTER_S, math.ceil(_SILENT_WALL_S * clock.market_s_per_s))


async def _submit(client: JobClient, rehearsing: Rehearsing, clock: MarketClock) -> None:
    """Hand each job over a slot before it starts, by the cloud's time."""
    slot_ns = rehearsing.market.slot_s * NS_PER_S
    for job in sorted(rehearsing.jobs, key=lambda job: (job.start_ns, job.job_id)):
        due_ns = clock.wall_at(job.start_ns - slot_ns)
        late_ns = clock.market_at(time.time_ns()) - job.start_ns
        if late_ns > slot_ns:
            raise ConfigError(
                f"{job.name} should have started {late_ns // NS_PER_S} s ago, by the rehearsal's "
                "time: this machine is too slow for it, give a larger --slot-wall"
            )
        await asyncio.sleep(max(0.0, (due_ns - time.time_ns()) / NS_PER_S))
        await submit_until_taken(client, job)


async def _all_settled(cloud: RehearsedAws, system: RunningSystem) -> None:
    """Wait until everything has ended and is settled, for a time: what is not, is said."""
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + _SETTLES_S
    while loop.time() < give_up_s:
        try:
            lines = [line for line in (await cloud.bill())["lines"] if not line["foreign"]]
        except ProviderUnavailable:
            lines = [{"open": True}]
        if not any(line["open"] for line in lines):
            bills = await asyncio.to_thread(_bills_of, system)
            settled = {one.instance_id for one in bills if one.settled}
            if settled >= {line["instance_id"] for line in lines}:
                return
        await asyncio.sleep(_LOOK_S)


def _bills_of(system: RunningSystem) -> Sequence[InstanceBill]:
    # Looked at only: opening it would fence its owner.
    ledger = SqlLedger.looked_at(system.ledger_url, LEDGER_OWNER)
    try:
        return ledger.bills()
    finally:
        ledger.close()


def _of_ledger(system: RunningSystem) -> tuple[Sequence[InstanceBill], dict[str, int]]:
    ledger = SqlLedger.looked_at(system.ledger_url, LEDGER_OWNER)
    try:
        return ledger.bills(), dict(ledger.spend_by_job())
    finally:
        ledger.close()
