"""One slot of all tasks in turn: least slack first, and no job gives up the spot that it holds.

A crowd's tables wait for spot that others take. Here no job counts on spot that comes: it keeps the
spot that it holds, takes what is left at home, goes where spot is idle if its deadline stays safe on
the way, waits while it has slack, and buys on-demand, where that is cheapest, when it has none left.
That is list scheduling by least slack (least laxity first: Dertouzos and Mok, IEEE Transactions on
Software Engineering 15(12), 1989), without preemption, on machines of two prices in many places.
A hard deadline that only on-demand can still meet comes before all others, and takes what jobs that may be late hold
of it where there is no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spotline.application.allocation.messages import AllocateRequest, Alternative
from spotline.application.allocation.seats import Bidder, Seat, TaskPlace, seat_with
from spotline.application.allocation.slot import Slot
from spotline.application.allocation.tasks import can_hold, is_late, is_saved, must_buy
from spotline.domain.crowd.bids import Option
from spotline.domain.jobs.program import Holding
from spotline.domain.jobs.progress import overhead_s
from spotline.domain.market.offering import Quote
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.decision import is_safe
from spotline.domain.units import PPM, cost_micro_usd

# Spot that costs more than this share of the cheapest on-demand is no bargain: a job with slack waits for
# better, one without takes whichever is cheaper.
DEAR_SPOT_PPM = 600_000


@dataclass(slots=True, kw_only=True)
class _Left:
    """What those served before leave, by offering; all that jobs hold is kept for them.

    Of on-demand, `lent` is kept for jobs whose deadline is soft, and `owed` is what hard ones took of it.
    """

    spot: dict[str, int] = field(default_factory=dict)
    on_demand: dict[str, int] = field(default_factory=dict)
    kept: dict[str, Holding] = field(default_factory=dict)
    lent: Counter[str] = field(default_factory=Counter)
    owed: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, homes: Sequence[TaskPlace], residual: ResidualCapacity) -> _Left:
        left = cls()
        for home in homes:
            task, held = home.task, home.task.holding
            spot, on_demand = left._at(held.offering_id, residual)
            # Of spot that was taken back in part, those served first keep theirs whole.
            kept = Holding(
                spot=held.spot if held.spot <= spot else 0,
                on_demand=min(held.on_demand, on_demand),
            )
            left.spot[held.offering_id] = spot - kept.spot
            left.on_demand[held.offering_id] = on_demand - kept.on_demand
            left.kept[task.job.job_id] = kept
            if _lends(home):
                left.lent[held.offering_id] += kept.on_demand
            for offering_id in (task.offering_id, *(a.offering_id for a in task.alternatives)):
                left._at(offering_id, residual)
        return left

    def _at(self, offering_id: str, residual: ResidualCapacity) -> tuple[int, int]:
        spot = self.spot.setdefault(offering_id, residual.spot(offering_id))
        return spot, self.on_demand.setdefault(offering_id, residual.on_demand(offering_id))

    def release(self, home: TaskPlace) -> int:
        """Give back what was kept for a task that is served now; say how much on-demand it must let go."""
        kept, at = self.kept[home.task.job.job_id], home.task.holding.offering_id
        self.spot[at] += kept.spot
        self.on_demand[at] += kept.on_demand
        if not _lends(home):
            return 0
        self.lent[at] -= kept.on_demand
        # Who comes last gives up first.
        given = max(0, self.owed[at] - self.lent[at])
        self.owed[at] -= given
        self.on_demand[at] -= given
        return given

    def take(self, option: Option) -> None:
        """Serve a task; on-demand that it holds stays where the stock has run out."""
        self.spot[option.offering_id] -= option.spot
        on_demand = self.on_demand[option.offering_id]
        self.on_demand[option.offering_id] = max(0, on_demand - option.on_demand)

    def borrow(self, option: Option) -> None:
        """Let a task have of on-demand what is kept for soft deadlines too."""
        lacks = max(0, option.on_demand - self.on_demand[option.offering_id])
        self.owed[option.offering_id] += lacks
        self.on_demand[option.offering_id] += lacks


def served_in_turn(
    request: AllocateRequest, quotes: Mapping[str, Quote], residual: ResidualCapacity
) -> tuple[list[Bidder], list[Seat]]:
    """Serve all tasks in their order; say what each gets.

    `residual` is what there is for all of them; it is not changed.
    """
    slot = Slot(request, residual, in_turn=True)
    homes = [slot.home(task, quotes) for task in request.tasks]
    left = _Left.of(homes, residual)
    found: dict[str, tuple[Bidder, Seat]] = {}
    # What is late has no slack, and has what all others leave.
    for home in sorted(
        homes, key=lambda home: (is_late(request, home.view), not must_buy(home.view))
    ):
        given = left.release(home)
        if given:
            # Where launches may have to wait, what is held would stay whatever is left.
            most = home.task.holding.on_demand - given
            told = replace(home.task, on_demand_reserve_slots=0, most_on_demand=most)
            home = slot.home(told, quotes)
        turn = _Turn(request=request, slot=slot, quotes=quotes, left=left, home=home)
        place, seat = turn.served()
        left.take(seat.option)
        places = [home] if place is home else [home, place]
        found[home.task.job.job_id] = Bidder(task=home.task, places=places, free=[]), seat
    in_order = [found[task.job.job_id] for task in request.tasks]
    return [bidder for bidder, _ in in_order], [seat for _, seat in in_order]


@dataclass(slots=True, kw_only=True)
class _Turn:
    """A task whose turn it is."""

    request: AllocateRequest
    slot: Slot
    quotes: Mapping[str, Quote]
    left: _Left
    home: TaskPlace

    def served(self) -> tuple[TaskPlace, Seat]:
        """Where the task's job runs in the slot, and what it holds there."""
        at_home = self._at_home(self.left.on_demand[self.home.offering_id])
        if at_home.option.spot == self._most:
            return self.home, at_home
        if self._may_go():
            there = self._to_idle_spot()
            if there is None and not at_home.option.spot:
                there = self._cheapest(at_home)
            if there is not None:
                return there
        if not at_home.option.safe and must_buy(self.home.view):
            at_home = self._borrowed()
        return self.home, at_home

    def _at_home(self, on_demand: int) -> Seat:
        home, spot = self.home, self.left.spot[self.home.offering_id]
        view = home.view
        return self.slot.seat(
            home, min(spot, view.spot_available), min(on_demand, view.on_demand_available)
        )

    def _borrowed(self) -> Seat:
        """What a hard deadline needs of on-demand at home, that of soft ones included."""
        at = self.home.offering_id
        seat = self._at_home(self.left.on_demand[at] + self.left.lent[at] - self.left.owed[at])
        self.left.borrow(seat.option)
        return seat

    def _may_go(self) -> bool:
        view = self.home.view
        over = view.elapsed_slots >= view.program.deadline_slots
        done = view.state.progress_quanta >= view.program.work_quanta
        return bool(self.home.task.alternatives) and not (self.request.offset_s or over or done)

    def _to_idle_spot(self) -> tuple[TaskPlace, Seat] | None:
        """The first place where all the spot that the job may hold is idle and no bargain is missed.

        Its deadline must stay safe on the way, a soft one too: nothing here weighs how late it would be.
        """
        held = Holding(spot=self._most, on_demand=0)
        for alternative in self.home.task.alternatives:
            offering_id = alternative.offering_id
            if self.left.spot[offering_id] < held.spot or self._is_dear(self.quotes[offering_id]):
                continue
            place = self.slot.place_at(self.home, alternative, self.quotes)
            if _may_hold(place, held):
                return place, seat_with(place, held)
        return None

    def _cheapest(self, at_home: Seat) -> tuple[TaskPlace, Seat] | None:
        """Where the work left costs least on demand or on dear spot, if it must be bought now.

        Who holds on-demand stays: the way to another place would be paid again and again.
        """
        must_buy = at_home.option.on_demand or not at_home.option.safe
        if self.home.task.holding.on_demand >= self._most or not must_buy:
            return None
        best, least = None, None
        if at_home.option.on_demand:
            least = _finish_micro_usd(self.home, Holding(spot=0, on_demand=self._most))
        for alternative, held in self._last_resorts():
            place = self.slot.place_at(self.home, alternative, self.quotes)
            paid = _finish_micro_usd(place, held)
            if (least is None or paid < least) and _may_hold(place, held):
                best, least = (place, seat_with(place, held)), paid
        return best

    def _last_resorts(self) -> Iterator[tuple[Alternative, Holding]]:
        for alternative in self.home.task.alternatives:
            if self.left.on_demand[alternative.offering_id] >= self._most:
                yield alternative, Holding(spot=0, on_demand=self._most)
            if self.left.spot[alternative.offering_id] >= self._most:
                yield alternative, Holding(spot=self._most, on_demand=0)

    @property
    def _most(self) -> int:
        return self.home.task.job.max_instances

    def _is_dear(self, quote: Quote) -> bool:
        home = self.quotes[self.home.offering_id]
        offered = (home, *(self.quotes[a.offering_id] for a in self.home.task.alternatives))
        cheapest = min(
            (each.on_demand_price_micro_usd for each in offered if each.on_demand_price_micro_usd),
            default=0,
        )
        return quote.spot_price_micro_usd * PPM > cheapest * DEAR_SPOT_PPM


def _lends(home: TaskPlace) -> bool:
    """Whether a job lets on-demand go that a hard deadline needs."""
    return not home.view.program.hard


def _may_hold(place: TaskPlace, held: Holding) -> bool:
    """Whether a job can hold this and its deadline, hard or soft, is sure; a hard one has on-demand."""
    view = place.view
    return can_hold(view, held) and is_saved(view, held) and is_safe(view, held)


def _finish_micro_usd(place: TaskPlace, held: Holding) -> int:
    """What the work left costs with this, the way there and its overhead included."""
    view = place.view
    program, now = view.program, view.state
    change = overhead_s(program, now.holding, held, interrupted=view.interrupted)
    left = program.work_quanta - now.progress_quanta
    rate = program.rate_quanta_per_s[held.instances]
    seconds = -(-left // rate) + max(now.pending_overhead_s, change)
    price = view.spot_price if held.spot else view.on_demand_price
    return cost_micro_usd(price, held.instances, seconds) + place.move_micro_usd
