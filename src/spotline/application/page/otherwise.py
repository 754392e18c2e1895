"""What simple rules would have cost the jobs that are over, on what the market offered each."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from spotline.application.allocator.jobs_state import JobsState
from spotline.application.board.otherwise import (
    OtherCosts,
    OtherLives,
    other_costs,
    other_lives,
)
from spotline.application.page.applied import Applied
from spotline.domain.events.lifecycle import JobClosed
from spotline.domain.events.market import SlotOpened

if TYPE_CHECKING:
    from spotline.application.page.state import PageState

MOST_COMPARED = 100
"""Replaying a job takes milliseconds: of so many at most it is worked out for one page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledJob:
    """A job that is over and whose deadline has passed: no rule would spend any more on it."""

    job_id: str
    tenant: str
    slot: int
    spent_micro_usd: int


@dataclass(slots=True)
class OtherwiseChapter:
    """`settled` are the jobs that are over and whose deadline has passed, in that order."""

    settled: list[SettledJob] = field(default_factory=list)
    _due: dict[str, tuple[int, SettledJob]] = field(default_factory=dict)

    def fold(self, told: Applied, jobs: JobsState) -> None:
        """Apply an event."""
        event = told.event
        if isinstance(event, JobClosed) and event.job_id in jobs.statuses:
            due = max(event.slot, jobs.statuses[event.job_id].deadline_slot) + 1
            self._due[event.job_id] = (
                due,
                SettledJob(
                    job_id=event.job_id,
                    tenant=event.tenant,
                    slot=due,
                    spent_micro_usd=event.cost_micro_usd,
                ),
            )
        elif isinstance(event, SlotOpened):
            passed = [job_id for job_id, (due, _) in self._due.items() if due <= event.slot]
            self.settled.extend(self._due.pop(job_id)[1] for job_id in passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesCompared:
    """What jobs cost by their decisions, and what rules would have cost the same jobs, micro-USD.

    Of `untold` jobs it cannot be told: they moved to where they run at other rates, or what they
    were offered is forgotten. `older` were over before, and are not worked out.
    """

    jobs: int
    untold: int
    older: int
    spent_micro_usd: int
    on_demand_micro_usd: int
    msu_micro_usd: int


def compared(state: PageState, tenant: str = "") -> RulesCompared:
    """Replay on-demand alone and the MSU rule for the last jobs of a tenant (empty: of all)."""
    settled = [each for each in state.otherwise.settled if tenant in ("", each.tenant)]
    latest = settled[-MOST_COMPARED:]
    jobs = spent = on_demand = msu = 0
    for each in latest:
        job = state.jobs.statuses[each.job_id].job
        lives = other_lives(state.jobs.board.offers.jobs.get(each.job_id), job, state.jobs.recent)
        if lives is None:
            continue
        costs = _costs(lives)
        jobs += 1
        spent += each.spent_micro_usd
        on_demand += costs.on_demand_micro_usd
        msu += costs.msu_micro_usd
    return RulesCompared(
        jobs=jobs,
        untold=len(latest) - jobs,
        older=len(settled) - len(latest),
        spent_micro_usd=spent,
        on_demand_micro_usd=on_demand,
        msu_micro_usd=msu,
    )


@lru_cache(maxsize=4 * MOST_COMPARED)
def _costs(lives: OtherLives) -> OtherCosts:
    return other_costs(lives)
