"""On-demand prices in force: asked twice a day, the last good ones kept, a table behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from spotline.adapters.clouds.aws.calling import AwsReader, pages
from spotline.adapters.clouds.aws.feeds.price_list import (
    BundledPrice,
    bundled_prices,
    filters_of,
    on_demand_price,
)
from spotline.contracts.errors import ContractError, ProviderUnavailable
from spotline.domain.units import NS_PER_S

_log = structlog.get_logger(__name__)

# The Price List service answers in these regions alone, for all regions (clouds.md D17).
ENDPOINTS = ("us-east-1", "eu-central-1", "ap-south-1")
# As often as Karpenter asks (clouds.md D17).
REFRESH_S = 12 * 3600
RETRY_S = 600
# Wall seconds for one price from one endpoint: spot prices wait meanwhile.
WITHIN_S = 5.0

Place = tuple[str, str]
"""A region and an instance type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceInForce:
    """An on-demand price per instance-hour; `as_of_ns` is when it was asked, 0 of a bundled one."""

    price_micro_usd: int
    as_of_ns: int
    source: str


class OnDemandPrices:
    """The on-demand prices of regions and instance types.

    Parameters
    ----------
    accounts
        In whose names to ask, the first one that may.
    bundled
        What stands where nothing was ever answered.
    within_s
        Wall seconds that an endpoint has for the answer about one place.
    """

    def __init__(
        self,
        api: AwsReader,
        accounts: Iterable[str],
        places: Iterable[Place],
        *,
        bundled: Mapping[Place, BundledPrice] | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        self._api = api
        self._within_s = within_s
        self._accounts = tuple(accounts)
        self._places = tuple(sorted(set(places)))
        self._bundled = bundled_prices() if bundled is None else bundled
        self._good: dict[Place, PriceInForce] = {}
        self._due_ns = 0
        self._said: set[Place] = set()

    def price(self, region: str, instance_type: str) -> PriceInForce | None:
        """The last good price, else the bundled one, else None."""
        place = (region, instance_type)
        good = self._good.get(place)
        if good is not None:
            return good
        bundled = self._bundled.get(place)
        if bundled is None:
            return None
        return PriceInForce(
            price_micro_usd=bundled.price_micro_usd,
            as_of_ns=0,
            source=f"bundled table, {bundled.source}, {bundled.as_of.isoformat()}",
        )

    async def refresh(self, at_ns: int) -> None:
        """Ask again where it is time to; what fails leaves the last good price, and says so."""
        if at_ns < self._due_ns:
            return
        failed = False
        for number, place in enumerate(self._places):
            try:
                found = await self._asked(place)
            except ProviderUnavailable as error:
                # Nobody answers: what is left would only wait as long again.
                _log.info("price_list_silent", error=str(error))
                failed = True
                for missing in self._places[number:]:
                    self._say_missing(missing, at_ns)
                break
            if found is None:
                self._say_missing(place, at_ns)
                continue
            self._said.discard(place)
            self._good[place] = PriceInForce(
                price_micro_usd=found, as_of_ns=at_ns, source="price list"
            )
        self._due_ns = at_ns + (RETRY_S if failed else REFRESH_S) * NS_PER_S

    async def _asked(self, place: Place) -> int | None:
        """What the first endpoint and account say that answer; None: they know no such price.

        Raises
        ------
        ProviderUnavailable
            None of them answers; says why each does not.
        """
        region, instance_type = place
        problems: list[str] = []
        for account in self._accounts:
            for endpoint in ENDPOINTS:
                try:
                    async with asyncio.timeout(self._within_s):
                        products = await pages(
                            self._api,
                            (account, endpoint, "pricing"),
                            "GetProducts",
                            "PriceList",
                            ServiceCode="AmazonEC2",
                            Filters=filters_of(region, instance_type),
                        )
                    return on_demand_price(products, region, instance_type)
                except (ProviderUnavailable, ContractError) as error:
                    problems.append(str(error))
                except TimeoutError:
                    problems.append(f"{endpoint}: no answer within {self._within_s:g} s")
        raise ProviderUnavailable(f"aws: the price list does not answer: {'; '.join(problems)}")

    def _say_missing(self, place: Place, at_ns: int) -> None:
        """Say once which price stands instead, or that there is none."""
        if place in self._said:
            return
        self._said.add(place)
        region, instance_type = place
        stands = self.price(region, instance_type)
        _log.warning(
            "on_demand_price_not_answered",
            region=region,
            instance_type=instance_type,
            stands=stands.source if stands else "none: state it as an override",
            age_s=(at_ns - stands.as_of_ns) // NS_PER_S if stands and stands.as_of_ns else None,
        )
