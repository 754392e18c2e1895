"""The page of all jobs: filtered and ordered by what its address says, a hundred at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from spotline.application.board.messages import JobFlag, JobPhase
from spotline.application.page.jobs import SeenJob
from spotline.application.page.now import PhaseCount, phase_counts, tightness
from spotline.application.page.state import PageState
from spotline.domain.policies.answer import DecisionReason

PAGE_SIZE = 100


class JobOrder(Enum):
    """By what jobs are ordered; each is ascending, and may be turned round."""

    SUBMITTED = "submitted"
    NAME = "name"
    TENANT = "tenant"
    PHASE = "phase"
    DEADLINE = "deadline"
    SLACK = "slack"
    PROGRESS = "progress"
    COST = "cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsAsked:
    """Which jobs are shown; what is empty or None leaves none out. `page` counts from 1.

    With `open_only` jobs that are over are left out; `text` is found in names and ids.
    """

    tenant: str = ""
    phase: JobPhase | None = None
    flag: JobFlag | None = None
    text: str = ""
    open_only: bool = False
    order: JobOrder = JobOrder.SUBMITTED
    descending: bool = False
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedJob:
    """A job with what the list says beyond its view; money is micro-USD, None: not known."""

    row: SeenJob
    slack_s: int | None
    tight: str
    on_time_ppm: int | None
    quoted_on_time_ppm: int | None
    quoted_micro_usd: int | None
    on_demand_micro_usd: int | None
    reason: DecisionReason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobList:
    """A page of jobs. `found` are all that the filters leave, `jobs` all that the caller may see."""

    listed: tuple[ListedJob, ...]
    found: int
    jobs: int
    page: int
    pages: int
    phases: tuple[PhaseCount, ...]
    tenants: tuple[str, ...]


def job_list(state: PageState, seen: Sequence[SeenJob], asked: JobsAsked) -> JobList:
    """Choose the jobs that are asked for, of those that the caller may see."""
    found = sorted((row for row in seen if _wanted(row, asked)), key=_KEYS[asked.order])
    if asked.descending:
        found.reverse()
    pages = max(1, -(-len(found) // PAGE_SIZE))
    page = min(asked.page, pages)
    shown = found[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]
    return JobList(
        listed=tuple(_listed(state, row) for row in shown),
        found=len(found),
        jobs=len(seen),
        page=page,
        pages=pages,
        phases=phase_counts(seen),
        tenants=tuple(sorted({row.status.job.tenant for row in seen})),
    )


def _wanted(row: SeenJob, asked: JobsAsked) -> bool:
    text = asked.text.casefold()
    return (
        asked.tenant in ("", row.status.job.tenant)
        and asked.phase in (None, row.view.phase)
        and (asked.flag is None or asked.flag in row.view.flags)
        and not (asked.open_only and row.view.phase.over)
        and (not text or text in row.name.casefold() or row.job_id.startswith(text))
    )


def _listed(state: PageState, row: SeenJob) -> ListedJob:
    view, quoted = row.view, row.view.quoted
    slack_s = view.slack_s if view.latest_on_demand_start_ns else None
    return ListedJob(
        row=row,
        slack_s=slack_s,
        tight="" if slack_s is None else tightness(slack_s, state.slot_s),
        on_time_ppm=None if view.outlook is None else view.outlook.on_time_probability_ppm,
        quoted_on_time_ppm=None if quoted is None else quoted.on_time_probability_ppm,
        quoted_micro_usd=None if quoted is None else quoted.expected_cost_micro_usd,
        on_demand_micro_usd=state.fleet.quoted_on_demand.get(row.job_id),
        reason=state.jobs.board.entries[row.job_id].reason,
    )


def _by_slack(row: SeenJob) -> tuple[bool, int, str]:
    known = bool(row.view.latest_on_demand_start_ns)
    return not known, row.view.slack_s, row.job_id


_PHASES: Sequence[JobPhase] = tuple(JobPhase)
_KEYS: dict[JobOrder, Callable[[SeenJob], tuple[int | str | bool, ...]]] = {
    JobOrder.SUBMITTED: lambda row: (row.status.submitted_ns, row.job_id),
    JobOrder.NAME: lambda row: (row.name.casefold(), row.job_id),
    JobOrder.TENANT: lambda row: (row.status.job.tenant, row.name.casefold(), row.job_id),
    JobOrder.PHASE: lambda row: (_PHASES.index(row.view.phase), row.job_id),
    JobOrder.DEADLINE: lambda row: (row.status.job.deadline.at_ns, row.job_id),
    JobOrder.SLACK: _by_slack,
    JobOrder.PROGRESS: lambda row: (row.status.progress_ppm, row.job_id),
    JobOrder.COST: lambda row: (row.view.money.billed_micro_usd, row.job_id),
}
