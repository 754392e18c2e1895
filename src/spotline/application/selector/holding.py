"""What the cloud says of a revision, as the selector takes it: refusals, and what jobs hold."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from spotline.application.selector.believing import believe_lost, believe_refused
from spotline.application.selector.endings import moment_s, reopen, unheeded
from spotline.application.selector.job_run import HeldStretch, JobRun, RunPhase
from spotline.application.selector.state import SelectorState, SlotPhase
from spotline.application.selector.stocking import stock_granted, stock_refused
from spotline.domain.events.capacity import CapacityReported, LaunchRefused, RefusalClass
from spotline.domain.jobs.job import DeadlineKind
from spotline.domain.jobs.program import Holding
from spotline.domain.jobs.rescue import rescue_of
from spotline.domain.limits.freezes import FreezeScope
from spotline.domain.market.offering import CapacityType


def note_refused(state: SelectorState, event: LaunchRefused) -> None:
    """Take a refusal in the open slot: what it shows bounds what is decided for the rest of it.

    A limit of one job or tenant bounds those alone; no limit of ours shows what the cloud has.
    """
    run = state.runs.get(event.job_id)
    if run is not None and run.transfer_cost_micro_usd and event.limit_scope is not None:
        at_home = event.offering_id == run.offering_id
        run.copied_in_vain |= at_home and not event.granted
    if event.limit_scope in (FreezeScope.JOB, FreezeScope.TENANT):
        for job_id in _limited_by(state, event):
            state.limited[job_id, event.offering_id, event.capacity_type] = True
        return
    place = event.offering_id, event.capacity_type
    state.refused[place] = state.refused.get(place, False) or event.limit_scope is None
    if event.limit_scope is not None:
        return
    if event.capacity_type is CapacityType.SPOT:
        believe_refused(state, event)
    elif event.offering_id in state.stock:
        state.stock[event.offering_id][-1] = 0
        stock_refused(state, event)
    if run is not None and event.refusal_class is RefusalClass.UNKNOWN_OUTCOME:
        run.in_doubt[event.offering_id] = event.slot


def note_taken(state: SelectorState, run: JobRun, offering_id: str) -> None:
    """Take a loss of spot where counts are believed: it shows the stock, as a refusal does."""
    if state.beliefs is None or not run.held_at(offering_id).spot:
        return
    believe_lost(state, offering_id)
    state.refused[offering_id, CapacityType.SPOT] = True


def _limited_by(state: SelectorState, event: LaunchRefused) -> list[str]:
    """The jobs that a limit of one job or tenant holds for."""
    if event.limit_scope is FreezeScope.JOB:
        return [event.job_id]
    return [run.job.job_id for run in state.running() if run.job.tenant == event.tenant]


def forget_doubts(run: JobRun, slot: int) -> None:
    """Let go of launches that the cloud was looked through for since; `slot` is the open one.

    The first decision of the slot after may still be made before it is known what came of them.
    """
    run.in_doubt = {home: since for home, since in run.in_doubt.items() if since >= slot - 1}


def note_capacity(state: SelectorState, event: CapacityReported) -> None:
    """Take what the cloud holds after a revision; what is not settled is decided again."""
    if event.slot != state.slot or event.revision != state.revision:
        return
    # What the cloud tells of a settled slot is news: the rest of it is decided again.
    news = state.phase is SlotPhase.SETTLED and not event.settled
    if state.phase is not SlotPhase.AWAITING_CAPACITY and not news:
        return
    reported = {holding.job_id: holding.lots for holding in event.holdings}
    first_s = state.offset_s
    offered = state.offers()
    for job_id in sorted(state.runs):
        run = state.runs[job_id]
        stock_granted(state, run, reported.get(job_id, ()))
        run.held_lots = reported.get(job_id, ())
        run.launched = run.launched or bool(run.held_lots)
        held = run.held
        if held.instances:
            run.copied_in_vain = False
        if run.phase is RunPhase.RUNNING:
            # What was granted was held until instances were lost inside the slot.
            granted = replace(held, spot=held.spot + run.lost) if run.lost else held
            # A swap that was refused keeps as many of the other kind.
            exact = state.beliefs is not None and not run.lost
            if granted.instances == run.target.instances and not exact:
                # All was granted, so the target says of which kind the lost ones were.
                granted = run.target
            broken = _interrupted(state, run, granted, offered)
            run.place(HeldStretch(offset_s=first_s, holding=granted, interrupted=broken))
            if run.lost:
                run.place(HeldStretch(offset_s=event.offset_s, holding=held, interrupted=True))
            if run.lost or (broken and not first_s):
                run.note_loss(event.offset_s if run.lost else 0)
    # What is told at the very end of a slot is for the next one to decide.
    if event.settled or event.offset_s >= state.current.slot_s:
        state.phase = SlotPhase.SETTLED
        if unheeded(state):
            reopen(state, event, moment_s(state, 0))
        elif state.settling is None or state.settling.slot != state.slot:
            state.settling = event
        return
    _note_caps(state)
    affected = {
        job_id for job_id in state.order if state.runs[job_id].held != state.runs[job_id].target
    }
    affected |= _let_go(state, affected)
    state.affected = tuple(job_id for job_id in state.order if job_id in affected)
    state.offset_s = event.offset_s
    state.revision += 1
    # A pipeline's refusals are settled with revisions too, and use up none of the jobs'.
    state.job_revisions += bool(state.affected)
    state.refused, state.limited = {}, {}
    state.phase = SlotPhase.ALLOCATING
    state.trigger = event


def _let_go(state: SelectorState, affected: Collection[str]) -> set[str]:
    """Jobs that let on-demand go for hard deadlines that were refused some; the most slack first.

    Only those that may be late let go, and no more of them than one more launch needs, for the rest of the slot.
    """
    if not (state.clearing or state.beliefs is not None):
        return set()
    gone: set[str] = set()
    for job_id in sorted(affected):
        run = state.runs[job_id]
        at, held = run.offering_id, run.held
        if not state.refused.get((at, CapacityType.ON_DEMAND)):
            continue
        if held.on_demand >= run.target.on_demand or not _is_due(state, run):
            continue
        lacks = run.job.max_instances - held.instances
        for other in reversed(state.in_order()):
            if lacks <= 0:
                break
            if other not in gone and _lends(state.runs[other], at):
                lacks -= state.runs[other].held_at(at).on_demand
                gone.add(other)
                state.own_caps[other, at, CapacityType.ON_DEMAND] = 0
    return gone


def _lends(run: JobRun, offering_id: str) -> bool:
    soft = run.job.deadline.kind is DeadlineKind.SOFT
    return soft and run.held_at(offering_id).on_demand > 0


def _is_due(state: SelectorState, run: JobRun) -> bool:
    """Whether a hard deadline is only sure on demand from this slot on."""
    program = run.compiled
    if not program.hard:
        return False
    left = program.deadline_slots - run.elapsed_slots(state.slot)
    rescue = rescue_of(program, state.slot, left, program.work_quanta - run.state.progress_quanta)
    return rescue is not None and rescue.first_slot <= state.slot


def _interrupted(
    state: SelectorState, run: JobRun, granted: Holding, offered: Callable[[str], tuple[int, int]]
) -> bool:
    """Whether the segment that starts now follows a loss of what was held before it."""
    if state.offset_s:
        return any(s.interrupted and s.offset_s == state.offset_s for s in run.segments)
    if state.clearing:
        return state.lost_spot(run, granted.spot)
    return run.state.holding.spot > offered(run.job.job_id)[0]


def _note_caps(state: SelectorState) -> None:
    """A refusal shows the stock: what everybody holds of the offering is all there is.

    Where more is held than one has shown, a launch of unknown outcome has come to something since.
    """
    for key in state.refused:
        state.caps[key] = _held_of(state, *key)
    for key, most in state.caps.items():
        state.caps[key] = max(most, _held_of(state, *key))
    for job_id, offering_id, capacity_type in (*state.own_caps, *state.limited):
        run = state.runs.get(job_id)
        if run is not None:
            held = _count(run.held_at(offering_id), capacity_type)
            before = state.own_caps.get((job_id, offering_id, capacity_type), 0)
            state.own_caps[job_id, offering_id, capacity_type] = max(before, held)


def _held_of(state: SelectorState, offering_id: str, capacity_type: CapacityType) -> int:
    held = 0
    for run in state.runs.values():
        held += _count(run.held_at(offering_id), capacity_type)
    return held


def _count(holding: Holding, capacity_type: CapacityType) -> int:
    return holding.spot if capacity_type is CapacityType.SPOT else holding.on_demand
