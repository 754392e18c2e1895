"""What instances of EC2 cost in the end, by AWS's rules and its own word on times and prices.

`LaunchTime` stands for the moment at which it began to run: AWS says no other, and bills from that
one. So what is reckoned here may be seconds more than the bill, never less (ADR 0058). A provider's
export outweighs it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from spotline.adapters.clouds.aws.calling import AwsReader, pages
from spotline.adapters.clouds.aws.described_life import described_life
from spotline.adapters.clouds.aws.end_records import EndRecords
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.feeds.spot_prices import (
    PRODUCTS,
    points_by_place,
    read_point,
)
from spotline.adapters.clouds.aws.plan_use import Bought, PlanUses
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.application.cloud_actuator.ports import BilledInstance, CloudClock
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.domain.ledger.billing_rules import (
    BILLED_BY_THE_SECOND,
    BilledLife,
    PriceChange,
    billed_until_s,
    is_free,
    life_cost_micro_usd,
)
from spotline.domain.ledger.bills import BillSource, Settlement
from spotline.domain.ledger.disk_bill import disk_cost_micro_usd
from spotline.domain.market.offering import AWS_BILLING, CapacityType
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

Where = tuple[str, str]
"""An account by its name, and a region."""

# `Filter.Values` takes at most 200.
_MOST_VALUES = 200
# What is pending for longer counts as failed (`Graces.pending_s`).
_LONGEST_PENDING_S = 900
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class _Ended:
    """An instance with where it was bought and from when until when it is billed."""

    offering: AwsOffering
    instance_id: str
    life: BilledLife


class SeenEnds(Protocol):
    """What was seen of instances while EC2 showed them: it forgets what has ended within an hour."""

    def never_ran(self, instance_ids: Iterable[str]) -> Collection[str]:
        """Those of these that were ended while they were pending: nothing is billed."""
        ...

    def ran(self, instance_ids: Iterable[str]) -> Collection[str]:
        """Those of these that were seen running."""
        ...

    def note_ends(self, *, ran: Iterable[str], never_ran: Iterable[str]) -> None:
        """Note what was learnt since of instances that have ended."""
        ...

    def bought_on_demand(self) -> Sequence[Bought]:
        """All instances on demand that are known, but for those that never ran."""
        ...

    def ended_lives(self, instance_ids: Iterable[str]) -> Mapping[str, BilledLife]:
        """From when until when these were billed, as far as it was seen."""
        ...


class AwsBiller:
    """Implements `InstanceBiller` on DescribeInstances, DescribeSpotPriceHistory and the Price List.

    Of what may have been ended before it ran CloudTrail is asked, too.

    Parameters
    ----------
    on_demand
        List prices by region and instance type.
    seen
        What the adapter saw of instances as they ended.
    """

    def __init__(
        self,
        api: AwsReader,
        settings: AwsSettings,
        on_demand: OnDemandPrices,
        clock: CloudClock,
        seen: SeenEnds,
    ) -> None:
        self._api, self._on_demand, self._clock = api, on_demand, clock
        self._seen, self._records = seen, EndRecords(api)
        self._plans = PlanUses(settings, self._list_price)
        self._offerings = {offering.offering_id: offering for offering in settings.offerings}
        # What was described is not asked for again while a price is missing: AWS forgets it.
        self._known: dict[str, _Ended] = {}

    async def final_costs(self, instances: Sequence[BilledInstance]) -> Sequence[Settlement]:
        """What each of these cost in all, as far as AWS says it by now.

        Raises
        ------
        ProviderUnavailable
            It says nothing of any of them, and some call was not answered, or not as it should be.
        """
        asked = {instance.instance_id for instance in instances}
        self._known = {name: one for name, one in self._known.items() if name in asked}
        by_place: dict[Where, list[str]] = {}
        for instance in instances:
            offering = self._offerings.get(instance.offering_id)
            if offering is not None:
                where = offering.account, offering.region
                by_place.setdefault(where, []).append(instance.instance_id)
        offering_of = {one.instance_id: one.offering_id for one in instances}
        found: list[Settlement] = []
        problem: ProviderUnavailable | None = None
        for where, ids in sorted(by_place.items()):
            try:
                await self._describe(where, ids, offering_of)
                found += await self._priced(where, ids)
            except ProviderUnavailable as error:
                problem = error
            except ContractError as error:
                # A change of a price that is left out would settle a wrong amount: it waits.
                problem = ProviderUnavailable(f"aws: a bill cannot be reckoned: {error}")
        if problem is not None and not found:
            raise problem
        return found

    async def _describe(
        self, where: Where, ids: Sequence[str], offering_of: Mapping[str, str]
    ) -> None:
        missing = [instance_id for instance_id in ids if instance_id not in self._known]
        for instance_id, life in self._seen.ended_lives(missing).items():
            offering = self._offerings[offering_of[instance_id]]
            self._known[instance_id] = _Ended(offering, instance_id, life)
        missing = [instance_id for instance_id in missing if instance_id not in self._known]
        for at in range(0, len(missing), _MOST_VALUES):
            # By a filter: an unknown id among `InstanceIds` would fail the whole call.
            named = {"Name": "instance-id", "Values": missing[at : at + _MOST_VALUES]}
            reservations = await pages(
                self._api, (*where, "ec2"), "DescribeInstances", "Reservations", Filters=[named]
            )
            for row in (row for one in reservations for row in one.get("Instances", ())):
                try:
                    told = described_life(row)
                except ContractError as error:
                    _log.warning("instance_not_billed", error=str(error))
                    continue
                if told is not None:
                    offering = self._offerings[offering_of[told.instance_id]]
                    self._known[told.instance_id] = _Ended(offering, told.instance_id, told.life)

    async def _priced(self, where: Where, ids: Sequence[str]) -> list[Settlement]:
        # What a minimum adds is billed at prices that may still be to come.
        now_s = self._clock.now_ns() // NS_PER_S
        ended = [
            one
            for instance_id in ids
            if (one := self._known.get(instance_id)) is not None
            and billed_until_s(AWS_BILLING, one.life) <= now_s
        ]
        unbilled, undecided = await self._never_ran(where, ended, now_s)
        await self._on_demand.refresh(self._clock.now_ns())
        at_list_s = self._at_list_s(ended, unbilled, undecided, now_s)
        over = [
            one
            for one in ended
            if one.instance_id not in undecided
            and (
                one.instance_id in unbilled
                or not self._shares_plan(one)
                or one.instance_id in at_list_s
            )
        ]
        spot = await self._spot_prices(where, over)
        found = []
        for one in over:
            cost = _own_cost(
                one,
                self._changes(one, spot),
                never_ran=one.instance_id in unbilled,
                at_list_s=at_list_s.get(one.instance_id),
            )
            if cost is None:
                _log.warning("price_not_known", instance_id=one.instance_id)
                continue
            # Its disks were there, whatever it costs itself.
            disks = disk_cost_micro_usd(one.offering.disks, one.life)
            found.append(
                Settlement(
                    instance_id=one.instance_id,
                    source=BillSource.OWN_COUNT,
                    micro_usd=cost + disks,
                    disk_micro_usd=disks,
                    ts_ns=one.life.end_s * NS_PER_S,
                )
            )
        return found

    async def _never_ran(
        self, where: Where, ended: Sequence[_Ended], now_s: int
    ) -> tuple[Collection[str], Collection[str]]:
        """Which of these never ran, and of which that is not known yet."""
        ids = [one.instance_id for one in ended]
        unbilled = set(self._seen.never_ran(ids))
        clear = unbilled | set(self._seen.ran(ids))
        in_doubt = {
            one.instance_id: one.life.end_s
            for one in ended
            if one.instance_id not in clear and _may_never_have_run(one)
        }
        if not in_doubt:
            return unbilled, ()
        told = await self._records.never_ran(where, in_doubt, now_s)
        pending = {instance_id for instance_id, never_ran in told.items() if never_ran}
        # Nobody is asked again, also where it is about others' share of a plan.
        self._seen.note_ends(ran=told.keys() - pending, never_ran=pending)
        return unbilled | pending, in_doubt.keys() - told.keys()

    def _shares_plan(self, one: _Ended) -> bool:
        on_demand = one.life.capacity_type is CapacityType.ON_DEMAND
        return on_demand and self._plans.covers(one.offering)

    def _at_list_s(
        self,
        ended: Sequence[_Ended],
        unbilled: Collection[str],
        undecided: Collection[str],
        now_s: int,
    ) -> Mapping[str, int]:
        """Of how many seconds of these no savings plan pays, as far as plans are about them."""
        shared = {
            one.instance_id: (one.offering, one.life)
            for one in ended
            if one.instance_id not in unbilled
            and one.instance_id not in undecided
            and self._shares_plan(one)
        }
        if not shared:
            return {}
        bought = self._seen.bought_on_demand()
        ran = set(self._seen.ran([one.instance_id for one in bought]))
        unclear = {
            one.instance_id
            for one in bought
            if one.instance_id not in ran
            and one.end_s is not None
            and one.end_s - one.begin_s < _LONGEST_PENDING_S
        }
        return self._plans.at_list_s(shared, bought, unclear - shared.keys(), now_s)

    def _list_price(self, region: str, instance_type: str) -> int | None:
        price = self._on_demand.price(region, instance_type)
        return None if price is None else price.price_micro_usd

    def _changes(
        self, one: _Ended, spot: Mapping[tuple[str, str], Sequence[PriceChange]]
    ) -> Sequence[PriceChange]:
        sold = one.offering
        if one.life.capacity_type is CapacityType.SPOT:
            return spot.get((sold.zone, sold.instance_type), ())
        price = self._list_price(sold.region, sold.instance_type)
        return () if price is None else (PriceChange(from_s=0, micro_usd=price),)

    async def _spot_prices(
        self, where: Where, ended: Sequence[_Ended]
    ) -> Mapping[tuple[str, str], Sequence[PriceChange]]:
        """By zone and instance type, from before the first of these began until the last is over."""
        priced = [one for one in ended if _needs_spot_price(one)]
        if not priced:
            return {}
        until_s = max(billed_until_s(AWS_BILLING, one.life) for one in priced)
        rows = await pages(
            self._api,
            (*where, "ec2"),
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=sorted({one.offering.instance_type for one in priced}),
            ProductDescriptions=list(PRODUCTS),
            # It also answers the last change before this moment: the price in force.
            StartTime=datetime.fromtimestamp(min(one.life.begin_s for one in priced), tz=UTC),
            EndTime=datetime.fromtimestamp(until_s, tz=UTC),
            MaxResults=_ROWS,
        )
        points = [read_point(row) for row in rows]
        unnamed = any(not point.zone_id for point in points)
        zone_ids = await self._zone_ids(where) if unnamed else {}
        return {
            place: [
                PriceChange(from_s=point.at_ns // NS_PER_S, micro_usd=point.price_micro_usd)
                for point in changes
            ]
            for place, changes in points_by_place(points, zone_ids).items()
        }

    async def _zone_ids(self, where: Where) -> Mapping[str, str]:
        """Which zone ids the names of this account stand for."""
        answer = await self._api.call(*where, "ec2", "DescribeAvailabilityZones")
        zones = answer.get("AvailabilityZones", ())
        return {str(zone["ZoneName"]): str(zone["ZoneId"]) for zone in zones}


def _own_cost(
    one: _Ended, changes: Sequence[PriceChange], *, never_ran: bool, at_list_s: int | None
) -> int | None:
    """What an instance costs without its disks; None where no price of its begin is known.

    Of what a savings plan may pay for, `at_list_s` are the seconds that it did not.
    """
    if never_ran or is_free(AWS_BILLING, one.life) or at_list_s == 0:
        return 0
    if at_list_s is None and is_paid_for(one.offering):
        return 0
    if not changes or changes[0].from_s > one.life.begin_s:
        return None
    if at_list_s is not None:
        listed = replace(one.life, end_s=one.life.begin_s + at_list_s)
        return life_cost_micro_usd(BILLED_BY_THE_SECOND, listed, changes)
    return life_cost_micro_usd(AWS_BILLING, one.life, changes)


def _may_never_have_run(one: _Ended) -> bool:
    """Whether it makes a difference: by its length it may have been pending all along."""
    paid_for = is_paid_for(one.offering) and one.offering.savings_plan is None
    return not paid_for and not one.life.taken_back and one.life.ran_s < _LONGEST_PENDING_S


def is_paid_for(offering: AwsOffering) -> bool:
    """Whether it is a commitment: what is used of it costs nothing more but its disks."""
    return offering.reservation is not None


def _needs_spot_price(one: _Ended) -> bool:
    life = one.life
    spot = life.capacity_type is CapacityType.SPOT
    return spot and not is_free(AWS_BILLING, life) and not is_paid_for(one.offering)
