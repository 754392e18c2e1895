"""`spotline bench stream`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)


def stream(
    out: JsonOption = None,
    events: Annotated[int, typer.Option(min=100, help="Events of a repeat.")] = 50_000,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats of every variant.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="Few events, once: does it run at all?")
    ] = False,
) -> None:
    """Count events per second of Faust on JetStream, and of what it stands between."""
    from spotline.bench.stream.run import QUICK, StreamExtent, run_stream
    from spotline.runtime.log import configure_logging

    configure_logging("warning")
    console = open_console()
    figures = run_stream(
        QUICK if quick else StreamExtent(events=events, repeats=repeats),
        command=command_line(),
        tell=teller(console),
    )
    write_figures(figures, out)
    _print(console, figures)


def _print(console: Any, figures: dict[str, Any]) -> None:
    from spotline.replay.tables import plain_table

    table = plain_table("Events per second", "variant")
    for heading in ("min", "median", "max", "CPU us/event"):
        table.add_column(heading, justify="right")
    for name, one in figures["variants"].items():
        rates = one["events_per_s"]
        table.add_row(
            name.replace("_", " "),
            *(f"{rates[which]:,.0f}" for which in ("min", "median", "max")),
            f"{one['cpu_us_per_event']['median']:.1f}",
        )
    console.print(table)
    shares = plain_table(f"Where it goes ({figures['profile']['variant']})", "part")
    shares.add_column("share", justify="right")
    for name, share in figures["profile"]["share_of_time"].items():
        if share >= 0.005:
            shares.add_row(name, f"{100 * share:.1f} %")
    console.print(shares)
    target = figures["target"]
    console.print(
        f"{target['what']}: {target['measured']:,} of {target['target']:,}, "
        + ("met" if target["met"] else "missed")
    )
    meta = figures["meta"]
    console.print(
        f"load {meta['load_before']} before, {meta['load_after']} after, {meta['cpus']} CPUs"
    )
