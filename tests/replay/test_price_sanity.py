"""Prices x1000 from slot 30 on: what the services decide and pay, in a closed loop without broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from spotline.application.market_ingest.handler import IngestOptions
from spotline.contracts.build import event_of
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdvanced, JobClosed, JobOutcome
from spotline.domain.events.limits import QuoteQuarantined
from spotline.domain.jobs.job import Job
from spotline.domain.market.market import Market
from spotline.replay.course import first_slot
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from tests.fakes.recorded_run import play, small_market

FROM = 30
SLOTS = 60
# Policies are drawn by the ids of events, and a doubted price adds events: the jobs begin before.
SETTINGS = {
    "selector": {"rehearsals": 0},
    "forecaster": {"forecaster": "persistence", "horizon_slots": 6},
}
JUDGED = IngestOptions(price_sanity=True, stale_after_s=0)


def steady(market: Market) -> Market:
    """The market with the prices and counts of its first slot all the time."""
    names = (
        *("spot_price_micro_usd", "on_demand_price_micro_usd"),
        *("spot_available", "spot_provenance", "on_demand_available", "on_demand_provenance"),
    )
    kept = {name: np.repeat(getattr(market, name)[:1], market.slots, axis=0) for name in names}
    kept["spot_available"] = np.full_like(kept["spot_available"], 40)
    return replace(market, **kept)


def thousandfold(market: Market) -> Market:
    changed = {}
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
        prices = getattr(market, name).copy()
        prices[FROM:] *= 1_000
        changed[name] = prices
    return replace(market, **changed)


def early(market: Market, seed: int) -> tuple[Job, ...]:
    """Jobs that begin while prices are believed."""
    return tuple(job for job in generated_jobs(market, 6, seed) if first_slot(market, job) < FROM)


def run(market: Market, jobs: Sequence[Job], options: IngestOptions = JUDGED) -> list[Event]:
    events: list[Event] = []
    play(
        [*handlers_of(SETTINGS), ExactCloud()],
        market,
        jobs,
        record=lambda entry: events.append(event_of(entry)),
        ingest=options,
    )
    return events


def of(events: Sequence[Event], *kinds: type[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, kinds)]


def cost_micro_usd(events: Sequence[Event]) -> int:
    return sum(event.slot_cost_micro_usd for event in events if isinstance(event, JobAdvanced))


def buys_new_spot(events: Sequence[Event]) -> bool:
    """Whether a job gets spot from slot `FROM` on that it did not hold before."""
    held: dict[str, dict[str, int]] = {}
    for event in of(events, AllocationDecided):
        now = {lot.offering_id: lot.spot for lot in event.lots}
        before = held.get(event.job_id, {})
        if event.slot >= FROM and any(spot > before.get(at, 0) for at, spot in now.items()):
            return True
        held[event.job_id] = now
    return False


@pytest.mark.parametrize("seed", [3, 5, 6, 8])
def test_a_thousandfold_price_changes_no_decision_and_no_bill(seed: int) -> None:
    market = steady(small_market(slots=SLOTS))
    jobs = early(market, seed)

    before, after = run(market, jobs), run(thousandfold(market), jobs)

    assert max(event.slot for event in of(before, JobAdvanced)) > FROM
    assert of(after, QuoteQuarantined)
    kinds = (AllocationDecided, JobAdvanced, JobClosed)
    assert of(after, *kinds) == of(before, *kinds)


@pytest.mark.parametrize("seed", [3, 5, 6, 8])
def test_on_a_market_that_moves_all_jobs_end_as_they_did_and_cost_hardly_more(seed: int) -> None:
    market = small_market(slots=SLOTS)
    jobs = early(market, seed)

    before, after = run(market, jobs), run(thousandfold(market), jobs)

    ends = [(event.job_id, event.outcome) for event in of(before, JobClosed)]
    assert sorted((event.job_id, event.outcome.value) for event in of(after, JobClosed)) == sorted(
        (job_id, outcome.value) for job_id, outcome in ends
    )
    assert {outcome for _, outcome in ends} == {JobOutcome.COMPLETED}
    # What is really charged follows a market that moved; what is decided, the last that was believed.
    assert cost_micro_usd(after) <= 1.2 * cost_micro_usd(before)


def test_without_price_sanity_the_price_is_taken() -> None:
    market = small_market(slots=SLOTS)
    jobs = early(market, 5)

    taken = run(thousandfold(market), jobs, IngestOptions())

    assert not of(taken, QuoteQuarantined)
    assert cost_micro_usd(taken) > 10 * cost_micro_usd(run(market, jobs))
