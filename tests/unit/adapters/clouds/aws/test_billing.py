"""What ended instances cost by AWS's word: prices in force, the minimum, the free hour, what fails."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from spotline.adapters.clouds.aws.billing import AwsBiller
from spotline.adapters.clouds.aws.calling import CallRefused
from spotline.adapters.clouds.aws.end_records import RECORDED_WITHIN_S
from spotline.adapters.clouds.aws.feeds.on_demand import PriceInForce
from spotline.adapters.clouds.aws.plan_use import Bought
from spotline.adapters.clouds.aws.settings import (
    AwsAccount,
    AwsOffering,
    AwsSavingsPlan,
    AwsSettings,
)
from spotline.application.cloud_actuator.ports import BilledInstance
from spotline.contracts.errors import ProviderUnavailable, Throttled
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S, cost_micro_usd

BEGIN_S = 1_767_571_200


def offering(region="us-east-1", **said):
    return AwsOffering(
        account="a",
        region=region,
        zone="use1-az4",
        instance_type="g5.xlarge",
        gpu_model="a10g",
        gpus_per_instance=1,
        launch_template_id="lt-1",
        **said,
    )


def at(second):
    return datetime.fromtimestamp(BEGIN_S + second, tz=UTC)


class ScriptedBills:
    """Implements `AwsReader`, `OnDemandPrices`, `CloudClock` and `SeenEnds` as the biller needs them."""

    def __init__(self, rows=(), points=((-100, "1.000001"),)):
        self.rows, self.points = list(rows), points
        self.failing, self.calls, self.now_s, self.seen = set(), [], 10**6, {}
        # Those that were not seen running, and what CloudTrail has of them.
        self.doubtful, self.records, self.bought = set(), [], []

    async def call(self, account, region, service, operation, **params):
        self.calls.append((region, operation))
        if (region, operation) in self.failing:
            raise ProviderUnavailable(f"{operation} is not answered")
        if operation == "DescribeAvailabilityZones":
            zone = {"ZoneName": "us-east-1a", "ZoneId": "use1-az4"}
            return {"AvailabilityZones": [zone]}
        if operation == "LookupEvents":
            (named,) = params["LookupAttributes"]
            assert (service, named["AttributeKey"]) == ("cloudtrail", "ResourceName")
            if isinstance(self.records, Exception):
                raise self.records
            return {"Events": self.records}
        if operation == "DescribeInstances":
            (named,) = params["Filters"]
            rows = [row for row in self.rows if row["InstanceId"] in named["Values"]]
            return {"Reservations": [{"Instances": [row]} for row in rows]}
        assert operation == "DescribeSpotPriceHistory"
        return {
            "SpotPriceHistory": [
                {
                    "AvailabilityZone": "us-east-1a",
                    "InstanceType": "g5.xlarge",
                    "ProductDescription": "Linux/UNIX",
                    "SpotPrice": price,
                    "Timestamp": at(second),
                }
                for second, price in self.points
                if at(second) <= params["EndTime"]
            ]
        }

    def price(self, region, instance_type):
        return PriceInForce(price_micro_usd=3_000_000, as_of_ns=0, source="a test")

    async def refresh(self, at_ns):
        """They are."""

    def never_ran(self, instance_ids):
        return self.pending & set(instance_ids)

    def ran(self, instance_ids):
        return set(instance_ids) - self.doubtful

    def note_ends(self, *, ran, never_ran):
        self.learnt = set(ran), set(never_ran)

    def bought_on_demand(self):
        return self.bought

    def ended_lives(self, instance_ids):
        return {one: self.seen[one] for one in instance_ids if one in self.seen}

    def now_ns(self):
        return (BEGIN_S + self.now_s) * NS_PER_S


def row(instance_id, ran_s, *, taken=False, spot=True):
    lifecycle = {"InstanceLifecycle": "spot"} if spot else {}
    return {
        "InstanceId": instance_id,
        "InstanceType": "g5.xlarge",
        **lifecycle,
        "State": {"Name": "terminated"},
        "StateTransitionReason": f"User initiated ({at(ran_s):%Y-%m-%d %H:%M:%S} GMT)",
        "StateReason": {"Code": "Server.SpotInstanceTermination" if taken else "Client.User"},
        "LaunchTime": at(0),
        "Placement": {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az4"},
    }


def costs(aws, *ids, sold=None, never_ran=()):
    sold = sold or offering()
    settings = AwsSettings(
        accounts=(AwsAccount(name="a", account_id="000000000001"),),
        offerings=tuple({one.offering_id: one for one in (offering(), sold)}.values()),
    )
    aws.pending = set(never_ran)
    biller = aws.biller = AwsBiller(aws, settings, aws, aws, aws)
    return asked(aws, biller, *ids, sold=sold)


def asked(aws, biller, *ids, sold=None):
    found = asyncio.run(biller.final_costs(named(sold or offering(), *ids)))
    return {settled.instance_id: settled.micro_usd for settled in found}


def named(sold, *ids):
    return [
        BilledInstance(
            instance_id=one,
            offering_id=sold.offering_id,
            capacity_type=CapacityType.SPOT,
        )
        for one in ids
    ]


def test_each_second_of_spot_costs_the_price_in_force():
    aws = ScriptedBills([row("i-1", 1000)], points=[(600, "3.6"), (-100, "1.8")])

    assert costs(aws, "i-1") == {"i-1": 600 * 500 + 400 * 1000}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (row("i-1", 7), cost_micro_usd(1_000_001, 1, 60)),
        (row("i-1", 3599, taken=True), 0),
        (row("i-1", 3600, taken=True), 1_000_001),
        (row("i-1", 3599), cost_micro_usd(1_000_001, 1, 3599)),
        (row("i-1", 120, spot=False), cost_micro_usd(3_000_000, 1, 120)),
    ],
)
def test_the_minimum_the_free_hour_and_the_list_price(described, expected):
    assert costs(ScriptedBills([described]), "i-1") == {"i-1": expected}


def test_what_was_ended_while_it_was_pending_is_not_billed():
    aws = ScriptedBills([row("i-1", 30), row("i-2", 60)])

    assert costs(aws, "i-1", "i-2", never_ran={"i-1"}) == {
        "i-1": 0,
        "i-2": cost_micro_usd(1_000_001, 1, 60),
    }


def test_what_is_used_of_a_commitment_costs_nothing_more():
    block = offering(capacity_reservation_id="cr-1", reserved_instances=2)
    aws = ScriptedBills([row("i-1", 5000, spot=False)])

    assert costs(aws, "i-1", sold=block) == {"i-1": 0}


@pytest.mark.parametrize(
    ("ends_s", "expected"),
    [
        (0, 0),
        (5000, 0),
        (4000, cost_micro_usd(3_000_000, 1, 1000)),
        (-10, cost_micro_usd(3_000_000, 1, 5000)),
    ],
)
def test_a_savings_plan_pays_until_it_ends(ends_s, expected):
    plan = AwsSavingsPlan(
        plan_id="sp",
        usd_per_hour=5,
        usd_per_instance_hour={"g5.xlarge": 2},
        until_ns=(BEGIN_S + ends_s) * NS_PER_S if ends_s else 0,
    )
    aws = ScriptedBills([row("i-1", 5000, spot=False)])

    assert costs(aws, "i-1", sold=offering(savings_plan=plan)) == {"i-1": expected}


def test_what_a_plan_no_longer_paid_for_waits_for_its_price(monkeypatch):
    plan = AwsSavingsPlan(
        plan_id="sp",
        usd_per_hour=5,
        usd_per_instance_hour={"g5.xlarge": 2},
        until_ns=(BEGIN_S + 4000) * NS_PER_S,
    )
    aws = ScriptedBills([row("i-1", 5000, spot=False)])
    monkeypatch.setattr(aws, "price", lambda region, instance_type: None)

    assert costs(aws, "i-1", sold=offering(savings_plan=plan)) == {}


DISKS = {"disk_gb": 7300, "disk_usd_per_gb_month": 0.08}


@pytest.mark.parametrize(
    ("said", "ended", "never_ran", "alone"),
    [
        ({}, row("i-1", 1800), (), cost_micro_usd(1_000_001, 1, 1800)),
        ({}, row("i-1", 1800, spot=False), (), cost_micro_usd(3_000_000, 1, 1800)),
        # Who pays for the instance, or nobody, changes nothing about its disks.
        ({}, row("i-1", 1800, taken=True), (), 0),
        ({}, row("i-1", 7), {"i-1"}, 0),
        (
            {"capacity_reservation_id": "cr-1", "reserved_instances": 2},
            row("i-1", 1800, spot=False),
            (),
            0,
        ),
    ],
    ids=["spot", "on demand", "taken back", "never ran", "reserved"],
)
def test_disks_are_billed_beside_the_instance_and_told_apart(said, ended, never_ran, alone):
    sold = offering(**DISKS, **said)
    aws = ScriptedBills([ended])

    costs(aws, "i-1", sold=sold, never_ran=never_ran)

    (settled,) = asyncio.run(aws.biller.final_costs(named(sold, "i-1")))
    ran_s = 60 if never_ran else 1800
    # A second of January's share of 7,300 GB at 0.08 USD a month.
    disks = round(7300 * 80_000 * ran_s / (31 * 86_400))
    assert settled.disk_micro_usd == disks
    assert settled.micro_usd == alone + disks


def test_what_the_adapter_saw_end_is_not_asked_for():
    aws = ScriptedBills()
    aws.seen["i-1"] = BilledLife(
        capacity_type=CapacityType.SPOT, begin_s=BEGIN_S, end_s=BEGIN_S + 100
    )

    assert costs(aws, "i-1") == {"i-1": cost_micro_usd(1_000_001, 1, 100)}
    assert ("us-east-1", "DescribeInstances") not in aws.calls


def test_what_is_not_described_or_has_no_price_is_left_out():
    aws = ScriptedBills([row("i-1", 100), row("i-2", 100, spot=False)], points=[(50, "1.0")])

    assert costs(aws, "i-1", "i-2", "i-3") == {"i-2": cost_micro_usd(3_000_000, 1, 100)}


def test_a_minimum_waits_until_its_prices_are_known():
    aws = ScriptedBills([row("i-1", 7)])
    aws.now_s = 59
    assert costs(aws, "i-1") == {}

    aws.now_s = 60
    assert asked(aws, aws.biller, "i-1") == {"i-1": cost_micro_usd(1_000_001, 1, 60)}


@pytest.mark.parametrize("price", ["NaN", "-1", "free"])
def test_a_price_that_cannot_be_read_settles_nothing_and_stops_nobody(price):
    aws = ScriptedBills([row("i-1", 1000)], points=[(-100, "1.0"), (300, price)])

    with pytest.raises(ProviderUnavailable, match="SpotPrice"):
        costs(aws, "i-1")

    aws.points = [(-100, "1.0")]
    assert asked(aws, aws.biller, "i-1") == {"i-1": cost_micro_usd(1_000_000, 1, 1000)}


def test_what_was_described_is_not_asked_for_again_while_a_price_is_missing():
    aws = ScriptedBills([row("i-1", 1000)])
    aws.failing = {("us-east-1", "DescribeSpotPriceHistory")}
    with pytest.raises(ProviderUnavailable, match="DescribeSpotPriceHistory"):
        costs(aws, "i-1")

    aws.failing, aws.rows = set(), []
    assert asked(aws, aws.biller, "i-1") == {"i-1": cost_micro_usd(1_000_001, 1, 1000)}
    assert aws.calls.count(("us-east-1", "DescribeInstances")) == 1


# --- ended before it ran, and the answer that said so is lost ---------------------------------------


def recorded(*states, name="TerminateInstances", instance_id="i-1"):
    """An event of CloudTrail for each answer to an end; None: the call was refused."""
    return [
        {
            "EventName": name,
            "CloudTrailEvent": json.dumps(
                {
                    "responseElements": state
                    and {
                        "instancesSet": {
                            "items": [
                                {"instanceId": "i-9", "previousState": {"name": "pending"}},
                                {"instanceId": instance_id, "previousState": {"name": state}},
                            ]
                        }
                    }
                }
            ),
        }
        for state in states
    ]


MINUTE = cost_micro_usd(1_000_001, 1, 60)
# CloudTrail may still say something; it is not asked of by then.
EARLY_S, LATE_S = 600, 30 + RECORDED_WITHIN_S


@pytest.mark.parametrize(
    ("records", "now_s", "expected"),
    [
        (recorded("pending"), EARLY_S, {"i-1": 0}),
        (recorded("running"), EARLY_S, {"i-1": MINUTE}),
        # The newest first: it was asked for again, and once it was refused.
        (recorded("terminated", "shutting-down", "pending", None), EARLY_S, {"i-1": 0}),
        ([], EARLY_S, {}),
        ([], LATE_S, {"i-1": MINUTE}),
        (recorded("shutting-down"), EARLY_S, {}),
        (recorded("pending", name="StopInstances"), EARLY_S, {}),
        (recorded("pending", instance_id="i-2"), EARLY_S, {}),
        ([{"EventName": "TerminateInstances", "CloudTrailEvent": "{"}], EARLY_S, {}),
        ([{"EventName": "TerminateInstances", "CloudTrailEvent": "{"}], LATE_S, {"i-1": MINUTE}),
        (Throttled("aws", 1.0), LATE_S, {}),
        (ProviderUnavailable("no answer"), EARLY_S, {}),
        (ProviderUnavailable("no answer"), LATE_S, {"i-1": MINUTE}),
        (CallRefused("LookupEvents", "InternalFailure", "x"), EARLY_S, {}),
        (CallRefused("LookupEvents", "AccessDeniedException", "x"), EARLY_S, {"i-1": MINUTE}),
    ],
)
def test_what_was_not_seen_to_run_waits_for_the_record_of_its_end(records, now_s, expected):
    aws = ScriptedBills([row("i-1", 30)])
    aws.doubtful, aws.records, aws.now_s = {"i-1"}, records, now_s

    assert costs(aws, "i-1") == expected


@pytest.mark.parametrize(
    ("ended", "sold"),
    [
        (row("i-1", 900), {}),
        (row("i-1", 30, taken=True), {}),
        (row("i-1", 30, spot=False), {"capacity_reservation_id": "cr", "reserved_instances": 1}),
    ],
    ids=["too long to be pending", "free as it is", "paid for"],
)
def test_no_record_is_asked_for_where_it_makes_no_difference(ended, sold):
    aws = ScriptedBills([ended])
    aws.doubtful = {"i-1"}

    assert costs(aws, "i-1", sold=offering(**sold)).keys() == {"i-1"}
    assert ("us-east-1", "LookupEvents") not in aws.calls


def test_one_that_is_in_doubt_holds_up_no_other():
    aws = ScriptedBills([row("i-1", 30), row("i-2", 60)])
    aws.doubtful, aws.now_s = {"i-1"}, EARLY_S

    assert costs(aws, "i-1", "i-2") == {"i-2": MINUTE}


# --- what savings plans pay of what runs beside each other ------------------------------------------

PLAN = AwsSavingsPlan(plan_id="sp", usd_per_hour=2, usd_per_instance_hour={"g5.xlarge": 2})
# The end of the first hour, and long after that.
OVER_S, GIVEN_UP_S = 3600, 3600 + RECORDED_WITHIN_S


def bought(instance_id, begin_s, end_s=None, *, running_s=0, sold=None):
    return Bought(
        instance_id=instance_id,
        offering_id=(sold or offering()).offering_id,
        begin_s=BEGIN_S + begin_s,
        end_s=None if end_s is None else BEGIN_S + end_s,
        running_s=BEGIN_S + running_s if running_s else 0,
    )


@pytest.mark.parametrize(
    ("beside", "now_s", "expected"),
    [
        # The money of an hour is for one: of equals, the one that began first.
        ([], OVER_S, {"i-1": 0}),
        ([], OVER_S - 1, {}),
        ([bought("i-0", -10, 1800)], OVER_S, {"i-1": 1800}),
        ([bought("i-2", 10, 1800)], OVER_S, {"i-1": 0}),
        ([bought("i-2", 4000)], OVER_S, {"i-1": 0}),
        ([bought("i-0", -10, running_s=3600)], OVER_S, {"i-1": 3600}),
        # Nobody knows yet what it ran.
        ([bought("i-0", -10, running_s=3599)], OVER_S, {}),
        ([bought("i-0", -10)], OVER_S, {}),
        ([bought("i-0", -10)], GIVEN_UP_S, {"i-1": 0}),
        ([bought("i-0", -7200, -3600)], OVER_S, {"i-1": 0}),
    ],
)
def test_a_plan_pays_by_the_hour_for_what_comes_first(beside, now_s, expected):
    aws = ScriptedBills([row("i-1", 3600, spot=False)])
    aws.bought, aws.now_s = beside, now_s

    found = costs(aws, "i-1", sold=offering(savings_plan=PLAN))

    assert found == {
        name: cost_micro_usd(3_000_000, 1, listed_s) for name, listed_s in expected.items()
    }


def test_a_plan_pays_also_for_what_was_bought_beside_it():
    """AWS asks nobody by which offering it was bought."""
    aws = ScriptedBills([row("i-1", 1800, spot=False), row("i-2", 1800, spot=False)])
    plan = replace(PLAN, usd_per_hour=4)
    reserved, base = offering(savings_plan=plan), offering()
    assert costs(aws, "i-1", sold=reserved) == {"i-1": 0}

    assert asked(aws, aws.biller, "i-2", sold=base) == {"i-2": 0}


def test_whether_one_ran_is_learnt_before_a_plan_is_reckoned_with():
    aws = ScriptedBills([row("i-1", 3600, spot=False)])
    aws.bought, aws.doubtful, aws.now_s = [bought("i-0", -10, 60)], {"i-0"}, OVER_S

    assert costs(aws, "i-1", sold=offering(savings_plan=PLAN)) == {}
    aws.doubtful = set()
    assert asked(aws, aws.biller, "i-1", sold=offering(savings_plan=PLAN)) == {
        "i-1": cost_micro_usd(3_000_000, 1, 60)
    }
