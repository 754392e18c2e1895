"""Rules and bounds are those of the same jobs, slot by slot, and nobody beats the certified bound."""

from __future__ import annotations

from itertools import pairwise

import pytest

from spotline.application.board.otherwise import other_costs
from spotline.application.page.certified import CertifiedJob, CertifiedSum, certified_bound
from spotline.application.page.comparing import (
    JobsToCompare,
    RulesCompared,
    compared,
    jobs_to_compare,
    rule_costs,
)
from spotline.application.page.state import PageState
from tests.fakes.page_log import small_log


@pytest.fixture(scope="module")
def state() -> PageState:
    folded = PageState()
    for told in small_log():
        folded.fold(told)
    return folded


@pytest.fixture(scope="module")
def wanted(state: PageState) -> JobsToCompare:
    return jobs_to_compare(state)


@pytest.fixture(scope="module")
def told(wanted: JobsToCompare) -> RulesCompared:
    return compared(wanted, [rule_costs(job.lives) for job in wanted.jobs])


def test_lines_end_at_what_jobs_cost_and_would_have(
    wanted: JobsToCompare, told: RulesCompared, state: PageState
) -> None:
    by_rules = [other_costs(job.lives) for job in wanted.jobs]
    assert wanted.jobs
    assert told.spent_micro_usd == sum(
        state.jobs.statuses[job.job_id].cost_micro_usd for job in wanted.jobs
    )
    assert told.total_micro_usd("msu") == sum(costs.msu_micro_usd for costs in by_rules)
    assert told.total_micro_usd("on_demand_only") == sum(
        costs.on_demand_micro_usd for costs in by_rules
    )


def test_lines_never_fall(told: RulesCompared) -> None:
    assert len(told.points) > 2
    for before, after in pairwise(told.points):
        assert before.slot < after.slot
        assert before.spent_micro_usd <= after.spent_micro_usd
        for less, more in zip(before.rules_micro_usd, after.rules_micro_usd, strict=True):
            assert less <= more


def test_only_the_latest_jobs_of_a_tenant_are_compared(
    state: PageState, wanted: JobsToCompare
) -> None:
    latest = jobs_to_compare(state, most=1)
    assert [job.job_id for job in latest.jobs] == [wanted.jobs[-1].job_id]
    assert latest.older == len(wanted.jobs) + wanted.untold - 1
    assert jobs_to_compare(state, "nobody").jobs == ()


def test_without_luck_no_job_earned_more_than_the_certified_bound(wanted: JobsToCompare) -> None:
    found = []
    for job in wanted.jobs:
        assert job.law is not None
        bound = certified_bound(job.lives, job.law, job.holdings)
        assert bound is not None
        earned = job.value_micro_usd - job.spent_micro_usd
        certified = CertifiedJob(job_id=job.job_id, utility_micro_usd=earned, bound=bound)
        assert certified.missing_micro_usd >= 0
        assert earned <= bound.clairvoyant_micro_usd + 1
        found.append(certified)

    total = CertifiedSum(jobs=tuple(found))

    assert total.missing_micro_usd >= 0
    assert abs(
        total.ceiling_micro_usd
        - (total.utility_micro_usd - total.luck_micro_usd)
        - total.missing_micro_usd
    ) <= len(found)
    assert total.reached_ppm is not None
    assert 0 < total.reached_ppm <= 1_000_000


def test_the_law_of_a_job_is_that_of_when_it_began(state: PageState) -> None:
    """What is learned later does not change what a job is held against."""
    folded = PageState()
    met: dict[str, str] = {}
    for event in small_log():
        folded.fold(event)
        for job_id, named in folded.laws.of_job.items():
            assert met.setdefault(job_id, named.law_id) == named.law_id
    assert met == {job_id: named.law_id for job_id, named in state.laws.of_job.items()}
