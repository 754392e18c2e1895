"""What a task's policy may know, and what it answers: one job, one offering, one slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.allocation.value_tables import outlook_of
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.jobs.lot import Lot, holding_of, lot_of
from spotline.domain.jobs.program import IDLE, Holding, JobProgram, compile_program
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.forecast import OfferingForecast
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import (
    SlotDecision,
    decide_slot,
    is_safe,
    on_demand_to_hold,
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import (
    START,
    Memory,
    Outlook,
    Policy,
    PolicyView,
    WindowForecast,
)
from spotline.domain.policies.prediction import window_forecast
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.remembered import BySelf
from spotline.domain.units import PPM, cost_micro_usd

# A job moves for more than this share of what a slot of its largest count costs on demand: below
# it, two tables differ by how they interpolate, and a job would go to and fro between equals.
MOVE_MARGIN_PPM = 50_000
# In a crowd a job moves for more: a shadow price is what a place was worth before those came that now
# find it better, and they all do.
CROWDED_MARGIN_PPM = 200_000
# A job yields spot that it holds where others gain more than this share of what the instances cost on
# demand in a slot. Its table takes spot to be there again a slot later; those that have it then keep it.
YIELD_MARGIN_PPM = 800_000


def check_quoted(task: JobTask, quotes: Mapping[str, Quote]) -> None:
    """Refuse a task that is, or could go, where nothing is quoted.

    Raises
    ------
    ValueError
        Names the offering.
    """
    if task.offering_id not in quotes:
        raise ValueError(f"tasks.offering_id must have a quote, {task.offering_id!r} has none")
    for alternative in task.alternatives:
        if alternative.offering_id not in quotes:
            raise ValueError(
                f"tasks.alternatives.offering_id must have a quote, "
                f"{alternative.offering_id!r} has none"
            )


def take_before(request: AllocateRequest, residual: ResidualCapacity) -> None:
    """Take what jobs got that were served before those of a request.

    Raises
    ------
    ValueError
        Some of it has no quote.
    """
    quoted = {slot_quote.quote.offering_id for slot_quote in request.quotes}
    for lot in request.taken:
        if lot.offering_id not in quoted:
            raise ValueError(f"taken.offering_id must have a quote, {lot.offering_id!r} has none")
        residual.take_what_is_left((lot,))


def may_move(request: AllocateRequest, task: JobTask, home: PolicyView) -> bool:
    """Whether a job may leave its home now: it has what to compare, time, and work left."""
    over = home.elapsed_slots >= home.program.deadline_slots
    done = home.state.progress_quanta >= home.program.work_quanta
    return (
        bool(task.alternatives)
        and home.outlook is not None
        and not (request.offset_s or over or done)
    )


def is_late(request: AllocateRequest, view: PolicyView) -> bool:
    """Whether a deadline has passed, what is left may run on idle spot, and is worth something still."""
    program = view.program
    passed = program.deadline_slots <= view.elapsed_slots < program.end_slots
    return request.late_on_spot and passed and view.state.progress_quanta < program.work_quanta


def move_margin_micro_usd(home: PolicyView) -> float:
    """What a move must gain; more where spot has a shadow price at home."""
    full_slot = cost_micro_usd(
        home.on_demand_price, home.program.max_instances, home.program.slot_s
    )
    margin = CROWDED_MARGIN_PPM if is_priced(home.outlook) else MOVE_MARGIN_PPM
    return full_slot * margin / PPM


def yield_margin_micro_usd(view: PolicyView, instances: int) -> int:
    """What others must gain for a job to yield them so many instances of spot that it holds."""
    full_slot = cost_micro_usd(view.on_demand_price, instances, view.program.slot_s)
    return full_slot * YIELD_MARGIN_PPM // PPM


def moved_task(task: JobTask, alternative: Alternative, home: PolicyView) -> JobTask:
    """The task of a job that has just left its home: idle, its checkpoint on the way."""
    overhead_s = max(alternative.migrate_s, task.pending_overhead_s)
    if home.interrupted:
        overhead_s = max(overhead_s, home.program.interrupted_s)
    return replace(
        task,
        offering_id=alternative.offering_id,
        instance_type=alternative.instance_type,
        holding=Lot(offering_id=alternative.offering_id),
        interrupted=False,
        # The checkpoint that is copied is a new one, or what an interruption left.
        progress_quanta=home.state.progress_quanta,
        unsaved_quanta=0,
        pending_overhead_s=overhead_s,
        notice_lead_s=alternative.notice_lead_s,
        spent_micro_usd=task.spent_micro_usd + alternative.move_cost_micro_usd,
        # The plans of a policy are for where it made them.
        memory=START,
        table_use=alternative.table_use,
        alternatives=(),
        on_demand_reserve_slots=alternative.on_demand_reserve_slots,
        rescue_instances=alternative.rescue_instances,
    )


def is_saved(view: PolicyView, holding: Holding) -> bool:
    """Whether on-demand, as much of it as there is now, still meets a hard deadline."""
    if not view.program.hard:
        return True
    wanted = view.rescue_instances or view.program.max_instances
    in_stock = view.on_demand_available >= wanted or view.reserve_slots > 0
    return in_stock and is_safe(view, holding)


def must_buy(view: PolicyView) -> bool:
    """Whether a hard deadline is no longer sure if the job holds nothing in this slot."""
    return view.program.hard and not is_safe(view, IDLE)


def can_hold(view: PolicyView, holding: Holding) -> bool:
    """Whether there is so much to a job, and its budget is enough for a slot of it."""
    if holding.spot > view.spot_available or holding.on_demand > view.on_demand_available:
        return False
    budget = view.program.budget_micro_usd
    return not budget or view.spent_micro_usd + slot_cost_micro_usd(view, holding) <= budget


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedPolicy:
    """Who is asked for a task: its policy, or the fallback where that lacks a forecast."""

    policy: Policy
    memory: Memory
    reason: DecisionReason
    is_own: bool


def asked_policy(request: AllocateRequest, task: JobTask, view: PolicyView) -> AskedPolicy:
    """Say who is asked, with what it remembers, and the reason that it decides for.

    Raises
    ------
    ValueError
        There is no policy of the task's name.
    """
    try:
        policy = policy_named(task.policy_id)
    except KeyError as error:
        raise ValueError(f"tasks.policy_id: {error.args[0]}") from error
    if not policy.needs_forecast or view.forecast is not None:
        return AskedPolicy(policy=policy, memory=task.memory, reason=request.reason, is_own=True)
    reason = request.reason
    if reason is DecisionReason.POLICY:
        reason = DecisionReason.FORECAST_OVERDUE
    fallback = policy_named(FALLBACK_POLICY_ID)
    return AskedPolicy(policy=fallback, memory=START, reason=reason, is_own=False)


def task_answer(request: AllocateRequest, task: JobTask, view: PolicyView) -> JobAnswer:
    """Ask a task's policy, or the fallback where it lacks a forecast, what to hold on this view."""
    asked = asked_policy(request, task, view)
    return answer_of(task, asked, decide_slot(asked.policy, view, asked.memory))


def answer_of(task: JobTask, asked: AskedPolicy, decision: SlotDecision) -> JobAnswer:
    """The answer that a decision of the policy that was asked is."""
    reason = asked.reason
    if decision.reason is not DecisionReason.POLICY:
        reason = decision.reason
    most = task.most_on_demand
    if most is not None and most < task.holding.on_demand:
        # Whatever its policy makes of that, a hard deadline has what it held.
        reason = DecisionReason.NO_CAPACITY
    lot = lot_of(task.offering_id, decision.holding.spot, decision.holding.on_demand)
    return JobAnswer(
        job_id=task.job.job_id,
        policy_id=asked.policy.policy_id,
        lots=(lot,) if decision.holding.instances else (),
        # The plans of a policy that was not asked are stale: it starts them again.
        memory=decision.memory if asked.is_own else START,
        reason=reason,
    )


def task_view(
    request: AllocateRequest, task: JobTask, quote: Quote, residual: ResidualCapacity
) -> PolicyView:
    """What a task's policy may know: the request's market, less what earlier jobs took."""
    spot_available = _at_most(residual.spot(task.offering_id), task.most_spot)
    program = program_of(
        task.job,
        task.offering_id,
        task.instance_type,
        request.slot_s,
        task.first_slot_start_ns,
        task.notice_lead_s,
    )
    held = holding_of((task.holding,))
    reserve_slots = task.on_demand_reserve_slots
    interrupted = is_interrupted(request, task, spot_available)
    now = JobProgress(
        progress_quanta=task.progress_quanta,
        holding=held,
        pending_overhead_s=task.pending_overhead_s,
        unsaved_quanta=task.unsaved_quanta,
    )
    return PolicyView(
        program=program,
        elapsed_slots=task.elapsed_slots,
        state=now.fallen() if interrupted else now,
        interrupted=interrupted,
        spot_price=quote.spot_price_micro_usd,
        on_demand_price=quote.on_demand_price_micro_usd,
        spot_available=spot_available,
        on_demand_available=on_demand_to_hold(
            _at_most(residual.on_demand(task.offering_id), task.most_on_demand),
            held,
            reserve_slots=reserve_slots,
        ),
        forecast=forecast_of(request.forecast, quote, left=spot_available),
        slot_left_s=request.slot_s - request.offset_s,
        spent_micro_usd=task.spent_micro_usd,
        spot_firm=task.spot_firm,
        outlook=outlook_of(task.table_use, program, request.laws),
        reserve_slots=reserve_slots,
        rescue_instances=task.rescue_instances,
    )


def is_priced(outlook: Outlook | None) -> bool:
    """Whether a table counts on a shadow price of spot at its place."""
    return outlook is not None and outlook.table.terms.spot_surcharge > 0


def is_interrupted(request: AllocateRequest, task: JobTask, spot_available: int) -> bool:
    """Whether spot of what a task's job holds is gone, if no more than this is left to it.

    Where bids are cleared, spot that the market has not taken back is yielded to another job.
    """
    reclaimed = is_reclaimed(request, task)
    return task.interrupted or (reclaimed and task.holding.spot > spot_available)


def is_reclaimed(request: AllocateRequest, task: JobTask) -> bool:
    """Whether the market takes spot of a task's offering, and not another job."""
    return not request.clearing or task.offering_id in request.reclaimed_offering_ids


def _at_most(left: int, bound: int | None) -> int:
    return left if bound is None else min(left, bound)


def forecast_of(
    issued: ForecastIssued | None, quote: Quote, *, left: int | None = None
) -> WindowForecast | None:
    """The forecast of one offering as planners use it, None where there is none.

    `left` is what of the quoted spot jobs served earlier leave to this one (None: all of it);
    what they take now is not counted on later.
    """
    if issued is None:
        return None
    available = quote.spot_available
    taken = 0
    if left is not None and available.known:
        taken = max(0, available.instances - left)
    return _windows.of(issued).of(quote, taken)


class _Windows:
    """The windows of one forecast, by offering and what is taken: jobs of a slot share them."""

    def __init__(self, issued: ForecastIssued) -> None:
        self._forecasts: dict[str, OfferingForecast] = {}
        self._found: dict[tuple[str, int, bool, int], WindowForecast] = {}
        for forecast in issued.forecasts:
            if forecast.steps:
                self._forecasts.setdefault(forecast.offering_id, forecast)

    def of(self, quote: Quote, taken: int) -> WindowForecast | None:
        """The window of the offering that is quoted, None where it is not forecast."""
        forecast = self._forecasts.get(quote.offering_id)
        if forecast is None:
            return None
        counted, price = quote.spot_available.known, quote.on_demand_price_micro_usd
        key = quote.offering_id, price, counted, taken
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = window_forecast(
                forecast, on_demand_price_micro_usd=price, taken=taken, counted=counted
            )
        return found


# As many as are looked at in turn: those of the slots that jobs are rehearsed on.
_windows = BySelf(_Windows, 256)


def at_rates(job: Job, throughputs: tuple[Throughput, ...]) -> Job:
    """The job at other rates; as it is where these are not rates of the same throughputs.

    What was recorded must be accepted: rates that no job can have change nothing.
    """
    if [throughput.offering for throughput in throughputs] != [
        throughput.offering for throughput in job.throughputs
    ]:
        return job
    try:
        return replace(job, throughputs=throughputs)
    except ValueError:
        return job


def program_of(
    job: Job,
    offering_id: str,
    instance_type: str,
    slot_s: int,
    first_slot_start_ns: int,
    notice_lead_s: int | None,
) -> JobProgram:
    """The job compiled for one offering, whose `notice_lead_s` this is, and slot grid.

    Raises
    ------
    ValueError
        The job states no throughput for the offering.
    """
    throughput = job.throughput_on(offering_id, instance_type)
    if throughput is None:
        raise ValueError(f"job {job.job_id} states no throughput for {offering_id}")
    return _programs.of(job).on(throughput, _Grid(slot_s, first_slot_start_ns, notice_lead_s))


class _Grid(NamedTuple):
    """All that a program depends on beside a job and its throughput: many offerings have the same."""

    slot_s: int
    first_slot_start_ns: int
    notice_lead_s: int | None


class _Programs:
    """The programs of a job: one for its home and all places like it, one for a slot to arrive in."""

    __slots__ = ("_found", "_job")

    def __init__(self, job: Job) -> None:
        self._job = job
        self._found: dict[tuple[str, _Grid], JobProgram] = {}

    def on(self, throughput: Throughput, grid: _Grid) -> JobProgram:
        key = throughput.offering, grid
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= _MOST_GRIDS:
                self._found.clear()
            found = self._found[key] = _compiled(self._job, throughput, grid)
        return found


# Of a job that waits to arrive every slot makes another.
_MOST_GRIDS = 64
_programs = BySelf(_Programs, 32_768)


# Jobs that came over the wire are others every time, and so are those with another budget.
@lru_cache(maxsize=16_384)
def _compiled(job: Job, throughput: Throughput, grid: _Grid) -> JobProgram:
    return compile_program(
        job,
        throughput,
        slot_s=grid.slot_s,
        first_slot_start_ns=grid.first_slot_start_ns,
        notice_lead_s=grid.notice_lead_s,
    )
