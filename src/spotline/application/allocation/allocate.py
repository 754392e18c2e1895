"""The stateless allocator: one slot, several jobs, in order, on what is left for each.

The allocator service answers with it, verification recomputes recorded answers with it, and the
selector falls back to it when no allocator answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotline.application.allocation.clearing import cleared
from spotline.application.allocation.messages import (
    AllocateAnswer,
    AllocateRequest,
    JobTask,
)
from spotline.application.allocation.probing import probe_worths, value_of, value_there
from spotline.application.allocation.tasks import (
    check_quoted,
    is_saved,
    may_move,
    move_margin_micro_usd,
    moved_task,
    take_before,
    task_answer,
    task_view,
)
from spotline.domain.beliefs.probes import ProbeWorth
from spotline.domain.jobs.lot import holding_of
from spotline.domain.market.offering import UNKNOWN_COUNT, Count, Provenance, Quote
from spotline.domain.market.slot_quote import SlotQuote
from spotline.domain.policies.answer import JobAnswer, Move
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import (
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import PolicyView
from spotline.domain.policies.prediction import UNCOUNTED


def allocate(request: AllocateRequest) -> AllocateAnswer:
    """Decide what every task's job holds for the rest of the slot.

    Raises
    ------
    ValueError
        A task or what is taken names an unknown policy or offering, or a job that cannot run on its offering.
    """
    if request.clearing:
        return cleared(request)
    residual = ResidualCapacity(request.quotes)
    quotes = {sq.quote.offering_id: sq.quote for sq in request.quotes}
    take_before(request, residual)
    answers: list[JobAnswer] = []
    worths: list[ProbeWorth] = []
    for task in request.tasks:
        check_quoted(task, quotes)
        answer, worth = _placed(request, task, quotes, residual)
        worths += worth
        # What is held on demand stays even where the stock has run out.
        residual.take_what_is_left(answer.lots)
        answers.append(answer)
    return AllocateAnswer(answers=tuple(answers), probe_worths=tuple(worths))


def _placed(
    request: AllocateRequest,
    task: JobTask,
    quotes: Mapping[str, Quote],
    residual: ResidualCapacity,
) -> tuple[JobAnswer, tuple[ProbeWorth, ...]]:
    """Decide where a task's job runs by its value tables, then how much it holds by its policy.

    Say also what asking elsewhere would be worth; a job that would gain by asking where it would go
    stays until it knows.

    It moves where the best it can do there is worth more than the best at home by over
    `MOVE_MARGIN_PPM`, the policy makes use of it, and a deadline that is safe at home stays safe.
    """
    home = task_view(request, task, quotes[task.offering_id], residual)
    stays = task_answer(request, task, home)
    worths = probe_worths(request, task, home, quotes, residual)
    moved = _worth_moving(request, task, home, quotes, residual)
    if moved is None:
        return stays, worths
    there = task_view(request, moved, quotes[moved.offering_id], residual)
    goes = task_answer(request, moved, there)
    if not _is_better(home, stays, there, goes):
        return stays, worths
    first = tuple(worth for worth in worths if worth.offering_id == moved.offering_id)
    if first:
        return stays, first
    move = Move(
        from_offering_id=task.offering_id,
        overhead_s=moved.pending_overhead_s,
        cost_micro_usd=moved.spent_micro_usd - task.spent_micro_usd,
    )
    return replace(goes, move=move), ()


def _is_better(home: PolicyView, stays: JobAnswer, there: PolicyView, goes: JobAnswer) -> bool:
    """Whether what the policy makes of a better place is worth going there.

    Tables speak of the best that can be done: a policy that takes no spot where that is cheap
    would only pay for the way.
    """
    before, after = holding_of(stays.lots), holding_of(goes.lots)
    if not after.instances or (is_saved(home, before) and not is_saved(there, after)):
        return False
    return (
        after.spot > 0
        or after.instances > before.instances
        or slot_cost_micro_usd(there, after) < slot_cost_micro_usd(home, before)
    )


def _worth_moving(
    request: AllocateRequest,
    task: JobTask,
    home: PolicyView,
    quotes: Mapping[str, Quote],
    residual: ResidualCapacity,
) -> JobTask | None:
    """The task as it would stand at the best alternative, None where home is as good."""
    if not may_move(request, task, home) or home.outlook is None:
        return None
    best = value_of(home, home.outlook) + move_margin_micro_usd(home)
    chosen = None
    for alternative in task.alternatives:
        moved = moved_task(task, alternative, home)
        view = task_view(request, moved, quotes[alternative.offering_id], residual)
        if view.outlook is None:
            continue
        value = value_there(view, view.outlook, alternative) - alternative.move_cost_micro_usd
        if value > best:
            best, chosen = value, moved
    return chosen


def capped_quotes(quotes: Sequence[SlotQuote], residual: ResidualCapacity) -> tuple[SlotQuote, ...]:
    """The same quotes with what is left of every offering as its counts."""
    capped = []
    for slot_quote in quotes:
        quote = slot_quote.quote
        capped.append(
            replace(
                slot_quote,
                quote=replace(
                    quote,
                    spot_available=_left(residual.spot(quote.offering_id)),
                    on_demand_available=_left(residual.on_demand(quote.offering_id)),
                ),
            )
        )
    return tuple(capped)


def _left(instances: int) -> Count:
    if instances >= UNCOUNTED:
        return UNKNOWN_COUNT
    return Count(instances=instances, provenance=Provenance.INFERRED)
