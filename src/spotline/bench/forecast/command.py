"""`spotline bench forecast`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def forecast(
    data: Annotated[
        Path, typer.Option(envvar="SPOTLINE_DATA", help="Directory of the recorded data.")
    ] = Path("../shared/data"),
    out: Annotated[Path | None, typer.Option("--json", help="Write the results as JSON.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a Markdown report with a plot here.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--family", help="ForecastFamily to run; all by default.")
    ] = None,
) -> None:
    """Compare the forecasters on recorded markets: learnt online, scored on second halves."""
    from rich.console import Console

    from spotline.bench.forecast.families import load_families
    from spotline.bench.forecast.measure import measure
    from spotline.bench.forecast.report import write_report

    console = Console(highlight=False, soft_wrap=True)
    bench = measure(
        load_families(data, only=tuple(only or ())),
        tell=lambda line: console.print(line, markup=False),
    )
    if out is not None:
        out.write_text(json.dumps(bench.as_json(), indent=2) + "\n", encoding="utf-8")
    if report is not None:
        console.print(f"report: {write_report(bench, report)}", markup=False)
