"""What jobs bid for in one slot, what there is, and what clearing gives them.

Several jobs want the same instances. Each says, option by option, what it could hold in this slot and
what the rest of its life is then worth to it; clearing picks one option per job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One thing that a job could hold in the slot, all of it on one offering.

    `value_micro_usd` is what the job's life is worth from here on if it holds this, less what that
    costs; only differences between a job's options count. `cost_micro_usd` is what of it is spent
    in this slot. Of `on_demand` instances `from_stock` must be in stock (None: all), as those that
    are held already may be kept when the stock has run out. An option that is not `safe` may
    break a deadline. `excepted` on-demand instances count in no quota: a deadline needs them.

    Raises
    ------
    ValueError
        A count or a cost is negative, or more is from stock, or excepted, than is held.
    """

    offering_id: str
    spot: int
    on_demand: int
    value_micro_usd: int
    cost_micro_usd: int = 0
    from_stock: int | None = None
    safe: bool = True
    excepted: int = 0

    def __post_init__(self) -> None:
        if (
            self.spot < 0
            or self.on_demand < 0
            or self.cost_micro_usd < 0
            or (self.from_stock or 0) < 0
        ):
            raise ValueError(
                f"spot, on_demand, cost_micro_usd and from_stock must be >= 0, were {self.spot}, "
                f"{self.on_demand}, {self.cost_micro_usd}, {self.from_stock}"
            )
        if not 0 <= self.excepted <= self.on_demand:
            raise ValueError(
                f"excepted must lie in 0..on_demand ({self.on_demand}), was {self.excepted}"
            )
        if self.from_stock is not None and self.from_stock > self.on_demand:
            raise ValueError(
                f"from_stock must be <= on_demand ({self.on_demand}), was {self.from_stock}"
            )

    @property
    def counted(self) -> int:
        """Instances that count in a quota."""
        return self.spot + self.on_demand - self.excepted

    @property
    def stock(self) -> int:
        """On-demand instances that must be in stock."""
        return self.on_demand if self.from_stock is None else self.from_stock


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """A job's options, the one that it likes most first among equals.

    `rank` says when it would be served if jobs were served in order: the smallest first, then by
    job id. One option must take nothing of what is bounded, so that everybody can be served.
    """

    job_id: str
    rank: int
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What there is in the slot for all jobs together; what is not named is plenty.

    `spot` and `on_demand` are instances by offering. `quota_pools` names the pool of an offering,
    `quotas` how many instances, spot and on demand together, may be held of a pool.
    `budget_micro_usd` bounds what all spend in the slot (None: no bound).

    Raises
    ------
    ValueError
        Something is negative.
    """

    spot: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    on_demand: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    quota_pools: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    quotas: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    budget_micro_usd: int | None = None

    def __post_init__(self) -> None:
        for name in ("spot", "on_demand", "quotas"):
            least = min(getattr(self, name).values(), default=0)
            if least < 0:
                raise ValueError(f"{name} must be >= 0, was {least}")
        if (self.budget_micro_usd or 0) < 0:
            raise ValueError(f"budget_micro_usd must be >= 0, was {self.budget_micro_usd}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """One option per job, and what the scarce things are worth.

    `chosen` is the index of each job's option, `value_micro_usd` what they sum to. No way to serve
    everybody that keeps the same jobs safe is worth more than `bound_micro_usd`; the clearing is
    `proven` where both are equal. `spot_price` is the marginal value of an offering's spot,
    micro-USD per instance in this slot; what is not scarce is not in it.
    """

    chosen: Mapping[str, int]
    value_micro_usd: int
    bound_micro_usd: int
    spot_price: Mapping[str, int]

    @property
    def proven(self) -> bool:
        """Whether nothing better exists."""
        return self.value_micro_usd == self.bound_micro_usd

    @property
    def gap_micro_usd(self) -> int:
        """At most so much is lost against the best."""
        return self.bound_micro_usd - self.value_micro_usd


# What couples jobs: ("spot", offering), ("on_demand", offering), ("quota", pool), ("budget", "").
Resource = tuple[str, str]
SPOT, ON_DEMAND, QUOTA, BUDGET = "spot", "on_demand", "quota", "budget"


def resources_of(capacity: Capacity) -> dict[Resource, int]:
    """What is bounded, and by how much."""
    bounded: dict[Resource, int] = {}
    for kind, amounts in (
        (SPOT, capacity.spot),
        (ON_DEMAND, capacity.on_demand),
        (QUOTA, capacity.quotas),
    ):
        bounded.update({(kind, name): amounts[name] for name in sorted(amounts)})
    if capacity.budget_micro_usd is not None:
        bounded[BUDGET, ""] = capacity.budget_micro_usd
    return bounded


def takes_of(option: Option, capacity: Capacity) -> dict[Resource, int]:
    """How much an option takes of each thing that is bounded; what it takes none of is left out."""
    takes: dict[Resource, int] = {}
    if option.spot and option.offering_id in capacity.spot:
        takes[SPOT, option.offering_id] = option.spot
    if option.stock and option.offering_id in capacity.on_demand:
        takes[ON_DEMAND, option.offering_id] = option.stock
    pool = capacity.quota_pools.get(option.offering_id, "")
    if pool in capacity.quotas and option.counted:
        takes[QUOTA, pool] = option.counted
    if option.cost_micro_usd and capacity.budget_micro_usd is not None:
        takes[BUDGET, ""] = option.cost_micro_usd
    return takes


def in_order(bids: Iterable[Bid]) -> list[Bid]:
    """Bids in the order in which they would be served one after the other."""
    return sorted(bids, key=lambda bid: (bid.rank, bid.job_id))


def best_first(bid: Bid) -> Sequence[int]:
    """A job's options by value, the greatest first; ties go to the earlier one."""
    return sorted(range(len(bid.options)), key=lambda at: (-bid.options[at].value_micro_usd, at))
