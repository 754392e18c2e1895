"""The proof from beginning to end: what it is compared with, the run, the reckoning, the picture."""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.adapters.files.packing import packed, store
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.selector.options import SelectorOptions
from spotline.bootstrap.clouds import chosen_cloud
from spotline.bootstrap.pace import MarketPace
from spotline.bootstrap.system import SystemOptions
from spotline.demo.train.accounts import reckoned
from spotline.demo.train.diary import read_diary
from spotline.demo.train.evidence import evidence_of
from spotline.demo.train.market import SLOT_S, DemoWindow, demo_window
from spotline.demo.train.picture import Drawn, draw
from spotline.demo.train.report import (
    MSU,
    ON_DEMAND,
    JobFared,
    TrainReport,
    events_in,
    measured_job,
    simulated_costs,
)
from spotline.demo.train.run import TrainProgress, TrainRun, run_training
from spotline.demo.train.scenario import (
    Compression,
    JobContext,
    TrainingProgram,
    TrainingTask,
    job_of,
)
from spotline.demo.train.undisturbed import UndisturbedRun, lay_out, pretrained, undisturbed
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.run import RunPackage
from spotline.domain.policies.registry import POOL
from spotline.domain.selection.rules import DEFAULT_RULE
from spotline.domain.selection.saved import SavedWeights

UNDISTURBED_SEEDS = (0, 1, 2)
SUDDEN_SHARE = 0.6
"""Of what is taken back, so much gets no notice."""
TIMES_RECLAIMED = 4.0
"""At random moments instances go so many times as often as the trace takes one back.

A run of minutes holds instances for some ten hours of market time, in which the trace itself would
hardly take any.
"""
SOLD_OUT_S = 2 * SLOT_S
"""Where something was taken back there is no spot for so long, in market seconds.

Whoever took it keeps it; without this it would be replaced at once, which no real market does.
"""
# Wall seconds: an agent that is gone is missed as quickly as market time runs.
_HEARTBEAT_S, _SILENT_S, _STOP_GRACE_S = 1.0, 5.0, 12.0
_CLOUD = "local"
_PRETRAIN_STEPS = 120
# What a careful owner states: slower updates and longer starts than were measured undisturbed.
_RATE_MARGIN, _START_MARGIN, _SCALING = 0.75, 1.3, 0.8
# Samples of an update, which one or two instances share in batches of the same size.
_BATCH, _PER_RANK, _COUNTS = 8, 4, (1, 2)
# The policy that plans on a law of the market, which long runs learn to trust.
_TRUSTED, _LEAST_WEIGHT = "sdp", 1e-6
# A slot after the last deadline, in which everything is given back.
_SLOTS_AFTER = 2
_MOST_SLOTS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofOptions:
    """How the proof is run.

    Parameters
    ----------
    folder
        Of this run: store, log, diaries, checkpoints, picture.
    cache
        Of what runs share: the base model, and undisturbed runs.
    data
        Folder of recorded traces, None for a generated market.
    seed
        Of the window, and of what the cloud takes back when.
    speed
        Market seconds in a second of wall time.
    cpu_share
        Cores of an instance.
    most_instances
        How many there may be at a time.
    notice_wall_s
        Wall seconds from a notice to the end.
    rehearsed
        Whether instances are those of a rehearsed AWS, not of the local cloud: as fast as they can,
        and taken back where the market takes them back, by AWS's own rules.
    """

    folder: Path
    cache: Path
    data: Path | None
    seed: int = 2026
    speed: float = 60.0
    cpu_share: float = 0.3
    most_instances: int = 5
    notice_wall_s: float = 8.0
    rehearsed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """A task, and how many times the undisturbed time on one instance it has to its deadline."""

    task: TrainingTask
    times: float


def _planned(name: str, steps: int, first_slot: int, times: float) -> PlannedTask:
    task = TrainingTask(
        name=name,
        task=1,
        steps=steps,
        first_slot=first_slot,
        deadline_slots=0,
        batch=_BATCH,
        counts=_COUNTS,
    )
    return PlannedTask(task=task, times=times)


TASKS: tuple[PlannedTask, ...] = (
    _planned("tight", 295, 1, 2.0),
    _planned("large", 390, 2, 2.2),
    _planned("medium", 335, 9, 2.1),
    _planned("relaxed", 280, 13, 2.3),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What came of it."""

    report: TrainReport
    window: DemoWindow
    run: TrainRun
    picture: Path


async def prove(
    options: ProofOptions,
    *,
    say: Callable[[str], None],
    told: Callable[[TrainProgress], None] | None = None,
    planned: Sequence[PlannedTask] = TASKS,
) -> Proof:
    """Run it; `say` hears what comes next, `told` every slot.

    Raises
    ------
    SpotlineError
        A program failed that nothing disturbed, a job was refused, or something cannot be used.
    """
    began_s = time.monotonic()
    options.folder.mkdir(parents=True, exist_ok=True)
    say("pre-training the base model, once")
    base = await pretrained(options.cache, steps=_PRETRAIN_STEPS)
    program = TrainingProgram(
        script="train_tiny.py",
        options=("--base", "base", "--work", "out", "--per-rank", str(_PER_RANK)),
        folders={"base": base},
    )
    say("training undisturbed, with three seeds, to compare with")
    calm = await undisturbed(
        program, [plan.task for plan in planned], UNDISTURBED_SEEDS, options.cache
    )
    compression = Compression(market_s_per_s=options.speed)
    program, said = _expected(program, calm, options, compression)
    tasks = [_timed(plan, calm, said) for plan in planned]
    slots = max(task.first_slot + task.deadline_slots for task in tasks) + _SLOTS_AFTER
    window = demo_window(options.data, slots=slots, seed=options.seed)
    say(
        f"{said.steps_per_s:.2f} updates/s expected of an instance, {program.restart_wall_s:.0f} s "
        f"for a start\nmarket: {window.words}\nspeed {options.speed:g}: {slots} slots of "
        f"{SLOT_S / options.speed:.1f} s; {_taken_back(options, window)}, seed {options.seed}"
    )
    jobs = [job_of(task, window.market, said) for task in tasks]
    run = await _trained(options, window, jobs, told)
    return _reckoned_up(options, tasks, window, run, calm, compression, began_s)


async def _trained(
    options: ProofOptions,
    window: DemoWindow,
    jobs: Sequence[Job],
    told: Callable[[TrainProgress], None] | None,
) -> TrainRun:
    system = _system(options, window)
    if options.rehearsed:
        from spotline.demo.train.rehearsed import RehearsedTraining, train_rehearsed

        training = RehearsedTraining(
            folder=options.folder,
            market=window.market,
            jobs=jobs,
            speed=options.speed,
            seed=options.seed,
            selector=system.selector,
            agent_times=system.agent_times,
        )
        return await train_rehearsed(training, told)
    return await run_training(
        system,
        jobs,
        options.folder / "log",
        run_id=options.folder.name,
        seeds={"window": options.seed, "reclaims": options.seed},
        told=told,
    )


def _expected(
    program: TrainingProgram,
    calm: Sequence[UndisturbedRun],
    options: ProofOptions,
    compression: Compression,
) -> tuple[TrainingProgram, JobContext]:
    """What the jobs are submitted with: rates and starts of undisturbed runs, on a share of a core."""
    share = options.cpu_share
    restart_wall_s = _START_MARGIN * median(run.start_s for run in calm) / share
    program = replace(program, restart_wall_s=restart_wall_s)
    checkpoints = (options.folder / "checkpoints").resolve()
    package = packaged(program, checkpoints)
    return program, JobContext(
        program=program,
        compression=compression,
        package=package,
        location=checkpoints,
        diaries=(options.folder / "diaries").resolve(),
        steps_per_s=_RATE_MARGIN * median(run.steps_per_s for run in calm) * share,
        scaling=_SCALING,
        seed=UNDISTURBED_SEEDS[0],
        python_path=os.environ.get("PYTHONPATH", ""),
    )


def packaged(program: TrainingProgram, location: Path) -> RunPackage:
    """Pack the working directory of a program and put it where its jobs' checkpoints lie."""
    with tempfile.TemporaryDirectory(prefix="spotline-demo-") as folder:
        work = Path(folder) / "work"
        lay_out(program, work)
        with packed(work, where=program.script) as archive:
            package = archive.package_at(str(location))
            store(archive.archive, package, where=program.script)
    return package


def _timed(plan: PlannedTask, calm: Sequence[UndisturbedRun], said: JobContext) -> TrainingTask:
    """The task with its deadline: so many times what it takes undisturbed, on one instance."""
    task = plan.task
    wall_s = task.steps / said.steps_per_s + said.program.restart_wall_s
    slots = math.ceil(plan.times * said.compression.market_s(wall_s) / SLOT_S)
    return replace(task, deadline_slots=min(slots, _MOST_SLOTS - task.first_slot))


def _trusting(policy_id: str) -> str:
    """Weights of a platform that has learned to trust one policy: four jobs alone teach nothing."""
    weights = {policy.policy_id: _LEAST_WEIGHT for policy in POOL}
    learned = SavedWeights(
        rule=DEFAULT_RULE,
        rounds=1,
        gap=0.0,
        weights={**weights, policy_id: 1.0},
        provenance="stated by the proof",
    )
    return learned.to_json()


def _reclaims(window: DemoWindow) -> float:
    """Instances that go at random moments, per instance-hour of market time."""
    return TIMES_RECLAIMED * window.reclaims_per_instance_hour


def _taken_back(options: ProofOptions, window: DemoWindow) -> str:
    """How instances are taken back, in words."""
    if options.rehearsed:
        return "a rehearsed AWS takes back what the market has no more, as AWS does"
    return (
        f"{_reclaims(window):.2f} reclaims per instance-hour at random moments; "
        f"{SUDDEN_SHARE:.0%} of all without notice, "
        f"no spot for {SOLD_OUT_S // 60} min where some was taken"
    )


def _system(options: ProofOptions, window: DemoWindow) -> SystemOptions:
    pace = MarketPace(by_time=True, market_s_per_s=options.speed)
    return SystemOptions(
        market=window.market,
        store=options.folder / "store",
        ingest=pace.ingest(window.market.slot_s, wait_for_work=False),
        market_s_per_s=options.speed,
        selector=SelectorOptions(warm_start=_trusting(_TRUSTED), even_cells=True),
        cloud=chosen_cloud(
            _CLOUD,
            cpu_share=options.cpu_share,
            most_instances=options.most_instances,
            notice_lead_s=round(options.notice_wall_s * options.speed),
            sudden_share=SUDDEN_SHARE,
            interruption_per_instance_hour=_reclaims(window),
            sold_out_s=SOLD_OUT_S,
            stop_grace_s=_STOP_GRACE_S,
            seed=options.seed,
        ),
        agent_times=AgentTimes(heartbeat_s=_HEARTBEAT_S, silent_s=_SILENT_S),
    )


def _reckoned_up(
    options: ProofOptions,
    tasks: Sequence[TrainingTask],
    window: DemoWindow,
    run: TrainRun,
    calm: Sequence[UndisturbedRun],
    compression: Compression,
    began_s: float,
) -> Proof:
    events = events_in(EventLogReader(run.log))
    evidence = evidence_of(events, [job.job_id for job in run.jobs])
    pages = [read_diary(options.folder / "diaries" / task.name) for task in tasks]
    measured: list[Job] = [
        measured_job(job, task.steps, noted, evidence[job.job_id], compression)
        for task, job, noted in zip(tasks, run.jobs, pages, strict=True)
    ]
    costs = simulated_costs(window.market, measured)
    billed: dict[str, int] = {}
    for bill in run.bills:
        billed[bill.job_id] = billed.get(bill.job_id, 0) + bill.estimate_micro_usd
    report = TrainReport(
        jobs=tuple(
            JobFared(
                task=task,
                job=job,
                evidence=evidence[job.job_id],
                account=reckoned(noted, steps=task.steps, batch=task.batch),
                undisturbed=tuple(ran for ran in calm if ran.task.name == task.name),
                cost_micro_usd=billed.get(job.job_id, 0),
                on_demand_micro_usd=costs[ON_DEMAND][job.job_id],
                msu_micro_usd=costs[MSU][job.job_id],
            )
            for task, job, noted in zip(tasks, run.jobs, pages, strict=True)
        ),
        ledger_micro_usd=run.ledger_micro_usd,
        wall_s=time.monotonic() - began_s,
        rehearsed=options.rehearsed,
        took=run.took,
    )
    picture = options.folder / "training.png"
    draw(
        Drawn(
            report=report,
            pages=pages,
            events=events,
            slots_opened_s=run.slots_opened_s,
            slot_s=window.market.slot_s,
        ),
        picture,
    )
    report = replace(report, wall_s=time.monotonic() - began_s)
    (options.folder / "report.json").write_text(
        json.dumps({**report.as_json(), "failures": report.failures()}, indent=2) + "\n",
        encoding="utf-8",
    )
    return Proof(report=report, window=window, run=run, picture=picture)
