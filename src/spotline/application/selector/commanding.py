"""From the allocator's answers to decisions, and from those to the commands they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from spotline.application.selector.asking import task_at_home
from spotline.application.selector.believing import replaces
from spotline.application.selector.egress import why_here
from spotline.application.selector.endings import ended, endings, undecided
from spotline.application.selector.freezing import NO_EXEMPTION, Exemption, exemption
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.application.spec import Context
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import ProvisioningCommanded, SlotDecided
from spotline.domain.events.event import Event
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move, Yielded
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import policy_named


@dataclass(frozen=True, slots=True, kw_only=True)
class AtLimit:
    """Jobs that end in a revision because of a limit, that limits have cut, or were excepted from one."""

    stopped: Set[str] = frozenset()
    cut: Set[str] = frozenset()
    excepted: Mapping[str, Exemption] = field(default_factory=dict)


def decisions(
    state: SelectorState, answers: Sequence[JobAnswer], options: SelectorOptions
) -> list[AllocationDecided]:
    """Turn the allocator's answers into decisions, in their order."""
    decided = []
    for answer in answers:
        run = state.runs[answer.job_id]
        # It may have ended or failed while the answer was on its way.
        if run.ending is not None or run.waits_at(state.current.ts_event_ns):
            continue
        decided.append(
            AllocationDecided(
                job_id=answer.job_id,
                tenant=run.job.tenant,
                slot=state.slot,
                revision=state.revision,
                offset_s=state.offset_s,
                policy_id=answer.policy_id,
                lots=answer.lots,
                reason=answer.reason,
                forecast_used=state.forecast_reason is DecisionReason.POLICY
                and _looks_at_forecasts(policy_named(answer.policy_id)),
                explanation=_explain(run, answer, state, options),
                move=answer.move,
                cleared=_is_cleared(state, answer),
                yielded=_yielded(state, run, answer),
            )
        )
    return decided


def _is_cleared(state: SelectorState, answer: JobAnswer) -> bool:
    return state.clearing and answer.reason is not DecisionReason.ALLOCATOR_UNAVAILABLE


def _yielded(state: SelectorState, run: JobRun, answer: JobAnswer) -> Yielded | None:
    """What a job left to another; whose jobs others have is not told to a tenant."""
    yielded = answer.yielded
    if yielded is None or state.tenant_of(yielded.to_job_id) == run.job.tenant:
        return yielded
    return replace(yielded, to_job_id="")


def finish_slot(
    state: SelectorState,
    answered: Sequence[AllocationDecided],
    ctx: Context,
    options: SelectorOptions,
    at_limit: AtLimit | None = None,
) -> tuple[Event, ...]:
    """Decisions and endings, then the commands they need (releases first), then the slot's end."""
    at_limit = at_limit or AtLimit()
    decided = (*answered, *undecided(state))
    ending = {
        **dict.fromkeys(at_limit.stopped, JobOutcome.STOPPED_BY_LIMIT),
        **endings(state, [each for each in decided if each.job_id not in at_limit.cut]),
    }
    closed: list[Event] = []
    for job_id, outcome in sorted(ending.items()):
        closed += ended(state, state.runs[job_id], outcome, state.offset_s)
    held = {decision.job_id for decision in decided}
    changes: list[_Change] = []
    for decision in decided:
        changes += _changes(state, state.runs[decision.job_id], decision.lots, decision.move)
    for job_id in sorted(state.runs):
        run = state.runs[job_id]
        if run.phase is RunPhase.CLOSED or (job_id in ending and job_id not in held):
            changes += _changes(state, run, ())
        elif run.phase is RunPhase.RUNNING and job_id not in held:
            changes += _beside(run, run.offering_id, set())
    changes = [_with_exemption(state, change, options, at_limit) for change in changes]
    # Releases go first: what they free may be what the others launch. What is excepted from a quota
    # goes last: it needs no room in it.
    changes.sort(
        key=lambda change: (
            change.grows,
            change.run.job.job_id in at_limit.excepted,
            change.run.job.job_id,
            change.target.offering_id,
        )
    )
    commands: list[Event] = [
        ProvisioningCommanded(
            command_id=ctx.derive_id(change.id_part),
            job_id=change.run.job.job_id,
            tenant=change.run.job.tenant,
            quota_pool=state.offerings[change.target.offering_id].quota_pool,
            slot=state.slot,
            revision=state.revision,
            offset_s=state.offset_s,
            target=change.target,
            transfer_cost_micro_usd=change.transfer_cost_micro_usd,
            excepted_on_demand=change.exemption.instances,
            quote_left_micro_usd=change.exemption.quote_left_micro_usd,
            keep_until_granted=change.replaces,
        )
        for change in changes
    ]
    slot_decided = SlotDecided(
        slot=state.slot,
        revision=state.revision,
        offset_s=state.offset_s,
        commands=len(commands),
        fairness_cost_micro_usd=state.fairness_cost_micro_usd,
    )
    return (*decided, *closed, *commands, slot_decided)


def _with_exemption(
    state: SelectorState, change: _Change, options: SelectorOptions, at_limit: AtLimit
) -> _Change:
    """The change with what a hard deadline needs of it, for stops and limits that yield to that.

    One that a limit has cut gets no more spot than it says.
    """
    run, target = change.run, change.target
    job_id = run.job.job_id
    at_home = target.offering_id == run.offering_id
    more = target.on_demand - run.held_at(target.offering_id).on_demand
    if more <= 0 or not at_home or not (run.is_limited or state.freezes.by_id):
        return change
    found = at_limit.excepted.get(job_id)
    if found is None:
        task = task_at_home(state, run, options)
        cut = job_id in at_limit.cut
        found = exemption(state, run, replace(task, most_spot=target.spot) if cut else task)
    if not found.instances:
        return change
    return replace(change, exemption=replace(found, instances=min(more, found.instances)))


def _looks_at_forecasts(policy: Policy) -> bool:
    return policy.forecast_slots > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """A lot to be brought to other counts; `id_part` tells a job's commands apart."""

    run: JobRun
    target: Lot
    grows: bool
    id_part: str
    transfer_cost_micro_usd: int = 0
    exemption: Exemption = NO_EXEMPTION
    replaces: bool = False


def _changes(
    state: SelectorState, run: JobRun, lots: tuple[Lot, ...], move: Move | None = None
) -> list[_Change]:
    """What must change for a job to hold `lots` and nothing else; no lots: nothing at all."""
    job_id = run.job.job_id
    target = lots[0] if lots else Lot(offering_id=run.offering_id)
    # Who runs elsewhere gives up what may still turn up; who holds nothing may come to keep it.
    changes = _beside(run, target.offering_id, run.in_doubt.keys() if lots else set())
    before = run.held_at(target.offering_id)
    if move is not None or before != holding_of(lots):
        changes.append(
            _Change(
                run=run,
                target=target,
                grows=target.spot > before.spot or target.on_demand > before.on_demand,
                id_part=f"command:{job_id}",
                transfer_cost_micro_usd=move.cost_micro_usd if move is not None else 0,
                replaces=move is None and replaces(state, before, target),
            )
        )
    return changes


def _beside(run: JobRun, home: str, in_doubt: Set[str]) -> list[_Change]:
    """Nothing elsewhere than at `home`, neither of what is held nor of what is `in_doubt`."""
    others = {lot.offering_id for lot in run.held_lots} | in_doubt
    return [
        _Change(
            run=run,
            target=Lot(offering_id=offering_id),
            grows=False,
            id_part=f"command:{run.job.job_id}:{offering_id}",
        )
        for offering_id in sorted(others - {home})
    ]


def _explain(run: JobRun, answer: JobAnswer, state: SelectorState, options: SelectorOptions) -> str:
    """One line for people: what, why, and how much slack there is."""
    holding = holding_of(answer.lots)
    if answer.move is not None:
        moved = f", moved from {answer.move.from_offering_id}"
    else:
        why = why_here(state, run, options)
        moved = f", kept from moving: {why}" if why else ""
    slack_s = run.slack_slots(state.slot) * run.compiled.slot_s
    return (
        f"{holding.spot} spot + {holding.on_demand} on-demand by {answer.policy_id}: "
        f"{answer.reason.value.replace('_', ' ')}, slack {slack_s / 3600:.1f} h{moved}"
    )
