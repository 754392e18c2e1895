"""What the proof trains: a program, its jobs, and how market time is compressed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from spotline.application.admission import job_id_for
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.jobs.run import EnvironmentVariable, Run, RunPackage
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S, S_PER_HOUR

TENANT = "proof"
LENGTH = 64
"""Tokens of a sample."""
_VALUE_OF_ON_DEMAND = 3.0
_CENT_MICRO_USD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """How much faster than time a market runs: market seconds in a second of wall time."""

    market_s_per_s: float

    def market_s(self, wall_s: float) -> int:
        """Whole market seconds of some wall time, at least one."""
        return max(1, round(wall_s * self.market_s_per_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingTask:
    """One job, as its owner states it.

    `steps` updates of `batch` samples; `first_slot` is when it may begin, and `deadline_slots`
    later it must be done. It resumes on any of `counts` instances.
    """

    name: str
    task: int
    steps: int
    first_slot: int
    deadline_slots: int
    batch: int = 8
    counts: tuple[int, ...] = (1, 2)

    @property
    def tokens(self) -> int:
        """Tokens of the whole training."""
        return self.steps * self.batch * LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProgram:
    """A program to be run: a script of this package, and what its working directory holds besides.

    Parameters
    ----------
    script
        File in `program/`.
    options
        Words of its command line after those that say the task.
    folders
        Folders by the name that they have in the working directory.
    restart_wall_s
        Wall seconds that a start takes on an instance, estimated before any was measured.
    save_wall_s
        Likewise of a save.
    """

    script: str
    options: tuple[str, ...] = ()
    folders: dict[str, Path] = field(default_factory=dict)
    interval_wall_s: float = 6.0
    restart_wall_s: float = 2.0
    save_wall_s: float = 0.5

    @property
    def path(self) -> Path:
        """Where the script is."""
        return Path(__file__).with_name("program") / self.script

    def words(self, task: TrainingTask, *, diary: Path, seed: int) -> tuple[str, ...]:
        """Its command, in the working directory."""
        return (
            sys.executable,
            self.script,
            *("--diary", str(diary), "--steps", str(task.steps), "--batch", str(task.batch)),
            *("--task", str(task.task), "--seed", str(seed)),
            *("--interval-s", f"{self.interval_wall_s:g}"),
            *self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """All that a job needs besides its task: where things lie, and how fast it is expected to be.

    `steps_per_s` is what one instance does in a second of wall time; with n of them it is taken
    for `scaling` of n times as much.
    """

    program: TrainingProgram
    compression: Compression
    package: RunPackage
    location: Path
    diaries: Path
    steps_per_s: float
    seed: int
    grace_s: int = 10
    scaling: float = 0.9
    python_path: str = ""


def job_of(task: TrainingTask, market: Market, said: JobContext) -> Job:
    """Make the job of a task on a market, with a hard deadline.

    Its value is a multiple of what it would cost on demand on one instance.
    """
    starts_ns = market.slot_starts_ns()
    start_ns = int(starts_ns[task.first_slot])
    deadline_ns = start_ns + task.deadline_slots * market.slot_s * NS_PER_S
    per_hour = said.steps_per_s * task.batch * LENGTH * S_PER_HOUR / said.compression.market_s_per_s
    rates = tuple(
        _few_digits(per_hour * (1 if count == 1 else count * said.scaling))
        for count in range(1, max(task.counts) + 1)
    )
    on_demand = int(market.on_demand_price_micro_usd[task.first_slot].max())
    cost = on_demand * task.tokens / rates[0]
    restart_s = said.compression.market_s(said.program.restart_wall_s)
    request_id = f"{task.name}-{said.seed}"
    return Job(
        job_id=job_id_for(TENANT, request_id),
        tenant=TENANT,
        client_request_id=request_id,
        name=task.name,
        work=Work(amount=float(task.tokens), unit="tokens"),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=deadline_ns, expires_ns=deadline_ns),
        value_micro_usd=round(_VALUE_OF_ON_DEMAND * cost / _CENT_MICRO_USD) * _CENT_MICRO_USD,
        start_ns=start_ns,
        allowed_counts=task.counts,
        throughputs=(Throughput(offering="*", table=rates),),
        topology=Topology.ONE_ZONE,
        checkpoint=Checkpoint(
            interval_s=said.compression.market_s(said.program.interval_wall_s),
            save_s=said.compression.market_s(said.program.save_wall_s),
            size_gb=0.001,
            location=str(said.location),
        ),
        overheads=Overheads(
            launch_s=restart_s,
            grow_s=restart_s,
            shrink_s=restart_s,
            migrate_s=restart_s,
            interrupted_s=restart_s,
        ),
        awaits_exit=True,
        run=Run(
            command=said.program.words(task, diary=said.diaries / task.name, seed=said.seed),
            package=said.package,
            environment=_environment(said.python_path),
            grace_s=said.grace_s,
        ),
    )


def _environment(python_path: str) -> tuple[EnvironmentVariable, ...]:
    # An instance has a share of one core: threads would only wait for each other.
    stated = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    if python_path:
        stated["PYTHONPATH"] = python_path
    return tuple(
        EnvironmentVariable(name=name, value=value) for name, value in sorted(stated.items())
    )


def _few_digits(rate: float) -> float:
    # Rates of few digits keep the exact programs small.
    return float(f"{rate:.3g}")
