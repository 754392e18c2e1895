"""One slot cleared: every job gets one of its options, and all together are worth the most.

A multiple-choice knapsack under what is scarce. Parts of the slot that share nothing scarce are
cleared apart: by dynamic programming where one offering couples them, by linear and integer
programming where several constraints do. Jobs that serving in order of slack would keep safe are kept
safe, and all together are never worth less than served so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from spotline.domain.crowd.bids import SPOT, Bid, Capacity, Cleared, best_first, takes_of
from spotline.domain.crowd.program import SlotPart, allowed_options, parts_of, served_in_order
from spotline.domain.crowd.search import BRIEF_WORK, MOST_WORK, clear_part


def clear(bids: Sequence[Bid], capacity: Capacity, *, brief: bool = False) -> Cleared:
    """Choose an option for every job; the order of bids does not matter.

    Parameters
    ----------
    brief
        Whether the search for better than what exchanges find ends after `BRIEF_WORK`.

    Raises
    ------
    ValueError
        Two bids are of one job, or one has no option that takes nothing of what is bounded.

    Notes
    -----
    The weakly coupled program of one slot (Adelman and Mersereau, Operations Research 2008), given
    each job's value to go.
    """
    bids = sorted(bids, key=lambda bid: bid.job_id)
    for before, after in pairwise(bids):
        if before.job_id == after.job_id:
            raise ValueError(f"job_id must differ from bid to bid, {after.job_id!r} was repeated")
    for bid in bids:
        if all(takes_of(option, capacity) for option in bid.options):
            raise ValueError(f"options of {bid.job_id} must hold one that takes nothing")
    served = served_in_order(bids, capacity)
    allowed = allowed_options(bids, served)
    parts, alone = parts_of(bids, capacity, allowed)
    chosen = list(served)
    for job in alone:
        kept = set(allowed[job])
        chosen[job] = next(at for at in best_first(bids[job]) if at in kept)
    gap = 0
    prices: dict[str, int] = {}
    for part in parts:
        work = BRIEF_WORK if brief else MOST_WORK
        cleared = clear_part(part, _rows_of(part, served), work=work)
        for job, row in zip(part.jobs, cleared.rows, strict=True):
            chosen[job] = int(part.origins[row])
        gap += cleared.bound - cleared.worth
        for (kind, name), price in zip(part.resources, cleared.prices.tolist(), strict=True):
            if kind == SPOT and price:
                prices[name] = price
    value = sum(bid.options[at].value_micro_usd for bid, at in zip(bids, chosen, strict=True))
    return Cleared(
        chosen=_by_job(bids, chosen),
        value_micro_usd=value,
        bound_micro_usd=value + gap,
        spot_price=prices,
    )


def _by_job(bids: Sequence[Bid], chosen: Sequence[int]) -> Mapping[str, int]:
    return {bid.job_id: at for bid, at in zip(bids, chosen, strict=True)}


def _rows_of(part: SlotPart, served: Sequence[int]) -> list[int]:
    """The rows of what jobs would be served in order, or of what takes as much and is worth more."""
    rows = []
    for job, bid in enumerate(part.jobs):
        rows.append(_row_of(part, job, served[bid]))
    return rows


def _row_of(part: SlotPart, job: int, option: int) -> int:
    for row in part.rows(job):
        if int(part.origins[row]) == option:
            return row
    raise ValueError(f"option {option} must have a row in its part, had none")
