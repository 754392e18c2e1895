"""What a job's policy would hold of a place if it was left this much, or less: a rung for each ask.

A bid asks the same policy a dozen times about one slot, with ever less to be had. Here all of it is
one call of compiled code, with the rules that `decision.decide_slot` goes by for a single ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from spotline.domain.jobs.accounting import (
    RATE,
    Held,
    Standing,
    Terms,
    cost,
    hold,
    lay_out,
    terms_at,
)
from spotline.domain.jobs.offer import (
    ROW,
    Offer,
    is_safe,
    offer_at,
    on_demand_to_hold,
    slot_cost,
    standing_at,
)
from spotline.domain.kernels import FloatArray, IntArray, inlined, kernel
from spotline.domain.policies import ahanp, ahap, msu, on_demand_only, sdp, uniform_progress
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.compiled import params_of
from spotline.domain.policies.decision import REASONS
from spotline.domain.policies.interface import Memory, Policy, PolicyView, WindowForecast
from spotline.domain.policies.line import line_of
from spotline.domain.policies.lives import params_at
from spotline.domain.policies.params import Params, view_row
from spotline.domain.policies.settle import settle, settle_late
from spotline.domain.solvers.table_look import OpenTable, look_up, open_table, value_with
from spotline.domain.solvers.value_table import NO_TABLE

# Columns of what is asked: what is left to the job, and what is taken of the forecast counts.
ASKED_SPOT, ASKED_ON_DEMAND, TAKEN = range(3)

# Behind standing and offer in the row of a view: window and commitment as AHAP reads them, whether
# less spot than is held was taken back by the market, and the on-demand that a rescue wants.
_WINDOW, _COMMITMENT, _RECLAIMED, _WANTED = range(ROW, ROW + 4)

# Columns of a rung.
SPOT, ON_DEMAND, REASON, COST, SAFE = range(5)
_COLUMNS = 5
# The reason of a job whose work is done, beside those of `settle`.
_CLOSED = 4

# Places in a row of standing and offer that differ from ask to ask; see `standing_at`, `offer_at`.
_PROGRESS, _INTERRUPTED, _UNSAVED, _SPOT, _ON_DEMAND = 1, 6, 7, 10, 11


@kernel
def _climb(
    player: IntArray,
    job: tuple[IntArray, IntArray, IntArray, IntArray],
    row: IntArray,
    table: tuple[Any, ...],
    predicted: IntArray,
    memory: IntArray,
    worths: tuple[IntArray, IntArray],
    asks: IntArray,
) -> tuple[IntArray, FloatArray, IntArray]:
    """Climb down: a rung, its worth and what the policy then remembers, for each ask.

    Parameters
    ----------
    job
        `ProgramLayout.row`, `ProgramLayout.by_count`, `ProgramLayout.values` and `line_of`.
    row
        Standing, offer, and what stands behind them.
    predicted
        Prices and counts of the slots to come, none taken, shape (2, 1, slots).
    memory
        What the policy remembers, as it lays it out.
    worths
        What progress is worth at the end of AHAP's window, before the deadline and after it.
    """
    terms, by_count, values = terms_at(job[0]), job[1], job[2]
    opened = open_table(table)
    params = params_at(player)
    rungs = np.empty((asks.shape[0], _COLUMNS), dtype=np.int64)
    values_then = np.zeros(asks.shape[0], dtype=np.float64)
    memories = np.empty((asks.shape[0], memory.shape[0]), dtype=np.int64)
    kept = np.empty((1, memory.shape[0]), dtype=np.int64)
    seen = np.empty(row.shape[0], dtype=np.int64)
    ahead = np.empty(predicted.shape, dtype=np.int64)
    for at in range(asks.shape[0]):
        _see(seen, row, asks[at])
        standing, offer = standing_at(seen), offer_at(seen)
        held, reason = Held(0, 0), _CLOSED
        kept[0] = memory
        if standing.progress < terms.work_quanta:
            if standing.elapsed >= terms.deadline_slots:
                settled = settle_late(terms, standing, offer, by_count, values)
            else:
                _foresee(ahead, predicted, asks[at, TAKEN])
                if params.kind == ahap.KIND:
                    wish = ahap.choose_laid(
                        seen, job[0], kept[0], by_count, values, ahead, worths[0], worths[1]
                    )
                elif params.kind == sdp.KIND:
                    wish = sdp.choose(params, terms, standing, offer, by_count, ahead, opened)
                else:
                    wish = _wish(params, terms, standing, offer, kept, by_count, job[3])
                netted = bool(terms.hard or params.nets_soft_deadlines or offer.run_state < 0)
                settled = settle(terms, standing, offer, wish, netted, by_count)
            held, reason = settled.after.held, settled.reason
        rungs[at, SPOT], rungs[at, ON_DEMAND] = held.spot, held.on_demand
        rungs[at, REASON], rungs[at, COST] = reason, slot_cost(offer, held)
        rungs[at, SAFE] = _is_saved(terms, standing, offer, held, seen[_WANTED], by_count)
        values_then[at] = _worth(terms, standing, offer, held, by_count, opened)
        memories[at] = kept[0]
    return rungs, values_then, memories


@inlined
def _see(seen: IntArray, row: IntArray, ask: IntArray) -> None:
    """Lay out what a job meets that is left this much: whose spot is taken back loses its work."""
    seen[:] = row
    standing, offer = standing_at(row), offer_at(row)
    held = standing.held
    if not standing.interrupted and row[_RECLAIMED] and held.spot > ask[ASKED_SPOT]:
        seen[_INTERRUPTED] = 1
        seen[_PROGRESS] = standing.progress - standing.unsaved
        seen[_UNSAVED] = 0
    seen[_SPOT] = ask[ASKED_SPOT]
    seen[_ON_DEMAND] = on_demand_to_hold(ask[ASKED_ON_DEMAND], held.on_demand, offer.reserve_slots)


@inlined
def _foresee(ahead: IntArray, predicted: IntArray, taken: int) -> None:
    """Take what others hold now off the counts to come."""
    for step in range(predicted.shape[2]):
        ahead[0, 0, step] = predicted[0, 0, step]
        ahead[1, 0, step] = max(0, predicted[1, 0, step] - taken)


@inlined
def _wish(
    params: Params,
    terms: Terms,
    standing: Standing,
    offer: Offer,
    memory: IntArray,
    by_count: IntArray,
    line: IntArray,
) -> Held:
    """What policies wish for that look at neither table nor forecast."""
    if params.kind == msu.KIND:
        return msu.choose(offer, by_count)
    if params.kind == on_demand_only.KIND:
        return on_demand_only.choose(terms, memory, 0, by_count)
    if params.kind == uniform_progress.KIND:
        return uniform_progress.choose(terms, standing, offer, by_count, line)
    return ahanp.choose(params, standing, offer, memory, 0, by_count, line)


@inlined
def _is_saved(
    terms: Terms, standing: Standing, offer: Offer, held: Held, wanted: int, by_count: IntArray
) -> bool:
    """Whether on-demand, as much of it as there is now, still meets a hard deadline."""
    if not terms.hard:
        return True
    if offer.on_demand < wanted and offer.reserve_slots <= 0:
        return False
    after = hold(terms, standing, held, offer.left_s, by_count)
    return is_safe(terms, standing, offer, after, by_count)


@inlined
def _worth(
    terms: Terms,
    standing: Standing,
    offer: Offer,
    held: Held,
    by_count: IntArray,
    table: OpenTable,
) -> float:
    """What the rest of a life is worth with this: by its table, else by the on-demand it spares."""
    left = terms.work_quanta - standing.progress
    if left <= 0:
        return 0.0
    if offer.run_state >= 0 and standing.elapsed < terms.deadline_slots:
        position, to_come = look_up(table, standing, offer, left)
        return value_with(table, standing, offer, position, to_come, held)
    after = hold(terms, standing, held, offer.left_s, by_count)
    most = by_count.shape[1] - 1
    needed_s = -(-(terms.work_quanta - after.progress) // by_count[RATE, most])
    return -float(slot_cost(offer, held) + cost(offer.on_demand_price, most, needed_s))


# --- laying out -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Rungs by ask, `SPOT` and so on of each, and what the rest of a life is worth with it."""

    rungs: list[list[int]]
    worths: list[float]
    memories: IntArray
    policy: Policy
    memory: Memory

    def reason(self, at: int) -> DecisionReason:
        """Why a rung is what it is."""
        return REASONS.get(self.rungs[at][REASON], DecisionReason.CLOSED)

    def memory_of(self, at: int) -> Memory:
        """What the policy remembers of the slot if it holds a rung."""
        params = params_of(self.policy)
        if params is None or self.reason(at) in (
            DecisionReason.CLOSED,
            DecisionReason.AFTER_DEADLINE,
        ):
            return self.memory
        if params.kind == ahap.KIND:
            return ahap.memory_of(self.memories[at], params.commitment)
        if params.kind in (on_demand_only.KIND, ahanp.KIND):
            return (int(self.memories[at, 0]),)
        return self.memory


def can_climb(policy: Policy, view: PolicyView) -> bool:
    """Whether a policy's rungs can be found here: a compiled rule, what it needs, a known rate."""
    return (
        params_of(policy) is not None
        and not (policy.needs_forecast and view.forecast is None)
        and view.state.holding.instances <= view.program.max_instances
    )


def climb(
    policy: Policy,
    view: PolicyView,
    memory: Memory,
    asks: Sequence[tuple[int, int, int]],
    *,
    ahead: WindowForecast | None,
    reclaimed: bool,
    nets_soft_deadlines: bool = False,
) -> Ladder:
    """Ask a policy what it would hold if it was left no more than this.

    Parameters
    ----------
    view
        What it sees with all there is; it `can_climb`.
    asks
        Spot and on-demand that are left, no more spot than in the view, and how much of the
        forecast counts is taken then.
    ahead
        The forecast with nothing taken.
    reclaimed
        Whether the market took spot back as the slot opened: a job that is left less spot than it
        holds was interrupted.
    nets_soft_deadlines
        Whether soft deadlines are guarded as hard ones are, also where the view does not say so.
    """
    program, params = view.program, params_of(policy)
    if params is None:
        raise ValueError(f"{policy.policy_id} has no compiled form")
    layout = lay_out(program)
    window = 0
    if ahead is not None:
        window = min(policy.forecast_slots, len(ahead.spot_price))
    laid, worths = _SHORT, _UNUSED
    if params.kind == ahap.KIND:
        laid = ahap.memory_row(memory, params.commitment)
        worths = ahap.worth_rows(program, params, view.elapsed_slots, window, view.on_demand_price)
    elif memory:
        laid = np.array(memory[:1], dtype=np.int64)
    predicted = _NONE
    if ahead is not None and window:
        counts = (ahead.spot_price[:window], ahead.spot_available[:window])
        predicted = np.array(counts, dtype=np.int64).reshape((2, 1, window))
    rungs, found, memories = _climb(
        _player(params, view.nets_soft_deadlines or nets_soft_deadlines),
        (layout.row, layout.by_count, layout.values, line_of(program)),
        view_row(
            view,
            *(window, params.commitment, reclaimed),
            view.rescue_instances or program.max_instances,
        ),
        NO_TABLE if view.outlook is None else view.outlook.table.arrays,
        predicted,
        laid,
        worths,
        np.array(asks, dtype=np.int64).reshape((len(asks), 3)),
    )
    laid_out = rungs.tolist()
    return Ladder(laid_out, _own_worths(view, laid_out, found.tolist()), memories, policy, memory)


# The policies of a pool are few, and are asked thousands of times in a slot.
@lru_cache(maxsize=1024)
def _player(params: Params, nets: bool) -> IntArray:
    return np.array(params._replace(nets_soft_deadlines=1) if nets else params, dtype=np.int64)


def _own_worths(view: PolicyView, rungs: list[list[int]], worths: list[float]) -> list[float]:
    """Worths by the table of a class are less by what the job's own value is more."""
    if view.outlook is None or view.elapsed_slots >= view.program.deadline_slots:
        return worths
    own = view.outlook.table.own_worth
    return [
        worth if rung[REASON] == _CLOSED else worth + own
        for rung, worth in zip(rungs, worths, strict=True)
    ]


_SHORT = np.full(1, -1, dtype=np.int64)
_NONE = np.zeros((2, 1, 0), dtype=np.int64)
_UNUSED = (np.zeros(4, dtype=np.int64), np.zeros(4, dtype=np.int64))
