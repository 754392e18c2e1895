"""Savings plans as a provider applies them: by the hour, to all that runs on demand, dearest rate last.

"Your Savings Plans are applied to your highest savings percentage first. If there are multiple usages
with equal savings percentages, Savings Plans are applied to the first usage with the lowest Savings Plans
rate. [They] continue to apply until there are no more remaining usages, or your commitment is exhausted.
Any remaining usage is charged at the On-Demand rates."
https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from spotline.domain.units import S_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMoney:
    """What a plan pays an hour, micro-USD, and until when, seconds since the epoch; 0: it does not end."""

    plan_id: str
    micro_usd_per_hour: int
    until_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUsage:
    """An instance on demand in some hours, billed from `begin_s` until before `end_s` there.

    It began at `since_s`, there or before.
    `rates` is what its hour costs under each plan that covers it, micro-USD, by the plan's name;
    `list_micro_usd` under none.
    """

    instance_id: str
    since_s: int
    begin_s: int
    end_s: int
    list_micro_usd: int
    rates: tuple[tuple[str, int], ...]

    def rate(self, plan_id: str) -> int | None:
        """What its hour costs under a plan; None: that does not cover it."""
        return dict(self.rates).get(plan_id)


def at_list_s(plans: Iterable[PlanMoney], usages: Sequence[PlanUsage]) -> dict[str, int]:
    """Of how many seconds of each instance no plan pays, by instance.

    Of several plans the first covers what it can. Between usages with the same saving and rate, which
    no provider orders, the one that began first goes first, then by id.
    """
    left = {usage.instance_id: _hours_of(usage) for usage in usages}
    for plan in plans:
        covered = sorted(
            (usage for usage in usages if usage.rate(plan.plan_id) is not None),
            key=lambda usage: _order(usage, plan.plan_id),
        )
        for hour in sorted({hour for usage in covered for hour in left[usage.instance_id]}):
            _cover(plan, hour, covered, left)
    return {instance_id: sum(hours.values()) for instance_id, hours in left.items()}


def _order(usage: PlanUsage, plan_id: str) -> tuple[Fraction, int, int, str]:
    rate = usage.rate(plan_id) or 0
    share = Fraction(rate, usage.list_micro_usd) if usage.list_micro_usd else Fraction(1)
    return share, rate, usage.since_s, usage.instance_id


def _hours_of(usage: PlanUsage) -> dict[int, int]:
    """Its seconds by hour since the epoch."""
    first, last = usage.begin_s // S_PER_HOUR, -(-usage.end_s // S_PER_HOUR)
    return {
        hour: min(usage.end_s, (hour + 1) * S_PER_HOUR) - max(usage.begin_s, hour * S_PER_HOUR)
        for hour in range(first, last)
    }


def _cover(
    plan: PlanMoney, hour: int, covered: Sequence[PlanUsage], left: dict[str, dict[int, int]]
) -> None:
    # In micro-USD times seconds of an hour: a rate times seconds is whole.
    money = plan.micro_usd_per_hour * S_PER_HOUR
    ends_s = plan.until_s or (hour + 1) * S_PER_HOUR
    for usage in covered:
        rest, rate = left[usage.instance_id].get(hour, 0), usage.rate(plan.plan_id)
        # What others have paid is what came first.
        over_s = min(usage.end_s, (hour + 1) * S_PER_HOUR)
        within_s = max(0, min(over_s, ends_s) - (over_s - rest))
        paid_s = min(within_s, money // rate) if rate else 0
        if rate and paid_s:
            left[usage.instance_id][hour] = rest - paid_s
            money -= paid_s * rate
