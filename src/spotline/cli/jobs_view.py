"""Jobs, plans and configurations as the commands print them."""

# Imports of what is printed with are inside: tables cost more than `--help` should.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from spotline.application.allocator.messages import (
        JobStatus,
        JobUpdate,
    )
    from spotline.application.configurator.messages import Completion, ConfigurationOption
    from spotline.domain.configuration.provenance import JobConfiguration, ParameterOrigin
    from spotline.domain.jobs.job import Job, Throughput
    from spotline.domain.jobs.run import ProgressReading, Run

# Columns from which on a table has room for a sentence in every row.
_WIDE = 130
_LONGEST_SHOWN = 300


def plain(value: Any) -> Any:
    """A domain value as JSON has it: dataclasses as objects, enums as their values."""
    from dataclasses import fields, is_dataclass
    from enum import Enum

    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {part.name: plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    return value


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Write a value as JSON."""
    import json

    typer.echo(json.dumps(value, indent=indent))


def console() -> Console:
    """Where tables go."""
    from rich.console import Console

    return Console()


def _rate(throughput: Throughput, instances: int, unit: str) -> str:
    rate = throughput.rate_per_hour(instances)
    return f"{rate:.4g} {unit} per hour on {instances} x {throughput.offering}"


def usd(micro_usd: int) -> str:
    """An amount of USD, to the cent."""
    return f"{micro_usd / 1e6:,.2f}"


def _lots(status: JobStatus) -> str:
    parts = []
    for lot in status.lots:
        if lot.spot:
            parts.append(f"{lot.spot} spot")
        if lot.on_demand:
            parts.append(f"{lot.on_demand} on-demand")
    return " + ".join(parts) or "-"


def status_table(found: tuple[JobStatus, ...]) -> Table:
    """One row per job."""
    from rich.table import Table

    from spotline.domain.units import utc_iso

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("job", "tenant", "name", "state", "policy"):
        table.add_column(name, overflow="fold")
    for name in ("done", "cost USD"):
        table.add_column(name, justify="right")
    table.add_column("holds")
    table.add_column("deadline")
    for status in found:
        table.add_row(
            status.job.job_id[:12],
            status.job.tenant,
            status.job.name,
            status.state.value,
            status.policy_id or "-",
            f"{status.progress_ppm / 10_000:.0f} %",
            usd(status.cost_micro_usd),
            _lots(status),
            f"{utc_iso(status.job.deadline.at_ns)} {status.job.deadline.kind.value}",
        )
    return table


def print_status(status: JobStatus) -> None:
    """Everything of one job."""
    from rich.table import Table

    from spotline.domain.units import utc_iso

    table = Table(box=None, show_header=False, pad_edge=False)
    rows = (
        ("job", status.job.job_id),
        ("name", status.job.name or "-"),
        ("tenant", status.job.tenant),
        ("state", status.state.value),
        ("work", f"{status.job.work.amount:g} {status.job.work.unit}"),
        ("done", f"{status.progress_ppm / 10_000:.1f} %"),
        ("deadline", f"{utc_iso(status.job.deadline.at_ns)} ({status.job.deadline.kind.value})"),
        ("value", _value_text(status.job)),
        ("cost so far", f"{usd(status.cost_micro_usd)} USD"),
        ("policy", status.policy_id or "-"),
        ("offering", status.offering_id or "-"),
        ("holds", _lots(status)),
        ("why", status.last_explanation or "-"),
    )
    for name, value in rows:
        table.add_row(name, value)
    if status.job.run is not None:
        for name, value in run_rows(status.job.run):
            table.add_row(name, value)
    for throughput in status.job.throughputs:
        rate = _rate(throughput, status.job.max_instances, status.job.work.unit)
        table.add_row("rate", f"{rate}, as believed now")
    console().print(table)
    if status.job.configuration is not None:
        print_configuration(status.job.configuration)


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
    return [(name, _harmless(value)) for name, value in rows]


def _progress_text(progress: ProgressReading | None) -> str:
    from spotline.domain.jobs.run import ProgressSource

    if progress is None or progress.source is ProgressSource.SDK:
        return "by spotline.trainer"
    if progress.source is ProgressSource.OUTPUT:
        return f"by {progress.pattern} in its output"
    return f"by {progress.pattern} in {progress.path}"


def _harmless(text: str) -> str:
    """Text that anybody may have written, in a line of a table: no markup, no control characters."""
    from rich.markup import escape

    shown = "".join(character if character.isprintable() else " " for character in text)
    return escape(shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}...")


def print_run(run: Run) -> None:
    """How a program is run."""
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in run_rows(run):
        table.add_row(name, value)
    console().print(table)


def update_line(update: JobUpdate) -> str:
    """One change of a watched job."""
    status = update.status
    what = update.change or "now"
    why = f"  {status.last_explanation}" if update.change == "decision" else ""
    return (
        f"slot {status.last_slot:>4}  {what:<13} {status.state.value:<16} "
        f"{status.progress_ppm / 10_000:5.1f} %  {usd(status.cost_micro_usd):>10} USD  {_lots(status)}{why}"
    )


# --- configurations ---------------------------------------------------------------------------


def print_completion(completion: Completion) -> None:
    """The configurations that were considered, the chosen one marked, and who says what."""
    options = completion.options
    typer.echo(
        f"{len(options)} of {completion.considered} configurations, "
        "by expected cost to meet the deadline:"
    )
    headings = ("", "instance type", "count", "GPUs", "batch", "tokens/s", "90 %", "runs", "USD")
    _print_with_notes(
        console(),
        (*headings, "on time"),
        [_option_row(option) for option in options],
        [(_option_name(option), option.why) for option in options],
        marked=[option.chosen for option in options],
        right_from=2,
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


def print_configuration(configuration: JobConfiguration, shown: Console | None = None) -> None:
    """Every value that was needed: its interval, and who says so."""
    shown = shown or console()
    origins = configuration.origins
    _print_with_notes(
        shown,
        ("parameter", "value", "90 %", "said by"),
        [(row.parameter, row.value or "-", interval_text(row), row.said_by) for row in origins],
        [(row.parameter, row.detail) for row in origins],
    )
    batch = "the same batch per GPU" if configuration.weak_scaling else "the same global batch"
    stack = f", on the software stack {configuration.stack}" if configuration.stack else ""
    shown.print(
        f"runs with a probability of {configuration.success_ppm / 10_000:.0f} %, "
        f"with {batch} at every count{stack}",
        highlight=False,
    )


def _print_with_notes(
    shown: Console,
    headings: tuple[str, ...],
    rows: list[tuple[str, ...]],
    notes: list[tuple[str, str]],
    *,
    marked: list[bool] | None = None,
    right_from: int | None = None,
) -> None:
    """A table with a note on every row: beside it where there is room, else below the table."""
    from rich.table import Table

    beside = shown.width >= _WIDE
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1))
    for index, name in enumerate(headings):
        to_the_right = right_from is not None and index >= right_from
        table.add_column(name, justify="right" if to_the_right else "left", overflow="fold")
    if beside:
        table.add_column("why", ratio=1)
    for index, (row, (_, note)) in enumerate(zip(rows, notes, strict=True)):
        style = "bold green" if marked is not None and marked[index] else None
        table.add_row(*row, *([note] if beside else []), style=style)
    shown.print(table)
    if not beside:
        for name, note in notes:
            if note:
                shown.print(f"{name}: {note}", markup=False, highlight=False)


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
