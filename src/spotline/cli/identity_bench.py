"""`spotline bench identity`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)

# What is held against the aim.
_AIMED = ("demo_wall_s", "first_command_p99_ms")


def identity(
    out: JsonOption = None,
    pairs: Annotated[int, typer.Option(min=1, help="Runs with identity and without, each.")] = 3,
    jobs: Annotated[int, typer.Option(min=0, help="Jobs of a demo; 0: no demos.")] = 60,
    most_slots: Annotated[int, typer.Option(min=16, help="Slots of a demo at most.")] = 600,
    slots: Annotated[int, typer.Option(min=0, help="Slots to time; 0: none.")] = 100,
    slot_jobs: Annotated[int, typer.Option(min=1, help="Jobs that run in these.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of market and jobs.")] = 7,
) -> None:
    """Run demos and timed slots with identity and without, in turns, and say what it costs."""
    from spotline.bootstrap.planners import compile_planners
    from spotline.demo.identity_cost import MOST_PERCENT_MORE, CostExtent, measure_cost
    from spotline.runtime.log import configure_logging

    if not jobs and not slots:
        raise typer.BadParameter("expected demos (--jobs), slots to time (--slots), or both")
    configure_logging("warning")
    compile_planners()
    console = open_console()
    load_before = os.getloadavg()[0]
    extent = CostExtent(
        pairs=pairs, jobs=jobs, most_slots=most_slots, slots=slots, slot_jobs=slot_jobs, seed=seed
    )
    measured = measure_cost(extent, teller(console))
    report = {
        "meta": {
            "command": command_line(),
            "platform": platform.platform(),
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load_before": round(load_before, 2),
            "load_after": round(os.getloadavg()[0], 2),
        },
        "aims": {"percent_more": MOST_PERCENT_MORE, "of": list(_AIMED)},
        **measured,
    }
    write_figures(report, out)
    for line in summary(report):
        console.print(line, markup=False)


def summary(report: Mapping[str, Any]) -> list[str]:
    """What a report says, a line for each figure."""
    lines = []
    for name, figure in report["cost"].items():
        pairs = figure.get("pairs_percent_more")
        beside = "" if pairs is None else f", {pairs:+.1f} % pair by pair"
        aimed = ""
        if name in report["aims"]["of"]:
            aimed = f" (aim: +{report['aims']['percent_more']:.0f} % at most)"
        lines.append(
            f"{name}: {figure['off']:g} without, {figure['on']:g} with identity, "
            f"{figure['percent_more']:+.1f} %{beside}{aimed}"
        )
    return lines
