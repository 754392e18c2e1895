"""Limits on what is spent in a time: in total, for spot and on-demand apart, and per tenant.

An hour, a day or a month (30 days) is any so long a time of the market, and no calendar's: what was
spent in it and what is about to be held until the slot is over must stay within the limit. Selector
and actuator ask the same question of the same limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from typing import Any

from spotline.domain.market.offering import CapacityType
from spotline.domain.remembered import Same
from spotline.domain.units import PPM, S_PER_HOUR, cost_micro_usd

_TENANT = "tenant"

PER_JOB = "USD per job"
"""What the limit on each job is called, that no job goes on beyond."""

SPANS_S = {"hour": 3600, "day": 86_400, "month": 30 * 86_400}

SpentIn = Mapping[int, Mapping[tuple[str, CapacityType], int]]
"""Micro-USD spent in the last so many seconds, by tenant and capacity type."""


def is_of_tenant(name: str) -> bool:
    """Whether the limit that `Spending.left` names is one tenant's own."""
    return name.startswith(f"{_TENANT} ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendLimit:
    """The most that may be spent in an hour, a day and a month, micro-USD; None: no limit."""

    micro_usd_per_hour: int | None = None
    micro_usd_per_day: int | None = None
    micro_usd_per_month: int | None = None

    def __post_init__(self) -> None:
        for name, _, limit in self.each():
            if limit < 0:
                raise ValueError(f"micro_usd_per_{name} must be >= 0, was {limit}")

    def each(self) -> Iterator[tuple[str, int, int]]:
        """The limits there are: of what, so many seconds, micro-USD."""
        for name, span_s in SPANS_S.items():
            limit = getattr(self, f"micro_usd_per_{name}")
            if limit is not None:
                yield name, span_s, limit


NO_LIMIT = SpendLimit()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Limits on spending. `tenants` are those that have one of their own, instead of `every_tenant`.

    No job costs more than `micro_usd_per_job`, the copies of its checkpoint counted. Of a quota pool
    in `quotas` at most so many instances are held at a time. Spot that is not
    `least_spot_discount_ppm` below on-demand is not bought; in a minute of the market at most
    `launches_per_minute` instances are.
    """

    total: SpendLimit = NO_LIMIT
    spot: SpendLimit = NO_LIMIT
    on_demand: SpendLimit = NO_LIMIT
    every_tenant: SpendLimit = NO_LIMIT
    tenants: Mapping[str, SpendLimit] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    least_spot_discount_ppm: int = 0
    launches_per_minute: int | None = None
    micro_usd_per_job: int | None = None

    def __post_init__(self) -> None:
        for name in ("launches_per_minute", "micro_usd_per_job"):
            most = getattr(self, name)
            if most is not None and most < 0:
                raise ValueError(f"{name} must be >= 0, was {most}")
        for pool, most in self.quotas.items():
            if most < 0:
                raise ValueError(f"quotas of {pool} must be >= 0, was {most}")
        if not 0 <= self.least_spot_discount_ppm <= PPM:
            raise ValueError(
                f"least_spot_discount_ppm must lie in 0..{PPM}, was {self.least_spot_discount_ppm}"
            )

    @property
    def spans_s(self) -> tuple[int, ...]:
        """The times that any limit is about, shortest first."""
        return _spans_of(Same(self))

    def left(self, spent: SpentIn, tenant: str, kind: CapacityType) -> tuple[int, str] | None:
        """What a tenant may still spend on a capacity type, and by which limit; None: by none."""
        found: list[tuple[int, str]] = []
        for what, limit in self._limits_on(tenant, kind):
            for name, span_s, most in limit.each():
                in_span = spent.get(span_s, {})
                used = sum(
                    cost
                    for (whose, of_kind), cost in in_span.items()
                    if (what != _TENANT or whose == tenant)
                    and (what in (_TENANT, "total") or of_kind is kind)
                )
                found.append((most - used, f"{what} USD per {name}"))
        return min(found, default=None)

    def left_in_total(self, spent: SpentIn) -> int | None:
        """What all together may still spend, below 0 where it was more; None: any amount."""
        return min(
            (most - sum(spent.get(span_s, {}).values()) for _, span_s, most in self.total.each()),
            default=None,
        )

    def _limits_on(self, tenant: str, kind: CapacityType) -> Iterator[tuple[str, SpendLimit]]:
        yield "total", self.total
        yield (("spot", self.spot) if kind is CapacityType.SPOT else ("on-demand", self.on_demand))
        yield _TENANT, self.tenants.get(tenant, self.every_tenant)

    def stated(self) -> tuple[str, ...]:
        """The names of the limits that are not the default ones."""
        return tuple(
            each.name
            for each in fields(self)
            if getattr(self, each.name) != getattr(DEFAULT_SPENDING, each.name)
        )

    def discounted(self, spot_price: int, on_demand_price: int) -> bool:
        """Whether spot is as much below on-demand as it must be."""
        return spot_price * PPM <= on_demand_price * (PPM - self.least_spot_discount_ppm)

    def to_json(self) -> str:
        """The limits as text, as options and manifests hold them; empty for none."""
        if self == Spending():
            return ""
        stated = asdict(self)
        # Texts of before there were these stay the same.
        if not self.quotas:
            del stated["quotas"]
        if self.micro_usd_per_job is None:
            del stated["micro_usd_per_job"]
        return json.dumps(stated, sort_keys=True)


def spending_of(text: str) -> Spending:
    """Read what `to_json` wrote.

    Raises
    ------
    ValueError
        It is none; says which field is wrong.
    """
    if not text:
        return Spending()
    try:
        stated = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"limits must be JSON as `spotline` writes it: {error}") from error
    stated = _fields_of(Spending, stated, "limits")
    tenants = _mapping(stated.pop("tenants", {}), "limits.tenants")
    quotas = _mapping(stated.pop("quotas", {}), "limits.quotas")
    discount = _whole(stated.pop("least_spot_discount_ppm", 0), "limits.least_spot_discount_ppm")
    launches = _whole(stated.pop("launches_per_minute", None), "limits.launches_per_minute")
    per_job = _whole(stated.pop("micro_usd_per_job", None), "limits.micro_usd_per_job")
    return Spending(
        quotas={name: _count(value, f"limits.quotas.{name}") for name, value in quotas.items()},
        **{name: _limit(value, f"limits.{name}") for name, value in stated.items()},
        tenants={name: _limit(value, f"limits.tenants.{name}") for name, value in tenants.items()},
        least_spot_discount_ppm=discount or 0,
        launches_per_minute=launches,
        micro_usd_per_job=per_job,
    )


def _limit(stated: object, where: str) -> SpendLimit:
    values = _fields_of(SpendLimit, stated, where)
    return SpendLimit(**{name: _whole(value, f"{where}.{name}") for name, value in values.items()})


def _whole(value: object, where: str) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{where} must be a whole number, was {value!r}")


def _count(value: object, where: str) -> int:
    count = _whole(value, where)
    if count is None:
        raise ValueError(f"{where} must be a whole number, was {value!r}")
    return count


def _fields_of(cls: type[Any], stated: object, where: str) -> dict[str, Any]:
    values = _mapping(stated, where)
    known = {each.name for each in fields(cls)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise ValueError(
            f"{where} must hold only {', '.join(sorted(known))}, held {', '.join(unknown)}"
        )
    return values


def _mapping(stated: object, where: str) -> dict[str, Any]:
    if isinstance(stated, dict):
        return dict(stated)
    raise ValueError(f"{where} must be an object, was {type(stated).__name__}")


@dataclass(slots=True)
class Room:
    """What may still be spent while holdings are granted one by one in a slot."""

    spending: Spending
    spent: dict[int, dict[tuple[str, CapacityType], int]]

    @staticmethod
    def after(spending: Spending, spent: SpentIn) -> Room:
        """What is left after what was spent in each time."""
        copied = {span_s: dict(spent.get(span_s, {})) for span_s in spending.spans_s}
        return Room(spending=spending, spent=copied)

    def instances(
        self, tenant: str, kind: CapacityType, price: int, rest_s: int
    ) -> tuple[int, str]:
        """How many instances may be held for the rest of the slot, and by which limit.

        Of what costs nothing there may be any number (-1).
        """
        found = self.spending.left(self.spent, tenant, kind)
        if found is None or price <= 0 or rest_s <= 0:
            return -1, ""
        left, name = found
        return max(0, left) * S_PER_HOUR // (price * rest_s), name

    def take(self, tenant: str, kind: CapacityType, price: int, count: int, rest_s: int) -> None:
        """Count what is held for the rest of the slot."""
        self.add(tenant, kind, cost_micro_usd(price, count, rest_s))

    def add(self, tenant: str, kind: CapacityType, micro_usd: int) -> None:
        """Count what was spent."""
        for by in self.spent.values():
            by[tenant, kind] = by.get((tenant, kind), 0) + micro_usd


@dataclass(slots=True)
class PoolRoom:
    """How many instances of each quota pool may still be held while holdings are granted."""

    left: dict[str, int]

    @staticmethod
    def within(spending: Spending) -> PoolRoom:
        """Where nothing is held yet."""
        return PoolRoom(left=dict(spending.quotas))

    def instances(self, pool: str) -> int | None:
        """How many more may be held; None: any number."""
        left = self.left.get(pool)
        return None if left is None else max(0, left)

    def take(self, pool: str, count: int) -> None:
        """Count what is held."""
        if pool in self.left:
            self.left[pool] -= count


# Every job of a slot asks it of the same limits.
@lru_cache(maxsize=64)
def _spans_of(spending: Same[Spending]) -> tuple[int, ...]:
    stated = spending.value
    limits = (stated.total, stated.spot, stated.on_demand, stated.every_tenant)
    every = (*limits, *stated.tenants.values())
    return tuple(sorted({span_s for limit in every for _, span_s, _ in limit.each()}))


def quota_limit(pool: str) -> str:
    """What the limit on a quota pool is called."""
    return f"quota of {pool}"


MOST_LAUNCHES_PER_MINUTE = 300

DEFAULT_SPENDING = Spending(launches_per_minute=MOST_LAUNCHES_PER_MINUTE)
"""What a system runs with that states no limits on spending.

What is spent is then bounded by the limits of its jobs, which follow from their quotes. A loop that
launches and releases is bounded by the launches.
"""
