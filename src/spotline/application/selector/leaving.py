"""Reservations as homes: who may move to one, and where a job goes when its own is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.messages import Alternative, SpotStay
from spotline.application.selector.egress import copy_micro_usd, open_to
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.loads import loads_of
from spotline.application.selector.offering_choice import has_room, leaves_for
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.beliefs.probes import ProbeOdds
from spotline.domain.jobs.stay import ReservedStay, stay_on
from spotline.domain.market.offering import Reservation
from spotline.domain.policies.answer import JobAnswer, Move
from spotline.domain.solvers.table_spec import TableUse


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHome:
    """Where a job goes, the seconds that this takes, and what copying its checkpoint costs."""

    offering_id: str
    overhead_s: int
    cost_micro_usd: int


def way_to(
    state: SelectorState, run: JobRun, offering_id: str, options: SelectorOptions
) -> NextHome:
    """The way of a job to another offering."""
    # As a program compiled for the place says, which none of a large crowd's jobs has at hand.
    overhead_s, cost = run.job.overheads.launch_s, 0
    # What a job needs before it first runs is taken to be everywhere.
    if run.launched:
        overhead_s = max(overhead_s, run.job.overheads.migrate_s)
        cost = copy_micro_usd(state, run.job, run.offering_id, offering_id, options)
    return NextHome(offering_id=offering_id, overhead_s=overhead_s, cost_micro_usd=cost)


def alternative_to(
    state: SelectorState,
    run: JobRun,
    offering_id: str,
    options: SelectorOptions,
    *,
    table_use: TableUse | None = None,
    stay: SpotStay | None = None,
    probe: ProbeOdds | None = None,
) -> Alternative:
    """What a job is told of an offering that it could move to."""
    way = way_to(state, run, offering_id, options)
    reserve_slots, rescue_instances = state.on_demand_stock(run.job, offering_id)
    return Alternative(
        offering_id=offering_id,
        instance_type=state.offerings[offering_id].instance_type,
        table_use=table_use,
        stay=stay,
        migrate_s=way.overhead_s,
        move_cost_micro_usd=way.cost_micro_usd,
        on_demand_reserve_slots=reserve_slots,
        rescue_instances=rescue_instances,
        notice_lead_s=state.lead_s(run.job, offering_id),
        spot_risk_ppm=0 if table_use is None else _spot_risk_ppm(state, run, offering_id),
        probe=probe,
    )


def _spot_risk_ppm(state: SelectorState, run: JobRun, offering_id: str) -> int:
    """The chance that a job finds no spot on an offering, as far as counts are believed."""
    return (
        0 if state.beliefs is None else state.beliefs.risk_ppm(offering_id, run.job.max_instances)
    )


def can_stay(state: SelectorState, run: JobRun, offering_id: str, options: SelectorOptions) -> bool:
    """Whether a job that moves to an offering now could stay there until it is done."""
    reservation = state.offerings[offering_id].reservation
    if reservation is None:
        return True
    others = [other for other in state.running() if other is not run]
    if not _has_turn(state, run, reservation):
        return False
    taken = loads_of(state, others, options)
    program = state.program_of(run.job, offering_id)
    stay = stay_on(
        reservation,
        program,
        state.current.ts_event_ns,
        work_quanta=program.work_quanta - run.state.progress_quanta,
        overhead_s=run.job.overheads.migrate_s,
    )
    if stay is None or not has_room(state.offerings, offering_id, run.job, taken):
        return False
    return stay.slots <= _slots_left(state, run)


def _has_turn(state: SelectorState, run: JobRun, reservation: Reservation) -> bool:
    """Whether a job may move into a savings plan in this slot: the first that is not in it.

    Two that moved to different offerings of a plan at once would both count on the same money.
    """
    if not reservation.plan:
        return True
    for other in state.running():
        home = state.offerings[other.offering_id].reservation
        if home is None or home.plan != reservation.plan:
            return other is run
    return False


def way_out(state: SelectorState, run: JobRun, options: SelectorOptions) -> NextHome | None:
    """Where a job must go as a slot opens, None where it need not or there is nothing else.

    It leaves a reservation that is over. It leaves before that if it is slower than it was taken
    for, so that it will not be done there in time, and elsewhere would not be with a slot less.
    """
    reservation = state.offerings[run.offering_id].reservation
    if reservation is None or state.offset_s:
        return None
    over = state.is_over(run.offering_id)
    stay = None if over else _stay_of(state, run, reservation)
    done_in_time = stay is not None and stay.slots <= _slots_left(state, run)
    if not over and (done_in_time or not run.compiled.hard):
        return None
    other = leaves_for(
        run.job,
        open_to(state, run, options),
        state.current,
        [slot for slot, _ in state.history],
        run.state.progress_quanta,
    )
    if other is None:
        return None
    way = way_to(state, run, other, options)
    program = state.program_of(run.job, other)
    left = program.work_quanta - run.state.progress_quanta
    needed = program.slots_on_demand(left, max(way.overhead_s, run.state.pending_overhead_s))
    if stay is not None and stay.slots <= needed:
        return None  # late here, and no sooner done elsewhere
    return way if over or needed >= _slots_left(state, run) else None


def _slots_left(state: SelectorState, run: JobRun) -> int:
    return run.compiled.deadline_slots - run.elapsed_slots(state.slot)


def _stay_of(state: SelectorState, run: JobRun, reservation: Reservation) -> ReservedStay | None:
    """How much longer a job runs on the reservation that it is on; None: that ends before."""
    program = run.compiled
    return stay_on(
        reservation,
        program,
        state.current.ts_event_ns,
        work_quanta=program.work_quanta - run.state.progress_quanta,
        overhead_s=run.state.pending_overhead_s,
        running=run.held.instances > 0,
    )


def departures(
    state: SelectorState, answers: Sequence[JobAnswer], options: SelectorOptions
) -> list[JobAnswer]:
    """The answers, with the moves of jobs that had to leave."""
    told = []
    for answer in answers:
        run = state.runs[answer.job_id]
        left = answer.move is None and any(
            lot.offering_id != run.offering_id for lot in answer.lots
        )
        way = way_out(state, run, options) if left else None
        if way is not None:
            move = Move(
                from_offering_id=run.offering_id,
                overhead_s=max(way.overhead_s, run.state.pending_overhead_s),
                cost_micro_usd=way.cost_micro_usd,
            )
            answer = replace(answer, move=move)
        told.append(answer)
    return told
