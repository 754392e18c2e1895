"""Tenants beside each other: how much each one's bids count, what each gained, what each saved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
