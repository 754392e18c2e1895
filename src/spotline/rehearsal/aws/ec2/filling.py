"""How many instances of which pools a request gets, and why not more: pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spotline.rehearsal.aws.places import SPOT

NO_CAPACITY = "InsufficientInstanceCapacity"
UNFULFILLABLE = "UnfulfillableCapacity"
SPOT_QUOTA, ON_DEMAND_QUOTA = "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"
NO_ADDRESSES = "InsufficientFreeAddressesInSubnet"
PRICE_TOO_LOW = "SpotMaxPriceTooLow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A place that a request may be filled from, as it stands.

    `free` instances are there; each uses `vcpus` of the quota `quota_code`, an address of `subnet`
    and counts `weight` towards the target. `max_price_micro_usd` is what may be paid, None: any.
    """

    name: str
    zone: str
    instance_type: str
    lifecycle: str
    free: int
    price_micro_usd: int
    vcpus: int
    quota_code: str
    subnet: str
    max_price_micro_usd: int | None = None
    weight: float = 1.0
    priority: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked of the pools: `target` in weight, all or nothing below `least`."""

    target: float
    least: float = 0.0
    strategy: str = "lowest-price"
    single_zone: bool = False
    single_type: bool = False
    most_total_micro_usd: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRefusal:
    """Why a pool (its index) gives no more."""

    pool: int
    code: str
    message: str


@dataclass(slots=True, kw_only=True)
class RoomLeft:
    """What is left that several pools share: vCPUs by quota, addresses by subnet."""

    vcpus: Mapping[str, float]
    addresses: Mapping[str, int]
    used_vcpus: dict[str, float] = field(default_factory=dict)
    used_addresses: dict[str, int] = field(default_factory=dict)
    used_places: dict[tuple[str, str], int] = field(default_factory=dict)
    spent_micro_usd: int = 0

    def most(self, pool: Pool) -> tuple[int, str]:
        """How many instances a pool may still give, and what stands against more."""
        vcpus = self.vcpus[pool.quota_code] - self.used_vcpus.get(pool.quota_code, 0)
        quota = SPOT_QUOTA if pool.lifecycle == SPOT else ON_DEMAND_QUOTA
        addresses = self.addresses[pool.subnet] - self.used_addresses.get(pool.subnet, 0)
        free = pool.free - self.used_places.get((pool.name, pool.lifecycle), 0)
        # Of several reasons AWS says the one it looks at first: quota before capacity.
        return min(
            (max(0, int(vcpus // pool.vcpus)), quota),
            (max(0, addresses), NO_ADDRESSES),
            (max(0, free), NO_CAPACITY),
            key=lambda limit: limit[0],
        )

    def take(self, pool: Pool, count: int) -> None:
        """Have so many of a pool."""
        self.used_vcpus[pool.quota_code] = (
            self.used_vcpus.get(pool.quota_code, 0) + count * pool.vcpus
        )
        self.used_addresses[pool.subnet] = self.used_addresses.get(pool.subnet, 0) + count
        place = pool.name, pool.lifecycle
        self.used_places[place] = self.used_places.get(place, 0) + count
        self.spent_micro_usd += count * pool.price_micro_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Filling:
    """Instances by index of their pool, and who refused."""

    counts: Mapping[int, int]
    refusals: tuple[PoolRefusal, ...] = ()
    filled: float = 0.0


def fill(
    pools: Sequence[Pool], wish: Wish, vcpus: Mapping[str, float], addresses: Mapping[str, int]
) -> Filling:
    """Fill a request: in one zone or type if it says so, then where most of it is had."""
    groups = _groups(pools, wish)
    tried = [
        _fill_group(pools, group, wish, RoomLeft(vcpus=vcpus, addresses=addresses))
        for group in groups
    ]
    best = max(tried, key=lambda one: one.filled)
    if best.filled >= wish.least and best.filled > 0:
        return best
    refusals = tuple(itertools.chain.from_iterable(one.refusals for one in tried))
    return Filling(counts={}, refusals=refusals)


def _groups(pools: Sequence[Pool], wish: Wish) -> list[list[int]]:
    found: dict[tuple[str, str], list[int]] = {}
    for index in sorted(range(len(pools)), key=lambda one: _order(pools[one], wish.strategy)):
        pool = pools[index]
        zone = pool.zone if wish.single_zone else ""
        kind = pool.instance_type if wish.single_type else ""
        found.setdefault((zone, kind), []).append(index)
    return list(found.values())


def _order(pool: Pool, strategy: str) -> tuple[float, float, str]:
    if strategy in ("prioritized", "capacity-optimized-prioritized"):
        return pool.priority, pool.price_micro_usd, pool.name
    if strategy == "lowest-price":
        return pool.price_micro_usd, -pool.free, pool.name
    return -pool.free, pool.price_micro_usd, pool.name


def _fill_group(pools: Sequence[Pool], group: Sequence[int], wish: Wish, room: RoomLeft) -> Filling:
    counts: dict[int, int] = {}
    refusals: list[PoolRefusal] = []
    filled = 0.0
    for index in group:
        pool = pools[index]
        if filled >= wish.target:
            break
        if pool.max_price_micro_usd is not None and pool.max_price_micro_usd < pool.price_micro_usd:
            refusals.append(
                PoolRefusal(pool=index, code=PRICE_TOO_LOW, message=_said(PRICE_TOO_LOW, pool))
            )
            continue
        # The last instance may go beyond the target, as weights do not divide it.
        wanted = int(-(-(wish.target - filled) // pool.weight))
        wanted = min(wanted, _affordable(pool, wish, room))
        most, why = room.most(pool)
        count = min(wanted, most)
        if count:
            counts[index] = count
            room.take(pool, count)
            filled += count * pool.weight
        if most < wanted:
            refusals.append(PoolRefusal(pool=index, code=why, message=_said(why, pool)))
    if filled < wish.least:
        refusals += [
            PoolRefusal(pool=index, code=UNFULFILLABLE, message=_said(UNFULFILLABLE, pools[index]))
            for index in counts
        ]
    return Filling(counts=counts, refusals=tuple(refusals), filled=filled)


def _affordable(pool: Pool, wish: Wish, room: RoomLeft) -> int:
    if wish.most_total_micro_usd is None:
        return 2**31
    left = wish.most_total_micro_usd - room.spent_micro_usd
    return max(0, left // max(1, pool.price_micro_usd))


def _said(code: str, pool: Pool) -> str:
    if code == NO_CAPACITY and pool.lifecycle == SPOT:
        return "There is no Spot capacity available that matches your request."
    return {
        NO_CAPACITY: (
            f"We currently do not have sufficient {pool.instance_type} capacity in the Availability "
            f"Zone you requested ({pool.zone}). Our system will be working on provisioning "
            "additional capacity."
        ),
        UNFULFILLABLE: (
            "Unable to fulfill capacity due to your request configuration. Please adjust your "
            "request and try again."
        ),
        SPOT_QUOTA: "Max spot instance count exceeded",
        ON_DEMAND_QUOTA: (
            "You have requested more vCPU capacity than your current vCPU limit allows for the "
            "instance bucket that the specified instance type belongs to. Please visit "
            "http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
        ),
        NO_ADDRESSES: (
            f"There are not enough free addresses in subnet '{pool.subnet}' to satisfy the "
            "requested number of instances."
        ),
        PRICE_TOO_LOW: (
            "Your Spot request price is lower than the minimum required Spot request fulfillment "
            f"price of {pool.price_micro_usd / 1_000_000:.6f}."
        ),
    }[code]
