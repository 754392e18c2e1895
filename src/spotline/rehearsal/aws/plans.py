"""Savings plans on a bill: by the hour, up to the hour's commitment, whatever runs on demand first.

"Savings Plans provide savings beyond On-Demand rates in exchange for a commitment of using a specified
amount of compute power (measured per hour)"; what is beyond it "is charged at the On-Demand rate"
(https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html). The commitment itself is a
line of its own that nothing here is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from spotline.domain.units import NS_PER_S, S_PER_HOUR

Span = tuple[int, int]
"""Seconds since the epoch: from, and until before."""

Place = tuple[str, str, str]
"""Account id, region and instance type."""


@dataclass(slots=True, kw_only=True)
class SoldPlan:
    """A plan: what it costs an hour, until when (0: without end), and its prices by place."""

    plan_id: str
    micro_usd_per_hour: int
    ends_ns: int
    prices: dict[Place, int] = field(default_factory=dict)

    @property
    def ends_s(self) -> int | None:
        """Its last second but one; None: it does not end."""
        return self.ends_ns // NS_PER_S or None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUse:
    """An instance on demand, when it is billed, and its price without a plan."""

    instance_id: str
    place: Place
    span: Span
    list_micro_usd: int


def at_list_price(
    plans: Iterable[SoldPlan], used: Sequence[PlanUse]
) -> Mapping[str, Sequence[Span]]:
    """When each of these instances costs the list price: where no plan's money is left for it.

    Of several plans the first covers what it can; in an hour what saves most comes first, then what
    has the lowest rate ("applied to your highest savings percentage first", then "to the first usage with
    the lowest Savings Plans rate"), and of the rest, which AWS does not order, what began first.
    """
    left: dict[str, list[Span]] = {usage.instance_id: [usage.span] for usage in used}
    for plan in plans:
        covered = sorted(
            (usage for usage in used if usage.place in plan.prices),
            key=lambda usage: _rank(usage, plan.prices[usage.place]),
        )
        hours = {
            hour
            for usage in covered
            for hour in range(usage.span[0] // S_PER_HOUR, -(-usage.span[1] // S_PER_HOUR))
        }
        for hour in sorted(hours):
            _cover_hour(plan, hour, covered, left)
    return left


def _rank(usage: PlanUse, price: int) -> tuple[Fraction, int, int, str]:
    share = Fraction(price, usage.list_micro_usd or price)
    return share, price, usage.span[0], usage.instance_id


def _cover_hour(
    plan: SoldPlan, hour: int, used: Sequence[PlanUse], left: dict[str, list[Span]]
) -> None:
    first_s, last_s = hour * S_PER_HOUR, (hour + 1) * S_PER_HOUR
    if plan.ends_s is not None:
        last_s = min(last_s, plan.ends_s)
    money = plan.micro_usd_per_hour * S_PER_HOUR
    for usage in used:
        price = plan.prices[usage.place]
        kept: list[Span] = []
        for from_s, until_s in left[usage.instance_id]:
            begin_s, end_s = max(from_s, first_s), min(until_s, last_s)
            seconds = min(max(0, end_s - begin_s), money // price)
            if not seconds:
                kept.append((from_s, until_s))
                continue
            money -= seconds * price
            rests = ((from_s, begin_s), (begin_s + seconds, until_s))
            kept += [rest for rest in rests if rest[0] < rest[1]]
        left[usage.instance_id] = kept
