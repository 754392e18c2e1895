"""Limits on money, and prices that are not believed: `limits.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.limits.actions import LimitAction as LimitAction
from spotline.domain.limits.raised import LimitAt, NewLimit
from spotline.domain.limits.raised import LimitKind as LimitKind
from spotline.domain.market.offering import Quote


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteQuarantined:
    """A quote was set aside: `field` lies outside [lowest, highest]. The last believed one stands."""

    quote: Quote
    field: str
    lowest_micro_usd: int
    highest_micro_usd: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached:
    """A job has reached a limit, and what follows.

    What it holds is kept until `until_ns` of market time (0: not said).
    """

    job_id: str
    tenant: str
    slot: int
    limit: str
    action: LimitAction
    spent_micro_usd: int
    cost_to_come_micro_usd: int
    value_to_gain_micro_usd: int
    until_ns: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSet:
    """From now on a limit is `most` instead of what settings state; `by` says who wants it, and why.

    `before` is what counted until then. All are micro-USD, or instances of a quota pool.
    """

    kind: LimitKind
    stated: int
    most: int
    before: int
    by: str
    reason: str
    key: str = ""
    span_s: int = 0
    slot: int = -1
    ts_event_ns: int = 0

    @property
    def at(self) -> LimitAt:
        """Which limit it is."""
        return LimitAt(kind=self.kind, key=self.key, span_s=self.span_s)

    @property
    def limit(self) -> NewLimit:
        """What counts instead of what."""
        return NewLimit(at=self.at, stated=self.stated, most=self.most)
