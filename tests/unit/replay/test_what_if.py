"""Other deadlines and prices: read as people write them, applied to jobs and markets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from spotline.contracts.errors import ContractError
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.units import NS_PER_S
from spotline.replay.jobs import generated_jobs
from spotline.replay.what_if import WhatIf, what_if_of
from tests.fakes.recorded_run import small_market

HOUR_NS = 3600 * NS_PER_S


@pytest.fixture(scope="module")
def market():
    return small_market(slots=48)


@pytest.fixture(scope="module")
def jobs(market):
    return generated_jobs(market, 6, 2)


def test_nothing_said_changes_nothing(market, jobs) -> None:
    terms = what_if_of("", "")

    assert terms == WhatIf()
    assert terms.describe() == []
    assert terms.jobs(jobs) == jobs
    assert terms.market(market) is market


@pytest.mark.parametrize(("text", "moved_ns"), [("+6h", 6 * HOUR_NS), ("-90m", -3 * HOUR_NS // 2)])
def test_deadlines_move_with_the_end_of_their_worth(jobs, text: str, moved_ns: int) -> None:
    for job, changed in zip(jobs, what_if_of(text).jobs(jobs), strict=True):
        assert changed.deadline.at_ns == job.deadline.at_ns + moved_ns
        assert changed.deadline.expires_ns == job.deadline.expires_ns + moved_ns
        assert replace(changed, deadline=job.deadline) == job


def test_a_factor_stretches_the_time_since_the_start(jobs) -> None:
    soft = next(job for job in jobs if job.deadline.kind is DeadlineKind.SOFT)

    (changed,) = what_if_of("x1.5").jobs([soft])

    for before, after in (
        (soft.deadline.at_ns, changed.deadline.at_ns),
        (soft.deadline.expires_ns, changed.deadline.expires_ns),
    ):
        assert 2 * (after - soft.start_ns) == 3 * (before - soft.start_ns)


def test_prices_are_scaled_and_rounded_half_up(market) -> None:
    changed = what_if_of("", "spot=1.2, on_demand=0.5").market(market)

    assert np.array_equal(
        changed.spot_price_micro_usd, (market.spot_price_micro_usd * 12 + 5) // 10
    )
    assert np.array_equal(
        changed.on_demand_price_micro_usd, (market.on_demand_price_micro_usd + 1) // 2
    )
    assert np.array_equal(changed.spot_available, market.spot_available)


def test_a_price_never_becomes_nothing(market) -> None:
    assert what_if_of("", "spot=0.000001").market(market).spot_price_micro_usd.min() == 1


def test_what_is_changed_is_said() -> None:
    assert what_if_of("+6h", "spot=2").describe() == ["deadlines +6h", "spot prices x 2"]
    assert what_if_of("-1d", "").describe() == ["deadlines -1d"]
    assert what_if_of("x1.5", "on_demand=0.5").describe() == [
        "time to the deadline x 1.5",
        "on-demand prices x 0.5",
    ]


@pytest.mark.parametrize("text", ["6h", "+", "+6", "x0", "x-1", "x", "1.5", "+6 parsecs", "x1e9"])
def test_what_is_no_deadline_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match=r"--deadline: expected a duration .* found"):
        what_if_of(text)


@pytest.mark.parametrize(
    "text", ["1.2", "spot", "spot=", "spot=0", "spot=-1", "gpu=2", "spot=1,spot=2"]
)
def test_what_are_no_prices_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match=r"--price-factor: expected factors .* found"):
        what_if_of("", text)


def test_a_job_that_would_be_due_before_it_starts_is_named(jobs) -> None:
    with pytest.raises(ContractError, match=f"found that of {jobs[0].name}"):
        what_if_of("-30d").jobs(jobs)
