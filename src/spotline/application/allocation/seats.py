"""What a job would hold of a place with so much left to it: the seats that it bids for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from spotline.application.allocation.messages import JobTask
from spotline.application.allocation.stays import Away, most_that_fit
from spotline.application.allocation.tasks import (
    AskedPolicy,
    answer_of,
    can_hold,
    is_saved,
    yield_margin_micro_usd,
)
from spotline.domain.crowd.bids import Capacity, Option, takes_of
from spotline.domain.jobs.lot import holding
from spotline.domain.jobs.program import IDLE, Holding
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import DecisionReason, JobAnswer, Move, Yielded
from spotline.domain.policies.decision import SlotDecision, after_slot, slot_cost_micro_usd
from spotline.domain.policies.interface import START, PolicyView
from spotline.domain.policies.ladder import ON_DEMAND, SPOT, Ladder
from spotline.domain.policies.params import offer_of, standing_of
from spotline.domain.policies.registry import POLICIES
from spotline.domain.solvers.value_table import holding_value
from spotline.domain.units import cost_micro_usd


@dataclass(slots=True, eq=False)
class Seat:
    """What a job would hold of an offering with so much left to it, and what that is worth.

    `answer` says it in full: only that of the seat which a job gets is ever asked for. It knows
    nothing of the place that keeps the seat: a ring of the two would wait for a look for garbage,
    and a slot makes tens of thousands of objects that hang on seats.
    """

    option: Option
    answer: Callable[[], JobAnswer]


@dataclass(slots=True, kw_only=True, eq=False)
class TaskPlace:
    """An offering that a job runs on, or could move to: its task there and all that there is.

    Going there costs `move_micro_usd`, and must gain `margin_micro_usd` more than that; `away`
    is there where the job has no value table. `seats`, and `rungs`, from which they are made, are by spot
    and on-demand left.
    """

    task: JobTask
    view: PolicyView
    quote: Quote
    asked: AskedPolicy
    move_micro_usd: int = 0
    margin_micro_usd: float = 0.0
    away: Away | None = None
    seats: dict[tuple[int, int], Seat] = field(default_factory=dict)
    rungs: dict[tuple[int, int], tuple[Ladder, int]] = field(default_factory=dict)
    offering_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.offering_id = self.task.offering_id

    @property
    def looks_ahead(self) -> bool:
        """Whether its policy looks at forecasts: it is asked less often."""
        return POLICIES[self.task.policy_id].forecast_slots > 0

    @property
    def plans(self) -> bool:
        """Whether to ask its policy takes long: a look ahead through forecasts, not a rule."""
        policy = self.asked.policy
        return policy.forecast_slots > 0 and not (policy.uses_table and self.view.outlook is None)


@dataclass(slots=True, kw_only=True, eq=False)
class Bidder:
    """A task with its places, home first, and what it would hold at each with all there is."""

    task: JobTask
    places: list[TaskPlace]
    free: list[Seat]


def pays_to_go(bidder: Bidder, place: TaskPlace, seat: Seat) -> bool:
    """Whether a policy makes use of another place: for spot, or for cheaper on-demand."""
    dearest = bidder.places[0].quote.on_demand_price_micro_usd
    cheaper = place.quote.on_demand_price_micro_usd < dearest
    return seat.option.spot > 0 or (seat.option.on_demand > 0 and cheaper)


def seat_away(place: TaskPlace, away: Away, spot: int) -> Seat:
    """All the spot that a job may hold where it has no table, which no policy is asked about."""
    view = place.view
    held = holding(most_that_fit(view, min(spot, view.spot_available)), 0)
    if not can_hold(view, held):
        held = IDLE
    # Who finds nothing there does not go.
    worth = away.worth(view, held.spot) - place.move_micro_usd if held.spot else 0.0
    return seat_with(place, held, round(worth - place.margin_micro_usd))


def seat_with(place: TaskPlace, held: Holding, value_micro_usd: int = 0) -> Seat:
    """The seat of a job that holds this where it has just come to; no policy is asked about it."""
    view = place.view
    option = Option(
        offering_id=place.offering_id,
        spot=held.spot,
        on_demand=held.on_demand,
        value_micro_usd=value_micro_usd,
        cost_micro_usd=slot_cost_micro_usd(view, held),
        safe=is_saved(view, held),
    )
    decided = SlotDecision(holding=held, memory=START, reason=DecisionReason.POLICY)
    return Seat(option, partial(answer_of, place.task, place.asked, decided))


def yielding(place: TaskPlace, seat: Seat, held: int) -> Seat:
    """The seat of a job that gives spot up to others, which must gain more by it than a margin."""
    margin = yield_margin_micro_usd(place.view, max(0, held - seat.option.spot))
    value = seat.option.value_micro_usd - margin
    return Seat(replace(seat.option, value_micro_usd=value), seat.answer)


def rung_answer(task: JobTask, asked: AskedPolicy, ladder: Ladder, at: int) -> JobAnswer:
    """What a job is answered that gets a rung."""
    rung = ladder.rungs[at]
    decision = SlotDecision(
        holding=holding(rung[SPOT], rung[ON_DEMAND]),
        memory=ladder.memory_of(at),
        reason=ladder.reason(at),
    )
    return answer_of(task, asked, decision)


def life_worth(view: PolicyView, held: Holding) -> float:
    """What the rest of a job's life is worth if it holds this now, less what that costs.

    By its value table; without one, by the on-demand that the work done spares later.
    """
    left = view.program.work_quanta - view.state.progress_quanta
    late = view.elapsed_slots >= view.program.deadline_slots
    if view.outlook is not None and not late and left > 0:
        table = view.outlook.table
        return holding_value(table, standing_of(view), offer_of(view), left, held)
    if left <= 0:
        return 0.0
    program, after = view.program, after_slot(view, held)
    most = program.max_instances
    work_left = program.work_quanta - after.progress_quanta
    needed_s = -(-work_left // program.rate_quanta_per_s[most])
    spared = cost_micro_usd(view.on_demand_price, most, needed_s)
    return -float(slot_cost_micro_usd(view, held) + spared)


def never_rests(seats: Sequence[Seat], capacity: Capacity) -> bool:
    """Whether a job takes of what is scarce with every seat that it bids for."""
    return all(takes_of(seat.option, capacity) for seat in seats)


def kept_aside(
    bidders: Sequence[Bidder], offers: Sequence[Sequence[Seat]], capacity: Capacity
) -> Capacity:
    """What is scarce without the on-demand of jobs that never give theirs up.

    Where a launch may have to wait, what is held stays: with nothing left to it, such a job still
    holds some of the stock, and nobody else may count on that.
    """
    left = dict(capacity.on_demand)
    for bidder, seats in zip(bidders, offers, strict=True):
        home = bidder.places[0].offering_id
        if home not in left or not never_rests(seats, capacity):
            continue
        kept = bidder.task.holding.on_demand
        left[home] = max(0, left[home] - kept)
        for seat in seats:
            if seat.option.offering_id == home:
                launched = max(0, seat.option.on_demand - kept)
                seat.option = replace(seat.option, from_stock=launched)
    return replace(capacity, on_demand=left)


def seat_answer(bidder: Bidder, seat: Seat, yielded: Yielded | None) -> JobAnswer:
    """What a job is answered that gets a seat: how it moves there, and to whom it yields."""
    answer = seat.answer()
    if yielded is not None:
        answer = replace(answer, yielded=yielded)
    home = bidder.places[0]
    if seat.option.offering_id == home.offering_id:
        return answer
    place = next(p for p in bidder.places if p.offering_id == seat.option.offering_id)
    move = Move(
        from_offering_id=home.offering_id,
        overhead_s=place.task.pending_overhead_s,
        cost_micro_usd=place.move_micro_usd,
    )
    return replace(answer, move=move)
