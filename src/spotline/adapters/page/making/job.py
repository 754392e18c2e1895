"""Makes the page of one job, and the parts of it that are loaded after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spotline.adapters.grpc.allocator.standing import etag_of
from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.charts import ChartBand, ChartMark, ChartSeries, Colour, TimeChart
from spotline.adapters.page.sources import PageSources
from spotline.application.board.wording import place_text
from spotline.application.page.gantt import GLYPHS, Span, gantt
from spotline.application.page.holdings import JobPast
from spotline.application.page.job import (
    Expected,
    Otherwise,
    at_moments,
    begins_ns,
    billed_course,
    lives_of,
    moments_of,
    otherwise,
    progress_lines,
    rate_text,
    spent_course,
    whole_id,
)
from spotline.application.page.jobs import job_row
from spotline.application.page.state import PageState
from spotline.application.page.words import said
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import NS_PER_S

A_PAGE = 100
DENSITIES = ("compact", "feed", "raw")
_LINES: tuple[Colour, ...] = ("on-demand", "line-3", "line-4", "line-1")


@dataclass(frozen=True, slots=True)
class JobMaker:
    """Makes pages of one job; what they need beside the book is asked of `sources`."""

    sources: PageSources

    # --- what is asked of others ---

    async def outlook_now(self, asked: PageAsked) -> Model:
        """What is expected, where that is known at once."""
        if self.sources.outlooks_wait:
            return {}
        return await self.outlook(asked)

    async def outlook(self, asked: PageAsked) -> Model:
        """What is expected, however long that takes."""
        outlooks, desk = self.sources.outlooks, self.sources.desk
        if outlooks is None:
            return {}
        job_id = asked.params["job_id"]
        if desk is not None:
            part = job_id
            job_id = await desk.ask(lambda book: whole_id(book.at(asked.at), part, asked.tenant))
        try:
            return {"outlook": await outlooks.outlook(job_id, asked.at, token=asked.token)}
        except SpotlineError as error:
            return {"outlook_refused": str(error)}

    async def otherwise(self, asked: PageAsked) -> Model:
        """What the simple rules would have made of it."""
        desk, bench = self.sources.desk, self.sources.bench
        if desk is None or bench is None:
            return {}

        def needed(state: PageState) -> tuple[Any, int, bool] | None:
            job_id = whole_id(state, asked.params["job_id"], asked.tenant)
            lives = lives_of(state, job_id)
            if lives is None:
                return None
            over = state.jobs.board.entries[job_id].over
            return lives, begins_ns(state, job_id), over

        found = await desk.ask(lambda book: needed(book.at(asked.at)))
        if found is None:
            return {"compared": None}
        lives, begin_ns, over = found
        return {"compared": await bench.work(lambda: otherwise(lives, begin_ns, over=over))}

    # --- pages ---

    def page(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """All of a job's page."""
        job_id = whole_id(state, asked.params["job_id"], asked.tenant)
        row = job_row(state, job_id, found.get("outlook"))
        past = state.holdings.of_job.get(job_id, JobPast())
        names = places_of(state)
        owners = state.jobs.owners(job_id)
        return {
            "row": row,
            "job": row.status.job,
            "entry": state.jobs.board.entries[job_id],
            "said": said,
            "names": names,
            "etag": "" if owners is None else etag_of(owners),
            "counts": rate_text(row.status.job),
            "last_seq": _last_seq(state, job_id),
            **self._outlook_part(state, job_id, found),
            **_life(state, job_id, past, names),
            **_money(state, job_id, past),
            **_feed(state, job_id, asked),
            "part": False,
            "compares": self.sources.desk is not None and self.sources.bench is not None,
        }

    def outlook_part(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """What is expected and how far it is: loaded after the page."""
        job_id = whole_id(state, asked.params["job_id"], asked.tenant)
        row = job_row(state, job_id, found.get("outlook"))
        return {
            "row": row,
            "job": row.status.job,
            "part": True,
            **self._outlook_part(state, job_id, found),
        }

    def otherwise_part(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """The comparison with simple rules: loaded after the page."""
        job_id = whole_id(state, asked.params["job_id"], asked.tenant)
        row = job_row(state, job_id)
        past = state.holdings.of_job.get(job_id, JobPast())
        compared: Otherwise | None = found.get("compared")
        chart = cost_chart(state, job_id, past, compared)
        return {"row": row, "job": row.status.job, "compared": compared, "cost_chart": chart}

    def _outlook_part(self, state: PageState, job_id: str, found: Model) -> Model:
        outlook: JobOutlook | None = found.get("outlook")
        row = job_row(state, job_id, outlook)
        over = row.view.phase.over
        waits = self.sources.outlooks is not None and self.sources.outlooks_wait
        return {
            "outlook": outlook,
            "outlook_refused": found.get("outlook_refused", ""),
            "loads_outlook": waits
            and not over
            and not {"outlook", "outlook_refused"} & found.keys(),
            "asks_outlooks": self.sources.outlooks is not None,
            "progress_chart": progress_chart(state, job_id, outlook),
        }


# --- parts --------------------------------------------------------------------------------------


def places_of(state: PageState) -> Mapping[str, str]:
    """What offerings are called, by id."""
    offerings = state.jobs.recent.offerings
    return {each.offering_id: place_text(each.offering_id, offerings) for each in offerings}


def _last_seq(state: PageState, job_id: str) -> int:
    raw = state.raw.of_job.get(job_id)
    return raw[-1].seq if raw else 0


def _life(state: PageState, job_id: str, past: JobPast, names: Mapping[str, str]) -> Model:
    job = state.jobs.statuses[job_id].job
    begin_ns = begins_ns(state, job_id)
    # The open slot is over for what has been said of it.
    now_ns = max(state.jobs.board.now_ns, state.now_ns)
    spans = past.all_spans()
    ends = [past.closed_ns or now_ns, *(span.until_ns for span in spans)]
    last_ns = max(*ends, *(mark.at_ns for mark in past.marks), begin_ns + 1)
    if not past.closed_ns or past.closed_ns < job.deadline.at_ns < past.closed_ns + (
        past.closed_ns - begin_ns
    ):
        last_ns = max(last_ns, job.deadline.at_ns)
    first_ns = min([begin_ns, *(mark.at_ns for mark in past.marks if mark.at_ns)])
    span = Span(
        begin_ns=first_ns,
        end_ns=last_ns + (last_ns - first_ns) // 50,
        now_ns=past.closed_ns or now_ns,
        over=bool(past.closed_ns),
        deadline_ns=job.deadline.at_ns,
    )
    marks = sorted(past.marks, key=lambda mark: (mark.at_ns, mark.seq))
    return {
        "gantt": gantt(spans, marks, span, names),
        "spans": spans[-A_PAGE:],
        "spans_left_out": max(0, len(spans) - A_PAGE),
        "marks": marks[-A_PAGE:],
        "marks_left_out": max(0, len(marks) - A_PAGE),
        "losses": past.losses[-A_PAGE:],
        "glyphs": GLYPHS,
        "checkpoints": [mark for mark in marks if mark.kind.name in ("SAVED", "NOT_SAVED")][-20:],
    }


def _money(state: PageState, job_id: str, past: JobPast) -> Model:
    bill = past.bill()
    return {
        "bill": bill,
        "bill_total": sum(line.cost_micro_usd for line in bill),
        "own_cost_chart": cost_chart(state, job_id, past, None),
    }


def _feed(state: PageState, job_id: str, asked: PageAsked) -> Model:
    density = asked.text("feed") or DENSITIES[0]
    if density not in DENSITIES:
        raise refused_input(
            InputProblem(field="feed", expected=" or ".join(DENSITIES), found=repr(density))
        )
    lines: Sequence[Any]
    if density == "raw":
        lines = list(reversed(state.raw.of_job.get(job_id, ())))
    else:
        lines = list(state.feed.newest_first(job_id, with_unchanged=density == "feed"))
    pages = max(1, -(-len(lines) // A_PAGE))
    page = min(asked.number("page", least=1) or 1, pages)
    return {
        "density": density,
        "densities": DENSITIES,
        "lines": lines[(page - 1) * A_PAGE : page * A_PAGE],
        "feed_page": page,
        "feed_pages": pages,
        "feed_count": len(lines),
    }


def progress_chart(state: PageState, job_id: str, outlook: JobOutlook | None) -> TimeChart:
    """Work done against the even line, with what is expected as a fan."""
    row = job_row(state, job_id, outlook)
    expected = _expected(state, job_id, outlook)
    latest_ns = 0 if row.view.phase.over else row.view.latest_on_demand_start_ns
    lines = progress_lines(state, job_id, expected, latest_ns)
    courses = (lines.done, lines.even, lines.latest, lines.quick, lines.middle, lines.slow)
    moments = moments_of(*courses)
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
    if lines.slow:
        low = len(series)
        for name, course in (
            ("slowest of 10 futures", lines.slow),
            ("expected, middle future", lines.middle),
            ("quickest of 10 futures", lines.quick),
        ):
            values = at_moments(course, moments) if course else [None] * len(moments)
            values = _then_all(values) if course and course[-1][1] >= 100.0 else values
            series.append(ChartSeries(name=name, colour="spot", values=values, dashed=True))
        bands.append(ChartBand(name="8 of 10 futures", low=low, high=low + 2, colour="spot"))
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


def _then_all(values: Sequence[float | None]) -> list[float | None]:
    """A line that has reached all work stays there, so that the band ends where the slow one does."""
    reached = False
    filled: list[float | None] = []
    for value in values:
        filled.append(100.0 if reached and value is None else value)
        reached = reached or (value is not None and value >= 100.0)
    return filled


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
