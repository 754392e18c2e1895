"""Events of a program that Spotline runs, as its agents tell them."""

from __future__ import annotations

from dataclasses import replace

from spotline.domain.events.lifecycle import JobProgressReported
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointKind,
    GenerationFormed,
    TrainingRestarted,
)
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.run import Run
from tests.fakes.selector import job_of

RUN = Run(command=("python", "train.py"))


def run_job(number: int = 1, **changes: object) -> Job:
    """A `job_of` whose program Spotline runs."""
    return replace(job_of(number), **{"run": RUN, **changes})  # type: ignore[arg-type]


def formed(job: Job, generation: int, *, at_ns: int = 0) -> GenerationFormed:
    return GenerationFormed(
        job_id=job.job_id,
        tenant=job.tenant,
        generation=generation,
        instance_ids=("i-1",),
        detail="",
        ts_event_ns=at_ns,
    )


def restarted(
    job: Job, generation: int, *, restart_s: int = 30, done: float = 0.0, sha256: str = "ab"
) -> TrainingRestarted:
    return TrainingRestarted(
        job_id=job.job_id,
        tenant=job.tenant,
        generation=generation,
        restart_s=restart_s,
        load_s=5,
        resumed_done=done,
        resumed_sha256=sha256,
        ts_event_ns=0,
    )


def committed(
    job: Job,
    generation: int,
    step: int,
    done: float,
    *,
    save_s: int = 16,
    size_bytes: int = 2 * 10**9,
) -> CheckpointCommitted:
    return CheckpointCommitted(
        job_id=job.job_id,
        tenant=job.tenant,
        generation=generation,
        step=step,
        done=done,
        uri=f"file:///checkpoints/{job.job_id}/{generation}-{step}",
        sha256="ab",
        size_bytes=size_bytes,
        kind=CheckpointKind.PERIODIC,
        save_s=save_s,
        ts_event_ns=0,
    )


def reported(
    job: Job, generation: int, done: float, *, checkpointed: float | None = None
) -> JobProgressReported:
    return JobProgressReported(
        job_id=job.job_id,
        tenant=job.tenant,
        done=done,
        generation=generation,
        checkpointed=checkpointed,
    )
