"""`spotline bench skynomad`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spotline.bench.command_options import command_line, open_console, teller, write_figures


def skynomad(
    data: Annotated[
        Path, typer.Option(metavar="DIR", help="Counts, prices and egress (spot-skynomad).")
    ],
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Write the figures as JSON.")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="V100 traces, skypilot JSON; their prices are in --data."),
    ] = None,
    sweeps: Annotated[
        bool,
        typer.Option(help="Sweep deadline, zones and checkpoint as well; it takes some minutes."),
    ] = True,
    transfers: Annotated[
        bool,
        typer.Option(
            "--transfers",
            help="Count the time that a checkpoint takes between regions; published figures do not.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write a Markdown report here.")] = None,
) -> None:
    """Finish a job before a hard deadline on one instance in any of several zones.

    Rules and sets are those of SkyNomad (NSDI'27); availability elsewhere is only seen by
    launching or by paid probes. The optimum knows the future and is exact.
    """
    from spotline.bench.skynomad.bench import SkynomadOptions, bench_skynomad
    from spotline.bench.skynomad.report import print_figures, write_report

    console = open_console()
    options = SkynomadOptions(data=data, traces=traces, sweeps=sweeps, transfers=transfers)
    figures = bench_skynomad(options, teller(console))
    write_figures(figures, json_out)
    if out is not None:
        write_report(figures, out, command_line())
    print_figures(figures, console)
