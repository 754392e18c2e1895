"""`spotline bench quality`."""

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


def quality(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    report: ReportOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few jobs on short series: does it run at all?")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--family", help="Family to run; all by default.")
    ] = None,
    censored: Annotated[
        bool, typer.Option("--censored", help="Hide counts in a run of every family.")
    ] = False,
    forecaster: Annotated[
        str | None, typer.Option(help="Another forecaster than the default.")
    ] = None,
) -> None:
    """Compare the quality of decisions with the clairvoyant optimum on recorded markets."""
    from spotline.bench.quality.report import write_report
    from spotline.bench.quality.run import FULL, QUICK, run_quality
    from spotline.domain.forecasting.registry import DEFAULT_FORECASTER

    console = open_console()
    figures = run_quality(
        data,
        extent=QUICK if quick else FULL,
        names=tuple(only or ()),
        forecaster=forecaster or DEFAULT_FORECASTER,
        command=command_line(),
        censored=censored,
        tell=teller(console),
    )
    write_figures(figures, out)
    if report is not None:
        console.print(f"report: {write_report(figures, report)}", markup=False)
    _print(console, figures)


def _print(console: Any, figures: dict[str, Any]) -> None:
    from spotline.replay.tables import plain_table

    table = plain_table("The default, spotline, in % of the clairvoyant", "family")
    deadlines = sorted({d for rows in figures["families"].values() for d in rows}, key=int)
    for deadline in deadlines:
        table.add_column(f"d = {deadline}", justify="right")
    for family, rows in figures["families"].items():
        shown = [rows[d]["spotline"]["percent_of_clairvoyant"] for d in deadlines]
        table.add_row(family, *("-" if one is None else f"{one:.2f}" for one in shown))
    console.print(table)
    if figures["meta"]["quick"]:
        console.print("a quick run on short series: its figures mean nothing")
        return
    targets = figures["targets"]
    met = sum(one["met"] is True for one in targets)
    console.print(f"{met} of {len(targets)} targets met")
    for one in targets:
        if one["met"] is False:
            console.print(
                f"  missed: {one['what']}, {one['where']}: {one['measured']:.2f}, "
                f"target {one['target']}",
                markup=False,
            )
