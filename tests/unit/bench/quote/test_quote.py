"""The bench of quotes: what is counted, and that a life on the future that came is the real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.futures import MarketFutures, OfferingFutures
from spotline.application.outlook.outlook import lives_of
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.bench.quote.run import Quoted, QuoteSaid, quoted_jobs, reliability, scored
from spotline.bench.quote.worlds import load_world
from spotline.contracts.errors import ContractError
from spotline.domain.market.generate import generate
from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import policy_named
from spotline.replay.clouds import Information
from spotline.replay.course import course_of, first_slot
from spotline.replay.parts import answer_each_alone
from spotline.replay.selector_run import run_selector


def quoted(cost: int, on_time: bool, *, said: float = 0.9, finish_ns: int = 5) -> Quoted:
    return Quoted(
        job_id=f"{cost}",
        hard=True,
        slots_known=9,
        said={
            "m": QuoteSaid(p10=90, p50=100, p90=120, on_time=said, finish_p10_ns=4, finish_p90_ns=0)
        },
        cost=cost,
        on_time=on_time,
        finish_ns=finish_ns,
    )


def test_costs_are_counted_within_below_and_above() -> None:
    rows = [quoted(80, True), quoted(90, True), quoted(120, False, finish_ns=0), quoted(121, True)]

    figures = scored(rows, "m")

    assert (figures["within"], figures["below"], figures["above"]) == (0.5, 0.25, 0.25)
    assert figures["width"] == pytest.approx(0.3)
    assert figures["brier"] == pytest.approx((3 * 0.01 + 0.81) / 4)
    assert figures["brier_rate"] == pytest.approx(0.75 * 0.25)
    # A job that is never done lies within an interval that is open to never.
    assert figures["finish_within"] == 1.0
    assert scored(rows, "unsaid") == {"jobs": 0}


def test_reliability_is_by_decile_of_what_was_said() -> None:
    rows = [quoted(1, True, said=1.0), quoted(2, False, said=0.95), quoted(3, False, said=0.12)]

    assert reliability(rows, "m") == [
        {"decile": 2, "jobs": 1, "said": 0.12, "came": 0.0},
        {"decile": 10, "jobs": 2, "said": 0.975, "came": 0.5},
    ]


def test_a_world_that_does_not_exist_or_is_not_here_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="--market: expected one of mixed"):
        load_world("moon", tmp_path, 0)
    assert load_world("skynomad-h100", tmp_path, 0) is None


def test_jobs_are_equal_for_equal_seeds_and_lie_in_their_part() -> None:
    market = generate("mixed", seed=3, slots=240, slot_s=1800, start_ns=0)

    jobs = quoted_jobs(market, 9, 5, (0.5, 1.0))

    assert jobs == quoted_jobs(market, 9, 5, (0.5, 1.0))
    assert all(120 <= first_slot(market, job) < 240 for job in jobs)


@pytest.mark.parametrize("policy_id", ["on_demand_only", "msu", "ahanp(0.5)"])
def test_on_the_future_that_came_the_life_is_the_one_that_was_lived(policy_id: str) -> None:
    market = generate("mixed", seed=4, slots=110, slot_s=1800, start_ns=0)
    course = course_of(market, "persistence", 6, Information.FULL)
    pool = (policy_named(policy_id),)
    options = SelectorOptions(competing=False, rehearsals=0)
    jobs = quoted_jobs(market, 4, 2, (0.4, 1.0))
    lived = {}

    def settled(state: SelectorState) -> None:
        for job in jobs:
            if first_slot(market, job) == state.slot + 1:
                known = SelectorSnapshot(state=state, options=options, pool=pool)
                lives = lives_of(known, job, market=_what_came(market, state.slot + 1))
                assert lives is not None
                (lived[job.job_id],) = lives.lives

    handler = SelectHandler(options, digest=lambda request: "", pool=pool)
    ran = run_selector(course, jobs, handler, answer_each_alone, 0, settled=settled)

    for job in jobs:
        closed, life = ran.watched.closed[job.job_id], lived[job.job_id]
        assert life.cost_micro_usd == closed.cost_micro_usd
        assert life.value_micro_usd == closed.value_micro_usd
        assert life.moves == ran.state.runs[job.job_id].moves


def _what_came(market: Market, first: int) -> MarketFutures:
    end = min(market.slots, first + 40)
    unknown = market.on_demand_provenance == UNKNOWN
    stock = np.where(unknown, UNCOUNTED, market.on_demand_available)
    found = {
        offering.offering_id: OfferingFutures(
            spot=market.spot_available[None, first:end, column].copy(),
            on_demand=stock[None, first:end, column].copy(),
            spot_price=market.spot_price_micro_usd[None, first:end, column].copy(),
            on_demand_price=int(market.on_demand_price_micro_usd[first, column]),
            spot_known=True,
        )
        for column, offering in enumerate(market.offerings)
    }
    assert np.all(np.diff(market.on_demand_price_micro_usd, axis=0) == 0)
    return MarketFutures(offerings=found, futures=1, slots=end - first)
