"""Runs crowds where no count is told and nothing is known yet, under Spotline and under plain spot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.outlook import job_outlook
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions, where_uncounted
from spotline.application.selector.state import SelectorState
from spotline.bench.fleet.cells import COLD
from spotline.bench.fleet.instance import Crowd, lay_instance
from spotline.bench.fleet.markets import GENERATED, fleet_market
from spotline.bench.fleet.policies import SHIPPED
from spotline.bench.fleet.starts import start_of
from spotline.bench.headline.plain import plain_recovery
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.policies.registry import POOL
from spotline.replay.closed_loop import no_digest, telling_cloud
from spotline.replay.clouds import Information
from spotline.replay.course import MarketCourse, first_slot
from spotline.replay.parts import answer_in_process
from spotline.replay.selector_run import SelectorRun, run_selector

# On-demand of every so manieth offering can run out.
_SHORT_EVERY = 3
_DONE = (JobOutcome.COMPLETED, JobOutcome.COMPLETED_LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineOptions:
    """What is run: so many jobs at a load on a fleet market, once with every seed."""

    data: Path
    market: str = "h100"
    jobs: int = 60
    load: float = 0.8
    seeds: tuple[int, ...] = (1,)
    processes: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A job under both; money in micro-USD.

    `told_ppm` is the probability of being on time that it was told on arrival, None where nothing
    was known of the market yet. Finished is what was done while it was worth anything. Jobs of one
    `timeline` met the same market: crowds on a recorded one do, whatever their seed.
    """

    job_id: str
    timeline: int
    slot: int
    is_hard: bool
    told_ppm: int | None
    is_finished: bool
    is_on_time: bool
    cost_micro_usd: int
    plain_is_finished: bool
    plain_is_on_time: bool
    plain_cost_micro_usd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadlineRun:
    """All jobs of all seeds, and where the market's counts and prices were recorded."""

    jobs: tuple[JobSeen, ...]
    recorded: str


def run_headline(options: HeadlineOptions, tell: Callable[[str], None]) -> HeadlineRun:
    """Run every seed's crowd.

    Raises
    ------
    ContractError
        The data of the market is absent or broken.
    """
    # Read here first: what is wrong with the data is said once, before anything runs.
    recorded = fleet_market(options.market, options.data, options.seeds[0]).recorded
    crowds = [
        Crowd(market=options.market, jobs=options.jobs, load=options.load, seed=seed)
        for seed in options.seeds
    ]
    seen: list[JobSeen] = []
    for crowd, found in zip(crowds, _each(options, crowds), strict=True):
        seen += found
        tell(f"seed {crowd.seed}: {len(found)} jobs")
    return HeadlineRun(jobs=tuple(seen), recorded=recorded)


def _each(options: HeadlineOptions, crowds: Sequence[Crowd]) -> Sequence[tuple[JobSeen, ...]]:
    data = [options.data] * len(crowds)
    if options.processes == 1 or len(crowds) == 1:
        return list(map(run_crowd, data, crowds))
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        return list(pool.map(run_crowd, data, crowds))


def run_crowd(data: Path, crowd: Crowd) -> tuple[JobSeen, ...]:
    """Run one crowd under both.

    Counts are hidden, on-demand of a third of the offerings can run out, and all begins with the second
    half of the record, knowing nothing of the first.
    """
    source = fleet_market(crowd.market, data, crowd.seed)
    source = replace(source, limited=tuple(range(0, len(source.market.offerings), _SHORT_EVERY)))
    instance = lay_instance(source, crowd)
    hidden = Information.CENSORED
    options = where_uncounted(SHIPPED)
    started = start_of(COLD, source, instance, options, hidden)
    ran, told = run_told(started.course, instance.jobs, started.options, crowd.seed)
    plain = plain_recovery(instance.reported, instance.jobs, options)
    return tuple(
        JobSeen(
            job_id=job.job_id,
            timeline=crowd.seed if crowd.market == GENERATED else 0,
            slot=waited.first,
            is_hard=job.deadline.kind is DeadlineKind.HARD,
            told_ppm=told.get(job.job_id),
            is_finished=ran.watched.closed[job.job_id].outcome in _DONE,
            is_on_time=life.on_time,
            cost_micro_usd=life.cost_micro_usd,
            plain_is_finished=waited.is_done,
            plain_is_on_time=waited.is_on_time(),
            plain_cost_micro_usd=waited.cost_micro_usd,
        )
        for job, life, waited in zip(instance.jobs, ran.lives(instance.jobs), plain, strict=True)
    )


def run_told(
    course: MarketCourse, jobs: Sequence[Job], options: SelectorOptions, seed: int
) -> tuple[SelectorRun, dict[str, int]]:
    """Run Spotline, and ask on every job's arrival what `submit` would say of it."""
    arriving: dict[int, list[Job]] = {}
    for job in jobs:
        arriving.setdefault(first_slot(course.market, job) - 1, []).append(job)
    told: dict[str, int] = {}

    def settled(state: SelectorState) -> None:
        for job in arriving.get(state.slot, ()):
            known = SelectorSnapshot(state=state, options=options, pool=POOL)
            outlook = job_outlook(known, job)
            if outlook is not None:
                told[job.job_id] = outlook.on_time_probability_ppm

    handler = SelectHandler(options, digest=no_digest)
    cloud = telling_cloud(course, Information.CENSORED)
    ran = run_selector(course, jobs, handler, answer_in_process, seed, cloud=cloud, settled=settled)
    return ran, told
