"""What a job bid for in a slot that was cleared, and what kept it from what it wanted more.

The clearing is done again: without the job, on what each option that it wanted more would leave the
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.application.allocation.clearing import clear_bids, slot_bids
from spotline.application.explaining.facts import DecidedTurn, usd_text
from spotline.application.explaining.messages import BidOption, ClearedBids
from spotline.domain.crowd.bids import (
    BUDGET,
    ON_DEMAND,
    QUOTA,
    SPOT,
    Bid,
    Capacity,
    Cleared,
    Option,
    resources_of,
    takes_of,
)
from spotline.domain.crowd.clearing import clear
from spotline.domain.policies.answer import SpotWorth
from spotline.domain.units import S_PER_HOUR

# Each takes a clearing of all other jobs.
_MOST_ASKED = 6


def bids_of(turn: DecidedTurn, job_id: str) -> ClearedBids | None:
    """A job's bids as they were cleared; None where it did not bid."""
    request = turn.request
    if request is None or not request.clearing:
        return None
    slot = slot_bids(request)
    if slot.in_turn:
        return None
    own = next((bid for bid in slot.bids if bid.job_id == job_id), None)
    if own is None:
        return None
    found, fairness = clear_bids(request, slot)
    left_s = request.slot_s - request.offset_s
    return ClearedBids(
        jobs=len(slot.bids),
        options=_options(slot.bids, own, slot.capacity, found),
        spot_worth=tuple(
            SpotWorth(
                offering_id=offering_id,
                micro_usd_per_instance_hour=found.spot_price[offering_id] * S_PER_HOUR // left_s,
            )
            for offering_id in sorted(found.spot_price)
        ),
        gap_micro_usd=found.gap_micro_usd,
        fairness_cost_micro_usd=0 if fairness is None else fairness.cost_micro_usd,
    )


def _options(
    bids: Sequence[Bid], own: Bid, capacity: Capacity, found: Cleared
) -> tuple[BidOption, ...]:
    """A job's options, the best for itself first; of equal ones the one that was offered first."""
    at = found.chosen[own.job_id]
    got = own.options[at]
    others = [bid for bid in bids if bid.job_id != own.job_id]
    others_get = found.value_micro_usd - got.value_micro_usd
    options, seen, asked = [], set[tuple[str, int, int]](), 0
    order = sorted(
        range(len(own.options)),
        key=lambda index: (-own.options[index].value_micro_usd, index != at, index),
    )
    for index in order:
        option = own.options[index]
        held = (option.offering_id, option.spot, option.on_demand)
        if held in seen:
            continue
        seen.add(held)
        more = option.value_micro_usd - got.value_micro_usd
        chosen = held == (got.offering_id, got.spot, got.on_demand)
        lose: int | None = None
        why = ""
        if not chosen and got.safe and not option.safe:
            why = "its deadline would no longer be sure"
        elif not chosen and more > 0 and asked < _MOST_ASKED:
            asked += 1
            lose, why = _asked(others, option, capacity, others_get, more)
        elif not chosen:
            why = "" if more > 0 else "worth no more to the job"
        options.append(
            BidOption(
                offering_id=option.offering_id,
                spot=option.spot,
                on_demand=option.on_demand,
                chosen=chosen,
                more_micro_usd=more,
                others_lose_micro_usd=lose,
                why=why,
            )
        )
    return tuple(options)


def _asked(
    others: Sequence[Bid], option: Option, capacity: Capacity, others_get: int, more: int
) -> tuple[int | None, str]:
    """What the others lose if the job takes this, and the same for people."""
    left = _left_by(option, capacity)
    if left is None:
        return None, "there is not so much, of all that jobs may share"
    lose = others_get - clear(others, left).value_micro_usd
    if lose > more:
        return lose, f"worth {usd_text(lose - more)} more to the others: they lose {usd_text(lose)}"
    # Who is served safely in order stays safe: that alone, and fairness, may stand against it.
    return lose, "other jobs' deadlines, or fairness between tenants, stand against it"


def _left_by(option: Option, capacity: Capacity) -> Capacity | None:
    """What an option leaves of what is bounded; None where there is not so much."""
    left = resources_of(capacity)
    for key, amount in takes_of(option, capacity).items():
        left[key] -= amount
        if left[key] < 0:
            return None

    def of(kind: str) -> dict[str, int]:
        return {name: amount for (each, name), amount in left.items() if each == kind}

    return replace(
        capacity,
        spot=of(SPOT),
        on_demand=of(ON_DEMAND),
        quotas=of(QUOTA),
        budget_micro_usd=left.get((BUDGET, "")),
    )
