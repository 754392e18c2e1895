"""What a demo's market has beside its prices: disks, and a savings plan over all that it sells."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from spotline.domain.market.market import Market
from spotline.domain.market.offering import Disks, Offering, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations

PLAN = "sp-demo"
# gp3 in us-east-1: https://aws.amazon.com/ebs/pricing/, "$0.08/GB-month".
_MICRO_USD_PER_GB_MONTH = 80_000
# "savings of up to 66% off of On-Demand" (https://aws.amazon.com/savingsplans/compute-pricing/); what
# one year without payment ahead saves is nearer to this.
_PLAN_PERCENT = 70

Kind = tuple[str, str, str]
"""Account, region and instance type."""


def with_disks(market: Market, gb: int) -> Market:
    """The market with disks in its launch templates, where it states none; 0: as it is."""
    if not gb:
        return market
    disks = Disks(gb=gb, micro_usd_per_gb_month=_MICRO_USD_PER_GB_MONTH)
    offerings = tuple(replace(each, disks=each.disks or disks) for each in market.offerings)
    return replace(market, offerings=offerings)


def with_savings_plan(market: Market, instances: int) -> Market:
    """The market with a plan that so many instances of its dearest type fit into; 0: as it is.

    It covers every type that is sold on demand in the account and region of that one, as plans of EC2
    instances are of a region, at a share of its highest list price. A market that has a plan already
    keeps it.
    """
    if not instances or any(each.reservation for each in market.offerings):
        return market
    prices: dict[Kind, int] = defaultdict(int)
    for column, offering in enumerate(market.offerings):
        listed = int(market.on_demand_price_micro_usd[:, column].max())
        prices[_kind(offering)] = max(prices[_kind(offering)], listed * _PLAN_PERCENT // 100)
    *place, _ = max(prices, key=lambda kind: (prices[kind], kind))
    covered = [each for each in market.offerings if [each.account, each.region] == place]
    covered = [each for each in covered if prices[_kind(each)]]
    money = instances * max(prices[_kind(each)] for each in covered)
    return with_reservations(
        market,
        [
            reserved_offering(
                each,
                PLAN,
                Reservation(
                    instances=money // prices[_kind(each)],
                    sunk_price_micro_usd=prices[_kind(each)],
                    plan=PLAN,
                    plan_micro_usd_per_hour=money,
                ),
            )
            for each in covered
        ],
    )


def _kind(offering: Offering) -> Kind:
    return offering.account, offering.region, offering.instance_type
