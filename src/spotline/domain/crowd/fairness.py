"""Fairness between tenants in a clearing: who saved less counts for more, at a price.

What a tenant's jobs saved of late is held against on-demand for the same work. The worth of a tenant's
bids is weighted by how far the share that it saved lies behind the best tenant's, at most by a stated
factor f. As weights lie in 1..f, what the jobs gain is at least 1/f of the most
that they could gain, but for what keeping deadlines safe costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spotline.domain.crowd.bids import Bid, Capacity, Cleared, takes_of
from spotline.domain.crowd.clearing import clear
from spotline.domain.crowd.tenants import WEIGHT_ONE, SlotFairness, TenantGain, TenantWeight


def clear_fairly(
    bids: Sequence[Bid],
    capacity: Capacity,
    tenants: Mapping[str, str],
    weights: Sequence[TenantWeight],
    *,
    brief: bool = False,
) -> tuple[Cleared, SlotFairness]:
    """Clear with bids weighted by tenant, and without, to say what that costs.

    Parameters
    ----------
    tenants
        Whose each job is, by job id.
    weights
        Those of tenants that are not in it are one.
    brief
        As in `clear`.

    Returns
    -------
    Cleared
        What is chosen, its worth unweighted; prices are those of the clearing without weights.
        `gap_micro_usd` is how far it may be from the best way to clear weighted bids.
    SlotFairness
        The worth that is lost against the clearing without weights.

    Notes
    -----
    Weights that fall with what was had are the gradient rule of proportional fairness (Kelly, Maulloo
    and Tan, JORS 49(3), 1998; Stolyar, Operations Research 53(1), 2005), bounded here.
    """
    plain = clear(bids, capacity, brief=brief)
    counts = {weight.tenant: weight.weight_milli for weight in weights}
    of_job = {bid.job_id: counts.get(tenants[bid.job_id], WEIGHT_ONE) for bid in bids}
    found = plain
    if len(set(of_job.values())) > 1:
        weighted = [_weighted(bid, of_job[bid.job_id]) for bid in bids]
        fair = clear(weighted, capacity, brief=brief)
        value = sum(bid.options[fair.chosen[bid.job_id]].value_micro_usd for bid in bids)
        gap = -(-fair.gap_micro_usd // WEIGHT_ONE)
        found = replace(
            plain, chosen=fair.chosen, value_micro_usd=value, bound_micro_usd=value + gap
        )
    cost = max(0, plain.value_micro_usd - found.value_micro_usd)
    return found, SlotFairness(
        cost_micro_usd=cost, gains=_gains(bids, capacity, tenants, found.chosen)
    )


def _weighted(bid: Bid, weight_milli: int) -> Bid:
    options = tuple(
        replace(option, value_micro_usd=option.value_micro_usd * weight_milli)
        for option in bid.options
    )
    return replace(bid, options=options)


def _gains(
    bids: Sequence[Bid],
    capacity: Capacity,
    tenants: Mapping[str, str],
    chosen: Mapping[str, int],
) -> tuple[TenantGain, ...]:
    got: dict[str, int] = {}
    wished: dict[str, int] = {}
    for bid in bids:
        values = [option.value_micro_usd for option in bid.options]
        without = max(
            option.value_micro_usd for option in bid.options if not takes_of(option, capacity)
        )
        most = max(values) - without
        tenant = tenants[bid.job_id]
        wished[tenant] = wished.get(tenant, 0) + most
        # A job that is kept safe may get less than it would have without what is scarce.
        got[tenant] = got.get(tenant, 0) + max(0, values[chosen[bid.job_id]] - without)
    return tuple(
        TenantGain(tenant=tenant, got_micro_usd=got[tenant], wished_micro_usd=wished[tenant])
        for tenant in sorted(got)
    )
