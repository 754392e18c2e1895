"""One slot of all tasks: where each may run, and what its policy makes of what is left to it there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from spotline.application.allocation.late import late_seat
from spotline.application.allocation.messages import AllocateRequest, Alternative, JobTask
from spotline.application.allocation.seats import (
    Bidder,
    Seat,
    TaskPlace,
    life_worth,
    never_rests,
    pays_to_go,
    rung_answer,
    seat_away,
    yielding,
)
from spotline.application.allocation.stays import Away
from spotline.application.allocation.tasks import (
    asked_policy,
    forecast_of,
    is_interrupted,
    is_late,
    is_priced,
    is_reclaimed,
    is_saved,
    may_move,
    move_margin_micro_usd,
    moved_task,
    must_buy,
    task_answer,
    task_view,
)
from spotline.domain.crowd.bids import Capacity, Option
from spotline.domain.jobs.lot import holding_of
from spotline.domain.jobs.program import IDLE
from spotline.domain.market.offering import Quote
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import (
    on_demand_to_hold,
    slot_cost_micro_usd,
)
from spotline.domain.policies.interface import PolicyView, WindowForecast
from spotline.domain.policies.ladder import Ladder, can_climb, climb


class Slot:
    """A slot that is decided: what is asked, and what there is of everything.

    Where tasks are served `in_turn` each is asked once, and soft deadlines are guarded as hard ones are.
    """

    def __init__(
        self, request: AllocateRequest, residual: ResidualCapacity, *, in_turn: bool = False
    ) -> None:
        self._request = request
        self._residual = residual
        self._in_turn = in_turn
        self._laws = {named.law_id: named.law for named in request.laws}

    def bidder(self, task: JobTask, quotes: Mapping[str, Quote]) -> Bidder:
        """A task where it runs and where it could go."""
        home = self.home(task, quotes)
        places = [home, *self.places(home, quotes)]
        free = [
            self.seat(place, place.view.spot_available, place.view.on_demand_available)
            for place in places
        ]
        return Bidder(task=task, places=places, free=free)

    def home(self, task: JobTask, quotes: Mapping[str, Quote]) -> TaskPlace:
        """Where a task's job runs."""
        return self._place(task, quotes[task.offering_id])

    def places(self, home: TaskPlace, quotes: Mapping[str, Quote]) -> Iterator[TaskPlace]:
        """Where a job could go from home and is worth something: by a table, or as long as spot lasts."""
        task = home.task
        if not may_move(self._request, task, home.view):
            return
        margin = move_margin_micro_usd(home.view)
        for alternative in task.alternatives:
            place = self.place_at(home, alternative, quotes)
            place.away = Away.at(alternative, home.view, self._laws)
            if place.view.outlook is None and place.away is None:
                continue
            # Nobody goes to and fro between stays: only who finds too little at home has any.
            place.margin_micro_usd = margin if place.away is None else 0.0
            yield place

    def place_at(
        self, home: TaskPlace, alternative: Alternative, quotes: Mapping[str, Quote]
    ) -> TaskPlace:
        """An alternative to home: the job leaves all its spot to go there."""
        left = self._view_at(home, 0, home.view.on_demand_available)
        place = self._place(
            moved_task(home.task, alternative, left), quotes[alternative.offering_id]
        )
        place.move_micro_usd = alternative.move_cost_micro_usd
        return place

    def _place(self, task: JobTask, quote: Quote) -> TaskPlace:
        view = task_view(self._request, task, quote, self._residual)
        asked = asked_policy(self._request, task, view)
        return TaskPlace(task=task, view=view, quote=quote, asked=asked)

    def scarce(self, bidders: Sequence[Bidder]) -> Capacity:
        """What could run out; of all else every job gets what it would take."""
        spot: set[str] = set()
        stock = self._scarce_stock(bidders)
        while True:
            wanted: dict[str, int] = {}
            for bidder in bidders:
                for at in self._worthwhile(bidder, spot, stock):
                    offering_id = bidder.places[at].offering_id
                    taken = bidder.free[at].option.spot
                    wanted[offering_id] = wanted.get(offering_id, 0) + taken
            short = {
                offering_id
                for offering_id, instances in wanted.items()
                if instances > self._residual.spot(offering_id)
            }
            if short <= spot:
                break
            spot |= short
        kept: dict[str, int] = {}
        for bidder in bidders:
            home, held = bidder.task.offering_id, bidder.task.holding.on_demand
            kept[home] = kept.get(home, 0) + held
        return Capacity(
            spot={offering_id: self._residual.spot(offering_id) for offering_id in sorted(spot)},
            on_demand={
                offering_id: self._stock(offering_id, kept.get(offering_id, 0))
                for offering_id in sorted(stock)
            },
        )

    def _scarce_stock(self, bidders: Sequence[Bidder]) -> set[str]:
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

    def _stock(self, offering_id: str, kept: int) -> int:
        """On-demand for all; none to launch where more is held, `kept`, than is in stock."""
        left = self._residual.on_demand(offering_id)
        return 0 if kept > left else left

    def _worthwhile(self, bidder: Bidder, spot: Set[str], stock: Set[str]) -> list[int]:
        """The places that could be worth more than what the job is sure to have at home."""
        home = bidder.places[0]
        if len(bidder.places) == 1 or home.offering_id in stock:
            return list(range(len(bidder.places)))
        sure = bidder.free[0]
        if home.offering_id in spot:
            sure = self.seat(home, 0, home.view.on_demand_available)
        return [
            at
            for at, seat in enumerate(bidder.free)
            if not at
            or not sure.option.safe
            or seat.option.value_micro_usd > sure.option.value_micro_usd
        ]

    def seats(
        self, bidder: Bidder, capacity: Capacity, bounded: Set[str] = frozenset()
    ) -> list[Seat]:
        """All that a job bids for: at each place with all there is, and with less of what is scarce.

        Of offerings that are `bounded` by limits on all jobs, it also bids for less of either kind.
        """
        seats: list[Seat] = []
        spot, stock = bounded | capacity.spot.keys(), bounded | capacity.on_demand.keys()
        for at in self._worthwhile(bidder, spot, stock):
            place = bidder.places[at]
            found = [bidder.free[at]]
            if place.offering_id in spot:
                found += self._with_less_spot(place, found[0])
            if place.offering_id in stock:
                found += self._with_less_stock(place, found, at_home=not at)
            seats += [seat for seat in found if not at or pays_to_go(bidder, place, seat)]
        return seats

    def offers(
        self, bidders: Sequence[Bidder], capacity: Capacity, bounded: Set[str] = frozenset()
    ) -> list[list[Seat]]:
        """All that all bid for. Where a hard deadline must buy, jobs that may be late could let their on-demand go.

        Where launches may have to wait none of them does by itself: it keeps what it holds.
        """
        found = [self.seats(bidder, capacity, bounded) for bidder in bidders]
        needed = {
            bidder.task.offering_id
            for bidder in bidders
            if bidder.task.offering_id in capacity.on_demand
            and bidder.task.holding.on_demand < bidder.task.job.max_instances
            and must_buy(bidder.places[0].view)
        }
        for bidder, seats in zip(bidders, found, strict=True):
            home = bidder.places[0]
            lends = bidder.task.holding.on_demand and not home.view.program.hard
            if lends and home.offering_id in needed and never_rests(seats, capacity):
                seats.append(self.rest(home, DecisionReason.NO_CAPACITY))
        return found

    def rest(self, home: TaskPlace, reason: DecisionReason) -> Seat:
        """A job that holds nothing at home, whatever its policy says: something else may leave it that."""
        seat = self.seat(home, 0, 0)
        if not seat.option.spot + seat.option.on_demand:
            return seat
        view = self._view_at(home, 0, 0)
        option = Option(
            offering_id=home.offering_id,
            spot=0,
            on_demand=0,
            value_micro_usd=self._worth(home, life_worth(view, IDLE)),
            safe=is_saved(view, IDLE),
        )
        return Seat(option, lambda: replace(seat.answer(), lots=(), reason=reason))

    def _with_less_spot(self, place: TaskPlace, free: Seat) -> list[Seat]:
        """From less than it would take down to none; who plans with forecasts is asked less often."""
        stock = place.view.on_demand_available
        taken = free.option.spot
        found = []
        while taken:
            asked = taken - 1
            if place.looks_ahead:
                held = place.task.holding.spot
                asked = held if held < taken and held > taken // 2 else taken // 2
            seat = self.seat(place, asked, stock)
            found.append(seat)
            taken = min(asked, seat.option.spot)
            if not asked:
                break
        return found

    def _with_less_stock(
        self, place: TaskPlace, seats: Sequence[Seat], *, at_home: bool
    ) -> list[Seat]:
        """With none in stock beside the same spot, and with ever less beside none."""
        asked = [(seat.option.spot, 0) for seat in seats if seat.option.on_demand]
        least = min(seats, key=lambda seat: seat.option.spot).option.on_demand
        asked += [(0, stock) for stock in range(least - 1, -1, -1)]
        # At home there must be a way to take nothing.
        asked += [(0, 0)] if at_home else []
        return [self.seat(place, spot, stock) for spot, stock in asked]

    def seat(self, place: TaskPlace, spot: int, stock: int) -> Seat:
        """What the job's policy makes of so much spot and stock at a place.

        Whose spot falls where the market takes it back was interrupted, even if it meant to give it up;
        whose falls because others are left it is worth less than its table says (`yield_margin_micro_usd`).
        What is late gives spot up to all others.
        """
        seat = self._told_seat(place, spot, stock)
        request, held = self._request, place.task.holding.spot
        reclaimed = is_reclaimed(request, place.task)
        if request.keeps_spot and spot < held and not (reclaimed or is_late(request, place.view)):
            return yielding(place, seat, held)
        falls = spot >= held > seat.option.spot and request.strict_reclaims
        if falls and reclaimed:
            return self._told_seat(place, held - 1, stock)
        return seat

    def _told_seat(self, place: TaskPlace, spot: int, stock: int) -> Seat:
        """The seat of a job that is told no more than what is left to it."""
        key = spot, stock
        seat = place.seats.get(key)
        if seat is None and place.away is not None:
            seat = place.seats[key] = seat_away(place, place.away, spot)
        if seat is None:
            if key not in place.rungs and can_climb(place.asked.policy, place.view):
                self._climb(place, spot, stock)
            if key in place.rungs:
                seat = self._seat_on(place, *place.rungs[key])
            else:
                seat = self._asked_alone(place, spot, stock)
            if is_late(self._request, place.view):
                seat = late_seat(place, self._view_at(place, spot, stock), seat)
            place.seats[key] = seat
        return seat

    def _climb(self, place: TaskPlace, spot: int, stock: int) -> None:
        """Find what is asked for, and in the same go all with less spot that may be asked next."""
        view, asked, available = place.view, place.asked, place.quote.spot_available
        asks = [(spot, stock)]
        if not place.plans and not self._in_turn:
            most = min(spot, view.program.max_instances)
            asks += [(less, stock) for less in range(most - 1, -1, -1)]
        # What others take now is not counted on later.
        of = available.instances if available.known else 0
        for netted in (False, True):
            alike = [ask for ask in asks if self._nets(place, ask[0]) == netted]
            if not alike:
                continue
            ladder = climb(
                asked.policy,
                view,
                asked.memory,
                [(spot, stock, max(0, of - spot)) for spot, stock in alike],
                ahead=self._ahead(place),
                reclaimed=is_reclaimed(self._request, place.task),
                nets_soft_deadlines=netted,
            )
            for at, key in enumerate(alike):
                place.rungs.setdefault(key, (ladder, at))

    def _nets(self, place: TaskPlace, spot: int) -> bool:
        """Whether a soft deadline is guarded where no more spot than this is left by others.

        Its table waits for spot as long as the law says that it comes; this has come, and goes to others.
        """
        if self._in_turn:
            # Nothing here weighs how late a job would be.
            return True
        return spot < place.view.spot_available and self._nets_where_short(place)

    def _nets_where_short(self, place: TaskPlace) -> bool:
        return self._request.nets_soft_deadlines and is_priced(place.view.outlook)

    def _seat_on(self, place: TaskPlace, ladder: Ladder, at: int) -> Seat:
        spot, on_demand, _, cost, safe = ladder.rungs[at]
        return Seat(
            Option(
                offering_id=place.offering_id,
                spot=spot,
                on_demand=on_demand,
                value_micro_usd=self._worth(place, ladder.worths[at]),
                cost_micro_usd=cost,
                from_stock=self._from_stock(place, on_demand),
                safe=bool(safe),
            ),
            partial(rung_answer, place.task, place.asked, ladder, at),
        )

    @staticmethod
    def _worth(place: TaskPlace, worth: float) -> int:
        """What a life there is worth, less the way and what going there must gain."""
        return round(worth - place.move_micro_usd - place.margin_micro_usd)

    def _from_stock(self, place: TaskPlace, on_demand: int) -> int | None:
        """Of on-demand instances, those that must be in stock; None for all."""
        if place.view.on_demand_available <= self._residual.on_demand(place.offering_id):
            return None
        kept = place.task.holding.on_demand if place.view.reserve_slots else 0
        return on_demand - min(on_demand, kept)

    def _ahead(self, place: TaskPlace) -> WindowForecast | None:
        """The forecast of a place with nothing taken, for a policy that looks at forecasts."""
        if not place.looks_ahead or place.view.forecast is None:
            return None
        return forecast_of(self._request.forecast, place.quote)

    def _asked_alone(self, place: TaskPlace, spot: int, stock: int) -> Seat:
        """A seat found by the policy itself, not by its compiled form."""
        view = self._view_at(place, spot, stock)
        answer = task_answer(self._request, place.task, view)
        held = holding_of(answer.lots)
        option = Option(
            offering_id=place.offering_id,
            spot=held.spot,
            on_demand=held.on_demand,
            value_micro_usd=self._worth(place, life_worth(view, held)),
            cost_micro_usd=slot_cost_micro_usd(view, held),
            from_stock=self._from_stock(place, held.on_demand),
            safe=is_saved(view, held),
        )
        return Seat(option, lambda: answer)

    def _view_at(self, place: TaskPlace, spot: int, stock: int) -> PolicyView:
        view = place.view
        nets = self._nets(place, spot)
        asked = spot, stock, nets
        if asked == (view.spot_available, view.on_demand_available, view.nets_soft_deadlines):
            return view
        interrupted = is_interrupted(self._request, place.task, spot)
        forecast = view.forecast
        if place.looks_ahead:
            forecast = forecast_of(self._request.forecast, place.quote, left=spot)
        return replace(
            view,
            state=view.state.fallen() if interrupted and not view.interrupted else view.state,
            interrupted=interrupted,
            spot_available=spot,
            nets_soft_deadlines=nets,
            on_demand_available=on_demand_to_hold(
                stock, holding_of((place.task.holding,)), reserve_slots=view.reserve_slots
            ),
            forecast=forecast,
        )
