"""`spotline bench fleet`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    RECORDED_DATA,
    DataOption,
    JsonOption,
    ReportOption,
    command_line,
    keep_figures,
    open_console,
    teller,
    write_figures,
)

_COLUMNS = ("%", "points against best rule", "gap %", "misses", "cost $", "late $")


def fleet(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    report: ReportOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run every cell, not only the twelve that tell most.")
    ] = False,
    only: Annotated[
        list[str] | None, typer.Option("--cell", help="Cell to run: MARKET/N/LOAD/START.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Crowds per cell, of seeds one after the other.")
    ] = 1,
    first_seed: Annotated[int, typer.Option(min=1, help="The first of these seeds.")] = 1,
    processes: Annotated[int, typer.Option(min=1, help="Crowds that run at a time.")] = 2,
    clearing: Annotated[
        bool, typer.Option(help="Clear the bids of all jobs together, as `up` does.")
    ] = True,
    fairness: Annotated[
        float, typer.Option(min=1, help="The most that a tenant's bids count; 1: all the same.")
    ] = 1.0,
    shadow_prices: Annotated[
        bool, typer.Option(help="Let value tables count on shadow prices, as `up` does.")
    ] = True,
    most_bidders: Annotated[
        int | None,
        typer.Option(
            min=0, help="Jobs that bid together at most; more take turns. 0: all bid. As `up` does."
        ),
    ] = None,
    censored: Annotated[
        bool, typer.Option(help="Hide counts: what spot there is shows only by asking for it.")
    ] = False,
    probes: Annotated[
        int,
        typer.Option(
            min=0, help="With --censored: offerings to ask in a slot at most, where knowing pays."
        ),
    ] = 0,
    resume: Annotated[
        list[Path] | None,
        typer.Option(
            help="Figures of earlier runs, also of ones that were ended (--json): their cells are not "
            "run again."
        ),
    ] = None,
    slot_only: Annotated[
        tuple[int, int] | None,
        typer.Option(
            "--slot-only",
            help="Only time whole slots of N running jobs on OFFERINGS.",
            metavar="N OFFERINGS",
        ),
    ] = None,
) -> None:
    """Run crowds of jobs under every policy, held against a bound that no joint schedule exceeds."""
    from spotline.application.selector.options import where_uncounted
    from spotline.bench.fleet.cells import all_cells, cell_named, default_cells
    from spotline.bench.fleet.policies import SHIPPED
    from spotline.bench.fleet.resuming import cells_left, earlier_figures, joined_figures
    from spotline.bench.fleet.run import FleetOptions, run_fleet
    from spotline.bench.fleet.slot_times import SLOT_SIZES, time_slots
    from spotline.replay.clouds import Information

    selector = replace(
        SHIPPED,
        clearing=clearing,
        shadow_prices=clearing and shadow_prices,
        fairness=fairness,
        most_bidders=SHIPPED.most_bidders if most_bidders is None else most_bidders,
        probes=probes if censored else 0,
    )
    console = open_console()
    tell = teller(console)
    figures: dict[str, Any] = {"command": command_line(), "slot_s": {}, "memory_mb": {}}
    sizes = [slot_only] if slot_only is not None else [] if only else list(SLOT_SIZES)
    if slot_only is None:
        cells = tuple(cell_named(name) for name in only or ())
        cells = cells or (all_cells() if everything else default_cells())
        information = Information.CENSORED if censored else Information.FULL
        options = FleetOptions(
            data=data,
            seeds=tuple(range(first_seed, first_seed + seeds)),
            processes=processes,
            selector=where_uncounted(selector) if censored else selector,
            information=information,
        )
        earlier = earlier_figures(resume or ())

        def keep(found: dict[str, Any]) -> None:
            keep_figures(figures | joined_figures(cells, earlier, found), out, tell)

        found = run_fleet(cells_left(cells, earlier), options, tell, keep)
        figures |= joined_figures(cells, earlier, found)
    for jobs, offerings in sizes:
        timed = time_slots(jobs, offerings, selector)
        figures["slot_s"][str(jobs)] = timed["slot_p99_s"]
        figures["memory_mb"][str(jobs)] = timed["memory_mb"]
        figures.setdefault("slots", {})[f"{jobs} jobs, {offerings} offerings"] = timed
        tell(
            f"slot of {jobs} jobs on {offerings} offerings: p99 {timed['slot_p99_s']:.2f} s, "
            f"{timed['memory_mb']:.0f} MB"
        )
    write_figures(figures, out)
    if report is not None and "cells" in figures:
        from spotline.bench.fleet.report import write_report

        console.print(f"report: {write_report(figures, report)}", markup=False)
    _print(console, figures)


def _print(console: Any, figures: dict[str, Any]) -> None:
    from spotline.replay.summary import SPOTLINE
    from spotline.replay.tables import plain_table

    for name, rows in figures.get("cells", {}).items():
        table = plain_table(f"{name}, % of the joint bound", "policy")
        for column in _COLUMNS:
            table.add_column(column, justify="right", no_wrap=True)
        for policy, row in rows.items():
            low, mean, high = row["vs_best_rule_points"] or (float("nan"),) * 3
            table.add_row(
                policy,
                _number(row["percent_of_bound"]),
                f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]",
                _number(row["gap_closed_percent"]),
                str(row["misses"]),
                f"{row['cost_usd']:,.0f}",
                f"{row['late_usd']:,.0f}",
            )
        console.print(table)
        if SPOTLINE in rows:
            console.print(f"  {SPOTLINE}: {_beside(rows[SPOTLINE])}", markup=False)
    for note in figures.get("notes", ()):
        console.print(f"note: {note}", markup=False)


def _beside(row: Mapping[str, Any]) -> str:
    """What the table has no room for."""
    said = "-"
    if row["first_48_points"] is not None:
        low, mean, high = row["first_48_points"]
        said = f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"
    return f"first 48 slots {said} points, Jain {_number(row['jain_saving'])}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
