"""One slot of all tasks together: each bids what its policy would hold, and the bids are cleared.

A bid asks the task's policy again and again: what would it hold if this much spot was left to it? So
every option is one that serving in order could have decided, safety net and budget included, and
what jobs hold in the end is what each policy makes of what the clearing leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.couplings import SlotLimits
from spotline.application.allocation.messages import AllocateAnswer, AllocateRequest
from spotline.application.allocation.seats import Bidder, Seat, kept_aside, seat_answer
from spotline.application.allocation.slot import Slot
from spotline.application.allocation.tasks import check_quoted, take_before
from spotline.application.allocation.turns import served_in_turn
from spotline.domain.crowd.bids import Bid, Capacity, Cleared
from spotline.domain.crowd.clearing import clear
from spotline.domain.crowd.fairness import clear_fairly
from spotline.domain.crowd.tenants import SlotFairness
from spotline.domain.crowd.yielding import Claim, yielded_to
from spotline.domain.policies.answer import DecisionReason, SpotWorth
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.units import S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotBids:
    """What all tasks bid, in their order, under what is scarce; what each got, if all were served `in_turn`."""

    bids: tuple[Bid, ...]
    capacity: Capacity
    in_turn: bool = False


def slot_bids(request: AllocateRequest) -> SlotBids:
    """What is cleared in a slot: for who wants to know why it was cleared so.

    Raises
    ------
    ValueError
        As `allocate`.
    """
    bidden = _bidden(request)
    return SlotBids(
        bids=_bids(bidden.bidders, bidden.offers),
        capacity=bidden.capacity,
        in_turn=bidden.in_turn,
    )


def cleared(request: AllocateRequest) -> AllocateAnswer:
    """Decide what every task's job holds for the rest of the slot, by clearing all bids.

    Raises
    ------
    ValueError
        As `allocate`.
    """
    bidden = _bidden(request)
    bidders, offers = bidden.bidders, bidden.offers
    found, fairness = bidden.found or _clear(request, bidden)
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
    if bidden.is_coupled:
        # What a quota or the budget refuses is nobody's spot.
        yields = {
            job: left for job, left in yields.items() if left.offering_id in bidden.capacity.spot
        }
    left_s = request.slot_s - request.offset_s
    return AllocateAnswer(
        answers=tuple(
            seat_answer(bidder, seats[at], yields.get(bidder.task.job.job_id))
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
    brief = request.brief_search
    if not request.tenant_weights:
        return clear(slot.bids, slot.capacity, brief=brief), None
    tenants = {task.job.job_id: task.job.tenant for task in request.tasks}
    return clear_fairly(slot.bids, slot.capacity, tenants, request.tenant_weights, brief=brief)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bidden:
    """All tasks as bidders, the seats that each bids for, and what is scarce.

    `found` is how that is cleared, where it is known already. `is_coupled` says that quotas or the
    budget are among what is scarce, `in_turn` that no job bid.
    """

    bidders: list[Bidder]
    offers: list[list[Seat]]
    capacity: Capacity
    found: tuple[Cleared, SlotFairness | None] | None = None
    is_coupled: bool = False
    in_turn: bool = False


def _clear(request: AllocateRequest, bidden: _Bidden) -> tuple[Cleared, SlotFairness | None]:
    bids = _bids(bidden.bidders, bidden.offers)
    return clear_bids(request, SlotBids(bids=bids, capacity=bidden.capacity))


def _bidden(request: AllocateRequest) -> _Bidden:
    """What is bid, by what there is; where limits on all jobs do not allow that, under these too.

    Limits that allow what is best without them allow the best there is.
    """
    residual = ResidualCapacity(request.quotes)
    quotes = {sq.quote.offering_id: sq.quote for sq in request.quotes}
    take_before(request, residual)
    for task in request.tasks:
        check_quoted(task, quotes)
    limits = SlotLimits.of(request)
    if request.serves_in_turn and not request.tenant_weights:
        bidders, seats = served_in_turn(request, quotes, residual)
        if limits is None or limits.allow(zip(bidders, seats, strict=True)):
            return _in_turn(bidders, seats)
    slot = Slot(request, residual)
    bidders = [slot.bidder(task, quotes) for task in request.tasks]
    scarce = slot.scarce(bidders)
    offers = slot.offers(bidders, scarce)
    bidden = _Bidden(bidders=bidders, offers=offers, capacity=kept_aside(bidders, offers, scarce))
    if limits is None:
        return bidden
    found = _clear(request, bidden)
    chosen = [
        (bidder, seats[found[0].chosen[bidder.task.job.job_id]])
        for bidder, seats in zip(bidders, offers, strict=True)
    ]
    if limits.allow(chosen):
        return replace(bidden, found=found)
    offers = slot.offers(bidders, scarce, limits.bounded)
    capacity = limits.bounding(kept_aside(bidders, offers, scarce))
    for bidder, seats in zip(bidders, offers, strict=True):
        seats.append(slot.rest(bidder.places[0], DecisionReason.BUDGET))
        for seat in seats:
            seat.option = limits.told(bidder, seat.option)
    return _Bidden(bidders=bidders, offers=offers, capacity=capacity, is_coupled=True)


def _in_turn(bidders: list[Bidder], seats: list[Seat]) -> _Bidden:
    """What serving in turn gave everybody, as bids that there was nothing to clear of."""
    value = sum(seat.option.value_micro_usd for seat in seats)
    found = Cleared(
        chosen={bidder.task.job.job_id: 0 for bidder in bidders},
        value_micro_usd=value,
        bound_micro_usd=value,
        spot_price={},
    )
    offers = [[seat] for seat in seats]
    return _Bidden(
        bidders=bidders, offers=offers, capacity=Capacity(), found=(found, None), in_turn=True
    )


def _bids(bidders: Sequence[Bidder], offers: Sequence[Sequence[Seat]]) -> tuple[Bid, ...]:
    return tuple(
        Bid(
            job_id=bidder.task.job.job_id,
            rank=rank,
            options=tuple(seat.option for seat in seats),
        )
        for rank, (bidder, seats) in enumerate(zip(bidders, offers, strict=True))
    )
