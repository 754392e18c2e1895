"""Pictures of a recorded run: one of its jobs, or all of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from spotline.adapters.eventlog.reader import EventLogReader
from spotline.contracts.errors import ContractError
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot
from spotline.replay.handlers import selector_options
from spotline.replay.pictures.job import ON_DEMAND_ALONE, draw_job
from spotline.replay.pictures.lives import DrawnJob, DrawnRun, drawn_run
from spotline.replay.pictures.run import draw_run


def run_of(log: EventLogReader) -> DrawnRun:
    """What a log says of all its jobs, over time.

    Raises
    ------
    UnreadableLog
        It cannot be read to its end.
    ContractError
        No slot was ever opened in it, or no job submitted.
    """
    return drawn_run(log, selector_options(log.manifest.settings))


def interesting_job(run: DrawnRun) -> DrawnJob:
    """The job whose picture tells most: it mixed spot and on-demand, changed often, and finished.

    Raises
    ------
    ContractError
        No job ever ran.
    """
    ran = [job for job in run.jobs if job.ran]
    if not ran:
        raise ContractError("log", "no job has run in it yet, there is nothing to draw")
    return max(ran, key=lambda job: (_interest(job), job.job.job_id))


def _interest(job: DrawnJob) -> tuple[bool, bool, bool, int]:
    held = [_counts(lots) for _, lots in job.held]
    mixed = any(spot for spot, _ in held) and any(on_demand for _, on_demand in held)
    changes = sum(before != after for before, after in pairwise(held))
    alone = job.otherwise.get(ON_DEMAND_ALONE)
    saved = job.compared and alone is not None and job.spent_micro_usd < 0.8 * alone[-1][1]
    return (job.outcome is JobOutcome.COMPLETED, mixed, saved, changes)


def _counts(lots: tuple[Lot, ...]) -> tuple[int, int]:
    return sum(lot.spot for lot in lots), sum(lot.on_demand for lot in lots)


def plot_job(log: EventLogReader, path: Path, *, job_id: str = "") -> DrawnJob:
    """Draw one job of a log to a PNG, without `job_id` the most interesting one; it is returned.

    Raises
    ------
    UnreadableLog
        The log cannot be read to its end.
    ContractError
        There is no such job, or none has run.
    OSError
        The file cannot be written.
    """
    run = run_of(log)
    chosen = run.chosen(job_id) if job_id else interesting_job(run)
    draw_job(chosen, run, path)
    return chosen


def plot_run(log: EventLogReader, path: Path) -> DrawnRun:
    """Draw all jobs of a log to a PNG, and return what was drawn; raises as `plot_job`."""
    run = run_of(log)
    draw_run(run, path)
    return run
