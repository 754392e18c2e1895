"""`spotline limits show`, from the command line through gRPC to what was billed."""

from __future__ import annotations

import json

import pytest

from spotline.application.selector.state import SelectorOptions
from spotline.domain.events.limits import LimitAction, LimitReached
from spotline.domain.limits.spending import Spending, SpendLimit
from tests.fakes.allocator import FakeJobsHost, market_opened, slot_opened
from tests.fakes.ledgers import cost
from tests.integration.test_freezing_commands import ran
from tests.integration.test_grpc_services import serving

pytestmark = pytest.mark.integration


@pytest.fixture
def host() -> FakeJobsHost:
    return FakeJobsHost(
        market_opened(),
        slot_opened(0),
        cost(2_500_000, tenant="acme"),
        LimitReached(
            job_id="job-7",
            tenant="acme",
            slot=0,
            limit="job budget",
            action=LimitAction.WIND_DOWN,
            spent_micro_usd=2_500_000,
            cost_to_come_micro_usd=3_000_000,
            value_to_gain_micro_usd=9_000_000,
            detail="finishing still costs 3.00 USD",
        ),
    )


async def test_limits_are_shown_with_what_is_used_and_left_of_them(host):
    spending = Spending(
        total=SpendLimit(micro_usd_per_day=10_000_000),
        every_tenant=SpendLimit(micro_usd_per_month=40_000_000),
        launches_per_minute=30,
        least_spot_discount_ppm=200_000,
        quotas={"us-east-1": 8},
    )
    options = SelectorOptions(limits=True, spending=spending.to_json())
    async with serving(host, selector=options) as address:
        shown = await ran(address, "limits", "show")
        as_json = await ran(address, "limits", "show", "--json")

    assert (shown.exit_code, as_json.exit_code) == (0, 0), shown.output
    (day,) = (
        line.split() for line in shown.output.splitlines() if {"total", "day"} <= {*line.split()}
    )
    assert day[-3:] == ["2.50", "10.00", "7.50"]
    assert "at most 30" in shown.output
    assert "20 %" in shown.output
    assert "max(value, 1.5 x on-demand cost at admission) (default)" in shown.output
    assert "that none goes beyond: none (default)" in shown.output
    assert "at most 30 (default)" not in shown.output
    assert "quota of us-east-1: 0 of at most 8 instances held" in shown.output
    assert "wind down" in shown.output
    found = json.loads(as_json.output)
    assert {*found["stated"]} == {
        *("total", "every_tenant", "quotas", "least_spot_discount_ppm", "launches_per_minute")
    }
    assert found["jobs_judged"] is True
    assert found["jobs"][0]["job_id"] == "job-7"
    (month,) = (use for use in found["uses"] if (use["tenant"], use["span"]) == ("acme", "month"))
    assert (month["used_micro_usd"], month["limit_micro_usd"]) == (2_500_000, 40_000_000)


async def test_without_limits_it_says_so_and_shows_what_is_used(host):
    async with serving(host) as address:
        shown = await ran(address, "limits", "show")

    assert shown.exit_code == 0, shown.output
    assert "judged by nothing" in shown.output
    assert "launches per minute: no limit" in shown.output
    assert shown.output.count("2.50") >= 4
