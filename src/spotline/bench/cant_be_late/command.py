"""`spotline bench cant-be-late`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotline.bench.command_options import open_console

if TYPE_CHECKING:
    from collections.abc import Mapping

_STDOUT = "-"


def cant_be_late(
    traces: Annotated[
        Path, typer.Option(metavar="DIR", help="Traces to test on, skypilot JSON (1 = up).")
    ],
    json_out: Annotated[
        str, typer.Option("--json", metavar="OUT", help="Write the result here (- : stdout).")
    ],
    grid: Annotated[str, typer.Option(help="frontier or adrs: overheads x deadlines.")] = (
        "frontier"
    ),
    policy: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="greedy, uniform_progress, uniform_progress_eager, ross, spotline, clairvoyant; "
            "with --zones also single_zone.",
        ),
    ] = "spotline",
    train: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Traces that may be learned from.")
    ] = None,
    leave_out: Annotated[
        str,
        typer.Option(
            metavar="region|zone|none",
            help="Of those, what a tested zone is not learned from (itself never).",
        ),
    ] = "none",
    zones: Annotated[
        bool,
        typer.Option(
            "--zones",
            help="Let a job move between the zones, which are aligned: learned and chosen on the "
            "first half of the time, tested on the second.",
        ),
    ] = False,
) -> None:
    """Finish 48 h of work before a hard deadline on one instance that spot may interrupt.

    Score 0 is on-demand throughout, 100 is spot throughout; a miss disqualifies a policy.
    """
    from spotline.bench.cant_be_late.single import CantBeLateOptions, bench_single
    from spotline.bench.cant_be_late.zones import bench_zones

    options = CantBeLateOptions(
        traces=traces, grid=grid, policy=policy, train=train, leave_out=leave_out
    )
    run = bench_zones if zones else bench_single
    result = run(options, lambda text: print(text, file=sys.stderr, flush=True))
    text = json.dumps(result, indent=2)
    if json_out != _STDOUT:
        Path(json_out).parent.mkdir(parents=True, exist_ok=True)
        Path(json_out).write_text(text + "\n", encoding="utf-8")
    if json_out == _STDOUT:
        print(text)
    else:
        _print(result)


def _print(result: Mapping[str, Any]) -> None:
    from rich.table import Table

    console = open_console()
    # One pool says nothing about how far pools differ.
    several = len(result["pools"]) > 1
    low, _, high = result["score_interval"]
    spread = f" ({low:.1f} to {high:.1f} by pool)" if several else ""
    console.print(
        f"{result['policy']} on {result['grid']}: score {result['score']:.2f}{spread}, "
        f"{result['misses']} misses in {result['runs']:,} runs, "
        f"mean cost {result['mean_cost_usd']:.2f} USD",
    )
    table = Table("overhead, h", "deadline, h", "score", "misses")
    for variant in result["variants"]:
        table.add_row(
            f"{variant['overhead_h']:g}",
            f"{variant['deadline_h']}",
            f"{variant['score']:.2f}",
            f"{variant['misses']}",
        )
    console.print(table)
    table = Table("pool", "score", "misses")
    for name, pool in result["pools"].items():
        table.add_row(name, f"{pool['score']:.2f}", f"{pool['misses']}")
    console.print(table)
    table = Table("against", "score", "misses", "gain, points (95 % by pool)")
    for name, other in result["comparison"].items():
        low, mean, high = other["gain_points"]
        table.add_row(
            name,
            f"{other['score']:.2f}",
            f"{other['misses']}",
            f"{mean:+.2f} ({low:+.2f} to {high:+.2f})" if several else f"{mean:+.2f}",
        )
    console.print(table)
    for name, share in result["gap_share_percent"].items():
        if share is not None:
            console.print(f"share of the gap from {name} to clairvoyant: {share:.1f} %")
