"""Bids of all tasks cleared together: who yields, what it costs, and that a log says it again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.adapters.eventlog.manifest import environment
from spotline.application.allocation.allocate import allocate
from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocation.tasks import task_view
from spotline.contracts.build import event_of
from spotline.domain.crowd.tenants import TenantWeight
from spotline.domain.events.allocation import AllocationAnswered
from spotline.domain.events.capacity import SlotDecided
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.market.generate import generate
from spotline.domain.market.offering import Count, Provenance
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from spotline.replay.divergence import SAME
from spotline.replay.handlers import handlers_of
from spotline.replay.host import LocalHost
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import ExactCloud
from spotline.replay.verify import verify
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, offering, slot_opened
from tests.fakes.recorded_run import SETTINGS, manifest_of, play


def task(one, *, held: int = 0, policy: str = "msu", elapsed: int = 0) -> JobTask:
    return JobTask(
        job=one,
        policy_id=policy,
        offering_id=EAST,
        instance_type=offering(EAST).instance_type,
        first_slot_start_ns=START_NS,
        elapsed_slots=elapsed,
        progress_quanta=0,
        holding=Lot(offering_id=EAST, spot=held),
        interrupted=False,
        pending_overhead_s=0,
        spent_micro_usd=0,
        memory=(),
        spot_firm=True,
    )


def asked(*tasks: JobTask, spot: int, clearing: bool = True, reclaimed=()) -> AllocateRequest:
    quotes = tuple(
        replace(
            quoted,
            quote=replace(
                quoted.quote,
                spot_available=Count(instances=spot, provenance=Provenance.OBSERVED),
            ),
        )
        for quoted in slot_opened(0).quotes
    )
    return AllocateRequest(
        slot=0,
        revision=0,
        offset_s=0,
        slot_s=SLOT_S,
        quotes=quotes,
        forecast=None,
        reason=DecisionReason.POLICY,
        tasks=tasks,
        clearing=clearing,
        reclaimed_offering_ids=reclaimed,
    )


def spot_of(request: AllocateRequest) -> list[int]:
    return [holding_of(answer.lots).spot for answer in allocate(request).answers]


def test_no_more_is_given_than_there_is_and_who_yields_says_to_whom() -> None:
    one, other = job("one"), job("other")
    request = asked(task(one), task(other), spot=4)

    answer = allocate(request)

    given = [holding_of(each.lots).spot for each in answer.answers]
    assert sum(given) <= 4
    yielding = [each for each in answer.answers if each.yielded is not None]
    assert len(yielding) == 1
    assert yielding[0].yielded is not None
    assert yielding[0].yielded.to_job_id != yielding[0].job_id
    assert [worth.offering_id for worth in answer.spot_worth] == [EAST]


def test_where_there_is_enough_clearing_is_serving_in_order() -> None:
    tasks = (task(job("one")), task(job("other"), policy="uniform_progress"))
    crowd = asked(*tasks, spot=100)

    answer = allocate(crowd)

    assert answer.answers == allocate(replace(crowd, clearing=False)).answers
    assert answer.spot_worth == ()


def test_yielding_to_another_job_is_no_interruption() -> None:
    held = task(job("one"), held=4)
    request = asked(held, spot=2)
    left = ResidualCapacity(request.quotes)

    quotes = {quoted.quote.offering_id: quoted.quote for quoted in request.quotes}
    yields = task_view(request, held, quotes[EAST], left)
    loses = task_view(replace(request, reclaimed_offering_ids=(EAST,)), held, quotes[EAST], left)
    in_order = task_view(replace(request, clearing=False), held, quotes[EAST], left)

    assert not yields.interrupted
    assert loses.interrupted
    assert in_order.interrupted


def test_without_weights_of_tenants_nothing_is_said_of_fairness() -> None:
    request = asked(task(job("one")), task(job("other")), spot=4)
    equal = replace(request, tenant_weights=(TenantWeight(tenant="blue", weight_milli=1000),))

    answer = allocate(request)

    assert answer.fairness is None
    assert replace(allocate(equal), fairness=None) == answer


def test_a_tenant_that_counts_for_more_gets_what_is_scarce_and_the_price_is_said() -> None:
    rich, poor = job("one"), replace(job("other"), tenant="poor")
    request = asked(task(rich), task(poor), spot=4)
    weights = [(TenantWeight(tenant=whose, weight_milli=3000),) for whose in (rich.tenant, "poor")]

    given = [spot_of(replace(request, tenant_weights=weight)) for weight in weights]
    fair = [allocate(replace(request, tenant_weights=weight)).fairness for weight in weights]

    assert given == [[4, 0], [0, 4]]
    assert all(found is not None and found.cost_micro_usd >= 0 for found in fair)
    assert [gain.tenant for gain in fair[0].gains] == sorted([rich.tenant, "poor"])


def test_an_offering_without_a_quote_is_refused() -> None:
    lost = replace(task(job("one")), offering_id="nowhere")

    with pytest.raises(ValueError, match=r"tasks\.offering_id must have a quote"):
        allocate(asked(lost, spot=4))


@pytest.mark.slow
@pytest.mark.parametrize("fairness", [1.0, 3.0])
def test_a_log_of_a_crowd_that_clears_is_reproduced(fairness) -> None:
    market = generate(
        "cloud-gang", seed=1, slots=40, slot_s=1800, start_ns=1_767_571_200_000_000_000
    )
    settings = {
        "forecaster": {"forecaster": "persistence", "horizon_slots": 2},
        "selector": {
            **SETTINGS["selector"],
            "clearing": True,
            "rehearsals": 0,
            "fairness": fairness,
        },
    }
    log = []
    jobs = generated_jobs(market, 12, 1)
    host: LocalHost = play([*handlers_of(settings), ExactCloud()], market, jobs, record=log.append)

    result = verify(log, handlers_of(settings), manifest_of(log), here=environment())

    answered = [e for e in map(event_of, log) if isinstance(e, AllocationAnswered)]
    assert any(answer.yielded for event in answered for answer in event.answers)
    assert any(event.spot_worth for event in answered)
    assert result.exit_code == SAME, result.divergences
    # What it costs is said where it is asked for, and there alone.
    decided = [e for e in map(event_of, log) if isinstance(e, SlotDecided)]
    costs = [event.fairness.cost_micro_usd for event in answered if event.fairness is not None]
    assert bool(costs) is (fairness > 1)
    assert sum(event.fairness_cost_micro_usd for event in decided) == sum(costs)
    state = host.state_of("selector")
    yielded = [run for run in state.runs.values() if run.yielded]
    assert yielded
    # What they were left is an answer to their bids: no policy is judged by it.
    assert not any(run.fed_back or run.records for run in yielded)
