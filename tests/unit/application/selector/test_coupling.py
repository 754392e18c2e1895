"""Limits on all jobs in a crowd that clears: kept to, said to the allocator, and replayed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.allocation.messages import AllocateRequest
from spotline.application.spec import Call
from spotline.contracts.build import event_of
from spotline.contracts.envelope import StoredEntry
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobAdvanced
from spotline.domain.jobs.lot import holding_of
from spotline.domain.limits.spending import Spending, SpendLimit
from spotline.domain.market.generate import generate
from spotline.domain.market.market import Market
from spotline.replay.divergence import SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud, answer_in_process
from spotline.replay.verify import verify
from tests.fakes.recorded_run import manifest_of, play

POOL = "cloud:east-1"
SPENDING = Spending(
    quotas={POOL: 6}, total=SpendLimit(micro_usd_per_hour=40_000_000, micro_usd_per_day=10**9)
)


def settings_of(**selector: Any) -> dict[str, Any]:
    return {
        "forecaster": {"forecaster": "persistence", "horizon_slots": 2},
        "selector": {
            "rehearsals": 0,
            "limits": True,
            "clearing": True,
            "spending": SPENDING.to_json(),
            **selector,
        },
    }


def run_of(
    slots: int = 16, **selector: Any
) -> tuple[Market, list[StoredEntry], list[AllocateRequest], dict[str, Any]]:
    """A crowd under limits: its market, its log, the requests of its clearings, and its settings."""
    market = generate(
        "mixed", seed=3, slots=slots + 12, slot_s=1800, start_ns=1_767_571_200_000_000_000
    )
    settings = settings_of(**selector)
    requests: list[AllocateRequest] = []
    log: list[StoredEntry] = []

    def answer(call: Call) -> Sequence[Event]:
        assert isinstance(call.request, AllocateRequest)
        requests.append(call.request)
        return answer_in_process(call)

    jobs = generated_jobs(market, 10, 2)
    handlers = [*handlers_of(settings), ExactCloud()]
    play(handlers, market, jobs, record=log.append, answer=answer)
    return market, log, requests, settings


@pytest.mark.slow
def test_a_crowd_keeps_to_a_quota_and_to_a_limit_on_all_and_its_log_says_it_again() -> None:
    market, log, requests, settings = run_of(couples_limits=True)

    result = verify(log, handlers_of(settings), manifest_of(log), here=environment())

    assert result.exit_code == SAME, result.divergences
    assert any(request.quotas for request in requests)
    assert any(request.budget_micro_usd is not None for request in requests)
    pools = {offering.offering_id: offering.quota_pool for offering in market.offerings}
    spot: dict[int, int] = {}
    cost: dict[int, int] = {}
    for event in map(event_of, log):
        if isinstance(event, JobAdvanced):
            cost[event.slot] = cost.get(event.slot, 0) + event.slot_cost_micro_usd
            here = [lot for lot in event.lots if pools[lot.offering_id] == POOL]
            spot[event.slot] = spot.get(event.slot, 0) + holding_of(tuple(here)).spot
    assert max(spot.values()) <= 6
    # An hour is two slots.
    assert max(cost[slot] + cost.get(slot - 1, 0) for slot in cost) <= 40_000_000


@pytest.mark.slow
def test_logs_that_do_not_couple_ask_as_they_did() -> None:
    _, _, requests, _ = run_of(slots=6)

    assert requests
    assert not any(request.quotas for request in requests)
    assert all(request.budget_micro_usd is None for request in requests)
    assert not any(task.excepted_on_demand for request in requests for task in request.tasks)
