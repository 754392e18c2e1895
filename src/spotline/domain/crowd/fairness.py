"""Fairness between tenants in a clearing: who saved less counts for more, at a price.

What a tenant's jobs saved of late is held against on-demand for the same work. The worth of a tenant's
bids is weighted by how far the share that it saved lies behind the best tenant's, at most by a stated
factor f. As weights lie in 1..f, what the jobs gain is at least 1/f of the most
that they could gain, but for what keeping deadlines safe costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from spotline.domain.crowd.bids import Bid, Capacity, Cleared, takes_of
from spotline.domain.crowd.clearing import clear
from spotline.domain.units import PPM

# Weights are whole: what is the better option of a job stays so, to the micro-dollar.
WEIGHT_ONE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantWeight:
    """How much a tenant's bids count, in thousandths."""

    tenant: str
    weight_milli: int

    def __post_init__(self) -> None:
        if self.weight_milli < WEIGHT_ONE:
            raise ValueError(f"weight_milli must be >= {WEIGHT_ONE}, was {self.weight_milli}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantGain:
    """What a tenant's jobs gained by what they got in a slot, of what all that they bid for is worth.

    Both against holding nothing of what is scarce.
    """

    tenant: str
    got_micro_usd: int
    wished_micro_usd: int

    def __post_init__(self) -> None:
        if min(self.got_micro_usd, self.wished_micro_usd) < 0:
            raise ValueError(
                f"got_micro_usd and wished_micro_usd must be >= 0, were {self.got_micro_usd} and "
                f"{self.wished_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSaving:
    """What a tenant's jobs saved of late, of what their work would have cost on demand."""

    tenant: str
    saved_micro_usd: int
    on_demand_micro_usd: int

    def __post_init__(self) -> None:
        if not 0 <= self.saved_micro_usd <= self.on_demand_micro_usd:
            raise ValueError(
                f"saved_micro_usd must lie in 0..on_demand_micro_usd "
                f"({self.on_demand_micro_usd}), was {self.saved_micro_usd}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFairness:
    """What fairness cost in a slot, all jobs together, and what each tenant gained."""

    cost_micro_usd: int
    gains: tuple[TenantGain, ...]

    def __post_init__(self) -> None:
        if self.cost_micro_usd < 0:
            raise ValueError(f"cost_micro_usd must be >= 0, was {self.cost_micro_usd}")


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


def weights_of(
    tenants: Iterable[str],
    savings: Iterable[TenantSaving],
    shares: Mapping[str, int],
    most_milli: int,
) -> tuple[TenantWeight, ...]:
    """How much each tenant's bids count in the next clearing.

    Parameters
    ----------
    savings
        What tenants saved of late; one of whom nothing is known counts once.
    shares
        How much a tenant is due to save against others; 1 where nothing is stated.
    most_milli
        The most that a tenant may count, thousandths.
    """
    had = {
        saving.tenant: saving.saved_micro_usd
        * PPM
        // saving.on_demand_micro_usd
        // shares.get(saving.tenant, 1)
        for saving in savings
        if saving.on_demand_micro_usd
    }
    best = max(had.values(), default=0)
    weights = []
    for tenant in sorted(set(tenants)):
        weight = WEIGHT_ONE
        if tenant in had:
            # Who saved nothing counts as much as it may.
            weight = min(most_milli, max(WEIGHT_ONE, WEIGHT_ONE * best // max(1, had[tenant])))
        weights.append(TenantWeight(tenant=tenant, weight_milli=weight))
    return tuple(weights)


def shares_of(text: str) -> Mapping[str, int]:
    """Read `research=2,search=1`: how much each tenant is due to save against others.

    Raises
    ------
    ValueError
        It is not that; names the part.
    """
    shares: dict[str, int] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        tenant, equals, share = (piece.strip() for piece in part.partition("="))
        if not (tenant and equals and share.isascii() and share.isdigit() and int(share) >= 1):
            raise ValueError(f"must be TENANT=WHOLE NUMBER >= 1, ..., found {part!r}")
        if tenant in shares:
            raise ValueError(f"must name a tenant once, {tenant!r} is repeated")
        shares[tenant] = int(share)
    return shares
