"""`spotline plot`: a job of a recorded log, or all its jobs, as a picture."""

# matplotlib and the log's reader are imported inside: they cost more than `--help` should.

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.cli.failures import explained, writable
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.replay.pictures.lives import DrawnJob, DrawnRun

# Where `spotline up` writes its log unless it is told otherwise.
DEFAULT_LOG = Path("spotline-store") / "log"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(plot)


def plot(
    target: Annotated[
        str,
        typer.Argument(
            metavar="JOB|LOG",
            help="A job (its id, how it begins, or its name), or the folder of a log.",
        ),
    ],
    log: Annotated[
        Path,
        typer.Option(
            "--log",
            metavar="LOG",
            help="The job's log; that of a running `spotline up` is in its store.",
        ),
    ] = DEFAULT_LOG,
    job: Annotated[str, typer.Option(metavar="ID", help="The job of LOG to draw.")] = "",
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="OUT", help="Picture to make; by default beside the log."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Draw what happened to a job, or to all jobs of a log, and what it cost.

    Of a job: where spot was, what it held, interruptions, moves and checkpoints, progress towards
    its deadline, and its cost against on-demand alone and MSU on the same market. Of a log: a row
    for each job. Times are UTC, of the market.
    """
    with explained(as_json=as_json):
        folder, name = _what(target, log, job)
        if png is not None:
            _check_place(png, folder)
        run = _run_of(folder)
        chosen = run.chosen(name) if name else None
        path = png or folder.parent / _file_name(chosen)
        with writable(path):
            if chosen is None:
                from spotline.replay.pictures.run import draw_run

                draw_run(run, path)
            else:
                from spotline.replay.pictures.job import draw_job

                draw_job(chosen, run, path)
    if as_json:
        print(json.dumps(_as_json(run, chosen, path), indent=2))
        return
    for line in _lines(run, chosen):
        print_line(line)
    print_line(f"drawn to {path}")


def _what(target: str, log: Path, job: str) -> tuple[Path, str]:
    """The log's folder and the name of the job in it, empty for all."""
    if not target:
        raise ContractError("JOB|LOG", "expected a job or the folder of a log, found nothing")
    folder = Path(target)
    if folder.is_dir():
        if log != DEFAULT_LOG:
            raise ContractError("--log", f"expected none, for {target} is a log, found {log}")
        return folder, job
    if folder.exists():
        raise ContractError(
            "JOB|LOG", f"expected a job or the folder of a log, found the file {target}"
        )
    if job:
        raise ContractError(
            "JOB|LOG", f"expected the folder of a log, for --job names the job, found {target}"
        )
    if not log.is_dir():
        raise ContractError(
            "--log",
            f"expected the folder of the log that has the job {target}, found none at {log}",
        )
    return log, target


def _run_of(folder: Path) -> DrawnRun:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.replay.plots import run_of

    try:
        return run_of(EventLogReader(folder))
    except ContractError as error:
        # It says what the log lacks, and here it is known which log that is.
        raise ContractError(
            str(folder) if error.where == "log" else error.where, error.problem
        ) from error


def _file_name(chosen: DrawnJob | None) -> str:
    return "jobs.png" if chosen is None else f"job-{chosen.job.job_id[:12]}.png"


def _check_place(path: Path, folder: Path) -> None:
    """Refuse what cannot be written to, or what would be taken for the log's, before any work."""
    if path.resolve().parent == folder.resolve():
        raise ContractError("--png", f"expected a place outside the log {folder}, found {path}")
    if path.is_dir():
        raise ContractError("--png", f"expected a file to write, found the folder {path}")
    if not path.parent.is_dir():
        raise ContractError(
            "--png", f"expected a file in a folder that is there, found no folder {path.parent}"
        )


def _lines(run: DrawnRun, chosen: DrawnJob | None) -> list[str]:
    from spotline.replay.pictures.job import comparison, happened, headline
    from spotline.replay.pictures.run import costs, outcomes

    if chosen is None:
        return [outcomes(run), costs(run)]
    return [line for line in (headline(chosen), comparison(chosen), happened(chosen)) if line]


def _as_json(run: DrawnRun, chosen: DrawnJob | None, path: Path) -> dict[str, Any]:
    if chosen is not None:
        return {"job": _job_as_json(chosen), "picture": str(path)}
    return {"jobs": [_job_as_json(job) for job in run.jobs], "picture": str(path)}


def _job_as_json(job: DrawnJob) -> dict[str, Any]:
    from spotline.domain.units import PPM, usd_from_micro_usd, utc_iso
    from spotline.replay.pictures.lives import MarkKind

    return {
        "job_id": job.job.job_id,
        "name": job.job.name,
        "outcome": job.outcome.value if job.outcome else None,
        "policy": job.policy_id,
        "begin": utc_iso(job.begin_ns),
        "end": utc_iso(job.end_ns) if job.outcome else None,
        "deadline": utc_iso(job.job.deadline.at_ns),
        "share_done": job.progress[-1][1] / PPM if job.progress else 0.0,
        "cost_usd": usd_from_micro_usd(job.spent_micro_usd),
        "otherwise_usd": {
            name: usd_from_micro_usd(course[-1][1]) for name, course in job.otherwise.items()
        },
        "compared_to_its_end": job.compared,
        "happened": {kind.name.lower(): job.count(kind) for kind in MarkKind if job.count(kind)},
    }
