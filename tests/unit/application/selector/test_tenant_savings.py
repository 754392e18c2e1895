"""What tenants saved of late, and how much their bids count for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.selector.tenant_savings import tenant_savings, tenant_weights
from spotline.domain.crowd.tenants import TenantSaving
from spotline.domain.jobs.program import compile_program
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.units import cost_micro_usd
from tests.fakes.allocator import EAST, SLOT_S, START_NS, job, slot_opened

FAIR = SelectorOptions(clearing=True, fairness=4.0, rehearsals=0)


def run_of(name: str, tenant: str, *, slots_done: int, spent: int, first_slot: int = 0) -> JobRun:
    one = replace(job(name), tenant=tenant)
    program = compile_program(
        one, one.throughputs[0], slot_s=SLOT_S, first_slot_start_ns=START_NS, notice_lead_s=None
    )
    done = program.rate_quanta_per_s[program.max_instances] * SLOT_S * slots_done
    return JobRun(
        job=one,
        phase=RunPhase.RUNNING,
        offering_id=EAST,
        program=program,
        first_slot=first_slot,
        state=JobProgress(progress_quanta=done),
        spent_micro_usd=spent,
    )


def state_of(options: SelectorOptions, *runs: JobRun) -> SelectorState:
    state = SelectHandler(options, digest=lambda request: "").initial()
    state.opened, state.slot = slot_opened(0), 5
    state.runs = {run.job.job_id: run for run in runs}
    return state


def on_demand_of(run: JobRun, slots: int) -> int:
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in slot_opened(0).quotes}
    price = quotes[EAST].on_demand_price_micro_usd
    assert run.program is not None
    return cost_micro_usd(price, run.program.max_instances, SLOT_S * slots)


def test_savings_are_against_on_demand_for_the_work_that_is_done() -> None:
    half = run_of("one", "blue", slots_done=2, spent=0)
    whole = on_demand_of(half, 2)
    half.spent_micro_usd = whole // 3
    dear = run_of("other", "red", slots_done=1, spent=10**12)

    found = tenant_savings(state_of(FAIR, half, dear), 192)

    assert found == (
        TenantSaving(tenant="blue", saved_micro_usd=whole - whole // 3, on_demand_micro_usd=whole),
        TenantSaving(tenant="red", saved_micro_usd=0, on_demand_micro_usd=on_demand_of(dear, 1)),
    )


def test_jobs_of_long_ago_are_forgotten() -> None:
    old = run_of("one", "blue", slots_done=2, spent=0, first_slot=0)

    assert tenant_savings(state_of(FAIR, old), 5) == ()


def test_who_saved_less_counts_for_more() -> None:
    frugal = run_of("one", "blue", slots_done=2, spent=0)
    dear = run_of("other", "red", slots_done=1, spent=10**12)

    weights = tenant_weights(state_of(FAIR, frugal, dear), ("blue", "red"), FAIR)

    assert [(each.tenant, each.weight_milli) for each in weights] == [("blue", 1000), ("red", 4000)]


@pytest.mark.parametrize("off", [{"fairness": 1.0}, {"clearing": False}])
def test_no_tenant_is_weighted_where_fairness_is_not_asked_for(off) -> None:
    options = replace(FAIR, **off)

    assert tenant_weights(state_of(options), ("blue",), options) == ()
