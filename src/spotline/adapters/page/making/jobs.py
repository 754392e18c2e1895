"""Makes the page of all jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from spotline.adapters.page.app import Model
from spotline.adapters.page.asked import PageAsked
from spotline.application.board.messages import JobFlag, JobPhase
from spotline.application.page.about import About
from spotline.application.page.job_list import JobList, JobOrder, JobsAsked, job_list
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


def jobs_page(state: PageState, asked: PageAsked, found: Model) -> Model:
    """The jobs that the address asks for, of those that the caller may see."""
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
