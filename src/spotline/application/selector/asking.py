"""From the selector's state to what it asks the allocator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotline.application.allocation.allocate import allocate, capped_quotes
from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.selector.coupling import coupled_limits, task_in_quota
from spotline.application.selector.egress import held_back
from spotline.application.selector.freezing import task_at_discount, task_under_freezes
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.leaving import NextHome, alternative_to, can_stay, way_out
from spotline.application.selector.limiting import task_at_limit
from spotline.application.selector.offered_money import task_under_own_caps, task_within_spending
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.probing import probe_odds
from spotline.application.selector.rescuing import RescueRoom
from spotline.application.selector.state import SelectorState
from spotline.application.selector.stays import IdleSpot
from spotline.application.selector.tenant_savings import tenant_weights
from spotline.application.selector.turn_places import TurnPlaces, serves_in_turn
from spotline.domain.jobs.lot import Lot, lot_of
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.answer import DecisionReason, JobAnswer
from spotline.domain.policies.interface import START
from spotline.domain.policies.registry import FALLBACK_POLICY_ID
from spotline.domain.solvers.table_spec import TableUse


def allocate_request(
    state: SelectorState, order: Sequence[str], options: SelectorOptions
) -> AllocateRequest:
    """Ask for what some of the running jobs may have of the market as it is, in their order."""
    opened = state.current
    residual = state.residual()
    asked = set(order)
    for run in state.running():
        if run.job.job_id not in asked:
            residual.take_what_is_left(run.held_lots)
    reason = state.forecast_reason
    if state.revision:
        lost = any(state.runs[job_id].lost for job_id in order)
        reason = DecisionReason.INTERRUPTED if lost else DecisionReason.LAUNCH_REFUSED
    trusted = state.forecast_reason is DecisionReason.POLICY
    room = RescueRoom.of(state, state.running() if options.moves else (), options)
    in_turn = serves_in_turn(state, options)
    idle = TurnPlaces.of(state, options) if in_turn else IdleSpot.of(state, options)
    tasks = tuple(_task(state, state.runs[job_id], options, room, idle) for job_id in order)
    limits = coupled_limits(state, asked, options)
    return AllocateRequest(
        slot=state.slot,
        revision=state.revision,
        offset_s=state.offset_s,
        slot_s=opened.slot_s,
        quotes=capped_quotes(opened.quotes, residual),
        forecast=state.forecast if trusted else None,
        reason=reason,
        tasks=tasks,
        laws=_laws_of(tasks, state.runs, state.laws),
        clearing=state.clearing,
        reclaimed_offering_ids=() if state.offset_s else tuple(sorted(state.reclaimed)),
        tenant_weights=tenant_weights(state, (task.job.tenant for task in tasks), options),
        quotas=limits.quotas,
        budget_micro_usd=limits.budget_micro_usd,
        strict_reclaims=state.clearing and options.strict_reclaims,
        nets_soft_deadlines=state.clearing and options.nets_soft_deadlines,
        brief_search=state.clearing and options.brief_search,
        keeps_spot=state.clearing and options.keeps_spot,
        serves_in_turn=in_turn,
        late_on_spot=state.clearing and options.late_on_spot,
    )


def _task(
    state: SelectorState,
    run: JobRun,
    options: SelectorOptions,
    room: RescueRoom,
    idle: IdleSpot | TurnPlaces,
) -> JobTask:
    task = _task_here(
        state,
        run,
        options,
        _table_use(state, run, run.offering_id),
        (
            *(() if isinstance(idle, TurnPlaces) else _alternatives(state, run, options, room)),
            *idle.places(state, run, options, room),
        ),
    )
    way = way_out(state, run, options)
    if way is not None:
        task = _departed(state, run, task, way)
    task = task_at_discount(state, task_at_limit(state, run, task), options)
    task = task_within_spending(state, run, task, options)
    task = task_under_own_caps(state, run, task)
    return task_in_quota(state, run, task_under_freezes(state, run, task), options)


def task_at_home(state: SelectorState, run: JobRun, options: SelectorOptions) -> JobTask:
    """The task of a running job where it is, that looks into no table."""
    return _task_here(state, run, options, None, ())


def _task_here(
    state: SelectorState,
    run: JobRun,
    options: SelectorOptions,
    table_use: TableUse | None,
    alternatives: tuple[Alternative, ...],
) -> JobTask:
    now = run.state_at(state.offset_s) if state.offset_s else run.state
    reserve_slots, rescue_instances = state.on_demand_stock(run.job, run.offering_id)
    return JobTask(
        job=run.planned(run.job),
        policy_id=run.policy_id,
        offering_id=run.offering_id,
        instance_type=state.offerings[run.offering_id].instance_type,
        first_slot_start_ns=run.first_slot_start_ns,
        elapsed_slots=run.elapsed_slots(state.slot),
        progress_quanta=now.progress_quanta,
        holding=lot_of(run.offering_id, now.holding.spot, now.holding.on_demand),
        interrupted=bool(state.offset_s and run.lost),
        pending_overhead_s=now.pending_overhead_s,
        spent_micro_usd=run.spent_micro_usd + run.transfer_cost_micro_usd + run.probed_micro_usd,
        memory=run.memory,
        # The safety net expects nothing of spot where what was held has just done nothing.
        spot_firm=options.spot_firm and not run.stands_still,
        table_use=table_use,
        alternatives=alternatives,
        on_demand_reserve_slots=reserve_slots,
        rescue_instances=rescue_instances,
        unsaved_quanta=now.unsaved_quanta,
        notice_lead_s=state.lead_s(run.job, run.offering_id),
    )


def _departed(state: SelectorState, run: JobRun, task: JobTask, way: NextHome) -> JobTask:
    """The task of a job that must leave: idle at its new home, its checkpoint on the way."""
    reserve_slots, rescue_instances = state.on_demand_stock(run.job, way.offering_id)
    return replace(
        task,
        offering_id=way.offering_id,
        instance_type=state.offerings[way.offering_id].instance_type,
        holding=Lot(offering_id=way.offering_id),
        interrupted=False,
        pending_overhead_s=max(task.pending_overhead_s, way.overhead_s),
        spent_micro_usd=task.spent_micro_usd + way.cost_micro_usd,
        # The plans of a policy are for where it made them.
        memory=START,
        table_use=_table_use(state, run, way.offering_id),
        alternatives=(),
        on_demand_reserve_slots=reserve_slots,
        rescue_instances=rescue_instances,
        notice_lead_s=state.lead_s(run.job, way.offering_id),
    )


def _alternatives(
    state: SelectorState, run: JobRun, options: SelectorOptions, room: RescueRoom
) -> tuple[Alternative, ...]:
    """Where a job could go now: a slot's first moment, tables at hand."""
    if not options.moves or state.offset_s or not run.tables.keys() - {run.offering_id}:
        return ()
    # A job never pays egress to an offering whose count is unknown.
    counted = {
        quoted.quote.offering_id
        for quoted in state.current.quotes
        if quoted.quote.spot_available.known
    }
    full = room.full_for(state, run, run.tables)
    found = []
    for offering_id in run.tables:
        use = _table_use(state, run, offering_id)
        known = offering_id in counted and offering_id not in full
        if use is None or offering_id == run.offering_id or not known:
            continue
        if held_back(state, run, offering_id, options):
            continue
        if not can_stay(state, run, offering_id, options):
            continue
        # Others that could go there in this slot leave it that much.
        room.claim(state, run, offering_id)
        probe = probe_odds(state, run, offering_id, options)
        found.append(alternative_to(state, run, offering_id, options, table_use=use, probe=probe))
    return tuple(found)


def fallback_answers(state: SelectorState, options: SelectorOptions) -> Sequence[JobAnswer]:
    """Decide here, with the policy that needs neither forecast nor table: no answer came."""
    return allocate(fallback_request(state, options)).answers


def fallback_request(state: SelectorState, options: SelectorOptions) -> AllocateRequest:
    """What is decided here where no answer came."""
    order = state.served_again() if state.revision else state.in_order()
    request = allocate_request(state, order, options)
    tasks = tuple(
        replace(task, policy_id=FALLBACK_POLICY_ID, memory=START, table_use=None, alternatives=())
        for task in request.tasks
    )
    return replace(
        request,
        tasks=tasks,
        laws=(),
        clearing=False,
        tenant_weights=(),
        quotas=(),
        budget_micro_usd=None,
        forecast=None,
        reason=DecisionReason.ALLOCATOR_UNAVAILABLE,
    )


def _table_use(state: SelectorState, run: JobRun, offering_id: str) -> TableUse | None:
    table = run.table_in(state.slot, offering_id)
    if table is None:
        return None
    space, wanted = table.named.law.space, run.job.max_instances
    return TableUse(table=table.spec, run_state=state.run_state(offering_id, space, wanted))


def _laws_of(
    tasks: Sequence[JobTask], runs: Mapping[str, JobRun], known: Mapping[str, NamedLaw]
) -> tuple[NamedLaw, ...]:
    """The laws of all the tables that tasks name, and those of where they could stay."""
    laws: dict[str, NamedLaw] = {}
    for task in tasks:
        for use in (task.table_use, *(place.table_use for place in task.alternatives)):
            if use is not None:
                table = runs[task.job.job_id].tables[use.table.offering_id]
                laws[table.named.law_id] = table.named
        for place in task.alternatives:
            if place.stay is not None:
                laws[place.stay.law_id] = known[place.offering_id]
    return tuple(laws[law_id] for law_id in sorted(laws))
