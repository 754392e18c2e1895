"""The report of `spotline bench fleet`: what is counted, the tables, the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotline.bench.fleet.plots import (
    AHEAD_PLOT,
    BOUND_PLOT,
    GAP_PLOT,
    JAIN_PLOT,
    LATE_PLOT,
    draw_all,
)
from spotline.replay.summary import SPOTLINE

REPORT_NAME = "README.md"

Figures = Mapping[str, Any]

_NEAR_POINTS = 1.0
_AIM_POINTS = -0.2
_AIM_GAP = {0.3: 25.0, 0.8: 35.0, 1.5: 35.0}


def write_report(figures: Figures, directory: Path) -> Path:
    """Write report and plots into `directory`, which is made; returns the report's path."""
    directory.mkdir(parents=True, exist_ok=True)
    draw_all(list(figures["cells"].items()), directory, _aim_of)
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
        f"{meta['processes']} crowds at a time.",
        "",
        *_READING,
        "",
        *[f"Note: {note}." for note in figures["notes"]],
        "",
        f"![share of the gap that is closed]({GAP_PLOT})",
        "",
        f"![share of the bound]({BOUND_PLOT})",
        "",
        f"![points against the best rule]({AHEAD_PLOT})",
        "",
        f"![value lost late, and misses]({LATE_PLOT})",
        "",
        f"![how evenly tenants save]({JAIN_PLOT})",
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
    "known afterwards. A cell within a point of the bound has met its aim: hardly any gap is left. Of the gap that is closed the interval is that of the points over the way from "
    "the best rule to the bound, the way taken as it is. Jobs of the first 48 slots are held against "
    "the rule that was best for them. Jain's index is of what each tenant saves against on-demand "
    "alone; tenants differ in which jobs they have.",
)


def _aims(figures: Figures) -> list[str]:
    lines = [
        "| cell | best rule | spotline against it, points | of the gap closed | aim | against sdp, points "
        "| misses | met | jobs of the first 48 slots, points | met |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, rows in figures["cells"].items():
        if SPOTLINE not in rows:
            continue
        row = rows[SPOTLINE]
        aim = _aim_of(name)
        points, first = row["vs_best_rule_points"], row["first_48_points"]
        gap = row["gap_closed_percent"]
        sdp = rows.get("sdp")
        over = None if sdp is None else row["percent_of_bound"] - sdp["percent_of_bound"]
        met = (
            points is not None
            and points[1] >= _AIM_POINTS
            and (aim is None or _reaches(aim, gap, row["percent_of_bound"]))
            and (over is None or over >= 0)
            and row["misses"] == 0
        )
        lines.append(
            f"| {name} | {row['best_rule']} | {_interval(points)} | {_percent(gap)} | "
            f"{'-' if aim is None else f'{aim:.0f} %'} | {'-' if over is None else f'{over:+.2f}'} | "
            f"{row['misses']} | {'yes' if met else 'no'} | {_interval(first)} | {_met(first)} |"
        )
    return lines


def _reaches(aim: float, gap: float | None, share: float | None) -> bool:
    """Whether enough of the gap is closed, or hardly any is left: the bound lies above any certificate."""
    near = share is not None and share >= 100.0 - _NEAR_POINTS
    return near or (gap is not None and gap >= aim)


def _aim_of(name: str) -> float | None:
    """How much of the gap a cell is to close, percent; of one that begins cold nothing is said."""
    _, _, load, start = name.split("/")
    return _AIM_GAP.get(float(load)) if start != "cold" else None


def _met(points: list[float] | None) -> str:
    return "-" if points is None else "yes" if points[1] >= _AIM_POINTS else "no"


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
            f"{_found(crowd)} | {100 * crowd['alone_usd'] / bound:.1f} % | "
            f"{crowd['bound_s']:.0f} s |"
        )
    return lines


def _found(crowd: Mapping[str, Any]) -> str:
    """What a joint schedule that was found reaches; none is claimed where work can be lost."""
    attained = crowd["attained_usd"]
    return f"{100 * attained / crowd['bound_usd']:.2f} %" if attained > 0 else "-"


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
        "Forecast, decision and commands of one slot in one process, encoded, without a broker. Value tables are",
        "built beside a slot; the time of both together comes behind.",
        "",
        "| size | p50 | p99 | p99 with tables | arrival of all | running | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        lines.append(
            f"| {name} | {one['slot_p50_s']:.2f} s | {one['slot_p99_s']:.2f} s | "
            f"{one['with_tables_p99_s']:.2f} s | {one['arrival_max_s']:.2f} s | {one['running_mean']:.0f} | {one['memory_mb']:.0f} MB |"
        )
    return lines


def _interval(points: list[float] | None) -> str:
    if points is None:
        return "-"
    low, mean, high = points
    return f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"
