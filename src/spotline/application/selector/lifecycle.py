"""What a slot brings a running job, and how a job ends."""

from __future__ import annotations

from spotline.application.selector.job_run import JobRun
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.jobs.job import DeadlineKind


def advanced(run: JobRun, slot: int) -> JobAdvanced:
    """Report what a slot brought a job."""
    return JobAdvanced(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot,
        lots=run.last_slot_lots,
        progress_ppm=run.progress_ppm,
        slot_cost_micro_usd=run.last_slot_cost_micro_usd,
        cost_micro_usd=run.spent_micro_usd,
    )


def closed(run: JobRun, slot: int) -> JobClosed | None:
    """How the job ended, if it did when `slot` opened."""
    program = run.compiled
    elapsed = run.elapsed_slots(slot)
    value = 0
    if run.state.progress_quanta >= program.work_quanta:
        on_time = elapsed <= program.deadline_slots
        outcome = JobOutcome.COMPLETED if on_time else JobOutcome.COMPLETED_LATE
        if elapsed <= program.end_slots:
            value = program.value_micro_usd[elapsed]
    elif run.cancelled:
        outcome = JobOutcome.CANCELLED
    elif elapsed >= program.end_slots:
        outcome = JobOutcome.MISSED_DEADLINE if program.hard else JobOutcome.EXPIRED
    else:
        return None
    return JobClosed(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot - 1,
        outcome=outcome,
        policy_id=run.policy_id,
        cost_micro_usd=run.spent_micro_usd,
        value_micro_usd=value,
        progress_ppm=run.progress_ppm,
    )


def never_started(run: JobRun, slot: int) -> JobClosed:
    """Close a job that was never admitted."""
    if run.cancelled:
        outcome = JobOutcome.CANCELLED
    elif run.job.deadline.kind is DeadlineKind.HARD:
        outcome = JobOutcome.MISSED_DEADLINE
    else:
        outcome = JobOutcome.EXPIRED
    return JobClosed(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=max(0, slot),
        outcome=outcome,
        policy_id="",
        cost_micro_usd=0,
        value_micro_usd=0,
        progress_ppm=0,
    )
