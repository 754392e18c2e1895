"""What simple rules would have cost the jobs that are over, on what the market offered each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from spotline.application.board.otherwise import (
    OtherCosts,
    OtherLives,
    other_costs,
    other_lives,
)
from spotline.application.page.state import PageState

MOST_COMPARED = 100
"""Replaying a job takes milliseconds: of so many at most it is worked out for one page."""


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
