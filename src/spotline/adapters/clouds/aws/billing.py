"""What instances of EC2 cost in the end, by AWS's rules and its own word on times and prices.

`LaunchTime` stands for the moment at which it began to run: AWS says no other, and bills from that
one. So what is reckoned here may be seconds more than the bill, never less (ADR 0058). A provider's
export outweighs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from spotline.adapters.clouds.aws.calling import AwsReader, pages
from spotline.adapters.clouds.aws.described_life import DescribedLife, described_life
from spotline.adapters.clouds.aws.feeds.on_demand import OnDemandPrices
from spotline.adapters.clouds.aws.feeds.spot_prices import (
    PRODUCTS,
    points_by_place,
    read_point,
)
from spotline.adapters.clouds.aws.settings import AwsOffering, AwsSettings
from spotline.application.cloud_actuator.ports import BilledInstance, CloudClock
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.domain.ledger.billing_rules import (
    PriceChange,
    billed_until_s,
    is_free,
    life_cost_micro_usd,
)
from spotline.domain.ledger.bills import BillSource, Settlement
from spotline.domain.market.offering import AWS_BILLING, CapacityType
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

Where = tuple[str, str]
"""An account by its name, and a region."""

# `Filter.Values` takes at most 200.
_MOST_VALUES = 200
_ROWS = 1000


@dataclass(frozen=True, slots=True)
class _Ended:
    """An instance with where it was bought and from when until when it is billed."""

    offering: AwsOffering
    described: DescribedLife


class AwsBiller:
    """Implements `InstanceBiller` on DescribeInstances, DescribeSpotPriceHistory and the Price List.

    Parameters
    ----------
    on_demand
        List prices by region and instance type.
    never_ran
        Those of these instances that were ended while they were pending: nothing is billed.
    """

    def __init__(
        self,
        api: AwsReader,
        settings: AwsSettings,
        on_demand: OnDemandPrices,
        clock: CloudClock,
        never_ran: Callable[[Collection[str]], Collection[str]],
    ) -> None:
        self._api, self._on_demand, self._clock = api, on_demand, clock
        self._never_ran = never_ran
        self._offerings = {offering.offering_id: offering for offering in settings.offerings}
        # What was described is not asked for again while a price is missing: AWS forgets it.
        self._known: dict[str, _Ended] = {}

    async def final_costs(self, instances: Sequence[BilledInstance]) -> Sequence[Settlement]:
        """What each of these cost in all, as far as AWS says it by now.

        Raises
        ------
        ProviderUnavailable
            It says nothing of any of them, and some call was not answered.
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
        if problem is not None and not found:
            raise problem
        return found

    async def _describe(
        self, where: Where, ids: Sequence[str], offering_of: Mapping[str, str]
    ) -> None:
        missing = [instance_id for instance_id in ids if instance_id not in self._known]
        for at in range(0, len(missing), _MOST_VALUES):
            # By a filter: an unknown id among `InstanceIds` would fail the whole call.
            named = {"Name": "instance-id", "Values": missing[at : at + _MOST_VALUES]}
            reservations = await pages(
                self._api, (*where, "ec2"), "DescribeInstances", "Reservations", Filters=[named]
            )
            for row in (row for one in reservations for row in one.get("Instances", ())):
                try:
                    life = described_life(row)
                except ContractError as error:
                    _log.warning("instance_not_billed", error=str(error))
                    continue
                if life is not None:
                    offering = self._offerings[offering_of[life.instance_id]]
                    self._known[life.instance_id] = _Ended(offering, life)

    async def _priced(self, where: Where, ids: Sequence[str]) -> list[Settlement]:
        ended = [self._known[instance_id] for instance_id in ids if instance_id in self._known]
        unbilled = set(self._never_ran([one.described.instance_id for one in ended]))
        # What a minimum adds is billed at prices that may still be to come.
        now_s = self._clock.now_ns() // NS_PER_S
        over = [one for one in ended if billed_until_s(AWS_BILLING, one.described.life) <= now_s]
        spot = await self._spot_prices(where, over)
        await self._on_demand.refresh(self._clock.now_ns())
        found = []
        for one in over:
            life = one.described.life
            changes = self._changes(one, spot)
            covered = bool(changes) and changes[0].from_s <= life.begin_s
            if (
                is_paid_for(one.offering)
                or one.described.instance_id in unbilled
                or is_free(AWS_BILLING, life)
            ):
                cost = 0
            elif covered:
                cost = life_cost_micro_usd(AWS_BILLING, life, changes)
            else:
                _log.warning("price_not_known", instance_id=one.described.instance_id)
                continue
            found.append(
                Settlement(
                    instance_id=one.described.instance_id,
                    source=BillSource.OWN_COUNT,
                    micro_usd=cost,
                    ts_ns=life.end_s * NS_PER_S,
                )
            )
        return found

    def _changes(
        self, one: _Ended, spot: Mapping[tuple[str, str], Sequence[PriceChange]]
    ) -> Sequence[PriceChange]:
        described = one.described
        if described.life.capacity_type is CapacityType.SPOT:
            return spot.get((one.offering.zone, described.instance_type), ())
        price = self._on_demand.price(one.offering.region, described.instance_type)
        return () if price is None else (PriceChange(from_s=0, micro_usd=price.price_micro_usd),)

    async def _spot_prices(
        self, where: Where, ended: Sequence[_Ended]
    ) -> Mapping[tuple[str, str], Sequence[PriceChange]]:
        """By zone and instance type, from before the first of these began until the last is over."""
        lives = [one.described for one in ended if _needs_spot_price(one)]
        if not lives:
            return {}
        until_s = max(billed_until_s(AWS_BILLING, one.life) for one in lives)
        rows = await pages(
            self._api,
            (*where, "ec2"),
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            InstanceTypes=sorted({one.instance_type for one in lives}),
            ProductDescriptions=list(PRODUCTS),
            # It also answers the last change before this moment: the price in force.
            StartTime=datetime.fromtimestamp(min(one.life.begin_s for one in lives), tz=UTC),
            EndTime=datetime.fromtimestamp(until_s, tz=UTC),
            MaxResults=_ROWS,
        )
        zone_ids = {one.zone_name: one.zone for one in lives}
        return {
            place: [
                PriceChange(from_s=point.at_ns // NS_PER_S, micro_usd=point.price_micro_usd)
                for point in points
            ]
            for place, points in points_by_place(map(read_point, rows), zone_ids).items()
        }


def is_paid_for(offering: AwsOffering) -> bool:
    """Whether it is a commitment: what is used of it costs nothing more, its sunk cost is apart."""
    return offering.reservation is not None


def _needs_spot_price(one: _Ended) -> bool:
    life = one.described.life
    spot = life.capacity_type is CapacityType.SPOT
    return spot and not is_free(AWS_BILLING, life) and not is_paid_for(one.offering)
