"""Prices a thousand times too high that everybody believes: real selector, forecaster, allocation.

`python -m pytest -n0 -s tests/unit/replay/test_runaway_prices.py` prints what docs/operating.md says.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.jobs.job import Deadline, DeadlineKind, Job
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S, micro_usd_from_usd
from spotline.replay.closed_loop import run_rule
from spotline.replay.clouds import Information
from spotline.replay.course import course_of
from spotline.replay.summary import SPOTLINE
from tests.fakes.selector import SLOT_S, START_NS, job_of

SLOTS = 96
RUNAWAY = 30
ON_DEMAND_USD = 3.67
DONE = (JobOutcome.COMPLETED, JobOutcome.COMPLETED_LATE)


def market_at(factor: int, seed: int) -> Market:
    market = generate("mixed", seed=seed, slots=SLOTS, slot_s=SLOT_S, start_ns=START_NS)
    spot, on_demand = market.spot_price_micro_usd.copy(), market.on_demand_price_micro_usd.copy()
    spot[RUNAWAY:] *= factor
    on_demand[RUNAWAY:] *= factor
    return replace(market, spot_price_micro_usd=spot, on_demand_price_micro_usd=on_demand)


def jobs() -> list[Job]:
    """Ten jobs, one every five slots, each worth 1.5 times its on-demand cost; a quarter soft."""
    made = []
    for number in range(10):
        start_ns = START_NS + number * 5 * SLOT_S * NS_PER_S
        at_ns = start_ns + 24 * SLOT_S * NS_PER_S
        soft = number % 4 == 3
        work_slots = 4.0 + (number * 7) % 11
        deadline = Deadline(
            kind=DeadlineKind.SOFT if soft else DeadlineKind.HARD,
            at_ns=at_ns,
            expires_ns=at_ns + (10 * SLOT_S * NS_PER_S if soft else 0),
        )
        made.append(
            job_of(
                number,
                work_slots=work_slots,
                deadline=deadline,
                start_ns=start_ns,
                value_micro_usd=micro_usd_from_usd(1.5 * work_slots * ON_DEMAND_USD),
            )
        )
    return made


def run(factor: int, *, limits: bool, seed: int = 2) -> Mapping[str, JobClosed]:
    course = course_of(market_at(factor, seed), "persistence", 6, Information.FULL)
    options = SelectorOptions(rehearsals=0, limits=limits)
    return run_rule(course, jobs(), SPOTLINE, options, seed).watched.closed


def spent_usd(closed: Mapping[str, JobClosed]) -> float:
    return sum(job.cost_micro_usd for job in closed.values()) / 1e6


@pytest.mark.parametrize("seed", [2, 3])
def test_spend_stays_below_twice_the_undisturbed_and_what_is_stopped_says_why(seed: int) -> None:
    undisturbed = run(1, limits=True, seed=seed)
    runaway = run(1000, limits=True, seed=seed)
    unlimited = run(1000, limits=False, seed=seed)
    sys.stdout.write(
        f"\nseed {seed}: undisturbed {spent_usd(undisturbed):,.2f} USD, x1000 with limits "
        f"{spent_usd(runaway):,.2f}, x1000 without {spent_usd(unlimited):,.2f}\n"
    )

    assert spent_usd(runaway) <= 2 * spent_usd(undisturbed)
    assert spent_usd(unlimited) > 100 * spent_usd(undisturbed)
    before = [name for name, job in undisturbed.items() if job.slot < RUNAWAY]
    assert before
    assert all(runaway[name] == undisturbed[name] for name in before)
    stopped = [job for name, job in runaway.items() if name not in before]
    assert {job.outcome for job in stopped} <= {JobOutcome.STOPPED_BY_LIMIT, *DONE}
    assert any(job.outcome is JobOutcome.STOPPED_BY_LIMIT for job in stopped)


def test_far_from_every_limit_nothing_is_decided_otherwise() -> None:
    assert run(1, limits=True) == run(1, limits=False)


def test_a_deadline_that_is_still_worth_it_is_kept_at_any_price() -> None:
    """At ten times the price most are worth no more; one of a hundred times the value is."""
    dear = [replace(job, value_micro_usd=100 * job.value_micro_usd) for job in jobs()]
    course = course_of(market_at(10, 2), "persistence", 6, Information.FULL)
    options = SelectorOptions(rehearsals=0, limits=True)

    closed = run_rule(course, dear, SPOTLINE, options, 2).watched.closed

    assert {job.outcome for job in closed.values()} <= set(DONE)
    assert all(
        job.outcome is JobOutcome.COMPLETED for name, job in closed.items() if name != "job-3"
    )
