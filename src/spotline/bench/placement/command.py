"""`spotline bench placement`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


def placement(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    report: ReportOption = None,
    cost: Annotated[
        Literal["energy", "rent"],
        typer.Option(help="What a GPU-hour costs in the real setting: its power or its rent."),
    ] = "energy",
    quick: Annotated[
        bool, typer.Option("--quick", help="A few tables and starts: does it run at all?")
    ] = False,
) -> None:
    """Compare ways to place pipelines over regions, in the paper's setting and on real prices."""
    from spotline.bench.placement.report import write_report
    from spotline.bench.placement.run import FULL, QUICK, run_placement
    from spotline.domain.placement.interface import CostBasis

    console = open_console()
    figures = run_placement(
        data,
        basis=CostBasis(cost),
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

    for name, rows in figures["settings"].items():
        if not rows:
            console.print(f"{name}: no data")
            continue
        table = plain_table(f"Setting {name}", "method")
        for heading in ("mean JCT h", "p99 h", "cost USD", "of it egress", "across", "moves"):
            table.add_column(heading, justify="right")
        for method, row in rows.items():
            table.add_row(
                method,
                f"{row['mean_jct_s'] / 3600:.2f}",
                f"{row['p99_jct_s'] / 3600:.2f}",
                f"{row['total_cost_usd']:,.1f}",
                f"{row['egress_usd']:,.1f}",
                f"{row['spanning']:.1f}",
                f"{row['moves']:.1f}",
            )
        console.print(table)
    table = plain_table("Targets", "what")
    for heading in ("where", "target", "measured", ""):
        table.add_column(heading)
    targets = figures["targets"]
    for one in targets:
        table.add_row(
            one["what"],
            one["where"],
            one["target"],
            "-" if one["measured"] is None else f"{one['measured']:.2f}",
            {True: "met", False: "missed", None: "not known"}[one["met"]],
        )
    console.print(table)
    met = sum(one["met"] is True for one in targets)
    console.print(f"{met} of {len(targets)} targets met")
    if figures["meta"]["quick"]:
        console.print("a quick run on few tables: its figures mean little")
