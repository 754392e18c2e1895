"""The alternatives of a decision: what each costs now and later, brings, and what cut it.

The kernels that decide value them. A policy that looks into nothing but a value table has its
alternatives valued by that table, exactly; the rest of a life under any policy is replayed on
futures, the same for all alternatives on one offering.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.application.allocation.messages import AllocateRequest, JobTask
from spotline.application.allocation.tasks import (
    move_margin_micro_usd,
    moved_task,
    task_answer,
    task_view,
)
from spotline.application.explaining.cuts import NO_CUT, Bounds, Cut, cut_of
from spotline.application.explaining.facts import DecidedTurn, usd_text
from spotline.application.explaining.futures import (
    Futures,
    FutureSpec,
    forecast_futures,
    law_futures,
)
from spotline.application.explaining.messages import AlternativeCut, ConsideredAlternative
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import LaunchRefused
from spotline.domain.jobs.lot import Lot, holding_of
from spotline.domain.jobs.program import IDLE, Holding
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import JobAnswer
from spotline.domain.policies.compiled import Begun, replay_rest
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import (
    after_slot,
    fit,
    rescue_slots,
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import Policy, PolicyView
from spotline.domain.policies.params import offer_of, standing_of
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.value_table import best_value, holding_value
from spotline.domain.units import PPM

# Futures per alternative: as many as these decisions of the replayed policy pay for.
MOST_FUTURES = 64
_FEWEST_FUTURES = 8
_DECISIONS = 200_000
_PLANNED_DECISIONS = 40_000
# All splits of all counts are listed up to here; beyond it the extremes and what was held.
_MOST_SPLITS = 150
# Counts that the job does not run on, named on either side of the chosen one.
_NAMED_COUNTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternatives:
    """The alternatives of a decision, the chosen one first, and how they were valued.

    `wish` is what the policy alone would have held of what there was, `rescue_slots` how many slots
    of on-demand alone the job needs if it holds nothing in this one.
    """

    alternatives: tuple[ConsideredAlternative, ...]
    method: str
    wish: tuple[Lot, ...] = ()
    rescue_slots: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An offering as the job meets it, what going there costs, and what it could hold there."""

    bounds: Bounds
    task: JobTask
    quote: Quote
    move_cost_micro_usd: int
    holdings: tuple[Holding, ...]
    move_cut: Cut = NO_CUT
    is_away: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Valued:
    """What holding something brings, micro-USD and parts per million."""

    place: _Place
    holding: Holding
    now: int
    later: int
    utility: int
    on_time_ppm: int


def considered(
    turn: DecidedTurn, decision: AllocationDecided, refusals: Sequence[LaunchRefused]
) -> Alternatives:
    """List and value what could have been decided for a job.

    Parameters
    ----------
    turn
        What was decided on, and how.
    decision
        The one to explain.
    refusals
        The launches that were refused in the slot before it.
    """
    place = _task_of(turn, decision.job_id)
    if place is None or turn.request is None:
        return Alternatives(alternatives=(), method="none: no policy was asked, a rule decides")
    task, earlier = place
    home = _home(turn, turn.request, task, earlier, decision, refusals)
    view = home.bounds.view
    if view.state.progress_quanta >= view.program.work_quanta:
        return Alternatives(alternatives=(), method="none: the job's work is done")
    places = (home, *_elsewhere(turn.request, home, decision))
    valued = [value for each in places for value in _values(turn, each)]
    wish: tuple[Lot, ...] = ()
    if view.elapsed_slots < view.program.deadline_slots:
        wished = fit(view, home.bounds.policy.choose(view, task.memory).holding)
        wish = (Lot(offering_id=task.offering_id, spot=wished.spot, on_demand=wished.on_demand),)
    return Alternatives(
        alternatives=_listed(valued, decision),
        method=_method(home),
        wish=tuple(lot for lot in wish if lot.spot or lot.on_demand),
        rescue_slots=rescue_slots(view, IDLE),
    )


def _task_of(turn: DecidedTurn, job_id: str) -> tuple[JobTask, tuple[JobAnswer, ...]] | None:
    """A job's task and the answers before its own; of all others where bids were cleared."""
    request = turn.request
    for index, task in enumerate(request.tasks if request is not None else ()):
        if task.job.job_id == job_id:
            after = turn.answers[index + 1 :] if request is not None and request.clearing else ()
            return task, (*turn.answers[:index], *after)
    return None


def _home(
    turn: DecidedTurn,
    request: AllocateRequest,
    task: JobTask,
    earlier: tuple[JobAnswer, ...],
    decision: AllocationDecided,
    refusals: Sequence[LaunchRefused],
) -> _Place:
    residual = _residual(request, earlier)
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in request.quotes}
    view = task_view(request, task, quotes[task.offering_id], residual)
    bounds = Bounds(
        turn=turn,
        request=request,
        job_id=task.job.job_id,
        offering_id=task.offering_id,
        view=view,
        policy=policy_named(decision.policy_id),
        reason=decision.reason,
        earlier=earlier,
        refusals=refusals,
    )
    chosen = _chosen_at(task.offering_id, decision)
    return _Place(
        bounds=bounds,
        task=task,
        quote=_market_quote(turn, task.offering_id),
        move_cost_micro_usd=0,
        holdings=_holdings(view, chosen),
    )


def _residual(request: AllocateRequest, earlier: Sequence[JobAnswer]) -> ResidualCapacity:
    """What the jobs before this one left, as `allocate` counts it."""
    residual = ResidualCapacity(request.quotes)
    for answer in earlier:
        residual.take_what_is_left(answer.lots)
    return residual


def _chosen_at(offering_id: str, decision: AllocationDecided) -> Holding | None:
    """What was decided to be held of an offering, None where the job went elsewhere."""
    if any(lot.offering_id != offering_id for lot in decision.lots):
        return None
    return holding_of(decision.lots)


def _market_quote(turn: DecidedTurn, offering_id: str) -> Quote:
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in turn.market.opened.quotes}
    return quotes[offering_id]


def _holdings(view: PolicyView, chosen: Holding | None) -> tuple[Holding, ...]:
    """Nothing, every allowed count in all its splits, and the counts beside the chosen one."""
    allowed = view.program.allowed_counts
    every = sum(count + 1 for count in allowed) <= _MOST_SPLITS
    found = {IDLE} if chosen is None else {IDLE, chosen}
    for count in allowed:
        spots = set(range(count + 1))
        if not every:
            spots &= {0, count, min(count, view.spot_available), view.state.holding.spot}
        found |= {Holding(spot=spot, on_demand=count - spot) for spot in spots}
    around = chosen.instances if chosen is not None else 0
    others = [count for count in range(1, view.program.max_instances) if count not in allowed]
    others.sort(key=lambda count: (abs(count - around), count))
    for count in others[: 2 * _NAMED_COUNTS]:
        spot = min(count, view.spot_available)
        found.add(Holding(spot=spot, on_demand=count - spot))
    return tuple(sorted(found, key=lambda held: (held.instances, held.spot)))


# --- other offerings --------------------------------------------------------------------------


def _elsewhere(
    request: AllocateRequest, home: _Place, decision: AllocationDecided
) -> Iterator[_Place]:
    """What the job's policy would hold on each other offering that it could have moved to."""
    bounds, task = home.bounds, home.task
    quotes = {quoted.quote.offering_id: quoted.quote for quoted in request.quotes}
    residual = _residual(request, bounds.earlier)
    for alternative in task.alternatives:
        offering_id = alternative.offering_id
        went = decision.lots and decision.lots[0].offering_id == offering_id
        if alternative.stay is not None and not went:
            # No policy was asked what it would hold there: it would have taken what spot there is.
            continue
        moved = moved_task(task, alternative, bounds.view)
        view = task_view(request, moved, quotes[offering_id], residual)
        answer = task_answer(request, moved, view)
        chosen = _chosen_at(offering_id, decision) if decision.lots else None
        there = replace(bounds, offering_id=offering_id, view=view, reason=answer.reason)
        yield _Place(
            bounds=there,
            task=moved,
            quote=_market_quote(bounds.turn, offering_id),
            move_cost_micro_usd=alternative.move_cost_micro_usd,
            holdings=(holding_of(answer.lots) if chosen is None else chosen,),
            move_cut=NO_CUT if chosen is not None else _move_cut(home.bounds, there, answer),
            is_away=True,
        )


def _move_cut(here: Bounds, there: Bounds, answer: JobAnswer) -> Cut:
    """Why the rule of moving does not take a job there: it compares the best of both tables."""
    if here.view.outlook is None or there.view.outlook is None:
        return AlternativeCut.RULE, "a job moves only where its value tables are ready"
    if not holding_of(answer.lots).instances:
        return AlternativeCut.RULE, "its policy would hold nothing there"
    cost = there.view.spent_micro_usd - here.view.spent_micro_usd
    gain = _best(there.view) - cost - _best(here.view)
    margin = int(move_margin_micro_usd(here.view))
    if gain <= margin:
        more = f"{usd_text(round(abs(gain)))} {'more' if gain > 0 else 'less'}"
        said = (
            f"by the value tables worth {more} than here; a job moves for over {usd_text(margin)}"
        )
        return AlternativeCut.RULE, said
    return AlternativeCut.RULE, "another offering is worth more, or its policy makes no use of it"


def _best(view: PolicyView) -> float:
    if view.outlook is None:
        return 0.0
    return best_value(view.outlook.table, standing_of(view), offer_of(view), _work_left(view))


def _work_left(view: PolicyView) -> int:
    return view.program.work_quanta - view.state.progress_quanta


# --- values -----------------------------------------------------------------------------------


def _values(turn: DecidedTurn, place: _Place) -> list[_Valued]:
    """Value all that could be held of an offering, on the same futures."""
    view, policy = place.bounds.view, place.bounds.policy
    program = view.program
    elapsed = view.elapsed_slots + 1
    nows = [slot_cost_micro_usd(view, held) + place.move_cost_micro_usd for held in place.holdings]
    afters = [after_slot(view, held) for held in place.holdings]
    open_ones = [
        index
        for index, after in enumerate(afters)
        if after.progress_quanta < program.work_quanta and elapsed < program.end_slots
    ]
    begun = [
        Begun(
            elapsed_slots=elapsed,
            state=afters[index],
            spent_micro_usd=view.spent_micro_usd + slot_cost_micro_usd(view, place.holdings[index]),
        )
        for index in open_ones
    ]
    lived: dict[int, tuple[int, int, int]] = {}
    if begun:
        table = None if view.outlook is None else view.outlook.table
        players = (_rest_of(policy), policy_named(FALLBACK_POLICY_ID))
        futures = _futures(turn, place, len(begun))
        rest = replay_rest(program, begun, futures, players, table, spot_firm=view.spot_firm)
        spent = np.array([[start.spent_micro_usd] for start in begun])
        for row, index in enumerate(open_ones):
            lived[index] = (
                round(float((rest.cost_micro_usd - spent)[row].mean())),
                round(float(rest.value_micro_usd[row].mean())),
                int(rest.on_time[row].sum()) * PPM // len(futures),
            )
    valued = []
    for index, held in enumerate(place.holdings):
        later, value, on_time_ppm = lived.get(index, (0, 0, 0))
        if afters[index].progress_quanta >= program.work_quanta:
            value = program.value_micro_usd[min(elapsed, program.end_slots)]
            on_time_ppm = PPM if elapsed <= program.deadline_slots else 0
        utility = value - nows[index] - later
        if _by_table(policy, view):
            utility = round(_table_value(view, held)) - place.move_cost_micro_usd
        valued.append(
            _Valued(
                place=place,
                holding=held,
                now=nows[index],
                later=later,
                utility=utility,
                on_time_ppm=on_time_ppm,
            )
        )
    return valued


def _rest_of(policy: Policy) -> Policy:
    """Who plays the rest of a life.

    A policy that solves a window in front of its table at every slot takes a thousand times as long
    as the table: behind its window it is that table's.
    """
    return SDP if policy.uses_table and policy.forecast_slots else policy


def _by_table(policy: Policy, view: PolicyView) -> bool:
    """Whether the policy decides by its value table and nothing else."""
    before = view.elapsed_slots < view.program.deadline_slots
    alone = policy.uses_table and not policy.forecast_slots
    return alone and view.outlook is not None and before


def _table_value(view: PolicyView, held: Holding) -> float:
    if view.outlook is None:
        raise ValueError("there is no value table")
    table = view.outlook.table
    return holding_value(table, standing_of(view), offer_of(view), _work_left(view), held)


def _futures(turn: DecidedTurn, place: _Place, starts: int) -> Futures:
    view, policy = place.bounds.view, place.bounds.policy
    slots = view.program.end_slots - view.elapsed_slots - 1
    decisions = _PLANNED_DECISIONS if _rest_of(policy).forecast_slots else _DECISIONS
    spec = FutureSpec(
        view=view,
        quote=place.quote,
        forecast=place.bounds.request.forecast,
        history=turn.market.history,
        slots=slots,
        paths=max(_FEWEST_FUTURES, min(MOST_FUTURES, decisions // max(1, starts * slots))),
        seed=f"explain\x1f{place.bounds.job_id}\x1f{place.bounds.offering_id}\x1f"
        f"{turn.market.opened.slot}\x1f{turn.market.revision}",
    )
    if _by_table(policy, view) and view.outlook is not None:
        return law_futures(spec, view.outlook.table)
    return forecast_futures(spec)


def _method(home: _Place) -> str:
    policy, view = home.bounds.policy, home.bounds.view
    if _by_table(policy, view):
        return (
            f"worth by the job's value table, exact under its law; costs to come and P(on time) "
            f"by replaying {policy.policy_id} on futures of that law"
        )
    rest = _rest_of(policy)
    behind = f", as {policy.policy_id} does behind its window," if rest is not policy else ""
    return (
        f"replaying {rest.policy_id}{behind} after each alternative on futures of the forecast and "
        "the recent market, the same for all on one offering"
    )


# --- the list ---------------------------------------------------------------------------------


def _listed(
    valued: Sequence[_Valued], decision: AllocationDecided
) -> tuple[ConsideredAlternative, ...]:
    """Alternatives, the chosen one first, then by utility."""
    offering_id = decision.lots[0].offering_id if decision.lots else ""
    chosen = next(
        value
        for value in valued
        if value.holding == holding_of(decision.lots)
        and (not offering_id or value.place.bounds.offering_id == offering_id)
    )
    others = sorted(
        (value for value in valued if value is not chosen),
        key=lambda value: (
            -value.utility,
            value.place.bounds.offering_id,
            value.holding.instances,
            value.holding.spot,
        ),
    )
    return tuple(_alternative(value, chosen) for value in (chosen, *others))


def _alternative(value: _Valued, chosen: _Valued) -> ConsideredAlternative:
    bounds, held = value.place.bounds, value.holding
    lot = Lot(offering_id=bounds.offering_id, spot=held.spot, on_demand=held.on_demand)
    cut, detail = NO_CUT
    if value is not chosen:
        cut, detail = value.place.move_cut if value.place.is_away else cut_of(bounds, held)
    return ConsideredAlternative(
        lots=(lot,) if held.instances or value.place.is_away else (),
        chosen=value is chosen,
        immediate_cost_micro_usd=value.now,
        cost_to_go_micro_usd=value.later,
        utility_micro_usd=value.utility,
        on_time_probability_ppm=value.on_time_ppm,
        worse_by_micro_usd=chosen.utility - value.utility,
        cut=cut,
        cut_detail=detail,
    )
