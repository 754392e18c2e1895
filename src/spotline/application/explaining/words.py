"""A decision in one sentence, with the numbers it turned on."""

from __future__ import annotations

from collections.abc import Sequence

from spotline.application.allocation.messages import JobTask
from spotline.application.explaining.facts import (
    STRANGER,
    DecidedTurn,
    counted,
    job_text,
    lot_text,
    usd_text,
)
from spotline.application.explaining.messages import ConsideredAlternative
from spotline.application.explaining.trail import Trail
from spotline.application.explaining.valuing import Alternatives
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityLost
from spotline.domain.events.forecast import ForecastOverdue
from spotline.domain.jobs.lot import holding_of
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.units import utc_iso


def summary_of(trail: Trail, turn: DecidedTurn, found: Alternatives) -> str:
    """Say what was decided and why."""
    decision = trail.decision
    head = f"In slot {decision.slot} it holds {lot_text(decision.lots)}"
    if decision.offset_s:
        head = f"{decision.offset_s} s into slot {decision.slot} it holds {lot_text(decision.lots)}"
    if decision.move is not None:
        move = decision.move
        head += (
            f" and leaves {move.from_offering_id}, which takes {move.overhead_s} s and "
            f"{usd_text(move.cost_micro_usd)}"
        )
    why = f"{_why(trail, turn, found)}{_yielded(turn, decision)}"
    return f"{head}: {why}.{_stopped(turn, decision.job_id)}"


def _yielded(turn: DecidedTurn, decision: AllocationDecided) -> str:
    """What spot it left to which job, and what that gained; empty for none."""
    yielded = decision.yielded
    if yielded is None:
        return ""
    named = job_text(turn, decision.job_id, yielded.to_job_id)
    to = named if named == STRANGER else f"job {named}"
    gain = yielded.gain_micro_usd
    worth = f"{usd_text(abs(gain))} {'more' if gain > 0 else 'less'}" if gain else "no less"
    fair = ", yielded for fairness between tenants" * (gain < 0)
    where = f"{yielded.spot} spot on {yielded.offering_id}"
    return f"; it yielded {where} to {to}: worth {worth} there{fair}"


def _stopped(turn: DecidedTurn, job_id: str) -> str:
    """Why nothing was bought for the job, since when, and what goes on with it; empty where it was."""
    job = turn.jobs.get(job_id)
    stopped = None if job is None else job.stopped
    if stopped is None:
        return ""
    since = f" since {utc_iso(stopped.ts_event_ns)}" * bool(stopped.ts_event_ns)
    goes_on = f"; it goes on with `{stopped.continue_with}`" * bool(stopped.continue_with)
    return f" Nothing is bought for it{since}: {stopped.detail}{goes_on}."


def _why(trail: Trail, turn: DecidedTurn, found: Alternatives) -> str:
    decision = trail.decision
    policy = decision.policy_id
    chosen = f"{policy} chose it{_margin(found.alternatives)}"
    match decision.reason:
        case DecisionReason.POLICY:
            return chosen
        case DecisionReason.SAFETY_NET:
            return _safety_net(trail, turn, found)
        case DecisionReason.FORECAST_OVERDUE:
            return f"{_overdue(trail)}, so {chosen}"
        case DecisionReason.FORECAST_UNTRUSTED:
            fault = turn.market.fault or "it has been wrong too often"
            return f"the slot's forecast is not trusted ({fault}), so {chosen}"
        case DecisionReason.ALLOCATOR_UNAVAILABLE:
            return f"{_no_answer(turn)}, so the selector decided by itself: {chosen}"
        case DecisionReason.LAUNCH_REFUSED:
            return f"{_refused(trail)}, so the rest of the slot was decided again: {chosen}"
        case DecisionReason.INTERRUPTED:
            return f"{_lost(trail)}, so the rest of the slot was decided again: {chosen}"
        case _:
            return _rule(trail, turn)


def _rule(trail: Trail, turn: DecidedTurn) -> str:
    """Where no policy had a choice."""
    decision = trail.decision
    job = turn.jobs.get(decision.job_id)
    match decision.reason:
        case DecisionReason.BUDGET:
            task = task_of(turn, decision)
            spent = 0 if task is None else task.spent_micro_usd
            most = 0 if task is None else task.job.budget_micro_usd
            return (
                f"{usd_text(spent)} of its budget of {usd_text(most)} is spent, and what "
                f"{decision.policy_id} chose costs more than is left"
            )
        case DecisionReason.CLOSED:
            return "its work is done, so it needs nothing more"
        case DecisionReason.AFTER_DEADLINE:
            late = 0 if job is None else decision.slot - job.deadline_slot
            over = f"its deadline is {counted(late, 'slot')} over"
            if any(lot.spot for lot in decision.lots):
                return f"{over}; spot that no other job has use for does the rest for less than on-demand"
            after = "and is held as long as that pays" if decision.lots else "which no longer pays"
            return f"{over}; from then on only on-demand counts, {after}"
        case DecisionReason.NO_CAPACITY:
            task = task_of(turn, decision)
            if task is not None and task.holding.on_demand > holding_of(decision.lots).on_demand:
                return "the on-demand that it held went to a hard deadline; its own may pass"
            return "there are not enough instances for any count it runs on"
        case DecisionReason.RETRYING:
            until = "" if job is None else f" before {utc_iso(job.not_before_ns)}"
            retry = 0 if job is None else job.retry + (not job.not_before_ns)
            return f"its program failed and is not started again{until} (retry {max(1, retry)})"
        case DecisionReason.FINISHING:
            return "all its work is done, and it keeps what it has until its program has ended"
        case _:
            return str(decision.reason.value).replace("_", " ")


def task_of(turn: DecidedTurn, decision: AllocationDecided) -> JobTask | None:
    """What the allocator was asked for the job, None where it was not."""
    tasks = turn.request.tasks if turn.request is not None else ()
    return next((task for task in tasks if task.job.job_id == decision.job_id), None)


def _margin(alternatives: Sequence[ConsideredAlternative]) -> str:
    """By how much the chosen one is better than the next that could be had."""
    if not alternatives:
        return ""
    chosen = alternatives[0]
    worth = usd_text(abs(chosen.utility_micro_usd))
    sign = "minus " if chosen.utility_micro_usd < 0 else ""
    said = (
        f", worth {sign}{worth} from here on with "
        f"P(on time) {chosen.on_time_probability_ppm / 10_000:.0f} %"
    )
    following = next((other for other in alternatives[1:] if other.cut is None), None)
    if following is None:
        return f"{said}; nothing else could be had"
    difference = usd_text(abs(following.worse_by_micro_usd))
    better = "more" if following.worse_by_micro_usd >= 0 else "less by this estimate"
    return f"{said}, {difference} {better} than {lot_text(following.lots)}"


def _safety_net(trail: Trail, turn: DecidedTurn, found: Alternatives) -> str:
    """Why the safety net took over: what would have been, and when on-demand has to begin."""
    decision = trail.decision
    said = f"the safety net overruled {decision.policy_id}, which asked for {lot_text(found.wish)}"
    asked = next((each for each in found.alternatives if each.lots == found.wish), None)
    if asked is not None and asked.cut_detail:
        said += f": {asked.cut_detail}"
    job = turn.jobs.get(decision.job_id)
    if job is not None:
        latest = job.deadline_slot - found.rescue_slots + 1
        said += (
            f"; slot {job.deadline_slot} is the last before the deadline, so on-demand has to "
            f"begin in slot {latest}"
        )
    return said


def _overdue(trail: Trail) -> str:
    for found in trail.before():
        event = found.event
        if isinstance(event, ForecastOverdue) and event.slot == trail.decision.slot:
            return f"no forecast of the slot came within {event.waited_ms / 1000:g} s"
    return "the forecast does not say what its policy needs"


def _no_answer(turn: DecidedTurn) -> str:
    answered = turn.answered
    if answered is None:
        return "the allocator did not answer"
    outcome = answered.outcome.value.replace("_", " ")
    return f"the allocator did not answer ({outcome}: {answered.detail})"


def _refused(trail: Trail) -> str:
    refusals = trail.refusals()
    own = [refusal for refusal in refusals if refusal.job_id == trail.decision.job_id]
    for refusal in (own or refusals)[-1:]:
        kind = refusal.capacity_type.value.replace("_", "-")
        whose = "" if own else " of another job"
        return (
            f"{refusal.granted} of {refusal.requested} {kind}{whose} on {refusal.offering_id} "
            "were granted"
        )
    return "a launch was refused"


def _lost(trail: Trail) -> str:
    decision = trail.decision
    losses = [
        found.event
        for found in trail.before()
        if isinstance(found.event, CapacityLost) and found.event.slot == decision.slot
    ]
    own = [loss for loss in losses if loss.job_id == decision.job_id]
    lost = sum(len(loss.instance_ids) for loss in own or losses)
    whose = "its" if own else "other jobs'"
    return f"{lost} of {whose} instances were taken back"
