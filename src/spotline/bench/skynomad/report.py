"""Tables of the figures, on a console and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from spotline.bench.skynomad.measure import POLICIES

# Mean cost of SkyNomad over the published optimum, percent (NSDI'27 artifact), with probes.
PUBLISHED: Final[Mapping[str, float]] = {"h100": 6.1, "v100": 28.0, "v100-published": 11.7}
PUBLISHED_SWEEPS: Final[Mapping[str, Mapping[str, float]]] = {
    "deadline": {
        "1.05": 4.9,
        "1.1": 5.6,
        "1.15": 6.0,
        "1.2": 6.3,
        "1.3": 6.8,
        "1.5": 6.1,
        "2": 4.1,
    },
    "zones": {"1": 6.5, "2": 4.9, "3": 4.2, "4": 1.9, "5": 13.8, "6": 6.2, "7": 6.0, "8": 6.2},
    "checkpoint_gb": {},
}
_SWEPT: Final[Mapping[str, str]] = {
    "deadline": "deadline over work",
    "zones": "zones",
    "checkpoint_gb": "checkpoint, GB",
}

Figures = Mapping[str, Any]


def print_figures(figures: Figures, console: Any) -> None:
    """Print a table of the sets and one of each sweep."""
    from rich.table import Table

    for title, rows in _tables(figures):
        heading, *body = rows
        table = Table(*heading, title=title, title_justify="left")
        for row in body:
            table.add_row(*row)
        console.print(table)
    for line in figures["left_out"]:
        console.print(f"left out: {line}", markup=False)


def write_report(figures: Figures, path: Path, command: str) -> None:
    """Write the tables as Markdown, with the command that made them."""
    lines = [
        "# One job among zones: SkyNomad's benchmark",
        "",
        f"`{command}`",
        "",
        "Percent over the exact optimum, which knows the future; the standard error over windows "
        "that do not overlap, the worst window, and misses if any. SkyNomad's own figures are "
        "published ones, on its own windows, and stand beside ours only for orientation where the "
        "windows differ.",
        "",
    ]
    for title, rows in _tables(figures):
        heading, *body = rows
        lines += [f"## {title}", "", _markdown(heading), _markdown(["---"] * len(heading))]
        lines += [*(_markdown(row) for row in body), ""]
    lines += ["## What was learned from what", ""]
    lines += [f"- {name}: {source}." for name, source in figures["learned_from"].items()]
    if figures["left_out"]:
        lines += ["", "## Left out", "", *(f"- {line}." for line in figures["left_out"])]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


def _tables(figures: Figures) -> Iterator[tuple[str, list[list[str]]]]:
    if figures["sets"]:
        yield "Sets", _table("set", figures["sets"], PUBLISHED)
    for name, points in figures["sweeps"].items():
        if points:
            yield f"Sweep: {_SWEPT[name]}", _table(_SWEPT[name], points, PUBLISHED_SWEEPS[name])


def _table(of: str, groups: Figures, published: Mapping[str, float]) -> list[list[str]]:
    online = [policy for policy in POLICIES if policy != "optimal"]
    heading = [of, "windows", "optimum, USD", *online, "SkyNomad, published"]
    rows = [heading]
    for name, group in groups.items():
        optimal = group["optimal"]
        count = f"{optimal['windows']}"
        if optimal["independent_windows"] != optimal["windows"]:
            count += f" ({optimal['independent_windows']} apart)"
        said = f"{published[name]:+.1f}" if name in published else ""
        cells = [_cell(group[policy]) for policy in online]
        rows.append([name, count, f"{optimal['mean_cost_usd']:.2f}", *cells, said])
    return rows


def _cell(figures: Figures) -> str:
    error = figures["standard_error_percent"]
    spread = f" ± {error:.1f}" if error is not None else ""
    misses = f", {figures['misses']} missed" if figures["misses"] else ""
    over, worst = figures["over_optimal_percent"], figures["worst_percent"]
    return f"{over:+.2f}{spread} (worst {worst:+.0f}){misses}"


def _markdown(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
