"""A job's whole life under a policy, on a recorded market: counterfactuals and simulation."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.interface import START, Outlook, Policy, PolicyView
from spotline.domain.policies.replay import JobResult, SlotRecord
from spotline.domain.solvers.value_table import ValueTable
from tests.reference.decision import (
    after_slot,
    decide_slot,
    on_demand_to_hold,
    slot_cost_micro_usd,
)
from tests.reference.progress import fallen


def replay_policy(
    program: JobProgram,
    records: Sequence[SlotRecord],
    policy: Policy,
    fallback: Policy,
    table: ValueTable | None = None,
    *,
    spot_firm: bool = True,
) -> JobResult:
    """Run `policy` for one job over the recorded slots, from the job's first.

    A job that has not finished after `end_slots` (or where the records end) is worth nothing.
    `spot_firm` is what the safety net is told (see `PolicyView`). `compiled.replay_pool` does the
    same for whole pools, much faster.
    """
    state = JobProgress()
    memory = START
    fallback_memory = START
    cost = 0
    holdings: list[Holding] = []
    reasons: list[DecisionReason] = []
    for slot, record in enumerate(records[: program.end_slots]):
        interrupted = state.holding.spot > record.spot_available
        state = fallen(state) if interrupted else state
        view = PolicyView(
            program=program,
            elapsed_slots=slot,
            state=state,
            interrupted=interrupted,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=record.spot_available,
            on_demand_available=on_demand_to_hold(
                record.on_demand_available, state.holding, reserve_slots=record.reserve_slots
            ),
            forecast=record.forecast,
            slot_left_s=program.slot_s,
            spent_micro_usd=cost,
            spot_firm=spot_firm,
            outlook=_outlook(table, record),
            reserve_slots=record.reserve_slots,
            rescue_instances=record.rescue_instances,
        )
        if policy.needs_forecast and record.forecast is None:
            # The plans of a policy that was not asked are stale: it starts them anew.
            decision = decide_slot(fallback, view, fallback_memory)
            fallback_memory, memory = decision.memory, START
        else:
            decision = decide_slot(policy, view, memory)
            memory = decision.memory
        cost += slot_cost_micro_usd(view, decision.holding)
        state = after_slot(view, decision.holding)
        holdings.append(decision.holding)
        reasons.append(decision.reason)
        if state.progress_quanta >= program.work_quanta:
            return _result(program, cost, slot + 1, holdings, reasons)
    return _result(program, cost, 0, holdings, reasons)


def _outlook(table: ValueTable | None, record: SlotRecord) -> Outlook | None:
    if table is None or record.run_state < 0:
        return None
    return Outlook(table=table, run_state=record.run_state)


def _result(
    program: JobProgram,
    cost: int,
    finished: int,
    holdings: list[Holding],
    reasons: list[DecisionReason],
) -> JobResult:
    value = program.value_micro_usd[finished] if finished else 0
    return JobResult(
        utility_micro_usd=value - cost,
        cost_micro_usd=cost,
        value_micro_usd=value,
        finished_slot=finished,
        on_time=0 < finished <= program.deadline_slots,
        holdings=tuple(holdings),
        reasons=tuple(reasons),
    )
