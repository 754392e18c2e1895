"""The report of `spotline bench fleet`: what is counted, the tables, two pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotline.bench.drawing import figure_of, tidy
from spotline.bench.fleet.policies import POLICY_NAMES
from spotline.replay.summary import SPOTLINE

REPORT_NAME = "README.md"
BOUND_PLOT = "bound.png"
AHEAD_PLOT = "ahead.png"

Figures = Mapping[str, Any]

_AIM_POINTS = -0.2
_AIM_GAP = {0.3: 25.0, 0.8: 35.0, 1.5: 35.0}


def write_report(figures: Figures, directory: Path) -> Path:
    """Write report and plots into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    _plot_bound(figures, directory / BOUND_PLOT)
    _plot_ahead(figures, directory / AHEAD_PLOT)
    path = directory / REPORT_NAME
    path.write_text(report_text(figures), encoding="utf-8")
    return path


def report_text(figures: Figures) -> str:
    """The report: how it is counted, aims and what was reached, one table per cell."""
    meta = figures["meta"]
    lines = [
        "# Crowds of jobs against the joint clairvoyant bound",
        "",
        f"`{figures['command']}`, seeds {', '.join(str(seed) for seed in meta['seeds'])}, "
        f"{meta['wall_s'] / 60:.0f} minutes on {meta['platform']}, "
        f"{meta['processes']} processes.",
        "",
        *_READING,
        "",
        *[f"Note: {note}." for note in figures["notes"]],
        "",
        f"![share of the bound]({BOUND_PLOT})",
        "",
        f"![points against the best rule]({AHEAD_PLOT})",
        "",
        "## Aims",
        "",
        *_aims(figures),
        "",
        "## Crowds",
        "",
        *_crowds(figures),
        "",
        "## Cells",
        "",
    ]
    for name, rows in figures["cells"].items():
        lines += [f"### {name}", "", *_table(rows), ""]
    lines += _slots(figures)
    return "\n".join(lines).rstrip() + "\n"


_READING = (
    "Every policy runs the whole crowd in a closed loop of its own, so that its jobs take capacity "
    "from each other. All are held against one number: the joint clairvoyant bound, which no "
    "schedule of all jobs together exceeds, moves between offerings included "
    "(`domain/solvers/joint_bound.py`). A joint schedule that was found, knowing the future, says "
    "how loose it is at most. Points are hundredths of the bound; the interval is the central 95 % "
    "over moving blocks of start times, the same jobs on both sides. The best rule is that of "
    "`msu`, `uniform_progress`, `on_demand_only` and `edf` that earned most in the cell, "
    "known afterwards.",
)


def _aims(figures: Figures) -> list[str]:
    lines = [
        "| cell | best rule | spotline against it, points | of the gap closed | aim | against sdp, points "
        "| misses | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in figures["cells"].items():
        if SPOTLINE not in rows:
            continue
        row = rows[SPOTLINE]
        load, start = float(name.split("/")[2]), name.split("/")[3]
        aim = _AIM_GAP.get(load) if start != "cold" else None
        points = row["vs_best_rule_points"]
        gap = row["gap_closed_percent"]
        sdp = rows.get("sdp")
        over = None if sdp is None else row["percent_of_bound"] - sdp["percent_of_bound"]
        met = (
            points is not None
            and points[1] >= _AIM_POINTS
            and (aim is None or (gap is not None and gap >= aim))
            and (over is None or over >= 0)
            and row["misses"] == 0
        )
        lines.append(
            f"| {name} | {row['best_rule']} | {_interval(points)} | {_percent(gap)} | "
            f"{'-' if aim is None else f'{aim:.0f} %'} | {'-' if over is None else f'{over:+.2f}'} | "
            f"{row['misses']} | {'yes' if met else 'no'} |"
        )
    return lines


def _crowds(figures: Figures) -> list[str]:
    lines = [
        "| crowd | slots | offerings | counts times | mean count | load | bound | a schedule found | "
        "each alone | bound took |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, crowd in figures["crowds"].items():
        bound = crowd["bound_usd"]
        lines.append(
            f"| {name} | {crowd['slots']} | {crowd['offerings']} | {crowd['count_factor']:.2f} | "
            f"{crowd['mean_spot_count']:.1f} | {crowd['load']:.2f} | ${bound:,.0f} | "
            f"{100 * crowd['attained_usd'] / bound:.2f} % | {100 * crowd['alone_usd'] / bound:.1f} % | "
            f"{crowd['bound_s']:.0f} s |"
        )
    return lines


def _table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = [
        "| policy | utility | cost | of the bound | hard misses | lost late | against the best rule, points "
        "| of the gap closed | Jain |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        jain = row["jain_saving"]
        lines.append(
            f"| {name} | ${row['utility_usd']:,.0f} | ${row['cost_usd']:,.0f} | "
            f"{_percent(row['percent_of_bound'])} | {row['misses']} | ${row['late_usd']:,.0f} | "
            f"{_interval(row['vs_best_rule_points'])} | {_percent(row['gap_closed_percent'])} | "
            f"{'-' if jain is None else f'{jain:.3f}'} |"
        )
    return lines


def _slots(figures: Figures) -> list[str]:
    found = figures.get("slots", {})
    if not found:
        return []
    lines = [
        "## A slot",
        "",
        "Forecast, decision and commands of one slot in one process, encoded, without a broker.",
        "",
        "| size | p50 | p99 | arrival of all | running | memory |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        lines.append(
            f"| {name} | {one['slot_p50_s']:.2f} s | {one['slot_p99_s']:.2f} s | "
            f"{one['arrival_max_s']:.2f} s | {one['running_mean']:.0f} | {one['memory_mb']:.0f} MB |"
        )
    return lines


def _interval(points: list[float] | None) -> str:
    if points is None:
        return "-"
    low, mean, high = points
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"


def _plot_bound(figures: Figures, path: Path) -> None:
    cells = list(figures["cells"].items())
    figure = figure_of(9.0, 1.2 + 0.42 * len(cells))
    axes = figure.add_subplot()
    shown = [name for name in POLICY_NAMES if any(name in rows for _, rows in cells)]
    for number, policy in enumerate(shown):
        found = [
            (rows[policy]["percent_of_bound"], place)
            for place, (_, rows) in enumerate(cells)
            if policy in rows and rows[policy]["percent_of_bound"] is not None
        ]
        axes.scatter(
            [value for value, _ in found],
            [place for _, place in found],
            label=policy,
            color=f"C{number}",
            s=70 if policy == SPOTLINE else 28,
            marker="D" if policy == SPOTLINE else "o",
            zorder=3,
        )
    axes.set_yticks(range(len(cells)), [name for name, _ in cells])
    axes.invert_yaxis()
    axes.set_xlabel("utility, % of the joint clairvoyant bound")
    tidy(axes, grid="x")
    figure.legend(loc="outside upper center", ncols=len(shown), frameon=False, fontsize=8)
    figure.savefig(path)


def _plot_ahead(figures: Figures, path: Path) -> None:
    cells = [
        (name, rows[SPOTLINE]["vs_best_rule_points"])
        for name, rows in figures["cells"].items()
        if SPOTLINE in rows and rows[SPOTLINE]["vs_best_rule_points"] is not None
    ]
    figure = figure_of(8.0, 1.0 + 0.36 * len(cells))
    axes = figure.add_subplot()
    for place, (_, (low, mean, high)) in enumerate(cells):
        axes.plot([low, high], [place, place], color="C0", linewidth=2)
        axes.plot([mean], [place], "D", color="C0")
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(cells)), [name for name, _ in cells])
    axes.invert_yaxis()
    axes.set_xlabel("spotline against the best rule, points of the bound, 95 % interval")
    tidy(axes, grid="x")
    figure.savefig(path)
