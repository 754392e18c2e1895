"""Limits that a person sets while a system runs: what they put in the place of stated ones."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from spotline.domain.limits.spending import PER_JOB, SPANS_S, Spending, SpendLimit, quota_limit

_FIELDS = {span_s: f"micro_usd_per_{name}" for name, span_s in SPANS_S.items()}
_SPANS = {span_s: name for name, span_s in SPANS_S.items()}


class LimitKind(Enum):
    """What a limit is on; the value is how commands name it."""

    TOTAL = "total"
    SPOT = "spot"
    ON_DEMAND = "on-demand"
    EVERY_TENANT = "every-tenant"
    TENANT = "tenant"
    JOB = "job"
    QUOTA = "quota"

    @property
    def in_a_time(self) -> bool:
        """Whether it is on what is spent in an hour, a day or a month."""
        return self not in (LimitKind.JOB, LimitKind.QUOTA)

    @property
    def has_key(self) -> bool:
        """Whether it is that of somebody, a tenant's or a quota pool's."""
        return self in (LimitKind.TENANT, LimitKind.QUOTA)


_ORDER = {kind: place for place, kind in enumerate(LimitKind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAt:
    """Which limit: `key` the tenant or the quota pool, `span_s` the time in seconds, 0 for none.

    Raises
    ------
    ValueError
        There is no such limit; says which field is wrong.
    """

    kind: LimitKind
    key: str = ""
    span_s: int = 0

    def __post_init__(self) -> None:
        if self.span_s not in (_SPANS if self.kind.in_a_time else (0,)):
            expected = ", ".join(map(str, _SPANS)) if self.kind.in_a_time else "0"
            raise ValueError(f"span_s of {self.kind.value} must be {expected}, was {self.span_s}")
        if self.kind.has_key != bool(self.key):
            expected = f"which {self.kind.value}" if self.kind.has_key else "empty"
            raise ValueError(f"key of {self.kind.value} must be {expected}, was {self.key!r}")

    @property
    def says(self) -> str:
        """The limit, for people."""
        if self.kind is LimitKind.QUOTA:
            return quota_limit(self.key)
        if self.kind is LimitKind.JOB:
            return "USD of each job"
        of = f"tenant {self.key}" if self.key else self.kind.value.replace("-", " ")
        return f"USD per {_SPANS[self.span_s]}, {of}"

    @property
    def span(self) -> str:
        """The time by name; empty for none."""
        return _SPANS.get(self.span_s, "")

    @property
    def command(self) -> str:
        """What sets it, but for how much and why."""
        key = f" {shlex.quote(self.key)}" if self.key else ""
        span = f" --span {self.span}" if self.span else ""
        amount = "--instances N" if self.kind is LimitKind.QUOTA else "--usd AMOUNT"
        return f"spotline limits set {self.kind.value}{key}{span} {amount} --reason WHY"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimit:
    """The most that counts, micro-USD or instances, as long as `stated` is what settings state."""

    at: LimitAt
    stated: int
    most: int

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError(f"most must be >= 0, was {self.most}")


def stated_at(spending: Spending, at: LimitAt) -> int | None:
    """What a limit is, micro-USD or instances; None: nothing is stated there."""
    if at.kind is LimitKind.JOB:
        return spending.micro_usd_per_job
    if at.kind is LimitKind.QUOTA:
        return spending.quotas.get(at.key)
    found: int | None = getattr(_limit(spending, at), _FIELDS[at.span_s])
    return found


def limit_named(name: str, tenant: str) -> LimitAt | None:
    """The limit that `LimitReached` names of a tenant's job; None: it is the job's own, or a rate."""
    if name == PER_JOB:
        return LimitAt(kind=LimitKind.JOB)
    if name.startswith(quota_limit("")):
        return LimitAt(kind=LimitKind.QUOTA, key=name.removeprefix(quota_limit("")))
    what, _, span = name.partition(" USD per ")
    kinds = {kind.value: kind for kind in LimitKind if kind.in_a_time}
    if what not in kinds or span not in SPANS_S:
        return None
    key = tenant if kinds[what].has_key else ""
    return LimitAt(kind=kinds[what], key=key, span_s=SPANS_S[span])


def in_force(spending: Spending, limits: Iterable[NewLimit]) -> Spending:
    """Stated limits with what was set in their place.

    A limit counts against what was stated when it was set: where settings state another one by now,
    or none, those count.
    """
    found = spending
    # Every tenant's first: a tenant's own is made of it.
    for limit in sorted(
        limits, key=lambda each: (_ORDER[each.at.kind], each.at.key, each.at.span_s)
    ):
        if stated_at(spending, limit.at) == limit.stated:
            found = _with(found, limit.at, limit.most)
    return found


def _limit(spending: Spending, at: LimitAt) -> SpendLimit:
    if at.kind is LimitKind.TENANT:
        return spending.tenants.get(at.key, spending.every_tenant)
    limit: SpendLimit = getattr(spending, at.kind.name.lower())
    return limit


def _with(spending: Spending, at: LimitAt, most: int) -> Spending:
    if at.kind is LimitKind.JOB:
        return replace(spending, micro_usd_per_job=most)
    if at.kind is LimitKind.QUOTA:
        return replace(spending, quotas={**spending.quotas, at.key: most})
    limit = replace(_limit(spending, at), **{_FIELDS[at.span_s]: most})
    if at.kind is LimitKind.TENANT:
        return replace(spending, tenants={**spending.tenants, at.key: limit})
    changed: dict[str, Any] = {at.kind.name.lower(): limit}
    return replace(spending, **changed)
