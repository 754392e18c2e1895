"""`spotline bench quote`."""

from __future__ import annotations

import zlib
from typing import Annotated, Any

import typer

from spotline.bench.command_options import (
    RECORDED_DATA,
    DataOption,
    JsonOption,
    command_line,
    open_console,
    teller,
    write_figures,
)

DEFAULT_SEED = 20_260
_HEADINGS = (
    *("jobs", "within", "below", "above", "width"),
    *("said", "was", "Brier", "of rate", "finish"),
)


def quote(
    data: DataOption = RECORDED_DATA,
    out: JsonOption = None,
    market: Annotated[
        list[str] | None,
        typer.Option(help="Market to quote on; repeat it for several. Default: all."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs, shared out among the markets.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Draws markets, jobs and policies.")] = (
        DEFAULT_SEED
    ),
    early: Annotated[
        bool,
        typer.Option("--early", help="Jobs of the first half, which the method was set on."),
    ] = False,
) -> None:
    """Hold what `plan` says of jobs against what then becomes of them.

    Jobs arrive at random times of the second half of each market, are quoted with what is known
    then, and run as `spotline simulate` runs them.
    """
    from spotline.bench.quote.report import figures_of
    from spotline.bench.quote.run import METHODS, Quoted, quote_world
    from spotline.bench.quote.worlds import WORLD_NAMES, load_world, worlds_of

    console = open_console()
    tell = teller(console)
    names = tuple(market or WORLD_NAMES)
    part = (0.0, 0.5) if early else (0.5, 1.0)
    quoted: dict[str, tuple[Quoted, ...]] = {}
    recorded: dict[str, str] = {}
    worlds = [(name, seed + k) for name in names for k in range(worlds_of(name))]
    for index, (name, world_seed) in enumerate(worlds):
        count = jobs // len(worlds) + (index < jobs % len(worlds))
        world = load_world(name, data, world_seed)
        if world is None or not count:
            tell(f"{name}: its data is not in {data}" if world is None else f"{name}: no jobs")
            continue
        before = recorded.get(name)
        recorded[name] = world.recorded if before is None else f"{before}; {world.recorded}"
        job_seed = world_seed + zlib.crc32(name.encode()) % 10_000
        found = quote_world(world, count, job_seed, part=part, tell=tell)
        quoted[name] = (*quoted.get(name, ()), *found)
    figures = figures_of(quoted, recorded, seed=seed, command=command_line())
    write_figures(figures, out)
    _print(console, figures, METHODS)


def _print(console: Any, figures: dict[str, Any], methods: tuple[str, ...]) -> None:
    for method in methods:
        console.print(f"\nQuotes by: {method}", style="bold")
        console.print(f"{'market':24}" + "".join(f"{name:>9}" for name in _HEADINGS))
        for market, by_method in figures["markets"].items():
            row = by_method[method]
            if row["jobs"]:
                cells = "".join(f"{cell:>9}" for cell in _cells(row))
                console.print(f"{market:24}{cells}", markup=False)
    console.print(
        "\nwithin, below, above: realised cost against p10..p90; width: mean p90 - p10 over mean p50; said, "
        "was: on time; of rate: the Brier score of always saying the rate; finish: within p10..p90"
    )
    console.print("On time, by decile of what was said (outlook, all markets):")
    for row in figures["reliability"]:
        console.print(
            f"  {row['decile'] * 10 - 10:3d}-{row['decile'] * 10:3d} %: {row['jobs']:4d} jobs, "
            f"said {row['said']:.0%}, came {row['came']:.0%}"
        )
    console.print(f"seed {figures['meta']['seed']}")


def _cells(row: dict[str, Any]) -> list[str]:
    finish = row["finish_within"]
    return [
        str(row["jobs"]),
        *(f"{row[name]:.0%}" for name in ("within", "below", "above")),
        f"{row['width']:.2f}",
        f"{row['said_on_time']:.0%}",
        f"{row['on_time']:.0%}",
        f"{row['brier']:.3f}",
        f"{row['brier_rate']:.3f}",
        "" if finish is None else f"{finish:.0%}",
    ]
