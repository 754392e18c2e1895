"""`spotline bench forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotline.bench.command_options import RECORDED_DATA, DataOption, open_console, write_figures


def forecast(
    data: DataOption = RECORDED_DATA,
    out: Annotated[Path | None, typer.Option("--json", help="Write the results as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a Markdown report with a plot here.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--family", help="Family to run; all by default.")
    ] = None,
) -> None:
    """Compare the forecasters on recorded markets: learnt online, scored on second halves."""
    from spotline.bench.forecast.families import load_families
    from spotline.bench.forecast.measure import measure
    from spotline.bench.forecast.report import write_report

    console = open_console()
    bench = measure(
        load_families(data, only=tuple(only or ())),
        tell=lambda line: console.print(line, markup=False),
    )
    write_figures(bench.as_json(), out)
    if report is not None:
        console.print(f"report: {write_report(bench, report)}", markup=False)
