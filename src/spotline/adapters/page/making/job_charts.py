"""Charts of a job's page: how far it is and was expected to be, and what it cost."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.adapters.page.charts import ChartBand, ChartMark, ChartSeries, Colour, TimeChart
from spotline.application.page.holdings import JobPast
from spotline.application.page.job import (
    Expected,
    Fan,
    Otherwise,
    at_moments,
    begins_ns,
    billed_course,
    moments_of,
    progress_lines,
    spent_course,
)
from spotline.application.page.jobs import job_row
from spotline.application.page.state import PageState
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import NS_PER_S

_LINES: tuple[Colour, ...] = ("on-demand", "line-3", "line-4", "line-1")


def progress_chart(
    state: PageState, job_id: str, outlook: JobOutlook | None, begun: JobOutlook | None = None
) -> TimeChart:
    """Work done against the even line, over fans of what is expected now, and was as it began.

    `begun` is what was expected then, where that is worked out again: the quote may not say it.
    """
    row = job_row(state, job_id, outlook)
    expected = _expected(state, job_id, outlook)
    latest_ns = 0 if row.view.phase.over else row.view.latest_on_demand_start_ns
    lines = progress_lines(state, job_id, expected, _begun(state, job_id, begun), latest_ns)
    fans: list[tuple[str, Fan | None, Colour]] = [
        ("expected now", lines.now, "spot"),
        ("expected as it began", lines.begun, "line-3"),
    ]
    if outlook is None:
        # Nobody says what is expected now: the first fan is the quote's, and is not drawn twice.
        fans = [("expected as it began", lines.begun or lines.now, "spot")]
    drawn = [(name, fan, colour) for name, fan, colour in fans if fan is not None and fan.low]
    courses = [course for _, fan, _ in drawn for course in (fan.low, fan.middle, fan.high)]
    moments = moments_of(lines.done, lines.even, lines.latest, *courses)
    series = [
        ChartSeries(name="done", colour="done", values=at_moments(lines.done, moments)),
        ChartSeries(
            name="evenly to the deadline",
            colour="reserved",
            values=at_moments(lines.even, moments),
            dashed=True,
        ),
    ]
    if lines.latest:
        values = at_moments(lines.latest, moments)
        series.append(
            ChartSeries(
                name="on-demand alone, at the latest",
                colour="on-demand",
                values=values,
                dashed=True,
            )
        )
    bands: list[ChartBand] = []
    for name, fan, colour in drawn:
        low = len(series)
        series.extend(_fan_series(name, fan, colour, moments))
        bands.append(
            ChartBand(name=f"{name}: 8 of 10 futures", low=low, high=low + 2, colour=colour)
        )
    marks = [ChartMark(at_s=_s(row.status.job.deadline.at_ns), name="deadline", colour="bad")]
    return TimeChart(
        name="progress",
        title="Work done, percent of all work",
        unit="percent",
        at_s=[_s(at) for at in moments],
        series=series,
        bands=bands,
        marks=marks,
    )


def _fan_series(name: str, fan: Fan, colour: Colour, moments: Sequence[int]) -> list[ChartSeries]:
    """The three lines of a fan, the lowest first."""
    series = []
    for of_ten, course in (
        ("1 in 10 has less", fan.low),
        ("middle", fan.middle),
        ("1 in 10 has more", fan.high),
    ):
        values = at_moments(course, moments) if course else [None] * len(moments)
        values = _then_all(values) if course and course[-1][1] >= 100.0 else values
        series.append(
            ChartSeries(name=f"{name}, {of_ten}", colour=colour, values=values, dashed=True)
        )
    return series


def _then_all(values: Sequence[float | None]) -> list[float | None]:
    """A line that has reached all work stays there, so that the band ends where the slow one does."""
    reached = False
    filled: list[float | None] = []
    for value in values:
        filled.append(100.0 if reached and value is None else value)
        reached = reached or (value is not None and value >= 100.0)
    return filled


def _begun(state: PageState, job_id: str, begun: JobOutlook | None) -> Expected | None:
    """What was expected as it began: as it was worked out again, or as it was quoted slot by slot."""
    if begun is not None:
        from_ns = state.start_ns(begun.slot)
        return Expected(outlook=begun, from_ns=max(from_ns, begins_ns(state, job_id)), done_ppm=0)
    quoted = state.jobs.board.entries[job_id].quoted
    if quoted is None or not quoted.progress:
        return None
    return Expected(outlook=quoted, from_ns=state.start_ns(quoted.slot), done_ppm=0)


def _expected(state: PageState, job_id: str, outlook: JobOutlook | None) -> Expected | None:
    """What is expected now; where that is not known, what was when it was handed over."""
    entry = state.jobs.board.entries[job_id]
    if outlook is None:
        quoted = entry.quoted
        if quoted is None or entry.over:
            return None
        return Expected(outlook=quoted, from_ns=state.start_ns(quoted.slot), done_ppm=0)
    if entry.over:
        return None
    standings = list(state.holdings.of_job.get(job_id, JobPast()).standings())
    if not standings:
        return Expected(outlook=outlook, from_ns=begins_ns(state, job_id), done_ppm=0)
    last = standings[-1]
    return Expected(outlook=outlook, from_ns=last.at_ns, done_ppm=last.progress_ppm)


def cost_chart(
    state: PageState, job_id: str, past: JobPast, compared: Otherwise | None
) -> TimeChart:
    """Cumulative cost: billed, spent by the decisions, and by each simple rule."""
    begin_ns = begins_ns(state, job_id)
    slot_ns = state.slot_s * NS_PER_S
    spent, billed = spent_course(past, begin_ns), billed_course(past, begin_ns, slot_ns)
    rules = () if compared is None else compared.rules
    moments = moments_of(spent, billed, *(rule.cost for rule in rules))
    series = [
        ChartSeries(name="billed", colour="spot", values=at_moments(billed, moments), filled=True),
        ChartSeries(
            name="spent, by the decisions", colour="line-1", values=at_moments(spent, moments)
        ),
    ]
    for rule, colour in zip(rules, _LINES, strict=False):
        series.append(
            ChartSeries(
                name=rule.name,
                colour=colour,
                values=at_moments(rule.cost, moments),
                dashed=True,
            )
        )
    if len(moments) < 2:
        moments, series = [], []
    return TimeChart(
        name="cost",
        title="Cost so far, USD",
        unit="usd",
        at_s=[_s(at) for at in moments],
        series=series,
    )


def _s(ts_ns: int) -> float:
    return ts_ns / NS_PER_S
