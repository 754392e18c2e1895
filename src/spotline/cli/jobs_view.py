"""Jobs, plans and configurations as the commands print them."""

# Imports of what is printed with are inside: tables cost more than `--help` should.

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from spotline.cli.modes_view import paper_facts
from spotline.cli.status_view import view_facts
from spotline.cli.tables import (
    Column,
    Kind,
    print_facts,
    print_line,
    print_table,
    shortened,
    terminal_width,
)
from spotline.cli.wording import NOTHING, moment, usd

if TYPE_CHECKING:
    from rich.console import Console

    from spotline.application.allocator.messages import JobStatus
    from spotline.application.configurator.messages import Completion, ConfigurationOption
    from spotline.domain.configuration.provenance import JobConfiguration, ParameterOrigin
    from spotline.domain.jobs.job import Job, Throughput
    from spotline.domain.jobs.run import ProgressReading, Run

# Columns from which on a table has room for a sentence in every row.
_WIDE = 130
_LONGEST_SHOWN = 300


def plain(value: Any) -> Any:
    """A domain value as JSON has it, over HTTP and here: the same keys, units and ISO times."""
    from spotline.adapters.web.encoding import encoded

    return encoded(value)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a value as JSON, characters beyond ASCII escaped: no terminal obeys it."""
    import json

    typer.echo(json.dumps(value, indent=indent))


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    return Console()


def _rate(throughput: Throughput, instances: int, unit: str) -> str:
    rate = throughput.rate_per_hour(instances)
    return f"{rate:.4g} {unit} per hour on {instances} x {throughput.offering}"


def print_status(status: JobStatus) -> None:
    """Everything of one job, all that matters in the first line."""
    view = status.view
    if view is not None and view.headline:
        print_line(view.headline, style="bold red" if view.flags else "bold")
    print_facts(status_facts(status))
    if status.job.configuration is not None:
        print_configuration(status.job.configuration)


def status_facts(status: JobStatus) -> list[tuple[str, str]]:
    """Names and values of all that is known of a job but its configuration."""
    job = status.job
    facts = [
        ("job", job.job_id),
        ("name", job.name or NOTHING),
        ("tenant", job.tenant),
        *paper_facts(status.mode),
        *view_facts(status),
        ("done", f"{status.progress_ppm / 10_000:.1f} % of {job.work.amount:g} {job.work.unit}"),
        ("deadline", f"{moment(job.deadline.at_ns)} ({job.deadline.kind.value})"),
        ("value", _value_text(job)),
        ("submitted", moment(status.submitted_ns)),
        ("policy", status.policy_id or NOTHING),
        ("offering", status.offering_id or NOTHING),
    ]
    if job.run is not None:
        facts += run_rows(job.run)
    for throughput in job.throughputs:
        rate = _rate(throughput, job.max_instances, job.work.unit)
        facts.append(("rate", f"{rate}, as believed now"))
    return facts


def _value_text(job: Job) -> str:
    value = f"{usd(job.value_micro_usd)} USD"
    quote = job.on_demand_quote_micro_usd
    return f"{value}, from the on-demand quote of {usd(quote)} USD" if quote else value


def quote_line(quote_micro_usd: int, most_micro_usd: int, *, by_quote: bool) -> str:
    """What on-demand alone would cost, and what the job costs at most where that follows from it."""
    said = f"on demand it would cost {usd(quote_micro_usd)} USD"
    return f"{said}; it will cost at most {usd(most_micro_usd)} USD" if by_quote else said


def run_rows(run: Run) -> list[tuple[str, str]]:
    """How a program is run, as rows of a table; of secrets and variables the names only."""
    from spotline.domain.jobs.run import Launcher

    shell = run.command[:2] == ("sh", "-c") and len(run.command) == 3
    line = run.command[2] if shell else " ".join(run.command)
    if run.launcher is Launcher.TORCHRUN:
        line = f"torchrun {line}"
    rows = [("runs", line), ("processes", f"{run.ranks} per instance")]
    if run.image:
        rows.append(("image", run.image))
    if run.package is not None:
        size = f"{run.package.size_bytes / 1e6:,.1f} MB"
        rows.append(("package", f"{run.package.sha256[:12]} ({size}) at {run.package.uri}"))
    if run.setup:
        rows.append(("setup", run.setup))
    if run.environment:
        rows.append(("variables", ", ".join(variable.name for variable in run.environment)))
    if run.secrets:
        rows.append(("secrets", ", ".join(run.secrets)))
    rows.append(("progress", _progress_text(run.progress)))
    for data in run.data:
        size = f"{data.size_gb:g} GB" if data.size_gb else "size unknown"
        rows.append(("reads", f"{data.uri} ({size}, {data.reads.value.replace('_', ' ')})"))
    return [(name, shortened(value, _LONGEST_SHOWN)) for name, value in rows]


def _progress_text(progress: ProgressReading | None) -> str:
    from spotline.domain.jobs.run import ProgressSource

    if progress is None or progress.source is ProgressSource.SDK:
        return "by spotline.trainer"
    if progress.source is ProgressSource.OUTPUT:
        return f"by {progress.pattern} in its output"
    return f"by {progress.pattern} in {progress.path}"


def print_run(run: Run) -> None:
    """How a program is run."""
    print_facts(run_rows(run))


# --- configurations ---------------------------------------------------------------------------


def print_completion(completion: Completion) -> None:
    """The configurations that were considered, the chosen one marked, and who says what."""
    options = completion.options
    typer.echo(
        f"{len(options)} of {completion.considered} configurations, "
        "by expected cost to meet the deadline:"
    )
    _print_with_notes(
        (
            Column(""),
            Column("instance type", Kind.ID),
            Column("count", Kind.NUMBER),
            Column("GPUs", Kind.NUMBER, 2),
            Column("batch", Kind.NUMBER, 3),
            Column("tokens/s", Kind.NUMBER, 1),
            Column("90 %", Kind.NUMBER, 5),
            Column("runs", Kind.NUMBER, 4),
            Column("USD", Kind.NUMBER),
            Column("on time", Kind.NUMBER),
        ),
        [_option_row(option) for option in options],
        [(_option_name(option), option.why) for option in options],
        marked=[option.chosen for option in options],
    )
    if completion.job.configuration is not None:
        print_configuration(completion.job.configuration)


def _option_row(option: ConfigurationOption) -> tuple[str, ...]:
    configuration = option.configuration
    methods = "".join(f" {item.name}={item.value}" for item in configuration.options)
    return (
        ">" if option.chosen else "",
        option.instance_type + methods,
        counts_text(option.allowed_counts),
        f"{configuration.gpus} {configuration.gpu_model}",
        str(configuration.batch_size),
        f"{option.tokens_per_s:,.0f}",
        f"{option.low_tokens_per_s:,.0f} - {option.high_tokens_per_s:,.0f}",
        f"{option.success_ppm / 10_000:.0f} %",
        usd(option.expected_cost_micro_usd),
        f"{option.on_time_probability_ppm / 10_000:.0f} %",
    )


def _option_name(option: ConfigurationOption) -> str:
    counts = counts_text(option.allowed_counts)
    mark = "> " if option.chosen else ""
    return f"{mark}{counts} x {option.instance_type}, batch {option.configuration.batch_size}"


def print_configuration(configuration: JobConfiguration) -> None:
    """Every value that was needed: its interval, and who says so."""
    origins = configuration.origins
    _print_with_notes(
        (
            Column("parameter", Kind.ID),
            Column("value", Kind.ID),
            Column("90 %", Kind.NUMBER, 2),
            Column("said by", rank=1),
        ),
        [(row.parameter, row.value or NOTHING, interval_text(row), row.said_by) for row in origins],
        [(row.parameter, row.detail) for row in origins],
    )
    batch = "the same batch per GPU" if configuration.weak_scaling else "the same global batch"
    stack = f", on the software stack {configuration.stack}" if configuration.stack else ""
    print_line(
        f"runs with a probability of {configuration.success_ppm / 10_000:.0f} %, "
        f"with {batch} at every count{stack}"
    )


def _print_with_notes(
    columns: tuple[Column, ...],
    rows: list[tuple[str, ...]],
    notes: list[tuple[str, str]],
    *,
    marked: Sequence[bool] = (),
) -> None:
    """A table with a note on every row: beside it where there is room, else below the table."""
    width = terminal_width()
    beside = width is None or width >= _WIDE
    if beside:
        columns = (*columns, Column("why", Kind.SENTENCE))
        rows = [(*row, note) for row, (_, note) in zip(rows, notes, strict=True)]
    print_table(columns, rows, styles=["bold green" if mark else "" for mark in marked])
    if not beside:
        for name, note in notes:
            if note:
                print_line(f"{name}: {note}")


def interval_text(origin: ParameterOrigin) -> str:
    """The interval of an origin, empty where it has none."""
    if not (origin.low or origin.high):
        return ""
    return f"{origin.low:.4g} - {origin.high:.4g}"


def counts_text(counts: tuple[int, ...]) -> str:
    """Instance counts: `1..8` where none between is missing, else all of them."""
    if len(counts) > 2 and counts == tuple(range(counts[0], counts[-1] + 1)):
        return f"{counts[0]}..{counts[-1]}"
    return ", ".join(map(str, counts))
