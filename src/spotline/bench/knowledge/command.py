"""`spotline bench knowledge`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    RECORDED_DATA,
    DataOption,
    JsonOption,
    ReportOption,
    command_line,
    open_console,
    teller,
    write_figures,
)


def knowledge(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    report: ReportOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few jobs and runs: does it work at all?")
    ] = False,
) -> None:
    """Measure predictions, and what they are worth to the schedulers of a cluster."""
    from spotline.bench.knowledge.cluster_report import write_report
    from spotline.bench.knowledge.run import FULL, QUICK, run_knowledge

    console = open_console()
    figures = run_knowledge(
        data,
        extent=QUICK if quick else FULL,
        command=command_line(),
        tell=teller(console),
    )
    write_figures(figures, out)
    if report is not None:
        console.print(f"report: {write_report(figures, report)}", markup=False)
    _print(console, figures)


def _print(console: Any, figures: dict[str, Any]) -> None:
    from spotline.replay.tables import plain_table

    table = plain_table("Mean job completion time, s", "workload")
    table.add_column("scheduler")
    for level in ("none", "predicted", "true", "lower by, %"):
        table.add_column(level, justify="right")
    for name, schedulers in figures["cluster"].items():
        for scheduler, levels in schedulers.items():
            times = [levels[level]["mean_jct_s"] for level in ("none", "predicted", "true")]
            table.add_row(
                name,
                scheduler,
                *(f"{one:,.0f}" for one in times),
                f"{100 * (1 - times[1] / times[0]):.0f}",
            )
    console.print(table)
    if figures["meta"]["quick"]:
        console.print("a quick run on few jobs: its figures mean nothing")
        return
    rows = figures["targets"]
    console.print(f"{sum(one['met'] for one in rows)} of {len(rows)} targets met")
    for one in rows:
        verdict = "met" if one["met"] else "MISSED"
        console.print(
            f"  {verdict}: {one['what']}: {one['measured']:.2f} ({one['target']})", markup=False
        )
