"""What savings plans pay of our instances on demand, as AWS applies them: once an hour is over.

A plan pays for whatever runs on demand, so what an instance costs depends on all that ran in its hours.
What others run in the accounts is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from spotline.adapters.clouds.aws.end_records import RECORDED_WITHIN_S
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.domain.ledger.billing_rules import BilledLife, billed_until_s
from spotline.domain.ledger.plan_cover import PlanMoney, PlanUsage, at_list_s
from spotline.domain.market.offering import AWS_BILLING
from spotline.domain.units import NS_PER_S, S_PER_HOUR, micro_usd_from_usd

Rates = tuple[tuple[str, int], ...]
"""What an instance-hour costs under each plan, micro-USD, by the plan's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """An instance that was bought on demand, as far as it is known; seconds since the epoch.

    Parameters
    ----------
    begin_s
        When it began to run, or was launched if it is not known to run.
    end_s
        Until when it is billed; None: it lives, or nobody knows when it ended.
    running_s
        When it was last seen running; 0: never.
    """

    instance_id: str
    offering_id: str
    begin_s: int
    end_s: int | None
    running_s: int


class PlanUses:
    """Reckons with all that falls under the plans of the settings.

    `list_price` is what a type costs an hour in a region on demand, micro-USD; None: not known.
    """

    def __init__(self, settings: AwsSettings, list_price: Callable[[str, str], int | None]) -> None:
        self._offerings = {offering.offering_id: offering for offering in settings.offerings}
        named = {
            offering.savings_plan.plan_id: offering.savings_plan
            for offering in settings.offerings
            if offering.savings_plan is not None
        }
        self._plans = [named[plan_id] for plan_id in sorted(named)]
        self._list_price = list_price

    def covers(self, offering: AwsOffering) -> bool:
        """Whether a plan pays for what is bought of an offering on demand, while it has money."""
        return bool(self._rates(offering.offering_id))

    def at_list_s(
        self,
        ended: Mapping[str, tuple[AwsOffering, BilledLife]],
        bought: Sequence[Bought],
        unclear: Collection[str],
        now_s: int,
    ) -> Mapping[str, int]:
        """Of how many seconds of each of these no plan pays; who is not known yet is left out.

        Each waits for the end of its last hour, and then until it is known what all others ran in its
        hours, for an hour at most.

        Parameters
        ----------
        ended
            Instances on demand that plans cover, with their lives.
        bought
            What else was bought on demand, but for what never ran.
        unclear
            Those of it of which it is not known whether they ran.
        """
        ours = {
            instance_id: Bought(
                instance_id=instance_id,
                offering_id=offering.offering_id,
                begin_s=life.begin_s,
                end_s=billed_until_s(AWS_BILLING, life),
                running_s=0,
            )
            for instance_id, (offering, life) in ended.items()
        }
        others = [one for one in bought if one.instance_id not in ours]
        everything = [*ours.values(), *others]
        found: dict[str, int] = {}
        for instance_id, one in ours.items():
            usages = self._beside(one, everything, unclear, now_s)
            if usages is not None:
                found[instance_id] = at_list_s(self._money(), usages)[instance_id]
        return found

    def _beside(
        self, one: Bought, everything: Sequence[Bought], unclear: Collection[str], now_s: int
    ) -> list[PlanUsage] | None:
        """What ran in the hours of an instance, itself among it; None: that is not known yet."""
        from_s = one.begin_s // S_PER_HOUR * S_PER_HOUR
        until_s = -(-(one.end_s or 0) // S_PER_HOUR) * S_PER_HOUR
        if now_s < until_s:
            return None
        usages = []
        for other in everything:
            rates = self._rates(other.offering_id)
            if not rates or other.begin_s >= until_s:
                continue
            end_s = _end_s(other, until_s)
            if end_s is None or other.instance_id in unclear:
                if now_s < until_s + RECORDED_WITHIN_S:
                    return None
            elif end_s > from_s:
                usages.append(self._usage(other, (from_s, until_s), end_s, rates))
        return usages

    def _usage(self, one: Bought, hours: tuple[int, int], end_s: int, rates: Rates) -> PlanUsage:
        offering = self._offerings[one.offering_id]
        price = self._list_price(offering.region, offering.instance_type)
        return PlanUsage(
            instance_id=one.instance_id,
            # Of equals the first goes first: when it began counts, also before these hours.
            since_s=one.begin_s,
            begin_s=max(one.begin_s, hours[0]),
            end_s=min(end_s, hours[1]),
            list_micro_usd=price or 0,
            rates=rates,
        )

    def _rates(self, offering_id: str) -> Rates:
        offering = self._offerings.get(offering_id)
        if offering is None or offering.capacity_reservation_id:
            return ()
        found = []
        for plan in self._plans:
            price = plan.usd_per_instance_hour.get(offering.instance_type)
            there = (not plan.accounts or offering.account in plan.accounts) and (
                not plan.regions or offering.region in plan.regions
            )
            if price is not None and there:
                found.append((plan.plan_id, micro_usd_from_usd(price)))
        return tuple(found)

    def _money(self) -> list[PlanMoney]:
        return [
            PlanMoney(
                plan_id=plan.plan_id,
                micro_usd_per_hour=micro_usd_from_usd(plan.usd_per_hour),
                until_s=plan.until_ns // NS_PER_S,
            )
            for plan in self._plans
        ]


def _end_s(one: Bought, until_s: int) -> int | None:
    """Until when an instance ran, as far as that time; None: it is not known."""
    if one.end_s is not None:
        return one.end_s
    return until_s if one.running_s >= until_s else None
