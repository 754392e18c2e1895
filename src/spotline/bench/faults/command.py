"""`spotline bench faults`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.bench.command_options import (
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)

if TYPE_CHECKING:
    from spotline.bench.faults.report import FaultRun, FaultsReport


def faults(
    seeds: Annotated[int, typer.Option(min=1, help="Runs, spread over the families.")] = 140,
    family: Annotated[
        list[str] | None,
        typer.Option(help="Family of faults; repeat it for several. Default: all."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Repeat this one run of a family.")
    ] = None,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first scenario; the others follow it.")
    ] = 0,
    plants: Annotated[
        bool,
        typer.Option("--plants/--no-plants", help="Plant bugs as well, which must be caught."),
    ] = True,
    workers: Annotated[
        int, typer.Option(min=0, help="Processes; 0: as many as there are processors.")
    ] = 0,
    kept: Annotated[
        Path | None,
        typer.Option(help="Add every run to this file, and make none again that is in it."),
    ] = None,
    out: JsonOption = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="Put the table into this file, between its markers."),
    ] = None,
) -> None:
    """Run the system in virtual time under faults drawn from seeds, and judge what comes of it.

    Real handlers, ledger and simulated cloud in one process a run. Exit code 1: something did not
    hold, or a planted bug was not caught.
    """
    from spotline.bench.faults.families.registry import FAMILIES
    from spotline.bench.faults.kept import KeptRuns
    from spotline.bench.faults.report import put_table
    from spotline.bench.faults.run import plants_of, run_fault, run_faults, spread
    from spotline.runtime.log import configure_logging

    configure_logging("critical")
    console = open_console()
    unknown = sorted(set(family or ()) - set(FAMILIES))
    if unknown:
        raise typer.BadParameter(
            f"expected one of {', '.join(FAMILIES)}, found {unknown[0]}", param_hint="--family"
        )
    names = tuple(dict.fromkeys(family or FAMILIES))
    if seed is not None:
        if len(names) != 1:
            raise typer.BadParameter("expected one --family beside it", param_hint="--seed")
        run = run_fault(names[0], seed)
        _print_run(console, run)
        raise typer.Exit(1 if run.violations else 0)
    report = run_faults(
        spread(seeds, names, first_seed),
        plants_of(names) if plants else (),
        kept=None if kept is None else KeptRuns(kept),
        workers=workers or len(os.sched_getaffinity(0)),
        tell=teller(console),
        told=lambda run: _print_run(console, run),
    )
    write_figures(report.as_json(), out)
    if markdown is not None:
        put_table(markdown, report, command=command_line())
    _print(console, report)
    if report.violated or (plants and report.missed):
        raise typer.Exit(1)


def _print_run(console: Any, run: FaultRun) -> None:
    held = "held" if not run.violations else f"{len(run.violations)} violations"
    console.print(f"{run.family}, seed {run.seed}: {run.faults} faults, {held}", markup=False)
    for violation in run.violations:
        console.print(f"  {violation}", style="red", markup=False)
    for event in run.last_events:
        console.print(f"  {event}", style="dim", markup=False)
    if run.violations:
        console.print(f"  repeat it: {run.command}", markup=False)


def _print(console: Any, report: FaultsReport) -> None:
    from spotline.replay.tables import plain_table

    figures = report.as_json()
    table = plain_table("Faults", "family")
    for heading in ("runs", "faults", "violations", "planted bugs caught"):
        table.add_column(heading, justify="right")
    families: dict[str, dict[str, Any]] = figures["families"]  # type: ignore[assignment]
    for name, row in families.items():
        table.add_row(
            name,
            str(row["runs"]),
            f"{row['faults']:,}",
            str(row["violations"]),
            report.planted(name),
        )
    console.print(table)
    for plant in report.missed:
        console.print(f"not caught: {plant.family}.{plant.plant}", style="red", markup=False)
    console.print(
        f"seeds {report.seeds}, fail points covered "
        f"{figures['fail_points_covered_percent']} %, {report.cpu_s_per_run:.2f} s of a processor "
        f"a run, {report.runs_per_minute:.0f} runs per minute"
    )
