"""Makes the page of one job, and the parts of it that are loaded after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from spotline.adapters.grpc.allocator.standing import etag_of
from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.making.job_charts import cost_chart, progress_chart
from spotline.adapters.page.sources import PageSources
from spotline.application.board.wording import place_text
from spotline.application.page.certified import held_in_slots
from spotline.application.page.gantt import GLYPHS, Span, gantt
from spotline.application.page.holdings import JobPast
from spotline.application.page.job import (
    Otherwise,
    begins_ns,
    lives_of,
    otherwise,
    rate_text,
    whole_id,
)
from spotline.application.page.jobs import job_row
from spotline.application.page.state import PageState
from spotline.application.page.trouble import troubles_of_job
from spotline.application.page.words import said
from spotline.application.read_model.ports import InputProblem, refused_input
from spotline.contracts.errors import SpotlineError
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.units import NS_PER_S

A_PAGE = 100
DENSITIES = ("compact", "feed", "raw")


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
        job_id, at, over = asked.params["job_id"], asked.at, False
        if desk is not None:
            part = job_id
            job_id, at, over = await desk.ask(
                lambda book: _when_asked(book.at(asked.at), part, asked)
            )
        try:
            found = await outlooks.outlook(job_id, at, token=asked.token)
        except SpotlineError as error:
            return {"outlook_refused": str(error)}
        return {"begun": found} if over else {"outlook": found}

    async def otherwise(self, asked: PageAsked) -> Model:
        """What the simple rules would have made of it."""
        desk, bench = self.sources.desk, self.sources.bench
        if desk is None or bench is None:
            return {}

        def needed(state: PageState) -> Callable[[], Otherwise] | None:
            job_id = whole_id(state, asked.params["job_id"], asked.tenant)
            lives = lives_of(state, job_id)
            if lives is None:
                return None
            over = state.jobs.board.entries[job_id].over
            begin_ns = begins_ns(state, job_id)
            past = state.holdings.of_job.get(job_id, JobPast())
            held = held_in_slots(past, begin_ns, lives.program, len(lives.records))
            law = state.laws.of_job.get(job_id)
            return partial(otherwise, lives, begin_ns, over=over, law=law, holdings=held)

        found = await desk.ask(lambda book: needed(book.at(asked.at)))
        if found is None:
            return {"compared": None}
        return {"compared": await bench.work(found)}

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
            "needs": troubles_of_job(state, row),
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
        waits = self.sources.outlooks is not None and self.sources.outlooks_wait
        wanted = not row.view.phase.over or _begins_untold(state, job_id)
        return {
            "outlook": outlook,
            "outlook_refused": found.get("outlook_refused", ""),
            "loads_outlook": waits
            and wanted
            and not {"outlook", "begun", "outlook_refused"} & found.keys(),
            "asks_outlooks": self.sources.outlooks is not None,
            "begun": found.get("begun"),
            "progress_chart": progress_chart(state, job_id, outlook, found.get("begun")),
        }


# --- parts --------------------------------------------------------------------------------------


def places_of(state: PageState) -> Mapping[str, str]:
    """What offerings are called, by id."""
    offerings = state.jobs.recent.offerings
    return {each.offering_id: place_text(each.offering_id, offerings) for each in offerings}


def _begins_untold(state: PageState, job_id: str) -> bool:
    """Whether a job that is over has begun, and no quote says how far it was expected to be when."""
    entry = state.jobs.board.entries[job_id]
    told = entry.quoted is not None and bool(entry.quoted.progress)
    return bool(entry.over and entry.first_slot_start_ns) and not told


def _when_asked(state: PageState, part: str, asked: PageAsked) -> tuple[str, int | None, bool]:
    """A job's whole id, at which slot its outlook is wanted, and whether it is over.

    Of a job that is over it is what was expected before its first slot opened.
    """
    job_id = whole_id(state, part, asked.tenant)
    if not _begins_untold(state, job_id):
        return job_id, asked.at, False
    first_ns = state.jobs.board.entries[job_id].first_slot_start_ns
    slot = (first_ns - state.start_ns(0)) // (state.slot_s * NS_PER_S)
    return job_id, max(0, slot - 1), True


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
        "done_at_end": {each.slot: each.progress_ppm for each in past.standings()},
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
