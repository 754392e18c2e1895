"""Limits on money, and prices that are not believed: `limits.proto`."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.limits.actions import LimitAction as LimitAction
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
