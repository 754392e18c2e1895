"""All jobs of a log as a picture: a row for each, what they held together, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.units import NS_PER_S, usd_from_micro_usd
from spotline.replay.pictures import style
from spotline.replay.pictures.job import MSU, ON_DEMAND_ALONE
from spotline.replay.pictures.lives import Course, DrawnJob, DrawnRun, MarkKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS = 50
_ROW_IN = 0.21
_WAITS = "#dfe5ea"
_SHORT = {
    None: "open",
    JobOutcome.COMPLETED: "on time",
    JobOutcome.COMPLETED_LATE: "late",
    JobOutcome.MISSED_DEADLINE: "missed",
    JobOutcome.EXPIRED: "expired",
    JobOutcome.CANCELLED: "cancelled",
    JobOutcome.FAILED: "failed",
    JobOutcome.STOPPED_BY_LIMIT: "stopped by limit",
}


def draw_run(run: DrawnRun, path: Path) -> None:
    """Draw all jobs of a log to a PNG: of more than `MOST_ROWS` those not on time, then the first.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    shown = _shown(run.jobs)
    heights = (0.5, 0.3 + _ROW_IN * len(shown), 1.7, 2.0)
    with style.drawing():
        figure = style.empty_figure(11.5, sum(heights) + 1.4)
        grid = figure.add_gridspec(4, 1, height_ratios=heights)
        head, rows, held, cost = (figure.add_subplot(grid[row, 0]) for row in range(4))
        _draw_head(head, run)
        _draw_rows(rows, shown, len(run.jobs))
        _draw_held(held, run)
        _draw_cost(cost, run)
        begin, end = _span(run)
        for panel in (rows, held, cost):
            style.time_axis(panel, begin, end)
            if panel is not cost:
                panel.tick_params(labelbottom=False)
                panel.xaxis.get_offset_text().set_visible(False)
        rows.tick_params(axis="y", length=0)
        cost.set_xlabel("UTC, market time", fontsize=style.SMALL)
        style.save(figure, path)


def outcomes(run: DrawnRun) -> str:
    """How the jobs ended, in a sentence."""
    ends = [_SHORT[job.outcome] for job in run.jobs]
    told = [f"{ends.count(said)} {said}" for said in _SHORT.values() if said in ends]
    return f"{len(run.jobs)} jobs: {', '.join(told)}"


def costs(run: DrawnRun) -> str:
    """What the jobs cost against on-demand alone and MSU, in a sentence."""
    total = usd_from_micro_usd(sum(job.spent_micro_usd for job in run.jobs))
    compared = [job for job in run.jobs if job.compared]
    if not compared:
        return f"{total:,.2f} USD in all; none is over and comparable"
    paid, alone, msu = _compared_usd(compared)
    less = 100.0 * (1.0 - paid / alone) if alone else 0.0
    return (
        f"{total:,.2f} USD in all; {len(compared)} comparable jobs {paid:,.2f} USD, on-demand alone "
        f"{alone:,.2f} USD ({abs(less):.0f} % {'less' if less >= 0.0 else 'more'}), "
        f"MSU {msu:,.2f} USD"
    )


def _compared_usd(jobs: Sequence[DrawnJob]) -> tuple[float, float, float]:
    paid = sum(job.spent_micro_usd for job in jobs)
    alone, msu = (
        sum(job.otherwise[name][-1][1] for job in jobs) for name in (ON_DEMAND_ALONE, MSU)
    )
    return usd_from_micro_usd(paid), usd_from_micro_usd(alone), usd_from_micro_usd(msu)


def _shown(jobs: tuple[DrawnJob, ...]) -> list[DrawnJob]:
    if len(jobs) <= MOST_ROWS:
        return list(jobs)
    on_time = [job.outcome is JobOutcome.COMPLETED for job in jobs]
    kept = sorted(range(len(jobs)), key=lambda place: (on_time[place], place))[:MOST_ROWS]
    return [jobs[place] for place in sorted(kept)]


def _span(run: DrawnRun) -> tuple[datetime, datetime]:
    first = min(job.begin_ns for job in run.jobs)
    last = max(max(job.end_ns, job.job.deadline.at_ns) for job in run.jobs)
    begin, end = style.utc(first), style.utc(max(last, first + NS_PER_S))
    return begin, end + (end - begin) * 0.01


def _draw_head(axes: Axes, run: DrawnRun) -> None:
    axes.axis("off")
    axes.text(0.0, 1.0, outcomes(run), va="top", fontsize=style.LARGE, fontweight="bold")
    axes.text(0.0, 0.45, costs(run), va="top", fontsize=style.SMALL)


# --- rows -------------------------------------------------------------------------------------


def _draw_rows(axes: Axes, shown: Sequence[DrawnJob], total: int) -> None:
    some = (
        f"; {len(shown)} of {total}: those not on time, then the first"
        if len(shown) < total
        else ""
    )
    style.tidy(
        axes,
        f"What happened to each? (right: its cost, of that on on-demand alone{some})\n"
        "height: instances; plain: spot; hatched: on-demand; triangle: interrupted; bar: deadline",
        grid="x",
    )
    for row, job in enumerate(shown):
        _draw_row(axes, row, job)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    names = [style.fits(job.job.name or job.job.job_id, 24) for job in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=style.SMALL)
    for row, job in enumerate(shown):
        bad = job.outcome not in (None, JobOutcome.COMPLETED, JobOutcome.CANCELLED)
        axes.text(
            1.01,
            row,
            _ended(job),
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=style.SMALL,
            color=style.BAD if bad else style.DARK,
            fontweight="bold" if bad else "normal",
        )


def _ended(job: DrawnJob) -> str:
    paid = usd_from_micro_usd(job.spent_micro_usd)
    alone = job.otherwise.get(ON_DEMAND_ALONE)
    of = f" of {usd_from_micro_usd(alone[-1][1]):,.0f}" if alone and job.compared else ""
    return f"{_SHORT[job.outcome]}, {paid:,.0f}{of} USD"


def _draw_row(axes: Axes, row: int, job: DrawnJob) -> None:
    begin, end = style.utc(job.begin_ns), style.utc(job.end_ns)
    low, high = row + 0.4, row - 0.4
    axes.broken_barh([(begin, end - begin)], (high, 0.8), color=_WAITS, linewidth=0)  # type: ignore[list-item]
    if len(job.held) > 1:
        edges: list[Any] = [style.utc(at) for at, _ in job.held]
        most = max(job.job.max_instances, 1)
        spot, both = (
            np.array([sum(_count(lot, whole) for lot in lots) for _, lots in job.held[:-1]])
            for whole in (False, True)
        )
        spot, both = (low - 0.8 * np.minimum(1.0, counts / most) for counts in (spot, both))
        axes.stairs(
            spot, edges, baseline=np.full(len(spot), low), fill=True, color=style.SPOT, linewidth=0
        )
        axes.stairs(
            both,
            edges,
            baseline=spot,
            fill=True,
            facecolor=style.PALE,
            edgecolor=style.STRONG,
            hatch="//////",
            linewidth=0.0,
        )
    deadline: Any = style.utc(job.job.deadline.at_ns)
    axes.plot([deadline, deadline], [low, high], color=style.BAD, linewidth=1.6)
    kinds = (MarkKind.NOTICED, MarkKind.LOST)
    lost: list[Any] = [style.utc(mark.at_ns) for mark in job.marks if mark.kind in kinds]
    if lost:  # the layout would make room for an empty line that is not clipped
        axes.plot(
            lost,
            [high + 0.1] * len(lost),
            linestyle="none",
            marker="v",
            markersize=4.5,
            color="white",
            markeredgecolor=style.BAD,
            markeredgewidth=1.0,
            clip_on=False,
        )


def _count(lot: Any, whole: bool) -> int:
    return int(lot.spot + (lot.on_demand if whole else 0))


# --- together ---------------------------------------------------------------------------------


def _draw_held(axes: Axes, run: DrawnRun) -> None:
    style.tidy(axes, "What did they hold together?")
    moments = sorted({at for job in run.jobs for at, _ in job.held})
    if len(moments) < 2:
        axes.text(0.01, 0.5, "nothing", transform=axes.transAxes, fontsize=style.SMALL)
        return
    places = {at: place for place, at in enumerate(moments)}
    change = np.zeros((2, len(moments)), dtype=np.int64)
    for job in run.jobs:
        before = (0, 0)
        for at, lots in job.held:
            now = (sum(lot.spot for lot in lots), sum(lot.on_demand for lot in lots))
            for kind in (0, 1):
                change[kind, places[at]] += now[kind] - before[kind]
            before = now
    spot, on_demand = np.cumsum(change, axis=1)[:, :-1]
    edges: list[Any] = [style.utc(at) for at in moments]
    axes.stairs(spot, edges, fill=True, color=style.SPOT, linewidth=0, label="spot")
    axes.stairs(
        spot + on_demand,
        edges,
        baseline=spot,
        fill=True,
        facecolor=style.PALE,
        edgecolor=style.STRONG,
        hatch="//////",
        linewidth=0.0,
        label="on-demand",
    )
    style.whole_numbers(axes, max(1, int((spot + on_demand).max())))
    axes.set_ylabel("instances", fontsize=style.SMALL)
    style.beside(axes)


def _draw_cost(axes: Axes, run: DrawnRun) -> None:
    style.tidy(axes, "What did they cost, all in all?")
    compared = [job for job in run.jobs if job.compared]
    some = f" ({len(compared)} comparable)" if len(compared) < len(run.jobs) else ""
    lines = [(f"all {len(run.jobs)} jobs", [job.spent for job in run.jobs], style.SPOT, "-", 2.2)]
    if compared:
        for name, said, colour, dashes in (
            (ON_DEMAND_ALONE, "on-demand alone", style.ON_DEMAND, "--"),
            (MSU, "MSU", style.RESERVED, "-."),
        ):
            courses = [job.otherwise[name] for job in compared]
            lines.append((f"{said}{some}", courses, colour, dashes, 1.5))
        if some:
            courses = [job.spent for job in compared]
            lines.insert(1, (f"those{some}", courses, style.STRONG, ":", 1.5))
    end = _span(run)[1]
    most = 0.0
    for said, courses, colour, dashes, width in lines:
        moments, total = _summed(courses)
        if not moments:
            continue
        drawn: list[Any] = [*(style.utc(at) for at in moments), end]
        spent = [usd_from_micro_usd(int(each)) for each in (*total, total[-1])]
        label = f"{said}: {spent[-1]:,.2f} USD"
        axes.plot(drawn, spent, color=colour, linestyle=dashes, linewidth=width, label=label)
        most = max(most, spent[-1])
    axes.set_ylim(0.0, most * 1.06 or 1.0)
    axes.set_ylabel("USD", fontsize=style.SMALL)
    style.beside(axes)


def _summed(courses: Sequence[Course]) -> tuple[list[int], list[int]]:
    """What several courses come to together; between their moments each holds its last value."""
    changes: dict[int, int] = {}
    for course in courses:
        before = 0
        for at, value in course:
            changes[at] = changes.get(at, 0) + value - before
            before = value
    moments = sorted(changes)
    return moments, [int(each) for each in np.cumsum([changes[at] for at in moments])]
