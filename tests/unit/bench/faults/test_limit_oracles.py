"""Limits are judged by sums and windows of their own: each oracle sees what it is there for."""

import random
from dataclasses import replace

import pytest

from spotline.bench.faults.accounts import Accounts, CloudInstance, LoggedEvent
from spotline.bench.faults.families.drawn_limits import drawn_limits
from spotline.bench.faults.families.runaway import Runaway
from spotline.bench.faults.limit_oracles import (
    KnownLimits,
    SpanLimit,
    jobs_stay_within_their_cap,
    launches_stay_within_the_rate,
    quotas_are_kept,
    spend_stays_within_every_limit,
    stops_are_kept,
    what_is_not_worth_it_is_not_paid,
)
from spotline.bench.faults.outcome import FaultOutcome
from spotline.bench.faults.scenario import scenario_of
from spotline.domain.events.freeze import BuyingExcepted, BuyingFrozen, BuyingUnfrozen
from spotline.domain.events.market import MarketOpened
from spotline.domain.limits.freezes import Freeze, FreezeReason, FreezeScope
from spotline.domain.limits.spending import spending_of
from spotline.domain.units import NS_PER_S
from tests.samples.events import SAMPLES

SLOT_S = 1800
SCENARIO = scenario_of(0)
JOB = SCENARIO.jobs[0]
NO_LIMITS = KnownLimits(job_micro_usd=None, launches_per_minute=None, spans=())


def market_opened():
    sample = next(event for event in SAMPLES if isinstance(event, MarketOpened))
    return replace(sample, slot_s=SLOT_S, first_slot_start_ns=0)


def charge(slot, cost, *, tenant="a", kind="spot"):
    return {
        "job_id": JOB.job_id,
        "slot": slot,
        "cost_micro_usd": cost,
        "tenant": tenant,
        "capacity_type": kind,
        "instances": 1,
    }


def instance(number, start_s, *, kind="spot"):
    return CloudInstance(
        instance_id=f"i-{number}",
        job_id=JOB.job_id,
        offering_id="o",
        capacity_type=kind,
        start_ns=start_s * NS_PER_S,
        end_ns=None,
    )


def accounts(tmp_path, limits=NO_LIMITS, *, charges=(), instances=(), events=(), **notes):
    outcome = FaultOutcome(
        scenario=SCENARIO,
        entries=(),
        ledger=tmp_path / "ledger",
        cloud=tmp_path / "cloud",
        accepted={},
        faults=0,
        notes={"limits": limits, **notes},
    )
    logged = [
        LoggedEvent(event_id=f"e-{seq}", source="s", seq=seq, event=event)
        for seq, event in enumerate((market_opened(), *events), start=1)
    ]
    return Accounts(
        outcome=outcome,
        logged=logged,
        lost=(),
        ledger={"charges": list(charges)},
        instances=instances,
    )


@pytest.mark.parametrize(
    ("limit", "passed"),
    [
        (SpanLimit(tenant="", capacity_type="", span_s=3600, most_micro_usd=100_000), True),
        (SpanLimit(tenant="", capacity_type="", span_s=3600, most_micro_usd=130_000), False),
        (SpanLimit(tenant="", capacity_type="", span_s=1800, most_micro_usd=70_000), False),
        (SpanLimit(tenant="b", capacity_type="", span_s=3600, most_micro_usd=50_000), True),
        (SpanLimit(tenant="a", capacity_type="", span_s=3600, most_micro_usd=60_000), False),
        (SpanLimit(tenant="", capacity_type="on_demand", span_s=3600, most_micro_usd=1), True),
        (SpanLimit(tenant="", capacity_type="spot", span_s=3600, most_micro_usd=60_000), False),
    ],
)
def test_any_window_of_slots_is_summed_of_tenant_and_kind(tmp_path, limit, passed):
    charges = [charge(4, 60_000), charge(5, 70_000, tenant="b", kind="on_demand"), charge(9, 9)]
    found = accounts(tmp_path, replace(NO_LIMITS, spans=(limit,)), charges=charges)

    assert bool(list(spend_stays_within_every_limit(found))) is passed


def test_a_job_is_summed_over_all_its_life(tmp_path):
    limits = replace(NO_LIMITS, job_micro_usd=100)
    charges = [charge(1, 60), charge(30, 40)]

    assert not list(jobs_stay_within_their_cap(accounts(tmp_path, limits, charges=charges)))
    charges.append(charge(31, 1))
    assert list(jobs_stay_within_their_cap(accounts(tmp_path, limits, charges=charges)))


def test_a_quota_is_passed_by_what_was_excepted_alone(tmp_path):
    (pool,) = {offering.quota_pool for offering in market_opened().offerings}
    place = market_opened().offerings[0].offering_id
    quotas = replace(NO_LIMITS, quotas={pool: 2})
    held = [replace(instance(number, 60 * number), offering_id=place) for number in range(3)]
    excepted = BuyingExcepted(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        offering_id=place,
        slot=0,
        instances=1,
        against=f"limit quota of {pool}",
        quote_left_micro_usd=1,
    )

    assert not list(quotas_are_kept(accounts(tmp_path, quotas, instances=held[:2])))
    assert list(quotas_are_kept(accounts(tmp_path, quotas, instances=held)))
    assert not list(quotas_are_kept(accounts(tmp_path, quotas, instances=held, events=[excepted])))
    gone = [replace(held[0], end_ns=held[2].start_ns), *held[1:]]
    assert not list(quotas_are_kept(accounts(tmp_path, quotas, instances=gone)))


def test_a_minute_lies_anywhere_and_exceptions_widen_it(tmp_path):
    limits = replace(NO_LIMITS, launches_per_minute=2)
    apart = [instance(number, 60 * number) for number in range(4)]
    close = [instance(0, 30), instance(1, 60), instance(2, 89)]
    excepted = BuyingExcepted(
        job_id=JOB.job_id,
        tenant=JOB.tenant,
        offering_id="o",
        slot=0,
        instances=1,
        against="cap launches per minute",
        quote_left_micro_usd=1,
    )

    assert not list(launches_stay_within_the_rate(accounts(tmp_path, limits, instances=apart)))
    assert list(launches_stay_within_the_rate(accounts(tmp_path, limits, instances=close)))
    allowed = accounts(tmp_path, limits, instances=close, events=[excepted])
    assert not list(launches_stay_within_the_rate(allowed))


@pytest.mark.parametrize(
    ("start_s", "kind", "excepted", "kept"),
    [
        (99, "spot", 0, True),
        (100, "spot", 0, False),
        (199, "on_demand", 0, False),
        (199, "on_demand", 1, True),
        (199, "spot", 1, False),
        (200, "spot", 0, True),
    ],
)
def test_a_stop_holds_from_its_begin_to_its_end(tmp_path, start_s, kind, excepted, kept):
    freeze = Freeze(
        freeze_id="breaker",
        scope=FreezeScope.SYSTEM,
        key="",
        reason=FreezeReason.BREAKER,
        detail="",
        ts_event_ns=100 * NS_PER_S,
    )
    events = [BuyingFrozen(freeze=freeze)]
    events += [
        BuyingExcepted(
            job_id=JOB.job_id,
            tenant=JOB.tenant,
            offering_id="o",
            slot=0,
            instances=1,
            against="breaker",
            quote_left_micro_usd=1,
        )
        for _ in range(excepted)
    ]
    events.append(BuyingUnfrozen(freeze_id="breaker", ts_event_ns=200 * NS_PER_S))
    found = accounts(tmp_path, instances=[instance(0, start_s, kind=kind)], events=events)

    assert (not list(stops_are_kept(found))) is kept


def test_what_is_spent_after_a_jump_is_held_against_the_value(tmp_path):
    before = charge(8, 10 * JOB.value_micro_usd)
    after = charge(9, JOB.value_micro_usd)

    held = accounts(tmp_path, charges=[before, after], jumped_at=9)
    assert not list(what_is_not_worth_it_is_not_paid(held))
    passed = accounts(tmp_path, charges=[before, after, charge(12, 1)], jumped_at=9)
    assert list(what_is_not_worth_it_is_not_paid(passed))


@pytest.mark.parametrize("seed", range(12))
def test_what_is_drawn_is_what_the_product_gets_and_the_oracles_know(seed):
    scenario = scenario_of(seed)
    drawn = drawn_limits(scenario, random.Random(seed))

    limited, known = drawn.applied(scenario), drawn.known(scenario)

    assert limited.selector.limits
    assert spending_of(limited.selector.spending) == limited.caps.spending == drawn.spending
    assert known.launches_per_minute == drawn.spending.launches_per_minute
    assert known.quotas == drawn.spending.quotas
    assert bool(known.quotas) is (seed % 5 == 0)
    assert known.job_micro_usd == limited.caps.most_micro_usd_per_job
    tenants = {limit.tenant for limit in known.spans} - {""}
    stated = drawn.spending.every_tenant.each() if not drawn.spending.tenants else [1]
    assert bool(tenants) is bool(list(stated))


def test_the_way_follows_the_seed():
    ways = {type(Runaway(scenario_of(seed), random.Random(seed))._way) for seed in range(4)}

    assert len(ways) == 4
