"""One job of a recorded run as a picture: price, capacity, what it held, and its progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from spotline.contracts.errors import ContractError
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import NS_PER_S, usd_from_micro_usd
from spotline.replay.report import ON_DEMAND, JobReport, RunReport

# A palette that stays distinct for colour-blind readers and in grey.
_SPOT, _ON_DEMAND, _PROGRESS, _DEADLINE = "#2a78b5", "#e07b28", "#1d7a46", "#b3262e"
_OFFERED, _GRID, _LINE = "#c9d3dc", "#e6e6e6", "#8a8a8a"
_MARKED = {
    DecisionReason.INTERRUPTED: "interrupted",
    DecisionReason.LAUNCH_REFUSED: "launch refused",
    DecisionReason.SAFETY_NET: "safety net",
}
_DPI = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """A job's slots in order; `times` has one more entry, the end of the last slot."""

    times: list[datetime]
    quotes: list[Quote]
    offered: list[int]
    spot: list[int]
    on_demand: list[int]
    progress: list[float]
    marks: list[tuple[datetime, str]]
    deadline: datetime


def interesting_job(report: RunReport) -> JobReport:
    """The job whose picture tells most: it mixed spot and on-demand, changed often, and finished.

    Raises
    ------
    ContractError
        No job ever ran.
    """
    ran = [job for job in report.jobs if job.job.job_id in report.advances]
    if not ran:
        raise ContractError("log", "no job has run in it yet, there is nothing to draw")
    return max(ran, key=lambda job: (_interest(job, report), job.job.job_id))


def _interest(job: JobReport, report: RunReport) -> tuple[bool, bool, bool, int]:
    advances = report.advances[job.job.job_id]
    held = [_counts(advance.lots) for advance in advances]
    mixed = any(spot for spot, _ in held) and any(on_demand for _, on_demand in held)
    changes = sum(before != after for before, after in pairwise(held))
    on_demand = job.otherwise.get(ON_DEMAND)
    saved = on_demand is not None and job.life.cost_micro_usd < 0.8 * on_demand.cost_micro_usd
    return (job.outcome is JobOutcome.COMPLETED, mixed, saved, changes)


def plot_job(report: RunReport, path: Path, *, job_id: str = "") -> None:
    """Draw one job to a PNG; without `job_id` the most interesting one.

    Raises
    ------
    ContractError
        The job never ran.
    OSError
        The file cannot be written.
    """
    if job_id:
        chosen = next((job for job in report.jobs if job.job.job_id == job_id), None)
        if chosen is None or job_id not in report.advances:
            raise ContractError("job", f"{job_id} never ran in this log")
    else:
        chosen = interesting_job(report)
    _draw(chosen, _course(chosen, report), path)


def _course(job: JobReport, report: RunReport) -> _Course:
    advances = report.advances[job.job.job_id]
    slots = {opened.slot: opened for opened in report.slots}
    times, quotes, spot, on_demand, progress = [], [], [], [], [0.0]
    for advance in advances:
        opened = slots[advance.slot]
        times.append(_time(opened.ts_event_ns))
        quotes.append(
            next(q.quote for q in opened.quotes if q.quote.offering_id == job.offering_id)
        )
        held = _counts(advance.lots)
        spot.append(held[0])
        on_demand.append(held[1])
        progress.append(advance.progress_ppm / 1e4)
    slot_s = slots[advances[-1].slot].slot_s
    # A live market may skip slots: then what the job was offered is not known slot by slot.
    offered = [*job.spot_offered, *[0] * len(quotes)]
    marks = [
        (_time(slots[d.slot].ts_event_ns) + timedelta(seconds=d.offset_s), _MARKED[d.reason])
        for d in _first_of_each(report.decisions.get(job.job.job_id, ()))
    ]
    return _Course(
        times=[*times, times[-1] + timedelta(seconds=slot_s)],
        quotes=quotes,
        offered=offered[: len(quotes)],
        spot=spot,
        on_demand=on_demand,
        progress=progress,
        marks=marks,
        deadline=_time(job.job.deadline.at_ns),
    )


def _first_of_each(decisions: tuple[AllocationDecided, ...]) -> list[AllocationDecided]:
    """Decisions with a reason worth marking, without those that repeat the one before."""
    marked = []
    before: DecisionReason | None = None
    for decision in decisions:
        if decision.reason in _MARKED and decision.reason is not before:
            marked.append(decision)
        before = decision.reason
    return marked


def _counts(lots: tuple[Any, ...]) -> tuple[int, int]:
    return sum(lot.spot for lot in lots), sum(lot.on_demand for lot in lots)


def _time(ts_ns: int) -> datetime:
    return datetime.fromtimestamp(ts_ns // NS_PER_S, tz=UTC)


def _draw(job: JobReport, course: _Course, path: Path) -> None:
    # pyplot would keep global state and may open a window; a bare figure does neither.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.5, 7.2), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    price, held, progress = figure.subplots(3, 1, sharex=True, height_ratios=(1.0, 1.5, 1.4))
    figure.suptitle(_title(job), x=0.01, ha="left", fontsize=11, parse_math=False)
    _draw_price(price, course)
    _draw_held(held, job, course)
    _draw_progress(progress, job, course)
    _draw_axis(progress, course)
    for axes in (price, held, progress):
        axes.grid(color=_GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.axvline(course.deadline, color=_DEADLINE, linewidth=1.2)
    figure.savefig(path)


def _title(job: JobReport) -> str:
    outcome = job.outcome.value.replace("_", " ") if job.outcome else "running"
    cost = usd_from_micro_usd(job.life.cost_micro_usd)
    on_demand = job.otherwise.get(ON_DEMAND)
    instead = (
        f" (on demand ${usd_from_micro_usd(on_demand.cost_micro_usd):,.0f})" if on_demand else ""
    )
    work = f"{job.job.work.amount:g} {job.job.work.unit.replace('_', ' ')}"
    return (
        f"{job.job.name or job.job.job_id}: {work}, {job.job.deadline.kind.value} deadline, "
        f"{outcome} for ${cost:,.0f}{instead}\non {job.offering_id} by {job.policy_id}"
    )


def _draw_price(axes: Any, course: _Course) -> None:
    spot = [usd_from_micro_usd(q.spot_price_micro_usd) for q in course.quotes]
    dear = [usd_from_micro_usd(q.on_demand_price_micro_usd) for q in course.quotes]
    axes.step(course.times, [*spot, spot[-1]], where="post", color=_SPOT, label="spot")
    axes.step(
        course.times,
        [*dear, dear[-1]],
        where="post",
        color=_ON_DEMAND,
        linestyle="--",
        label="on-demand",
    )
    axes.set_ylim(0.0, max(dear) * 1.15)
    axes.set_ylabel("USD per\ninstance-hour")
    _legend(axes)


def _draw_held(axes: Any, job: JobReport, course: _Course) -> None:
    quoted = [quote.spot_available for quote in course.quotes]
    known = all(count.known for count in quoted)
    counts = [count.instances for count in quoted if count.known]
    most = max(job.job.max_instances, *course.spot, *course.on_demand, *counts)
    # An unknown count counts as plenty: drawn as far as the picture goes.
    axes.stairs(
        [min(count, most) for count in course.offered],
        course.times,
        fill=True,
        color=_OFFERED,
        label="spot left for it",
    )
    if known:
        shown = [count.instances for count in quoted]
        axes.step(
            course.times,
            [*shown, shown[-1]],
            where="post",
            color=_LINE,
            linewidth=1.0,
            label="spot on the market",
        )
    both = [spot + more for spot, more in zip(course.spot, course.on_demand, strict=True)]
    axes.stairs(course.spot, course.times, fill=True, color=_SPOT, label="spot held")
    axes.stairs(
        both,
        course.times,
        baseline=course.spot,
        fill=True,
        color=_ON_DEMAND,
        label="on-demand held",
    )
    seen: set[str] = set()
    for moment, reason in course.marks:
        axes.annotate(
            "" if reason in seen else reason,
            xy=(moment, most),
            xytext=(3, 6),
            textcoords="offset points",
            fontsize=7.5,
            color=_DEADLINE,
        )
        axes.plot([moment], [most], marker="v", markersize=5, color=_DEADLINE, clip_on=False)
        seen.add(reason)
    axes.set_ylim(0, most * 1.15)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("instances")
    _legend(axes)


def _draw_progress(axes: Any, job: JobReport, course: _Course) -> None:
    axes.plot(
        [course.times[0], course.deadline],
        [0.0, 100.0],
        color=_LINE,
        linestyle=":",
        label="straight line to the deadline",
    )
    axes.plot(course.times, course.progress, color=_PROGRESS, linewidth=2.0, label="work done")
    kind = "hard" if job.job.deadline.kind is DeadlineKind.HARD else "soft"
    axes.annotate(
        f"{kind} deadline",
        xy=(course.deadline, 4.0),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=_DEADLINE,
    )
    axes.set_ylim(0.0, 105.0)
    axes.set_ylabel("% of the work")
    _legend(axes)


def _draw_axis(axes: Any, course: _Course) -> None:
    from matplotlib import dates

    # matplotlib ships no types for its dates.
    ticks: Any = dates
    locator = ticks.AutoDateLocator(minticks=4, maxticks=10, tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ticks.ConciseDateFormatter(locator, tz=UTC))
    end = max(course.deadline, course.times[-1])
    margin = (end - course.times[0]) * 0.02
    axes.set_xlim(course.times[0], end + margin)
    axes.set_xlabel("UTC")


def _legend(axes: Any) -> None:
    axes.legend(
        loc="center left", bbox_to_anchor=(1.005, 0.5), fontsize=8, frameon=False, borderaxespad=0.3
    )
