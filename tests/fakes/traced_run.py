"""A short run of the whole system that takes every way through it, for those who watch it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from spotline.adapters.grpc.allocator.client import JobClient
from spotline.adapters.grpc.analytics.client import AnalyticsClient
from spotline.adapters.grpc.configurator.client import ConfiguratorClient
from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.placer.client import PlacerClient
from spotline.application.allocator.messages import (
    ComparisonRequest,
    JobStatus,
    PlanRequest,
    ProgressReport,
)
from spotline.application.analytics.messages import StatisticsQuery
from spotline.application.configurator.messages import CompletionRequest, PredictionRequest
from spotline.application.placer.messages import ExplanationRequest
from spotline.application.spec import Timer
from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.system import FREE_ADDRESS, RunningSystem, SystemOptions, running_system
from spotline.contracts.envelope import Envelope
from spotline.contracts.subjects import stream_name
from spotline.domain.events.capacity import CapacityReported
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdmitted, JobClosed
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import Job
from spotline.domain.market.generate import generate
from spotline.replay.jobs import generated_draft, generated_jobs
from tests.fakes.jetstream import jetstream_of
from tests.fakes.knowledge import configuration, measured
from tests.fakes.placer import pipeline

SEED = 11
MARKET = generate("mixed", seed=SEED, slots=48, slot_s=1800, start_ns=1_767_571_200_000_000_000)
GEOGRAPHY = """
regions:
  - {id: a, gpus: 8, energy_usd_per_kwh: 0.1, offering: "neocloud:neo-1:a100-1x", spot: true}
  - {id: b, gpus: 8, energy_usd_per_kwh: 0.2}
links:
  - {from: a, to: b, gbit_per_s: 8}
"""


@dataclass
class Heard:
    """What the selector has applied."""

    slot: int = -1
    admitted: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    expected: int = 0

    def hear(self, event: Event, envelope: Envelope, seq: int) -> None:
        match event:
            case JobAdmitted():
                self.admitted.add(event.job_id)
            case JobClosed():
                self.closed.add(event.job_id)
            case CapacityReported() if event.settled:
                self.slot = event.slot
                if len(self.closed) >= self.expected or event.slot == MARKET.slots - 1:
                    self.over.set()
            case _:
                pass


async def traced_run(folder: Path, *, in_the_end: Callable[[], None] = lambda: None) -> None:
    """Run the market with three jobs and a draft, a placement, lessons and questions.

    `in_the_end` is called while everything still runs.
    """
    (folder / "geography.yaml").write_text(GEOGRAPHY)
    options = SystemOptions(
        market=MARKET,
        store=folder / "store",
        http_address=FREE_ADDRESS,
        geography=folder / "geography.yaml",
        cloud=chosen_cloud(seed=3, refusal_probability=0.3, interruption_per_instance_hour=0.2),
    )
    draft = generated_draft(MARKET, SEED)
    assert draft is not None
    jobs = generated_jobs(MARKET, 2, SEED)
    withdrawn = replace(jobs[0], client_request_id="withdrawn", job_id="withdrawn")
    arriving = sorted((*jobs, withdrawn, draft), key=lambda job: job.start_ns)
    starts_ns = MARKET.slot_starts_ns().tolist()
    heard = Heard(expected=len(arriving))
    entered: asyncio.Future[_Platform] = asyncio.get_running_loop().create_future()

    async def gate(timer: Timer) -> None:
        slot = int(timer.timer_id.removeprefix("slot:"))
        platform = await entered
        if heard.over.is_set():
            await asyncio.get_running_loop().create_future()
        if slot:
            await platform.report(heard)
        if slot == 1:
            await platform.ask(draft, jobs[0])
        while arriving and arriving[0].start_ns <= starts_ns[slot]:
            await platform.submit(arriving.pop(0))

    async with (
        running_system(options, gate=gate, listeners={"selector": heard.hear}) as system,
        AsyncExitStack() as stack,
    ):
        platform = _Platform(
            await stack.enter_async_context(JobClient(system.allocator_address)),
            await stack.enter_async_context(ConfiguratorClient(system.configurator_address)),
            await stack.enter_async_context(PlacerClient(system.placer_address)),
            await stack.enter_async_context(AnalyticsClient(system.analytics_address)),
        )
        await platform.teach()
        entered.set_result(platform)
        await heard.over.wait()
        await platform.look_back()
        await _at_rest(system)
        await asyncio.to_thread(in_the_end)


async def _at_rest(system: RunningSystem) -> None:
    """Wait until what was published last has arrived everywhere, and has led to all it leads to."""
    js = await jetstream_of(system.probes.connections["selector"])
    quiet, before = 0, None
    while quiet < 3:
        # A host asks for more every 0.2 s, and says by its lag that it got something.
        await asyncio.sleep(0.25)
        moving = any(host.backlog or host.lag_s for host in system.probes.hosts.values())
        # A host may not have got to it yet: the broker knows what is not acknowledged, which is
        # when all that follows from it is stored.
        now = [info.state.last_seq for info in await js.streams_info()]
        now += [host.counters.handled for host in system.probes.hosts.values()]
        for place in await js.consumers_info(stream_name()):
            moving |= bool(place.config.durable_name and place.num_pending)
            moving |= bool(place.num_ack_pending)
        quiet = 0 if moving or now != before else quiet + 1
        before = now


@dataclass
class _Platform:
    """A training platform that asks everything there is to ask."""

    jobs: JobClient
    configurator: ConfiguratorClient
    placer: PlacerClient
    analytics: AnalyticsClient
    submitted: list[Job | JobDraft] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    cancelled: bool = False

    async def teach(self) -> None:
        await self.configurator.learn([measured(1.0)])
        await self.configurator.predict(
            PredictionRequest(configurations=(configuration(),), source_id="analytic")
        )
        await self.configurator.sources()

    async def ask(self, draft: JobDraft, job: Job) -> None:
        await self.placer.explain(ExplanationRequest(pipeline=pipeline()))
        placed = await self.placer.place(pipeline())
        await self.placer.list()
        await self.placer.release(placed.status.pipeline.job_id, placed.status.pipeline.tenant)
        await self.jobs.plan(PlanRequest(job=job))
        await self.configurator.complete(CompletionRequest(draft=draft))
        try:
            await self.jobs.compare(
                ComparisonRequest(
                    job=job,
                    policy_ids=(),
                    slots=(),
                    slot_s=MARKET.slot_s,
                    offerings=MARKET.offerings,
                )
            )
        except RpcFailed as error:
            assert error.bad_input  # noqa: PT017 - a refusal is an answer too

    async def submit(self, job: Job | JobDraft) -> None:
        receipt = await self.jobs.submit(job)
        self.submitted.append(job)
        self.job_ids.append(receipt.job_id)

    async def report(self, heard: Heard) -> None:
        for job_id, job in zip(self.job_ids, self.submitted, strict=True):
            if job_id not in heard.admitted or job_id in heard.closed:
                continue
            if job.client_request_id == "withdrawn":
                if not self.cancelled:
                    await self.jobs.cancel(job_id)
                    self.cancelled = True
            elif isinstance(job, JobDraft):
                await self._report(await self.jobs.get(job_id), heard.slot + 1)

    async def _report(self, status: JobStatus, slot: int) -> None:
        """Say that a job is slower than was predicted."""
        instances = sum(lot.spot + lot.on_demand for lot in status.lots)
        if not (status.progress_ppm and instances):
            return
        predicted = status.job.throughputs[0]
        await self.jobs.report(
            ProgressReport(
                job_id=status.job.job_id,
                tenant=status.job.tenant,
                done=0.7 * status.progress_ppm / 1e6 * status.job.work.amount,
                ts_event_ns=MARKET.slot_starts_ns().tolist()[slot],
                rate_per_hour=0.7 * predicted.rate_per_hour(instances),
                instances=instances,
            )
        )

    async def look_back(self) -> None:
        await self.jobs.list()
        first, *_ = (await self.analytics.keys()).keys
        await self.analytics.query(StatisticsQuery(scope=first.scope, key=first.key))
        async for update in self.jobs.watch(self.job_ids[0]):
            assert update.status.job.job_id == self.job_ids[0]
