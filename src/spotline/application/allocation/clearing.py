"""One slot of all tasks together: each bids what its policy would hold, and the bids are cleared.

A bid asks the task's policy again and again: what would it hold if this much spot was left to it? So
every option is one that serving in order could have decided, safety net and budget included, and
what jobs hold in the end is what each policy makes of what the clearing leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest, JobTask
from spotline.application.allocation.tasks import (
    check_quoted,
    forecast_of,
    is_interrupted,
    is_saved,
    may_move,
    move_margin_micro_usd,
    moved_task,
    take_before,
    task_answer,
    task_view,
)
from spotline.domain.crowd.bids import Bid, Capacity, Cleared, Option
from spotline.domain.crowd.clearing import clear
from spotline.domain.crowd.fairness import SlotFairness, clear_fairly
from spotline.domain.crowd.yielding import Claim, yielded_to
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.program import Holding
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import JobAnswer, Move, SpotWorth, Yielded
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import after_slot, on_demand_to_hold, slot_cost_micro_usd
from spotline.domain.policies.interface import PolicyView
from spotline.domain.policies.params import offer_of, standing_of
from spotline.domain.policies.registry import POLICIES
from spotline.domain.solvers.value_table import holding_value
from spotline.domain.units import S_PER_HOUR, cost_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seat:
    """What a job would hold of an offering with so much left to it, and what that is worth."""

    answer: JobAnswer
    option: Option

    @property
    def holding(self) -> Holding:
        return holding_of(self.answer.lots)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """An offering that a job runs on, or could move to: its task there and all that there is.

    Going there costs `move_micro_usd`, and must gain `margin_micro_usd` more than that.
    """

    task: JobTask
    view: PolicyView
    quote: Quote
    move_micro_usd: int = 0
    margin_micro_usd: float = 0.0

    @property
    def offering_id(self) -> str:
        return self.task.offering_id


@dataclass(slots=True, kw_only=True)
class _Bidder:
    """A task with its places, home first, and what it would hold at each with all there is."""

    task: JobTask
    places: list[_Place]
    free: list[_Seat]
    seats: dict[tuple[int, int, int], _Seat] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBids:
    """What all tasks bid, in their order, under what is scarce."""

    bids: tuple[Bid, ...]
    capacity: Capacity


def slot_bids(request: AllocateRequest) -> SlotBids:
    """What is cleared in a slot: for who wants to know why it was cleared so.

    Raises
    ------
    ValueError
        As `allocate`.
    """
    bidders, offers, capacity = _bidden(request)
    return SlotBids(bids=_bids(bidders, offers), capacity=capacity)


def cleared(request: AllocateRequest) -> AllocateAnswer:
    """Decide what every task's job holds for the rest of the slot, by clearing all bids.

    Raises
    ------
    ValueError
        As `allocate`.
    """
    bidders, offers, capacity = _bidden(request)
    found, fairness = clear_bids(request, SlotBids(bids=_bids(bidders, offers), capacity=capacity))
    chosen = [found.chosen[bidder.task.job.job_id] for bidder in bidders]
    claims = [
        Claim(
            job_id=bidder.task.job.job_id,
            options=tuple(seat.option for seat in seats),
            chosen=at,
        )
        for bidder, seats, at in zip(bidders, offers, chosen, strict=True)
    ]
    yields = yielded_to(claims, weighted=fairness is not None)
    left_s = request.slot_s - request.offset_s
    return AllocateAnswer(
        answers=tuple(
            _answered(bidder, seats[at], yields.get(bidder.task.job.job_id))
            for bidder, seats, at in zip(bidders, offers, chosen, strict=True)
        ),
        spot_worth=tuple(
            SpotWorth(
                offering_id=offering_id,
                micro_usd_per_instance_hour=found.spot_price[offering_id] * S_PER_HOUR // left_s,
            )
            for offering_id in sorted(found.spot_price)
        ),
        fairness=fairness,
    )


def clear_bids(request: AllocateRequest, slot: SlotBids) -> tuple[Cleared, SlotFairness | None]:
    """Clear what was bid, weighted by tenant where the request says so."""
    if not request.tenant_weights:
        return clear(slot.bids, slot.capacity), None
    tenants = {task.job.job_id: task.job.tenant for task in request.tasks}
    return clear_fairly(slot.bids, slot.capacity, tenants, request.tenant_weights)


def _bidden(
    request: AllocateRequest,
) -> tuple[list[_Bidder], list[list[_Seat]], Capacity]:
    """All tasks as bidders, the seats that each bids for, and what is scarce."""
    residual = ResidualCapacity(request.quotes)
    quotes = {sq.quote.offering_id: sq.quote for sq in request.quotes}
    take_before(request, residual)
    for task in request.tasks:
        check_quoted(task, quotes)
    slot = _Slot(request, residual)
    bidders = [slot.bidder(task, quotes) for task in request.tasks]
    capacity = slot.scarce(bidders)
    return bidders, [slot.seats(bidder, capacity) for bidder in bidders], capacity


def _bids(bidders: Sequence[_Bidder], offers: Sequence[Sequence[_Seat]]) -> tuple[Bid, ...]:
    return tuple(
        Bid(
            job_id=bidder.task.job.job_id,
            rank=rank,
            options=tuple(seat.option for seat in seats),
        )
        for rank, (bidder, seats) in enumerate(zip(bidders, offers, strict=True))
    )


def _answered(bidder: _Bidder, seat: _Seat, yielded: Yielded | None) -> JobAnswer:
    answer = replace(seat.answer, yielded=yielded)
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


class _Slot:
    """The slot that is cleared: what is asked, and what there is of everything."""

    def __init__(self, request: AllocateRequest, residual: ResidualCapacity) -> None:
        self._request = request
        self._residual = residual

    def bidder(self, task: JobTask, quotes: Mapping[str, Quote]) -> _Bidder:
        """A task where it runs and where it could go."""
        home = task_view(self._request, task, quotes[task.offering_id], self._residual)
        places = [_Place(task=task, view=home, quote=quotes[task.offering_id])]
        if may_move(self._request, task, home):
            # Who goes leaves all its spot.
            left = self._view_at(places[0], 0, home.on_demand_available)
            margin = move_margin_micro_usd(home)
            for alternative in task.alternatives:
                moved = moved_task(task, alternative, left)
                quote = quotes[alternative.offering_id]
                view = task_view(self._request, moved, quote, self._residual)
                if view.outlook is None:
                    continue
                places.append(
                    _Place(
                        task=moved,
                        view=view,
                        quote=quote,
                        move_micro_usd=alternative.move_cost_micro_usd,
                        margin_micro_usd=margin,
                    )
                )
        bidder = _Bidder(task=task, places=places, free=[])
        for at, place in enumerate(places):
            seen = place.view
            bidder.free.append(
                self._seat(bidder, at, seen.spot_available, seen.on_demand_available)
            )
        return bidder

    def scarce(self, bidders: Sequence[_Bidder]) -> Capacity:
        """What could run out; of all else every job gets what it would take."""
        spot: set[str] = set()
        stock = self._scarce_stock(bidders)
        while True:
            wanted: dict[str, int] = {}
            for bidder in bidders:
                for at in self._worthwhile(bidder, spot, stock):
                    offering_id = bidder.places[at].offering_id
                    taken = bidder.free[at].holding.spot
                    wanted[offering_id] = wanted.get(offering_id, 0) + taken
            short = {
                offering_id
                for offering_id, instances in wanted.items()
                if instances > self._residual.spot(offering_id)
            }
            if short <= spot:
                break
            spot |= short
        return Capacity(
            spot={offering_id: self._residual.spot(offering_id) for offering_id in sorted(spot)},
            on_demand={
                offering_id: self._stock(offering_id, bidders) for offering_id in sorted(stock)
            },
        )

    def _scarce_stock(self, bidders: Sequence[_Bidder]) -> set[str]:
        most: dict[str, int] = {}
        for bidder in bidders:
            for place in bidder.places:
                so_far = most.get(place.offering_id, 0)
                most[place.offering_id] = so_far + place.view.program.max_instances
        return {
            offering_id
            for offering_id, instances in most.items()
            if instances > self._residual.on_demand(offering_id)
        }

    def _stock(self, offering_id: str, bidders: Sequence[_Bidder]) -> int:
        """On-demand for all; none to launch where more is held than is in stock."""
        left = self._residual.on_demand(offering_id)
        return 0 if self._kept(offering_id, bidders) > left else left

    def _kept(self, offering_id: str, bidders: Sequence[_Bidder]) -> int:
        return sum(
            bidder.task.holding.on_demand
            for bidder in bidders
            if bidder.task.offering_id == offering_id
        )

    def _worthwhile(self, bidder: _Bidder, spot: set[str], stock: set[str]) -> list[int]:
        """The places that could be worth more than what the job is sure to have at home."""
        home = bidder.places[0]
        if home.offering_id in stock:
            return list(range(len(bidder.places)))
        sure = bidder.free[0]
        if home.offering_id in spot:
            sure = self._seat(bidder, 0, 0, home.view.on_demand_available)
        return [
            at
            for at, seat in enumerate(bidder.free)
            if not at
            or not sure.option.safe
            or seat.option.value_micro_usd > sure.option.value_micro_usd
        ]

    def seats(self, bidder: _Bidder, capacity: Capacity) -> list[_Seat]:
        """All that a job bids for: at each place with all there is, and with less of what is scarce."""
        seats: list[_Seat] = []
        for at in self._worthwhile(bidder, set(capacity.spot), set(capacity.on_demand)):
            place = bidder.places[at]
            found = [bidder.free[at]]
            if place.offering_id in capacity.spot:
                found += self._with_less_spot(bidder, at)
            if place.offering_id in capacity.on_demand:
                found += self._with_less_stock(bidder, at, found)
            seats += [seat for seat in found if not at or _pays_to_go(bidder, place, seat)]
        return seats

    def _with_less_spot(self, bidder: _Bidder, at: int) -> list[_Seat]:
        """From less than it would take down to none; who plans with forecasts is asked less often."""
        place = bidder.places[at]
        stock = place.view.on_demand_available
        taken = bidder.free[at].holding.spot
        found = []
        while taken:
            asked = taken - 1
            if POLICIES[place.task.policy_id].forecast_slots:
                held = place.task.holding.spot
                asked = held if held < taken and held > taken // 2 else taken // 2
            seat = self._seat(bidder, at, asked, stock)
            found.append(seat)
            taken = min(asked, seat.holding.spot)
            if not asked:
                break
        return found

    def _with_less_stock(self, bidder: _Bidder, at: int, seats: Sequence[_Seat]) -> list[_Seat]:
        """With none in stock beside the same spot, and with ever less beside none."""
        asked = [(seat.holding.spot, 0) for seat in seats if seat.holding.on_demand]
        least = min(seats, key=lambda seat: seat.holding.spot).holding.on_demand
        asked += [(0, stock) for stock in range(least - 1, -1, -1)]
        # At home there must be a way to take nothing.
        asked += [(0, 0)] if not at else []
        return [self._seat(bidder, at, spot, stock) for spot, stock in asked]

    def _seat(self, bidder: _Bidder, at: int, spot: int, stock: int) -> _Seat:
        """What the job's policy makes of so much spot and stock at a place."""
        key = (at, spot, stock)
        if key not in bidder.seats:
            bidder.seats[key] = self._asked(bidder.places[at], spot, stock)
        return bidder.seats[key]

    def _asked(self, place: _Place, spot: int, stock: int) -> _Seat:
        view = self._view_at(place, spot, stock)
        answer = task_answer(self._request, place.task, view)
        held = holding_of(answer.lots)
        worth = _worth(view, held) - place.move_micro_usd - place.margin_micro_usd
        kept = 0
        if view.reserve_slots:
            kept = min(held.on_demand, place.task.holding.on_demand)
        short = place.view.on_demand_available > self._residual.on_demand(place.offering_id)
        return _Seat(
            answer=answer,
            option=Option(
                offering_id=place.offering_id,
                spot=held.spot,
                on_demand=held.on_demand,
                value_micro_usd=round(worth),
                cost_micro_usd=slot_cost_micro_usd(view, held),
                from_stock=held.on_demand - kept if short else None,
                safe=is_saved(view, held),
            ),
        )

    def _view_at(self, place: _Place, spot: int, stock: int) -> PolicyView:
        view = place.view
        if spot == view.spot_available and stock == view.on_demand_available:
            return view
        interrupted = is_interrupted(self._request, place.task, spot)
        forecast = view.forecast
        if POLICIES[place.task.policy_id].forecast_slots:
            forecast = forecast_of(self._request.forecast, place.quote, left=spot)
        return replace(
            view,
            state=view.state.fallen() if interrupted and not view.interrupted else view.state,
            interrupted=interrupted,
            spot_available=spot,
            on_demand_available=on_demand_to_hold(
                stock, holding_of((place.task.holding,)), reserve_slots=view.reserve_slots
            ),
            forecast=forecast,
        )


def _pays_to_go(bidder: _Bidder, place: _Place, seat: _Seat) -> bool:
    """Whether a policy makes use of another place: for spot, or for cheaper on-demand."""
    dearest = bidder.places[0].quote.on_demand_price_micro_usd
    cheaper = place.quote.on_demand_price_micro_usd < dearest
    return seat.holding.spot > 0 or (seat.holding.on_demand > 0 and cheaper)


def _worth(view: PolicyView, held: Holding) -> float:
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
