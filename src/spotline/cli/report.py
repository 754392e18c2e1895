"""`spotline report`: what a job, a log or a month came to, as a file for those who were not there."""

# The page's state and matplotlib are imported inside: they cost more than `--help` should.

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotline import __version__
from spotline.cli.failures import explained, writable
from spotline.cli.stores import StoreOption, store_folder
from spotline.cli.tables import print_line
from spotline.contracts.errors import ContractError

if TYPE_CHECKING:
    from spotline.adapters.report.report_file import ReportAbout
    from spotline.application.page.summary import CalendarMonth, PeriodSummary


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(report)


def report(
    target: Annotated[
        str,
        typer.Argument(
            metavar="[JOB|LOG]",
            help="A job (its id, how it begins, or its name), or the folder of a log; by default "
            "the store's log.",
        ),
    ] = "",
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="LOG", help="The job's log; by default the store's."),
    ] = None,
    month: Annotated[
        str, typer.Option(metavar="YYYY-MM", help="Only what was charged in a month, UTC.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Page to write, with its picture.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Table to write: a row for each job."),
    ] = None,
    png: Annotated[
        Path | None, typer.Option("--png", metavar="FILE", help="Picture to write.")
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write what a job, all jobs of a log, or a month came to: cost, deadlines, and why.

    Prints the sums where no file is named. Reads the log alone; nothing needs to run.
    """
    with explained():
        from spotline.adapters.report.report_file import write_csv, write_html
        from spotline.application.page.summary import period_summary
        from spotline.replay.written import job_named, page_state_of

        period = _month(month)
        folder, name = _what(target, log, store)
        state = page_state_of(folder)
        job_id = job_named(state, name) if name else ""
        told = period_summary(state, period, job_id)
        picture = b""
        if html is not None or png is not None:
            picture = _drawn(folder, job_id)
        if table is not None:
            with writable(table):
                write_csv(table, told)
        if png is not None:
            with writable(png):
                png.write_bytes(picture)
        if html is not None:
            about = _about(
                folder, state.jobs.statuses[job_id].job.name if job_id else "", job_id, month
            )
            with writable(html):
                write_html(html, told, about, picture)
    _print(told)
    for written in (html, table, png):
        if written is not None:
            print_line(f"written to {written}")


def _month(text: str) -> CalendarMonth | None:
    from spotline.application.page.summary import CalendarMonth

    if not text:
        return None
    try:
        return CalendarMonth.read(text)
    except ValueError:
        raise ContractError(
            "--month", f"expected a month such as 2026-11, found {text!r}"
        ) from None


def _what(target: str, log: Path | None, store: Path | None) -> tuple[Path, str]:
    """The log's folder and the name of the job in it, empty for all."""
    if target and Path(target).is_dir():
        if log is not None:
            raise ContractError("--log", f"expected none, for {target} is a log, found {log}")
        return Path(target), ""
    if target and Path(target).exists():
        raise ContractError(
            "JOB|LOG", f"expected a job or the folder of a log, found the file {target}"
        )
    return log or store_folder(store) / "log", target


def _drawn(folder: Path, job_id: str) -> bytes:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.replay.pictures.job import draw_job
    from spotline.replay.pictures.run import draw_run
    from spotline.replay.plots import run_of

    run = run_of(EventLogReader(folder))
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "picture.png"
        if job_id:
            draw_job(run.chosen(job_id), run, path)
        else:
            draw_run(run, path)
        return path.read_bytes()


def _about(folder: Path, name: str, job_id: str, month: str) -> ReportAbout:
    from spotline.adapters.eventlog.reader import EventLogReader
    from spotline.adapters.report.report_file import ReportAbout

    manifest = EventLogReader(folder).manifest
    target = job_id[:12] if job_id else str(folder)
    words = ["spotline", "report", target]
    if job_id:
        words += ["--log", str(folder)]
    if month:
        words += ["--month", month]
    title = f"Job {name or job_id[:8]}" if job_id else "What was spent"
    return ReportAbout(
        title=f"{title}, {month}" if month else title,
        version=__version__,
        log=str(folder),
        entries=f"run {manifest.run_id}, entries {manifest.first_seq:,} to {manifest.last_seq:,}",
        source=f"Recorded by Spotline {manifest.environment.spotline}.",
        command=shlex.join([*words, "--html", "FILE"]),
        job=job_id,
        month=month,
    )


def _print(told: PeriodSummary) -> None:
    from spotline.domain.units import utc_iso

    print_line(f"{utc_iso(told.from_ns)} to {utc_iso(told.to_ns)}: {len(told.jobs)} jobs")
    on_demand = told.waterfall.on_demand_micro_usd
    print_line(
        f"charged {_usd(told.cost_micro_usd)}; the work done was quoted at {_usd(on_demand)} on-demand"
    )
    over = told.kept + told.missed
    print_line(f"deadlines kept: {told.kept} of {over}, of jobs that are over")
    if told.failed:
        print_line(f"paid without progress: {_usd(told.failed_micro_usd)}")
    if told.idle:
        print_line(f"reservations that nobody used: {_usd(told.idle_micro_usd)}")
    if told.unexplained:
        print_line(f"no decision explains {_usd(told.unexplained_micro_usd)}", style="yellow")


def _usd(micro_usd: int) -> str:
    return f"{micro_usd / 1e6:,.2f} USD"
