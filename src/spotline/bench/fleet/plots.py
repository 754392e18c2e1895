"""The pictures of the fleet report: one row per cell, one mark and colour per policy in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spotline.bench.drawing import figure_of, tidy
from spotline.bench.fleet.policies import EDF, POLICY_NAMES, SDP
from spotline.replay.summary import SPOTLINE

BOUND_PLOT = "bound.png"
GAP_PLOT = "gap.png"
AHEAD_PLOT = "ahead.png"
LATE_PLOT = "late.png"
JAIN_PLOT = "jain.png"

# As in the other reports; what colour alone would not tell apart differs in its mark.
_COLOURS = {
    SPOTLINE: "#b3262e",
    SDP: "#2a78b5",
    "msu": "#444444",
    "uniform_progress": "#8a8a8a",
    "on_demand_only": "#c9c9c9",
    EDF: "#e07b28",
}
_MARKS = {
    SPOTLINE: "D",
    SDP: "o",
    "msu": "s",
    "uniform_progress": "^",
    "on_demand_only": "v",
    EDF: "P",
}
_INK = "#444444"
_SHIFT = 0.11

Rows = Mapping[str, Mapping[str, Any]]
Cells = Sequence[tuple[str, Rows]]


def draw_all(cells: Cells, directory: Path, aims: Callable[[str], float | None]) -> None:
    """Draw every picture; `aims` says how much of the gap a cell is to close, percent."""
    draw_shares(cells, directory / BOUND_PLOT)
    draw_gap(cells, directory / GAP_PLOT, aims)
    draw_ahead(cells, directory / AHEAD_PLOT)
    draw_late(cells, directory / LATE_PLOT)
    draw_jain(cells, directory / JAIN_PLOT)


def draw_shares(cells: Cells, path: Path) -> None:
    """Utility of every policy as a share of the bound."""
    _marks(cells, "percent_of_bound", "utility, % of the joint clairvoyant bound", path)


def draw_jain(cells: Cells, path: Path) -> None:
    """How evenly tenants save."""
    _marks(
        cells, "jain_saving", "Jain's index of the saving of each tenant; 1: all save alike", path
    )


def draw_gap(cells: Cells, path: Path, aims: Callable[[str], float | None]) -> None:
    """The share of the gap from the best rule to the bound that is closed, beside its aim."""
    figure, axes = _axes(cells, 1)
    for place, (name, rows) in enumerate(cells):
        for policy, shift in ((SPOTLINE, -0.13), (SDP, 0.13)):
            interval = rows.get(policy, {}).get("gap_closed_interval")
            if interval is not None:
                label = policy if not place else None
                _whisker(axes[0], interval, place + shift, policy, label)
        aim = aims(name)
        if aim is not None:
            label = None if axes[0].get_legend_handles_labels()[1].count("aim") else "aim"
            axes[0].plot([aim, aim], [place - 0.4, place + 0.4], color=_INK, lw=2, label=label)
    axes[0].axvline(0.0, color=_INK, linewidth=0.8)
    axes[0].set_xlabel("of the gap from the best rule to the bound, % closed, 95 % interval")
    _legend(figure, axes[0])
    figure.savefig(path)


def draw_ahead(cells: Cells, path: Path) -> None:
    """Points against the best rule, of all jobs and of those that begin in the first slots."""
    figure, axes = _axes(cells, 2)
    shown = (
        ("vs_best_rule_points", "all jobs"),
        ("first_48_points", "jobs of the first 48 slots"),
    )
    for each, (key, title) in zip(axes, shown, strict=True):
        for place, (_, rows) in enumerate(cells):
            interval = rows.get(SPOTLINE, {}).get(key)
            if interval is not None:
                _whisker(each, interval, place, SPOTLINE, None)
        each.axvline(0.0, color=_INK, linewidth=0.8)
        each.set_title(title, fontsize=9)
        each.set_xlabel("spotline against the best rule,\npoints of the bound, 95 % interval")
    figure.savefig(path)


def draw_late(cells: Cells, path: Path) -> None:
    """Value lost by lateness, and hard deadlines missed, by policy."""
    figure, axes = _axes(cells, 2)
    for each, key in zip(axes, ("late_usd", "misses"), strict=True):
        _scatter(each, cells, key)
        # A mark at nothing lies whole within the picture.
        each.set_xlim(left=-0.04 * max(1.0, each.get_xlim()[1]))
    axes[0].set_xlabel("value lost by late soft jobs, USD")
    axes[1].set_xlabel("hard deadlines missed, jobs")
    _legend(figure, axes[0])
    figure.savefig(path)


def _marks(cells: Cells, key: str, label: str, path: Path) -> None:
    figure, axes = _axes(cells, 1)
    _scatter(axes[0], cells, key)
    axes[0].set_xlabel(label)
    _legend(figure, axes[0])
    figure.savefig(path)


def _scatter(axes: Any, cells: Cells, key: str) -> None:
    # The one that the report is about lies on top.
    for number, policy in reversed(list(enumerate(POLICY_NAMES))):
        # Equal values lie beside each other and not on each other.
        shift = _SHIFT * (number - (len(POLICY_NAMES) - 1) / 2)
        found = [
            (rows[policy][key], place + shift)
            for place, (_, rows) in enumerate(cells)
            if policy in rows and rows[policy][key] is not None
        ]
        if found:
            axes.scatter(
                [value for value, _ in found],
                [place for _, place in found],
                label=policy,
                color=_COLOURS[policy],
                marker=_MARKS[policy],
                s=62 if policy == SPOTLINE else 34,
                edgecolors="white",
                linewidths=0.6,
                zorder=3,
            )


def _whisker(axes: Any, interval: Sequence[float], place: float, policy: str, label: Any) -> None:
    low, mean, high = interval
    colour = _COLOURS[policy]
    axes.plot([low, high], [place, place], color=colour, linewidth=2)
    axes.plot([mean], [place], _MARKS[policy], color=colour, markersize=6, label=label)


def _axes(cells: Cells, columns: int) -> tuple[Any, Sequence[Any]]:
    """A figure with a row per cell, in so many columns side by side."""
    figure = figure_of(9.0, 1.4 + 0.36 * len(cells))
    axes = figure.subplots(1, columns, sharey=True, squeeze=False)[0]
    axes[0].set_yticks(range(len(cells)), [name for name, _ in cells], fontsize=8)
    axes[0].set_ylim(len(cells) - 0.4, -0.6)
    for each in axes:
        tidy(each, grid="x")
    return figure, axes


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="outside upper center",
        ncols=max(1, len(labels)),
        frameon=False,
        fontsize=8,
    )
