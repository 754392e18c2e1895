"""Limits of jobs in the selector: who goes on, who is wound down, who is stopped.

Jobs are judged as a slot opens, what the last one cost known, and where a policy finds that the
budget it plans with allows nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from spotline.application.allocation.messages import JobTask
from spotline.application.selector.egress import held_back
from spotline.application.selector.endings import completed, kept
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.leaving import way_to
from spotline.application.selector.lifecycle import stopped
from spotline.application.selector.offered_money import left_for_job, room_now
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.event import Event
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.limits.expected_rate import (
    ENOUGH_REPORTS,
    at_expected_rate,
    expected_over_planned_ppm,
)
from spotline.domain.limits.judgement import (
    FORWARD,
    Conditions,
    Prospect,
    SpotShare,
    action_at_limit,
    action_where_not_worth_it,
    best,
    budget_near_limit_micro_usd,
    limit_micro_usd,
    limit_name,
    planned_budget_micro_usd,
    prospect,
)
from spotline.domain.limits.spending import Room
from spotline.domain.market.offering import CapacityType
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.interface import START
from spotline.domain.units import NS_PER_S, cost_micro_usd, usd_from_micro_usd

# --- as a slot opens --------------------------------------------------------------------------


def judged(state: SelectorState, run: JobRun, options: SelectorOptions) -> tuple[Event, ...]:
    """What a running job's limits say as a slot opens: nothing, what follows, or its end."""
    if not run.is_limited:
        return ()
    if run.is_finishing:
        return _given_up(state, run)
    said = run.at_limit
    if said is not None and said.action is LimitAction.WIND_DOWN:
        over = state.current.ts_event_ns >= said.until_ns
        return (stopped(run, state.slot),) if over else ()
    found = _prospect_of(state, run, options)
    if not found.is_worth_it:
        if said is not None and said.action is LimitAction.WAIT:
            return ()
        action = action_where_not_worth_it(run.job)
        return _follows(state, run, options, found, FORWARD, action)
    if said is not None and said.action is LimitAction.WAIT and said.limit == FORWARD:
        return (_reached(state, run, found, FORWARD, LimitAction.FINISH),)
    spent = run.spent_micro_usd >= run.limit_micro_usd
    told = said is not None and said.limit != FORWARD
    if spent and not told and action_at_limit(run.job) is LimitAction.FINISH:
        return (_reached(state, run, found, limit_name(run.job), LimitAction.FINISH),)
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalLimit:
    """The limit of a job that arrives: its on-demand quote, what it may spend, why it may not begin."""

    on_demand_quote_micro_usd: int = 0
    limit_micro_usd: int = 0
    refusal: LimitReached | None = None

    def planned(self, job: Job) -> Job:
        """The job as policies plan it."""
        if not self.limit_micro_usd:
            return job
        return replace(job, budget_micro_usd=planned_budget_micro_usd(job))


NO_LIMIT = ArrivalLimit()


def arrival_limit(state: SelectorState, run: JobRun, offering_id: str) -> ArrivalLimit:
    """The limit of a job that arrives now, to be admitted at this offering."""
    program = state.program_of(run.job, offering_id)
    quote = _on_demand_quote(state, program, offering_id)
    terms = _terms(state, offering_id, overhead_s=program.launch_s)
    found = prospect(_expected(state, run, program, offering_id), JobProgress(), 0, terms)
    refusal = None
    if not found.is_worth_it:
        action = action_where_not_worth_it(run.job)
        if action is LimitAction.WIND_DOWN:
            action = LimitAction.STOP
        refusal = _reached(state, run, found, FORWARD, action)
    # A reservation's instances cost nothing: a limit of 0 would read as none.
    limit = max(1, limit_micro_usd(run.job, quote))
    return ArrivalLimit(on_demand_quote_micro_usd=quote, limit_micro_usd=limit, refusal=refusal)


def _on_demand_quote(state: SelectorState, program: JobProgram, offering_id: str) -> int:
    """What a job that arrives now would cost on on-demand there, micro-USD.

    Of all counts that meet its deadline the cheapest, held to the end, the last slot whole; where
    none does, that of the largest. It is 0 where on-demand costs nothing, a reservation.
    """
    price = _terms(state, offering_id).on_demand_price
    in_time: list[int] = []
    for count in program.allowed_counts:
        slots = program.slots_on_demand(program.work_quanta, program.launch_s, instances=count)
        cost = slots * cost_micro_usd(price, count, program.slot_s)
        if slots <= program.deadline_slots or count == program.max_instances:
            in_time.append(cost)
    return min(in_time)


def _given_up(state: SelectorState, run: JobRun) -> tuple[Event, ...]:
    """End a job whose work is done where waiting for its program costs more than it gains."""
    held = run.held
    terms = _terms(state, run.offering_id)
    slot_s = run.compiled.slot_s
    cost = cost_micro_usd(terms.spot_price, held.spot, slot_s) + cost_micro_usd(
        terms.on_demand_price, held.on_demand, slot_s
    )
    outcome, value = completed(run, run.elapsed_slots(state.slot))
    if cost <= value:
        return ()
    found = Prospect(cost_to_come_micro_usd=cost, value_to_gain_micro_usd=value)
    return (
        _reached(state, run, found, FORWARD, LimitAction.STOP),
        stopped(run, state.slot, outcome, value),
    )


def _follows(
    state: SelectorState,
    run: JobRun,
    options: SelectorOptions,
    found: Prospect,
    limit: str,
    action: LimitAction,
) -> tuple[Event, ...]:
    until_ns = 0
    if action is LimitAction.WIND_DOWN:
        until_ns = _grace_end_ns(state, run, options)
    reached = _reached(state, run, found, limit, action, until_ns)
    return (reached, stopped(run, state.slot)) if ending_of((reached,)) else (reached,)


def _grace_end_ns(state: SelectorState, run: JobRun, options: SelectorOptions) -> int:
    """Until when what a job holds is kept; 0 where it holds nothing or cannot pay for that.

    Slots are held and paid whole.
    """
    slot_s = state.current.slot_s
    slots = -(-options.limit_grace_s // slot_s)
    held = kept(state, run)
    spot_price, on_demand_price = _worst_prices(state, run.offering_id)
    cost = slots * (
        cost_micro_usd(spot_price, held.spot, slot_s)
        + cost_micro_usd(on_demand_price, held.on_demand, slot_s)
    )
    if not held.instances or run.spent_micro_usd + cost > run.limit_micro_usd:
        return 0
    if not _spending_pays_for(state, run, held, slots, options):
        return 0
    return state.current.ts_event_ns + options.limit_grace_s * NS_PER_S


def _spending_pays_for(
    state: SelectorState, run: JobRun, held: Holding, slots: int, options: SelectorOptions
) -> bool:
    """Whether the limits on spending pay for what is held, all that others hold paid for before.

    Nothing is bought by keeping, and so no launch would ask them.
    """
    left = left_for_job(state, run, options)
    room = room_now(state, options)
    rest_s = state.current.slot_s - state.offset_s
    for other in state.running():
        if other.job.job_id != run.job.job_id:
            for lot in other.held_lots:
                _take(state, room, other.job.tenant, lot.offering_id, holding_of((lot,)), rest_s)
    kept_s = rest_s + (slots - 1) * state.current.slot_s
    cost = 0
    for kind, count, price in _priced(state, run.offering_id, held):
        most, _ = room.instances(run.job.tenant, kind, price, kept_s)
        if 0 <= most < count:
            return False
        room.take(run.job.tenant, kind, price, count, kept_s)
        cost += cost_micro_usd(price, count, kept_s)
    return left is None or cost <= left


def _take(
    state: SelectorState, room: Room, tenant: str, offering_id: str, held: Holding, rest_s: int
) -> None:
    if all(quoted.quote.offering_id != offering_id for quoted in state.current.quotes):
        return  # a slot that leaves it out says nothing of its price
    for kind, count, price in _priced(state, offering_id, held):
        room.take(tenant, kind, price, count, rest_s)


def _priced(
    state: SelectorState, offering_id: str, held: Holding
) -> Iterator[tuple[CapacityType, int, int]]:
    spot_price, on_demand_price = _worst_prices(state, offering_id)
    yield CapacityType.SPOT, held.spot, spot_price
    yield CapacityType.ON_DEMAND, held.on_demand, on_demand_price


# --- where a policy's budget allows nothing more --------------------------------------------------


def spent_up(
    state: SelectorState, answers: Sequence[JobAnswer], options: SelectorOptions
) -> tuple[tuple[LimitReached, ...], tuple[JobAnswer, ...]]:
    """What is said of jobs whose budget allows nothing more, and the answers they get then.

    One that winds down keeps what it holds, where its limit pays for that.
    """
    reached: list[LimitReached] = []
    told: list[JobAnswer] = []
    for answer in answers:
        run = state.runs[answer.job_id]
        action = action_at_limit(run.job)
        spent = answer.reason is DecisionReason.BUDGET and not answer.lots
        spent = spent and run.is_limited and run.ending is None and _is_spent_up(state, run)
        known = run.at_limit is not None and run.at_limit.action is action
        if not spent or known:
            told.append(answer)
            continue
        until_ns = 0
        if action is LimitAction.WIND_DOWN:
            until_ns = _grace_end_ns(state, run, options)
        found = _prospect_of(state, run, options)
        said = _reached(state, run, found, limit_name(run.job), action, until_ns)
        reached.append(said)
        told.append(replace(answer, lots=run.lots(kept(state, run))) if until_ns else answer)
    return tuple(reached), tuple(told)


def _is_spent_up(state: SelectorState, run: JobRun) -> bool:
    """Whether what is left of a job's budget pays for no slot of it, of whatever kind."""
    terms = _terms(state, run.offering_id)
    price = min(terms.spot_price, terms.on_demand_price)
    least = cost_micro_usd(price, run.job.allowed_counts[0], run.compiled.slot_s)
    budget = near_limit(state, run)
    return budget is not None and run.spent_micro_usd + least > budget


def near_limit(state: SelectorState, run: JobRun) -> int | None:
    """The budget that a job is decided with in the open slot, None where its limit is far."""
    if not run.is_limited:
        return None
    price = max(_worst_prices(state, run.offering_id))
    slot_cost = cost_micro_usd(price, run.job.max_instances, state.current.slot_s)
    return budget_near_limit_micro_usd(run.job, run.limit_micro_usd, run.spent_micro_usd, slot_cost)


def task_at_limit(state: SelectorState, run: JobRun, task: JobTask) -> JobTask:
    """The task of a job as its limit bounds it; as it is where that is far.

    Near it, a job is decided as another one: without tables, and it stays where it is.
    """
    budget = near_limit(state, run)
    if budget is None or task.job.budget_micro_usd:
        return task
    job = replace(task.job, budget_micro_usd=budget)
    return replace(task, job=job, table_use=None, alternatives=(), memory=START)


def ending_of(reached: Sequence[LimitReached]) -> Set[str]:
    """Jobs that end with this revision: what a limit leaves them is nothing."""
    ends = {LimitAction.STOP, LimitAction.WIND_DOWN}
    return {said.job_id for said in reached if said.action in ends and not said.until_ns}


# --- what is to come ----------------------------------------------------------------------------


def _prospect_of(state: SelectorState, run: JobRun, options: SelectorOptions) -> Prospect:
    """The best that a running job can do at home or where it may move to."""
    elapsed = run.elapsed_slots(state.slot)
    overhead_s = run.state.pending_overhead_s if run.held.instances else run.compiled.launch_s
    ways = [
        prospect(
            _expected(state, run, run.compiled, run.offering_id),
            run.state,
            elapsed,
            _terms(state, run.offering_id, overhead_s=overhead_s),
        )
    ]
    ways += _elsewhere(state, run, elapsed, options) if options.moves else ()
    found = best(ways)
    if found is None:
        raise ValueError(f"job {run.job.job_id} has nowhere to run")
    return found


def _elsewhere(
    state: SelectorState, run: JobRun, elapsed: int, options: SelectorOptions
) -> Iterator[Prospect]:
    quoted = {sq.quote.offering_id for sq in state.current.quotes}
    for offering_id in run.tables:
        if offering_id == run.offering_id or offering_id not in quoted:
            continue
        if held_back(state, run, offering_id, options):
            # What cannot be gone to is no way to finish.
            continue
        way = way_to(state, run, offering_id, options)
        terms = _terms(
            state, offering_id, overhead_s=way.overhead_s, entrance_micro_usd=way.cost_micro_usd
        )
        program = _expected(state, run, state.program_of(run.job, offering_id), offering_id)
        yield prospect(program, run.state, elapsed, terms)


def _expected(
    state: SelectorState, run: JobRun, program: JobProgram, offering_id: str
) -> JobProgram:
    """The program at the rate that is expected there, until its progress has shown the true one."""
    if run.rate_reports >= ENOUGH_REPORTS:
        return program
    instance_type = state.offerings[offering_id].instance_type
    return at_expected_rate(program, expected_over_planned_ppm(run.job, offering_id, instance_type))


def _terms(
    state: SelectorState, offering_id: str, *, overhead_s: int = 0, entrance_micro_usd: int = 0
) -> Conditions:
    quote = {sq.quote.offering_id: sq.quote for sq in state.current.quotes}[offering_id]
    return Conditions(
        spot_price=quote.spot_price_micro_usd,
        on_demand_price=quote.on_demand_price_micro_usd,
        spot_share_ppm=SpotShare(state.counts.get(offering_id, ())),
        overhead_s=overhead_s,
        entrance_micro_usd=entrance_micro_usd,
    )


def _worst_prices(state: SelectorState, offering_id: str) -> tuple[int, int]:
    """The dearest that spot and on-demand may be, whether believed or not: for what limits allow.

    A job is judged by the prices that are believed: one that is not is no reason to stop it.
    """
    quoted = {sq.quote.offering_id: sq for sq in state.current.quotes}[offering_id]
    return quoted.worst_price(CapacityType.SPOT), quoted.worst_price(CapacityType.ON_DEMAND)


def _reached(
    state: SelectorState,
    run: JobRun,
    found: Prospect,
    limit: str,
    action: LimitAction,
    until_ns: int = 0,
) -> LimitReached:
    to_come, to_gain = found.cost_to_come_micro_usd, found.value_to_gain_micro_usd
    return LimitReached(
        job_id=run.job.job_id,
        tenant=run.job.tenant,
        slot=state.slot,
        limit=limit,
        action=action,
        spent_micro_usd=run.spent_micro_usd,
        cost_to_come_micro_usd=to_come,
        value_to_gain_micro_usd=to_gain,
        until_ns=until_ns,
        detail=f"finishing still costs {usd_from_micro_usd(to_come):.2f} USD, "
        f"{usd_from_micro_usd(to_gain):.2f} USD are still to be gained",
    )


def waiting_for(
    state: SelectorState, run: JobRun, options: SelectorOptions, limit: str
) -> LimitReached:
    """A job gets nothing for a limit's sake that is not its own."""
    found = _prospect_of(state, run, options)
    return _reached(state, run, found, limit, LimitAction.WAIT)
