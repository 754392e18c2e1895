"""The table of `docs/reliability.md`: fault, runs, violations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spotline.bench.faults.run import FaultsReport
from spotline.contracts.errors import ConfigError

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"


def table(report: FaultsReport, *, command: str) -> str:
    """The figures as Markdown, with the command that made them."""
    figures: Any = report.as_json()
    lines = [
        "| family | runs | faults that changed a state | violations | planted bugs caught |",
        "|---|---|---|---|---|",
    ]
    for name, row in figures["families"].items():
        planted = [plant for plant in report.plants if plant.family == name]
        caught = sum(plant.caught_at >= 0 for plant in planted)
        shown = f"{caught} of {len(planted)}" if planted else "not planted"
        lines.append(
            f"| `{name}` | {row['runs']} | {row['faults']:,} | {row['violations']} | {shown} |"
        )
    lines += [
        "",
        f"`{command}`: {figures['seeds']} runs, fail points covered "
        f"{figures['fail_points_covered_percent']} %, {report.runs_per_minute:.0f} runs per minute.",
    ]
    return "\n".join(lines)


def put_table(path: Path, report: FaultsReport, *, command: str) -> None:
    """Put the table into a file, between its markers.

    Raises
    ------
    ConfigError
        The file has no such markers.
    """
    text = path.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{path}: expected the lines {BEGIN} and {END}, found none")
    path.write_text(
        f"{head}{BEGIN}\n{table(report, command=command)}\n{END}{tail}", encoding="utf-8"
    )
