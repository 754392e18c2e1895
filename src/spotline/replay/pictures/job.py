"""One job as a picture: spot on offer, what it held, what happened, progress, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.lot import Lot
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR, usd_from_micro_usd
from spotline.replay.pictures import style
from spotline.replay.pictures.lives import Course, DrawnJob, DrawnRun, MarkKind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ON_DEMAND_ALONE = "on_demand_only"
MSU = "msu"

# Shape and colour of a mark; shapes differ, so grey is enough.
_LOOKS: dict[MarkKind, tuple[str, str]] = {
    MarkKind.NOTICED: ("v", style.BAD),
    MarkKind.LOST: ("X", style.BAD),
    MarkKind.WITHDRAWN: ("^", style.GOOD),
    MarkKind.REFUSED: ("s", style.ON_DEMAND),
    MarkKind.MOVED: ("D", style.SPOT),
    MarkKind.SAFETY_NET: ("P", style.DARK),
    MarkKind.LIMITED: ("_", style.BAD),
    MarkKind.SAVED: ("|", style.GOOD),
    MarkKind.NOT_SAVED: ("x", style.BAD),
    MarkKind.EXITED: ("*", style.BAD),
    MarkKind.SILENT: ("o", style.RESERVED),
    MarkKind.CHANGED: ("d", style.DARK),
}
_MOST_STRIPS = 6
_HATCH = "////"


def draw_job(job: DrawnJob, run: DrawnRun, path: Path) -> None:
    """Draw one job to a PNG.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    strips = _strips(job, run)
    lanes = [kind for kind in MarkKind if job.count(kind)]
    heights = (
        *(0.62, 0.3 + 0.24 * len(strips), 1.1, 2.0),
        *(0.25 + 0.24 * max(1, len(lanes)), 1.7, 1.9),
    )
    with style.drawing():
        figure = style.empty_figure(11.0, sum(heights) + 1.6)
        grid = figure.add_gridspec(len(heights), 1, height_ratios=heights)
        axes = [figure.add_subplot(grid[row, 0]) for row in range(len(heights))]
        head, offer, price, held, marks, progress, cost = axes
        _draw_head(head, job, run)
        _draw_offer(offer, job, run, strips)
        _draw_prices(price, job, run, strips)
        _draw_held(held, job, run, strips)
        _draw_marks(marks, job, lanes)
        _draw_progress(progress, job)
        _draw_cost(cost, job)
        begin, end = _span(job)
        for panel in axes[1:]:
            style.time_axis(panel, begin, end)
            _draw_deadline(panel, job, named=panel is progress)
            if panel is not cost:
                panel.tick_params(labelbottom=False)
                panel.xaxis.get_offset_text().set_visible(False)
        cost.set_xlabel("UTC, market time", fontsize=style.SMALL)
        style.save(figure, path)


def _span(job: DrawnJob) -> tuple[datetime, datetime]:
    begin = style.utc(job.begin_ns)
    end = style.utc(max(job.end_ns, job.job.deadline.at_ns, job.begin_ns + NS_PER_S))
    return begin, end + (end - begin) * 0.02


def headline(job: DrawnJob) -> str:
    """How a job fared, in a sentence."""
    name = style.fits(job.job.name or job.job.job_id, 40)
    money = f"{usd_from_micro_usd(job.spent_micro_usd):,.2f} USD"
    if not job.ran:
        outcome = job.outcome.value.replace("_", " ") if job.outcome else "waiting"
        return f"{name}: {outcome}, it never ran"
    if job.outcome is None:
        done = job.progress[-1][1] * 100 / PPM
        return f"{name}: {done:.0f} % done, {money} so far"
    return f"{name}: {job.outcome.value.replace('_', ' ')}, for {money}"


def comparison(job: DrawnJob) -> str:
    """What the job would have cost otherwise, or why nobody knows."""
    alone, msu = (_total(job.otherwise.get(name, ())) for name in (ON_DEMAND_ALONE, MSU))
    if alone is None or msu is None:
        if not job.ran:
            return ""
        return (
            "no comparison: it ran at several rates or reported its own progress, so how fast it "
            "would have been otherwise is not known"
        )
    until = "" if job.compared else " until then"
    said = f"on-demand alone {alone:,.2f} USD{until}, MSU {msu:,.2f} USD"
    if alone > 0.0 and job.compared:
        saved = 100.0 * (1.0 - usd_from_micro_usd(job.spent_micro_usd) / alone)
        said += f": it cost {_against(saved)} on-demand alone"
    return said


def _against(less_percent: float) -> str:
    if abs(less_percent) < 0.5:
        return "as much as"
    return f"{abs(less_percent):.0f} % {'less' if less_percent > 0.0 else 'more'} than"


def _total(course: Course) -> float | None:
    return usd_from_micro_usd(course[-1][1]) if course else None


def happened(job: DrawnJob) -> str:
    """How often what happened to a job, in a sentence."""
    told = [f"{kind.value}: {job.count(kind)}" for kind in MarkKind if job.count(kind)]
    return "; ".join(told) or "nothing happened to it"


def _draw_head(axes: Axes, job: DrawnJob, run: DrawnRun) -> None:
    axes.axis("off")
    work = f"{job.job.work.amount:g} {job.job.work.unit.replace('_', ' ')}"
    kind = "hard" if job.job.deadline.kind is DeadlineKind.HARD else "soft"
    deadline = style.utc(job.job.deadline.at_ns)
    by = f" by {job.policy_id}" if job.policy_id else ""
    least, most = min(job.job.allowed_counts), job.job.max_instances
    count = f"{most}" if least == most else f"{least} to {most}"
    lines = (
        comparison(job),
        f"{style.fits(work, 40)} on {count} instances, {kind} deadline "
        f"{deadline:%Y-%m-%d %H:%M}{by}, id {job.job.job_id[:12]}",
    )
    axes.text(0.0, 1.0, headline(job), va="top", fontsize=style.LARGE, fontweight="bold")
    axes.text(0.0, 0.55, "\n".join(lines), va="top", fontsize=style.SMALL, linespacing=1.3)


def _draw_deadline(axes: Axes, job: DrawnJob, *, named: bool) -> None:
    deadline: Any = style.utc(job.job.deadline.at_ns)
    axes.axvline(deadline, color=style.BAD, linewidth=1.3)
    if not named:
        return
    kind = "hard" if job.job.deadline.kind is DeadlineKind.HARD else "soft"
    axes.annotate(
        f"{kind} deadline",
        xy=(deadline, 3.0),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        fontsize=style.SMALL,
        color=style.BAD,
    )


# --- spot on offer ----------------------------------------------------------------------------


def _strips(job: DrawnJob, run: DrawnRun) -> list[str]:
    """The offerings whose spot is shown: those it held, its home, and others that it may use."""
    held = [lot.offering_id for _, lots in job.held for lot in lots]
    known = {offering.offering_id for offering in run.offerings if offering.reservation is None}
    may = [o.offering_id for o in run.offerings if _may_use(job, o.offering_id, o.instance_type)]
    wanted = dict.fromkeys([*held, job.offering_id, *may])
    return [name for name in wanted if name in known][:_MOST_STRIPS]


def _may_use(job: DrawnJob, offering_id: str, instance_type: str) -> bool:
    stated = job.job.offerings or tuple(each.offering for each in job.job.throughputs)
    return any(name in ("*", offering_id, instance_type) for name in stated)


def _draw_offer(axes: Axes, job: DrawnJob, run: DrawnRun, strips: Sequence[str]) -> None:
    most = job.job.max_instances
    style.tidy(
        axes, f"Where was spot? (dark: {most} or more, light: none, grey: not known)", grid="x"
    )
    names = style.short_names(run.offerings)
    axes.set_facecolor("0.82")
    slots = [number for number in sorted(run.slots) if _inside(job, run, number)]
    if strips and slots:
        rows = []
        for offering_id in strips:
            quotes = run.quotes(offering_id)
            rows.append([_share(quotes.get(number), most) for number in slots])
        last = run.slots[slots[-1]]
        edges: list[Any] = [style.utc(run.slots[number].ts_event_ns) for number in slots]
        edges.append(edges[-1] + timedelta(seconds=last.slot_s))
        axes.pcolormesh(
            edges,
            np.arange(len(strips) + 1) - 0.5,
            np.ma.masked_invalid(np.array(rows)),
            cmap=style.SHARES,
            vmin=0.0,
            vmax=1.0,
        )
        after: Any = _span(job)[1]
        axes.axvspan(edges[-1], after, color="white", linewidth=0)
    for line in range(1, len(strips)):
        axes.axhline(line - 0.5, color="white", linewidth=1.5)
    axes.set_ylim(len(strips) - 0.5, -0.5)
    axes.set_yticks(range(len(strips)), [names[name] for name in strips], fontsize=style.SMALL)


def _inside(job: DrawnJob, run: DrawnRun, number: int) -> bool:
    opened = run.slots[number]
    end = max(job.end_ns, job.job.deadline.at_ns)
    return job.begin_ns < opened.ts_event_ns + opened.slot_s * NS_PER_S and opened.ts_event_ns < end


def _share(quote: Any, most: int) -> float:
    if quote is None or not quote.spot_available.known:
        return float("nan")
    return float(min(1.0, quote.spot_available.instances / most))


def _colours(ids: Sequence[str]) -> dict[str, str]:
    """A colour for each offering, the same in every panel."""
    known = dict.fromkeys(ids)
    return {name: style.FILLS[place % len(style.FILLS)] for place, name in enumerate(known)}


def _draw_prices(axes: Axes, job: DrawnJob, run: DrawnRun, strips: Sequence[str]) -> None:
    style.tidy(axes, "What did spot cost of the on-demand price?")
    slots = [number for number in sorted(run.slots) if _inside(job, run, number)]
    names = style.short_names(run.offerings)
    colours = _colours(strips)
    for place, offering_id in enumerate(strips):
        quotes = run.quotes(offering_id)
        if not slots:
            break
        ratio = [_ratio(quotes.get(number)) for number in slots]
        edges: list[Any] = [style.utc(run.slots[number].ts_event_ns) for number in slots]
        edges.append(edges[-1] + timedelta(seconds=run.slots[slots[-1]].slot_s))
        axes.stairs(
            ratio,
            edges,
            baseline=None,
            color=colours[offering_id],
            linestyle=style.DASHES[place % len(style.DASHES)],
            linewidth=1.6,
            label=names[offering_id],
        )
    axes.axhline(1.0, color=style.DARK, linewidth=0.9, linestyle=":")
    axes.set_ylim(*style.PRICE_SCALE)
    axes.set_ylabel("spot /\non-demand", fontsize=style.SMALL)
    style.beside(axes)


def _ratio(quote: Any) -> float:
    if quote is None or not quote.on_demand_price_micro_usd:
        return float("nan")
    return float(quote.spot_price_micro_usd / quote.on_demand_price_micro_usd)


# --- what it held -----------------------------------------------------------------------------


def _draw_held(axes: Axes, job: DrawnJob, run: DrawnRun, strips: Sequence[str]) -> None:
    style.tidy(axes, "What did it hold? (plain: spot, hatched: on-demand)")
    names = style.short_names(run.offerings)
    reserved = {o.offering_id for o in run.offerings if o.reservation is not None}
    ids = list(dict.fromkeys(lot.offering_id for _, lots in job.held for lot in lots))
    edges: list[Any] = [style.utc(at) for at, _ in job.held]
    below = np.zeros(max(0, len(edges) - 1))
    colours = _colours([*strips, *ids])
    for offering_id in ids:
        colour = colours[offering_id]
        for kind in ("spot", "on_demand"):
            counts = np.array([_held(lots, offering_id, kind) for _, lots in job.held[:-1]])
            if not counts.any():
                continue
            paid = "reserved" if offering_id in reserved else "on-demand"
            what = "spot" if kind == "spot" else paid
            axes.stairs(
                below + counts,
                edges,
                baseline=below.copy(),
                fill=True,
                facecolor=colour if kind == "spot" else "white",
                edgecolor=colour,
                hatch=None if kind == "spot" else _HATCH,
                linewidth=0.0,
                label=f"{names.get(offering_id, style.fits(offering_id))}: {what}",
            )
            below = below + counts
    most = max(job.job.max_instances, int(below.max(initial=0)))
    axes.axhline(job.job.max_instances, color=style.RESERVED, linewidth=0.9, linestyle=":")
    style.whole_numbers(axes, most)
    axes.set_ylabel("instances", fontsize=style.SMALL)
    style.beside(axes)


def _held(lots: tuple[Lot, ...], offering_id: str, kind: str) -> int:
    return sum(getattr(lot, kind) for lot in lots if lot.offering_id == offering_id)


# --- what happened ----------------------------------------------------------------------------


def _draw_marks(axes: Axes, job: DrawnJob, lanes: Sequence[MarkKind]) -> None:
    style.tidy(axes, "What happened to it?", grid="x")
    for row, kind in enumerate(lanes):
        shape, colour = _LOOKS[kind]
        moments: list[Any] = [style.utc(mark.at_ns) for mark in job.marks if mark.kind is kind]
        axes.plot(
            moments,
            [row] * len(moments),
            linestyle="none",
            marker=shape,
            markersize=7,
            color=colour,
            markeredgewidth=1.4 if shape in "|x_" else 0.6,
            clip_on=False,
        )
    axes.set_yticks(
        range(len(lanes)),
        [f"{kind.value} ({job.count(kind)})" for kind in lanes],
        fontsize=style.SMALL,
    )
    axes.set_ylim(max(1, len(lanes)) - 0.5, -0.5)
    if not lanes:
        axes.text(0.01, 0.5, "nothing", transform=axes.transAxes, va="center", fontsize=style.SMALL)


# --- progress and cost ------------------------------------------------------------------------


def _draw_progress(axes: Axes, job: DrawnJob) -> None:
    style.tidy(axes, "Was it quick enough?")
    begin: Any = style.utc(job.begin_ns)
    deadline: Any = style.utc(job.job.deadline.at_ns)
    axes.plot(
        [begin, deadline],
        [0.0, 100.0],
        color=style.RESERVED,
        linestyle=":",
        linewidth=1.3,
        label="evenly to the deadline",
    )
    alone_s = _on_demand_s(job)
    if alone_s:
        latest: Any = deadline - timedelta(seconds=alone_s)
        axes.plot(
            [latest, deadline],
            [0.0, 100.0],
            color=style.ON_DEMAND,
            linestyle="--",
            linewidth=1.3,
            label="on-demand alone, at the latest",
        )
    moments: list[Any] = [style.utc(at) for at, _ in job.progress]
    done = [ppm * 100.0 / PPM for _, ppm in job.progress]
    axes.plot(moments, done, color=style.DONE, linewidth=2.2, label="work done")
    axes.set_ylim(0.0, 104.0)
    axes.set_ylabel("% of the work", fontsize=style.SMALL)
    style.beside(axes)


def _on_demand_s(job: DrawnJob) -> float:
    """Seconds that the work takes on all instances, as fast as the job says; 0: it says nothing."""
    rates = [each.rate_per_hour(job.job.max_instances) for each in job.job.throughputs]
    fastest = max(rates, default=0.0)
    if fastest <= 0.0:
        return 0.0
    return job.job.work.amount / fastest * S_PER_HOUR + job.job.overheads.launch_s


def _draw_cost(axes: Axes, job: DrawnJob) -> None:
    style.tidy(axes, "What did it cost, all in all? (dots: where each ends)")
    # Where they are equal, the dashes are seen on the line.
    lines = (
        ("this job", job.spent, style.SPOT, "-", 2.6),
        ("on-demand alone", job.otherwise.get(ON_DEMAND_ALONE, ()), style.ON_DEMAND, "--", 1.5),
        ("MSU", job.otherwise.get(MSU, ()), style.DARK, "-.", 1.2),
    )
    most = 0.0
    for name, course, colour, dashes, width in lines:
        if not course:
            continue
        moments: list[Any] = [style.utc(at) for at, _ in course]
        spent = [usd_from_micro_usd(micro_usd) for _, micro_usd in course]
        label = f"{name}: {spent[-1]:,.2f} USD"
        axes.plot(moments, spent, color=colour, linestyle=dashes, linewidth=width, label=label)
        axes.plot(moments[-1:], spent[-1:], marker="o", markersize=5, color=colour)
        most = max(most, spent[-1])
    budget = usd_from_micro_usd(job.job.budget_micro_usd)
    if budget:
        axes.axhline(budget, color=style.BAD, linewidth=1.0, linestyle=":", label="its budget")
        most = max(most, budget)
    axes.set_ylim(0.0, most * 1.06 or 1.0)
    axes.set_ylabel("USD", fontsize=style.SMALL)
    style.beside(axes)
