"""What a slot brings a running job, and how a job ends."""

from __future__ import annotations

from spotline.application.selector.endings import completed
from spotline.application.selector.job_run import JobRun
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.units import PPM

# A program that has not ended so long after its work was done is not waited for any longer.
LONGEST_FINISH_S = 3600


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
    exited = run.ending is JobOutcome.COMPLETED
    done = run.state.progress_quanta >= program.work_quanta
    if exited or (done and not _awaits_exit(run, slot)):
        outcome, value = completed(run, elapsed)
    elif run.ending is not None:
        outcome = run.ending
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
        progress_ppm=PPM if exited else run.progress_ppm,
    )


def _awaits_exit(run: JobRun, slot: int) -> bool:
    """Whether a job that has done its work goes on until its program ends."""
    program = run.compiled
    if run.cancelled or run.ending is not None or not run.is_finishing:
        return False
    waited_s = (slot - run.finishing_since) * program.slot_s
    spent = program.budget_micro_usd and run.spent_micro_usd >= program.budget_micro_usd
    # After its deadline, too, done work is done.
    over = run.elapsed_slots(slot) >= program.end_slots
    return waited_s < LONGEST_FINISH_S and not spent and not over


def stopped(
    run: JobRun,
    slot: int,
    outcome: JobOutcome = JobOutcome.STOPPED_BY_LIMIT,
    value_micro_usd: int = 0,
) -> JobClosed:
    """Close a job for a limit's sake when `slot` opened."""
    return JobClosed(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=slot - 1,
        outcome=outcome,
        policy_id=run.policy_id,
        cost_micro_usd=run.spent_micro_usd,
        value_micro_usd=value_micro_usd,
        progress_ppm=run.progress_ppm,
    )


def never_started(run: JobRun, slot: int, *, stopped: bool = False) -> JobClosed:
    """Close a job that was never admitted; `stopped` for a limit's sake."""
    if stopped:
        outcome = JobOutcome.STOPPED_BY_LIMIT
    elif run.cancelled:
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
