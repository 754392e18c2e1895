"""AWS's markets by script: what EC2 and the Price List would answer of a market file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from spotline.adapters.clouds.aws.calling import CallRefused
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsOffering, AwsSettings
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.market.offering import Offering
from spotline.domain.units import NS_PER_S
from tests.fakes.clock import TurnedClock

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class WallOf:
    """Implements `FeedWall` on a clock that a test turns, from a moment on."""

    def __init__(self, clock: TurnedClock, began_ns: int) -> None:
        self._clock = clock
        self._began_ns = began_ns

    def now_ns(self) -> int:
        return self._began_ns + round(self._clock.now_s() * NS_PER_S)

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def aws_market(market: Market) -> Market:
    """The market as AWS tells it: no counts, the first offering in an account of its own."""
    offerings = tuple(
        _offering(offering, "first" if column == 0 else "second")
        for column, offering in enumerate(market.offerings)
    )
    nothing = np.zeros_like(market.spot_available)
    unknown = np.full_like(market.spot_provenance, UNKNOWN)
    return replace(
        market,
        offerings=offerings,
        spot_available=nothing,
        on_demand_available=nothing.copy(),
        spot_provenance=unknown,
        on_demand_provenance=unknown.copy(),
    )


def _offering(offering: Offering, account: str) -> Offering:
    return replace(
        offering,
        offering_id=f"aws:{account}:{offering.zone}:{offering.instance_type}",
        provider="aws",
        account=account,
    )


def aws_settings(market: Market) -> AwsSettings:
    """The settings in which the market's offerings are traded."""
    names = sorted({offering.account for offering in market.offerings})
    return AwsSettings(
        accounts=tuple(
            AwsAccount(name=name, account_id=f"{number:012}")
            for number, name in enumerate(names, start=1)
        ),
        offerings=tuple(
            AwsOffering(
                account=offering.account,
                region=offering.region,
                zone=offering.zone,
                instance_type=offering.instance_type,
                gpu_model=offering.gpu_model,
                gpus_per_instance=offering.gpus_per_instance,
                launch_template_id="lt-1",
            )
            for offering in market.offerings
        ),
    )


class ScriptedAws:
    """Implements `AwsReader`: the account of the first offering says nothing from `silent_from` on.

    Nobody answers in slots `outage`; with `retry_after_s` all say that they are asked too often.
    """

    def __init__(self, market: Market, clock: TurnedClock, *, silent_from: int = 1 << 30) -> None:
        self._market = market
        self._clock = clock
        self._silent_from = silent_from
        self.outage = (0, 0)
        self.retry_after_s = 0.0
        self.calls: list[tuple[str, str, str]] = []

    @property
    def slot(self) -> int:
        return int(self._clock.now_s()) // self._market.slot_s

    async def call(self, account, region, service, operation, **params) -> Mapping:
        self.calls.append((account, region, operation))
        if self.outage[0] <= self.slot < self.outage[1]:
            if self.retry_after_s:
                raise Throttled("aws", self.retry_after_s)
            raise ProviderUnavailable("aws did not answer")
        if operation == "GetProducts":
            return {"PriceList": [self._product(params["Filters"])]}
        assert operation == "DescribeSpotPriceHistory"
        if account == self._market.offerings[0].account and self.slot >= self._silent_from:
            raise CallRefused(operation, "UnauthorizedOperation", "you may not")
        return {"SpotPriceHistory": self._rows(account, region, params)}

    def _rows(self, account, region, params) -> list[dict]:
        """Change points up to now, the one in force at the start among them."""
        market, rows = self._market, []
        for column, offering in enumerate(market.offerings):
            if (offering.account, offering.region) != (account, region):
                continue
            prices = market.spot_price_micro_usd[: self.slot + 1, column]
            changed = [0, *(np.flatnonzero(np.diff(prices)) + 1).tolist()]
            points = [(self._start(slot), int(prices[slot])) for slot in changed]
            before = [point for point in points if point[0] <= params["StartTime"]]
            wanted = before[-1:] + [point for point in points if point[0] > params["StartTime"]]
            rows += [
                {
                    "AvailabilityZone": offering.zone,
                    "AvailabilityZoneId": offering.zone,
                    "InstanceType": offering.instance_type,
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": f"{price / 1e6:.6f}",
                    "Timestamp": at,
                }
                for at, price in wanted
            ]
        return rows[::-1]

    def _start(self, slot: int) -> datetime:
        ns = self._market.start_ns + slot * self._market.slot_s * NS_PER_S
        return EPOCH + timedelta(microseconds=ns // 1000)

    def _product(self, filters) -> str:
        asked = {stated["Field"]: stated["Value"] for stated in filters}
        column = next(
            number
            for number, offering in enumerate(self._market.offerings)
            if (offering.region, offering.instance_type)
            == (asked["regionCode"], asked["instanceType"])
        )
        price = self._market.on_demand_price_micro_usd[0, column] / 1e6
        return json.dumps(
            {
                "product": {"attributes": asked},
                "terms": {
                    "OnDemand": {
                        "t": {
                            "priceDimensions": {
                                "d": {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}
                            }
                        }
                    }
                },
            }
        )
