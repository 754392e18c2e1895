"""Makes the page of all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.adapters.page.sources import PageSources
from spotline.application.board.messages import JobFlag, JobPhase
from spotline.application.page.about import NOTHING_KNOWN, About
from spotline.application.page.book import PageBook
from spotline.application.page.job_list import JobList, JobOrder, JobsAsked, job_list
from spotline.application.page.now import rows_of
from spotline.application.page.state import PageState
from spotline.application.read_model.ports import InputProblem, refused_input

C = TypeVar("C", bound=Enum)


@dataclass(frozen=True, slots=True)
class SavedView:
    """A question that is asked often: its name, and what it changes of the query."""

    name: str
    query: dict[str, str]


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column of the table; `order` is empty where it cannot be sorted by."""

    title: str
    order: str = ""
    numeric: bool = False


SAVED_VIEWS: Sequence[SavedView] = (
    SavedView("All", {}),
    SavedView("Open", {"open": "yes", "sort": "deadline"}),
    SavedView("At risk", {"flag": "at_risk", "sort": "slack"}),
    SavedView("Tightest first", {"open": "yes", "sort": "slack"}),
    SavedView("Interrupted now", {"phase": "interrupted"}),
    SavedView("Waiting", {"phase": "waiting", "sort": "deadline"}),
    SavedView("Missed", {"phase": "missed"}),
    SavedView("Dearest first", {"sort": "-cost"}),
)

COLUMNS: Sequence[JobColumn] = (
    JobColumn("job", "name"),
    JobColumn("tenant", "tenant"),
    JobColumn("state", "phase"),
    JobColumn("deadline", "deadline"),
    JobColumn("slack", "slack", numeric=True),
    JobColumn("P(on time) now", numeric=True),
    JobColumn("quoted", numeric=True),
    JobColumn("done", "progress"),
    JobColumn("holds"),
    JobColumn("policy"),
    JobColumn("billed", "cost", numeric=True),
    JobColumn("quoted cost", numeric=True),
    JobColumn("on-demand quote", numeric=True),
    JobColumn("last reason"),
)


@dataclass(frozen=True, slots=True)
class JobsMaker:
    """Makes the page of all jobs; what is expected of those shown is asked of `sources`."""

    sources: PageSources

    def page(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """The jobs that the address asks for, of those that the caller may see."""
        model = jobs_page(state, asked, found)
        listing: JobList = model["listing"]
        beside = self.sources.listed is not None and not model["outlooks"]
        return {**model, "expects": beside and bool(_open_ids(listing))}

    async def expected(self, asked: PageAsked) -> Model:
        """What is known by now of the open jobs that the address asks for."""
        listed, desk = self.sources.listed, self.sources.desk
        if listed is None or desk is None:
            return {}

        def shown(book: PageBook) -> Sequence[str]:
            state = book.at(asked.at)
            rows = rows_of(state, NOTHING_KNOWN, asked.tenant)
            return _open_ids(job_list(state, rows, _question(asked)))

        job_ids = await desk.ask(shown)
        return {"open_ids": job_ids, "expected": listed.known(job_ids, asked.at)}

    def expected_part(self, state: PageState, asked: PageAsked, found: Model) -> Model:
        """What is known by now, to be filled in, and how many are still to come."""
        open_ids, expected = found.get("open_ids", ()), found.get("expected", {})
        waiting = sum(job_id not in expected for job_id in open_ids)
        return {
            "open_ids": open_ids,
            "expected": expected,
            "waiting": waiting,
            "untold": sum(outlook is None for outlook in expected.values()),
        }


def _open_ids(listing: JobList) -> Sequence[str]:
    """The jobs of a page that are not over, in its order."""
    return [each.row.job_id for each in listing.listed if not each.row.view.phase.over]


def jobs_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """The jobs that the address asks for, without what is expected of them."""
    about: About = found["about"]
    question = _question(asked)
    listing: JobList = job_list(state, found["rows"], question)
    return {
        "listing": listing,
        "question": question,
        "saved": SAVED_VIEWS,
        "columns": COLUMNS,
        "phases": tuple(JobPhase),
        "flags": tuple(JobFlag),
        "outlooks": bool(about.outlooks),
        "expects": False,
        "filtered": listing.found != listing.jobs,
    }


def _question(asked: PageAsked) -> JobsAsked:
    sort = asked.text("sort")
    return JobsAsked(
        tenant=asked.text("tenant"),
        phase=_member(JobPhase, "phase", asked.text("phase")),
        flag=_member(JobFlag, "flag", asked.text("flag")),
        text=asked.text("text").strip(),
        open_only=asked.text("open") == "yes",
        order=_member(JobOrder, "sort", sort.removeprefix("-")) or JobOrder.SUBMITTED,
        descending=sort.startswith("-"),
        page=asked.number("page", least=1) or 1,
    )


def _member(choices: type[C], field: str, value: str) -> C | None:
    """The member of that value, None for an empty one; `ViewRefused` where there is none."""
    if not value:
        return None
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(str(choice.value) for choice in choices)
        raise refused_input(
            InputProblem(field=field, expected=f"one of {known}", found=repr(value))
        ) from None
