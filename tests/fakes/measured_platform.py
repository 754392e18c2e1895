"""A training platform whose jobs run at other rates than believed, and say so once a slot."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from spotline.application.allocation.tasks import program_of
from spotline.application.allocator.handler import JobsHandler
from spotline.application.configurator.monitoring import MONITORED, MonitoringState, fold, follows
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.spec import Context, Handler, Outcome, Spec, Timer
from spotline.contracts.envelope import StoredEntry
from spotline.contracts.mapping import digest
from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.provenance import (
    JobConfiguration,
    OriginKind,
    ParameterOrigin,
)
from spotline.domain.events.event import Event
from spotline.domain.events.knowledge import RunMeasured, ThroughputReestimated
from spotline.domain.events.lifecycle import JobClosed, JobProgressReported, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job, Throughput, Work
from spotline.domain.jobs.program import Holding
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S, S_PER_HOUR, WorkScale
from spotline.replay.course import issue_forecasts, slots_of
from spotline.replay.host import Answer, LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, KnownForecasts, answer_in_process
from tests.fakes.recorded_run import START_NS

TOKENS_PER_INSTANCE_HOUR = 36_000_000.0


class Monitor:
    """Follows progress reports as the configurator does, and nothing else."""

    spec = Spec(
        service="configurator",
        consumes=MONITORED,
        produces=(RunMeasured, ThroughputReestimated),
        decides=(RunMeasured, ThroughputReestimated),
    )

    def initial(self) -> MonitoringState:
        return MonitoringState()

    def evolve(self, state: MonitoringState, event: Event) -> None:
        fold(state, event)

    def decide(self, state: MonitoringState, event: Event, ctx: Context) -> Outcome:
        return Outcome(events=follows(state, event))

    def due(self, state: MonitoringState) -> Sequence[Timer]:
        return ()


def believed_job(
    market: Market,
    *,
    name: str = "r1",
    from_slot: int = 24,
    deadline_slots: int = 48,
    hours_of_one: float = 30.0,
    counts: tuple[int, ...] = (1, 2, 3, 4),
    kind: OriginKind = OriginKind.PREDICTED,
    width: float = 0.0,
) -> Job:
    """A job in tokens with a configuration; `width` is how far each end of its interval is off."""
    pattern = generated_jobs(market, 1, 1)[0]
    start_ns = int(market.slot_starts_ns()[from_slot])
    at_ns = start_ns + deadline_slots * market.slot_s * NS_PER_S
    keys = sorted({offering.instance_type for offering in market.offerings})
    rate = TOKENS_PER_INSTANCE_HOUR
    origins = tuple(
        ParameterOrigin(
            parameter=f"throughput.{key}",
            value=f"{rate:g} per instance",
            kind=kind,
            source_id="combined",
            low=rate / (1 + width) if width else 0.0,
            high=rate * (1 + width) if width else 0.0,
        )
        for key in keys
    )
    configuration = Configuration(
        model_name="granite-3.1-8b",
        method=Method.LORA,
        gpu_model=market.offerings[0].gpu_model or "t4",
        gpus=8 * counts[-1],
        nodes=counts[-1],
        tokens_per_sample=1024,
        batch_size=16 * counts[-1],
    )
    return replace(
        pattern,
        job_id=f"job-{name}",
        client_request_id=name,
        work=Work(amount=rate * hours_of_one, unit="tokens"),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=at_ns, expires_ns=at_ns),
        start_ns=start_ns,
        value_micro_usd=2_000_000_000,
        allowed_counts=counts,
        throughputs=tuple(Throughput(offering=key, alpha=rate) for key in keys),
        configuration=JobConfiguration(
            configuration=configuration,
            weak_scaling=True,
            success_ppm=990_000,
            stack="sfttrainer",
            origins=origins,
        ),
    )


@dataclass(slots=True)
class _TrueRun:
    """How far a job really is."""

    job: Job
    progress: JobProgress = field(default_factory=JobProgress)
    offering_id: str = ""


@dataclass(slots=True)
class Course:
    """What became of a run: how jobs closed, what was re-estimated, how many reports came.

    `job` is the first one as submitted.
    """

    host: LocalHost
    job: Job
    closed: dict[str, JobClosed] = field(default_factory=dict)
    reestimated: list[ThroughputReestimated] = field(default_factory=list)
    measured: list[RunMeasured] = field(default_factory=list)
    reports: dict[str, int] = field(default_factory=dict)


class _Watch:
    """Notes what others say."""

    spec = Spec(
        service="watch",
        consumes=(JobClosed, ThroughputReestimated, RunMeasured),
        produces=(),
    )

    def __init__(self) -> None:
        self.course: Course | None = None

    def initial(self) -> None:
        return None

    def evolve(self, state: None, event: Event) -> None:
        if self.course is None:
            return
        if isinstance(event, JobClosed):
            self.course.closed[event.job_id] = event
        elif isinstance(event, ThroughputReestimated):
            self.course.reestimated.append(event)
        elif isinstance(event, RunMeasured):
            self.course.measured.append(event)

    def decide(self, state: None, event: Event, ctx: Context) -> Outcome:
        return Outcome()

    def due(self, state: None) -> Sequence[Timer]:
        return ()


def run_measured(
    market: Market,
    jobs: Sequence[Job],
    *,
    factor: float,
    monitored: bool = True,
    noise: float = 0.1,
    seed: int = 1,
    with_rate: bool = True,
    record: Callable[[StoredEntry], None] | None = None,
) -> Course:
    """Run jobs whose true rates are `factor` times the believed ones; noisy reports once a slot."""
    rng = np.random.default_rng(seed)
    watch = _Watch()
    parts = [known_forecasts(market), *deciders(monitored=monitored), watch]
    host = opened_host(market, jobs, parts, record=record)
    course = watch.course = Course(host=host, job=jobs[0])
    runs = {job.job_id: _TrueRun(job=_at_factor(job, factor)) for job in jobs}
    for slot in range(market.slots):
        opened = open_slot(host, market, slot)
        for job_id in sorted(runs):
            if job_id in course.closed:
                continue
            said = _report(host, runs[job_id], opened, rng, noise, with_rate=with_rate)
            if said is not None:
                course.reports[job_id] = course.reports.get(job_id, 0) + 1
                host.publish(said, source="allocator")
    return course


def small_market(seed: int = 3, *, slots: int = 80) -> Market:
    return generate("mixed", seed=seed, slots=slots, slot_s=600, start_ns=START_NS)


_ISSUED: dict[str, KnownForecasts] = {}


def known_forecasts(market: Market) -> KnownForecasts:
    """What the forecaster says on a market, made once per process."""
    key = hashlib.sha256(market.spot_available.tobytes()).hexdigest()
    if key not in _ISSUED:
        issued = issue_forecasts(slots_of(market), DEFAULT_FORECASTER, 6)
        _ISSUED[key] = KnownForecasts(issued)
    return _ISSUED[key]


def deciders(*, monitored: bool = True) -> list[Handler[Any]]:
    """All that decide on a job: selector, job board and, if asked for, the monitor."""
    selector = SelectHandler(SelectorOptions(rehearsals=2), digest=digest)
    return [selector, JobsHandler(), *([Monitor()] if monitored else [])]


def opened_host(
    market: Market,
    jobs: Sequence[Job],
    handlers: Sequence[Handler[Any]],
    *,
    answer: Answer = answer_in_process,
    record: Callable[[StoredEntry], None] | None = None,
) -> LocalHost:
    """A host with an exact cloud whose market is open and whose jobs are submitted."""
    host = LocalHost([*handlers, ExactCloud()], answers={ALLOCATE_CALL: answer}, record=record)
    host.publish(
        MarketOpened(
            offerings=market.offerings,
            slot_s=market.slot_s,
            first_slot_start_ns=market.start_ns,
            source=market.source,
        ),
        source="market_ingest",
    )
    for job in jobs:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    return host


def open_slot(host: LocalHost, market: Market, slot: int) -> SlotOpened:
    """Open a slot and let everybody decide."""
    events = IngestHandler(market, IngestOptions()).slot_events(slot)
    for event in events:
        host.publish(event, source="market_ingest")
    (opened,) = (event for event in events if isinstance(event, SlotOpened))
    return opened


def _at_factor(job: Job, factor: float) -> Job:
    return replace(
        job,
        throughputs=tuple(
            replace(one, alpha=one.alpha * factor, beta=one.beta * factor)
            for one in job.throughputs
        ),
    )


def _report(
    host: LocalHost,
    run: _TrueRun,
    opened: SlotOpened,
    rng: np.random.Generator,
    noise: float,
    *,
    with_rate: bool,
) -> JobProgressReported | None:
    """What the platform says at the end of a slot, after running it on what the cloud holds."""
    job = run.job
    held = host.state_of("cloud_actuator").held
    lots = [lot for (job_id, _), lot in sorted(held.items()) if job_id == job.job_id]
    selector = host.state_of("selector")
    home = lots[0].offering_id if lots else run.offering_id
    if not home:
        return None
    offering = selector.offerings[home]
    program = program_of(
        job,
        offering.offering_id,
        offering.instance_type,
        opened.slot_s,
        opened.ts_event_ns,
        offering.notice_lead_s,
    )
    moved = bool(run.offering_id) and bool(lots) and run.offering_id != offering.offering_id
    before = run.progress
    if moved:
        before = replace(
            before,
            holding=Holding(),
            pending_overhead_s=max(job.overheads.migrate_s, before.pending_overhead_s),
        )
    holding = Holding(
        spot=sum(lot.spot for lot in lots), on_demand=sum(lot.on_demand for lot in lots)
    )
    quotes = {one.quote.offering_id: one.quote for one in opened.quotes}
    # What is given back is not taken away.
    taken = quotes[home].spot_available.instances < before.holding.spot
    run.progress = advance(
        program, before, holding, held_s=opened.slot_s, interrupted=taken and holding.instances > 0
    )
    if not lots:
        return None
    run.offering_id = offering.offering_id
    # Noise of the measurement: what is done is known exactly.
    scale = WorkScale.for_amount(job.work.amount)
    rate = scale.work_from_quanta(program.rate_quanta_per_s[holding.instances] * S_PER_HOUR)
    return JobProgressReported(
        job_id=job.job_id,
        tenant=job.tenant,
        done=min(job.work.amount, scale.work_from_quanta(run.progress.progress_quanta)),
        ts_event_ns=opened.ts_event_ns + opened.slot_s * NS_PER_S,
        rate_per_hour=rate * math.exp(noise * rng.standard_normal()) if with_rate else 0.0,
        instances=holding.instances if with_rate else 0,
    )
