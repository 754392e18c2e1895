"""A job's whole life under a policy, on a recorded market: counterfactuals and simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.decision import (
    after_slot,
    decide_slot,
    on_demand_to_hold,
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import START, Outlook, Policy, PolicyView, WindowForecast
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.value_table import ValueTable
from spotline.domain.solvers.window import Rounding, WindowMarket, solve_window

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRecord:
    """What a job was offered in one slot: prices in micro-USD, the counts left for it.

    `forecast` is None where none was there or none was trusted; policies that need one are then
    replaced by the fallback, as in the services. `run_state` is where the market was in the law of
    the job's value table, -1 where there is none. For `reserve_slots` and `rescue_instances` see
    `PolicyView`. Where counts were only believed, `sampled` are spot and run state on each of the
    paths that feedback is replayed on.
    """

    spot_price: int
    on_demand_price: int
    spot_available: int
    on_demand_available: int
    forecast: WindowForecast | None
    run_state: int = -1
    reserve_slots: int = 0
    rescue_instances: int = 0
    sampled: tuple[tuple[int, int], ...] = ()

    def on_path(self, path: int) -> SlotRecord:
        """The same on one of the sampled paths; where none were, counts were known."""
        if not self.sampled:
            return self
        spot, run_state = self.sampled[path]
        return replace(self, spot_available=spot, run_state=run_state, sampled=())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """How a job fared: `finished_slot` counts from 1, 0 where it did not finish."""

    utility_micro_usd: int
    cost_micro_usd: int
    value_micro_usd: int
    finished_slot: int
    on_time: bool
    holdings: tuple[Holding, ...]
    reasons: tuple[DecisionReason, ...]


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
        state = state.fallen() if interrupted else state
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
            # The plans of a policy that was not asked are stale: it starts them again.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Clairvoyant:
    """The best any schedule could have earned, with the schedule.

    Where the exact grid would be too fine, on-demand stays held beyond its stock, or work can be
    lost, `result` is a schedule that can be had and `upper_utility_micro_usd` a bound that none
    exceeds; otherwise they are equal. A budget bounds neither.
    """

    result: JobResult
    upper_utility_micro_usd: int
    exact: bool


def clairvoyant_optimum(program: JobProgram, records: Sequence[SlotRecord]) -> Clairvoyant:
    """Solve the job's whole life on the realised market.

    After the deadline it holds its largest count on demand or nothing, as policies do. Those hold
    fewer where that count is out of stock, and anything where the budget runs out; where they may,
    any schedule counts. Where on-demand may be out of stock (`reserve_slots`), an instance once
    held can be kept.
    """
    records = records[: program.end_slots]
    stock = np.array([r.on_demand_available for r in records], dtype=np.int64)
    short = bool(np.any(stock[program.deadline_slots :] < program.max_instances))
    free_late = short or program.budget_micro_usd > 0
    if any(record.reserve_slots for record in records):
        # No more is ever held than was once in stock.
        most = np.minimum(np.maximum.accumulate(stock), program.max_instances)
        if np.any(most > stock):
            bound = _solve_life(program, records, most, free_late=free_late)
            if _can_be_kept(bound.result.holdings, stock):
                return bound
            best = _solve_life(program, records, stock, free_late=free_late)
            return replace(best, upper_utility_micro_usd=bound.upper_utility_micro_usd, exact=False)
    return _solve_life(program, records, stock, free_late=free_late)


def _can_be_kept(holdings: Sequence[Holding], stock: IntArray) -> bool:
    """Whether no on-demand is launched beyond its stock."""
    before = 0
    for holding, available in zip(holdings, stock.tolist(), strict=False):
        if holding.on_demand > max(before, available):
            return False
        before = holding.on_demand
    return True


def _solve_life(
    program: JobProgram,
    records: Sequence[SlotRecord],
    on_demand_available: IntArray,
    *,
    free_late: bool,
) -> Clairvoyant:
    market = WindowMarket(
        spot_price=np.array([r.spot_price for r in records], dtype=np.int64),
        on_demand_price=np.array([r.on_demand_price for r in records], dtype=np.int64),
        spot_available=np.array([r.spot_available for r in records], dtype=np.int64),
        on_demand_available=on_demand_available,
    )
    most_spot = int(market.spot_available.max(initial=0))
    # What is worth what is said by slot: a later deadline only frees what may be held until then.
    deadline_slots = program.end_slots if free_late else program.deadline_slots
    solved = replace(program, deadline_slots=deadline_slots)
    # Who throws no work away earns no less: what bounds that life bounds this one too.
    lossless = replace(solved, lost_s=0)
    configs = all_configurations(lossless, most_spot=most_spot)
    plan = solve_window(lossless, configs, market, JobProgress(), elapsed_slots=0, end_value=None)
    upper = plan.utility_micro_usd
    if not plan.exact:
        upper = solve_window(
            lossless,
            configs,
            market,
            JobProgress(),
            elapsed_slots=0,
            end_value=None,
            rounding=Rounding.UP,
        ).utility_micro_usd
    result = _execute(program, records, plan.holdings)
    if not program.lost_s or result.utility_micro_usd == plan.utility_micro_usd:
        return Clairvoyant(result=result, upper_utility_micro_usd=upper, exact=plan.exact)
    # A policy that takes lost work for lost time loses less, and may do worse where nothing is lost.
    careful = solve_window(
        solved.planned, configs, market, JobProgress(), elapsed_slots=0, end_value=None
    )
    other = _execute(program, records, careful.holdings)
    best = max(result, other, key=lambda life: life.utility_micro_usd)
    return Clairvoyant(result=best, upper_utility_micro_usd=upper, exact=False)


def _execute(
    program: JobProgram, records: Sequence[SlotRecord], holdings: Sequence[Holding]
) -> JobResult:
    state = JobProgress()
    cost = 0
    for slot, record in enumerate(records):
        view = PolicyView(
            program=program,
            elapsed_slots=slot,
            state=state,
            interrupted=state.holding.spot > record.spot_available,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=record.spot_available,
            on_demand_available=record.on_demand_available,
            forecast=None,
            slot_left_s=program.slot_s,
        )
        cost += slot_cost_micro_usd(view, holdings[slot])
        state = after_slot(view, holdings[slot])
        if state.progress_quanta >= program.work_quanta:
            return _result(program, cost, slot + 1, list(holdings[: slot + 1]), [])
    return _result(program, cost, 0, list(holdings), [])
