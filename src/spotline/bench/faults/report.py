"""What runs of the fault machine came to, and the table of it in `docs/reliability.md`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from spotline.bench.faults.families.registry import FAMILIES
from spotline.bench.faults.points import all_points
from spotline.contracts.errors import ConfigError

BEGIN, END = "<!-- faults: begin -->", "<!-- faults: end -->"
_BUGS = "## Bugs found"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRun:
    """A run of a family, judged; `last_events` are there where something was violated.

    `cpu_s` are seconds of a processor, with its share of the undisturbed run.
    """

    family: str
    seed: int
    faults: int
    violations: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    last_events: tuple[str, ...] = ()
    cpu_s: float = field(default=0.0, compare=False)

    @property
    def command(self) -> str:
        """What repeats it."""
        return f"spotline bench faults --family {self.family} --seed {self.seed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantRun:
    """A planted bug, and the first seed whose run caught it; -1 where none did."""

    family: str
    plant: str
    caught_at: int = -1
    oracle: str = ""


@dataclass(slots=True, kw_only=True)
class FaultsReport:
    """All that was run.

    `elapsed_s` is how long `fresh` of the runs took; the others were done before.
    """

    seeds: int
    elapsed_s: float = 0.0
    fresh: int = 0
    runs: list[FaultRun] = field(default_factory=list)
    plants: list[PlantRun] = field(default_factory=list)

    @property
    def violated(self) -> list[FaultRun]:
        """The runs in which something did not hold."""
        return [run for run in self.runs if run.violations]

    @property
    def missed(self) -> list[PlantRun]:
        """The planted bugs that no oracle caught."""
        return [plant for plant in self.plants if plant.caught_at < 0]

    @property
    def runs_per_minute(self) -> float:
        """How fast it went, planted bugs aside."""
        return 60 * self.fresh / self.elapsed_s if self.elapsed_s else 0.0

    @property
    def cpu_s_per_run(self) -> float:
        """Seconds of a processor that a run took: the median, for the first compiles the solvers."""
        return median(run.cpu_s for run in self.runs) if self.runs else 0.0

    def sort(self) -> None:
        """By family, as they are listed, and by seed."""
        order = {name: place for place, name in enumerate(FAMILIES)}
        self.runs.sort(key=lambda run: (order[run.family], run.seed))
        self.plants.sort(key=lambda plant: order[plant.family])

    def as_json(self) -> dict[str, object]:
        """The report as `spotline bench faults --json` writes it."""
        killed = {point for run in self.runs for point in run.killed}
        points = all_points()
        families: dict[str, object] = {}
        for name in dict.fromkeys(run.family for run in self.runs):
            runs = [run for run in self.runs if run.family == name]
            plants = [plant for plant in self.plants if plant.family == name]
            families[name] = {
                "runs": len(runs),
                "faults": sum(run.faults for run in runs),
                "violations": sum(len(run.violations) for run in runs),
                "planted_caught": bool(plants) and all(plant.caught_at >= 0 for plant in plants),
            }
        return {
            "families": families,
            "seeds": self.seeds,
            "fail_points_covered_percent": round(100 * len(killed & set(points)) / len(points), 1),
        }

    def planted(self, family: str) -> str:
        """How many of a family's planted bugs were caught, for a person."""
        planted = [plant for plant in self.plants if plant.family == family]
        if not planted:
            return "not planted"
        return f"{sum(plant.caught_at >= 0 for plant in planted)} of {len(planted)}"


# --- the table --------------------------------------------------------------------------------


def table(report: FaultsReport, bugs: Counter[str], *, command: str) -> str:
    """The figures as Markdown, with the command that made them.

    `bugs` are those that each family has found so far.
    """
    figures: Any = report.as_json()
    lines = [
        "| family | runs | faults that changed a state | violations | planted bugs caught "
        "| bugs found | repeated by |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| `{name}` | {row['runs']} | {row['faults']:,} | {row['violations']} "
            f"| {report.planted(name)} | {bugs[name]} | `{_command_of(report, name)}` |"
            for name, row in figures["families"].items()
        ),
    ]
    took = f"{report.cpu_s_per_run:.1f} s of a processor a run"
    if report.fresh == len(report.runs):
        took += f", {report.runs_per_minute:.0f} runs per minute"
    lines += [
        "",
        f"`{command}`: {len(report.runs):,} runs, fail points covered "
        f"{figures['fail_points_covered_percent']} %, {took}.",
    ]
    return "\n".join(lines)


def _command_of(report: FaultsReport, family: str) -> str:
    """What repeats a family's runs; its seeds follow each other."""
    seeds = [run.seed for run in report.runs if run.family == family]
    first = f" --first-seed {min(seeds)}" if min(seeds) else ""
    count = max(seeds) - min(seeds) + 1
    return f"spotline bench faults --family {family}{first} --seeds {count} --no-plants"


def bugs_found(text: str) -> Counter[str]:
    """How many rows of the section on bugs name each family first, in a text of Markdown."""
    rows = text.partition(_BUGS)[2].partition("\n## ")[0].splitlines()
    return Counter(found[1] for row in rows if (found := re.match(r"\| `(\w+)`", row)))


def put_table(path: Path, report: FaultsReport, *, command: str) -> None:
    """Put the table into a file, between its markers.

    Raises
    ------
    ConfigError
        The file has no such markers.
    """
    text = path.read_text(encoding="utf-8")
    path.write_text(with_table(text, report, command=command, where=str(path)), encoding="utf-8")


def with_table(text: str, report: FaultsReport, *, command: str, where: str) -> str:
    """A text with the table between its markers; raises as `put_table`, which names `where`."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"{where}: expected the lines {BEGIN} and {END}, found none")
    told = table(report, bugs_found(text), command=command)
    return f"{head}{BEGIN}\n{told}\n{END}{tail}"
