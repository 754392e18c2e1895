"""`spotline limits`, from the command line through gRPC to what was billed and what counts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spotline.adapters.grpc.kit.errors import RpcFailed
from spotline.adapters.grpc.operations.client import OperationsClient
from spotline.application.operations.messages import LimitWanted
from spotline.application.selector.options import SelectorOptions
from spotline.domain.events.limits import LimitAction, LimitKind, LimitReached, LimitSet
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


# --- setting one ----------------------------------------------------------------------------------

STATED = Spending(
    total=SpendLimit(micro_usd_per_day=10_000_000),
    every_tenant=SpendLimit(micro_usd_per_month=40_000_000),
    quotas={"us-east-1": 8},
)
OPTIONS = SelectorOptions(limits=True, spending=STATED.to_json())


def recorded(host: FakeJobsHost) -> list[LimitSet]:
    return [event for _, event in host.stored.values() if isinstance(event, LimitSet)]


async def test_a_limit_is_raised_with_a_reason_and_shown_as_it_counts(host):
    async with serving(host, selector=OPTIONS) as address:
        done = await ran(
            *(address, "limits", "set", "total", "--span", "day", "--usd", "25"),
            *("--reason", "month end"),
        )
        tenant = await ran(
            *(address, "limits", "set", "tenant", "acme", "--span", "month", "--usd", "60"),
            *("--reason", "theirs"),
        )
        quota = await ran(
            *(address, "limits", "set", "quota", "us-east-1", "--instances", "16"),
            *("--reason", "granted"),
        )
        shown = await ran(address, "limits", "show")

    assert [each.exit_code for each in (done, tenant, quota)] == [0, 0, 0], quota.output
    assert "USD per day, total: 10.00 USD became 25.00 USD" in done.output
    assert "us-east-1: 8 instances became 16 instances" in quota.output
    first, second, _ = recorded(host)
    assert (first.stated, first.most, first.before, first.reason) == (
        *(10_000_000, 25_000_000, 10_000_000),
        "month end",
    )
    assert (second.key, second.stated, second.most) == ("acme", 40_000_000, 60_000_000)
    (day,) = (
        line.split() for line in shown.output.splitlines() if {"total", "day"} <= {*line.split()}
    )
    assert day[-3:] == ["2.50", "25.00", "22.50"]
    assert "0 of at most 16 instances held" in shown.output


@pytest.mark.parametrize(
    ("changed", "field", "said"),
    [
        ({"reason": " "}, "reason", "must say why"),
        ({"request_id": ""}, "request_id", "must not be empty"),
        ({"most": -1}, "most", "must be >= 0, was -1"),
        ({"span_s": 60}, "span_s", "must be 3600, 86400, 2592000, was 60"),
        ({"key": "acme"}, "key", "must be empty, was 'acme'"),
        ({"span_s": 3600}, "kind", "nothing limits USD per hour, total; state it"),
    ],
)
async def test_a_limit_that_is_none_is_refused_with_its_field(host, changed, field, said):
    wanted = LimitWanted(request_id="r", kind=LimitKind.TOTAL, span_s=86_400, most=1, reason="why")
    async with (
        serving(host, selector=OPTIONS) as address,
        OperationsClient(address) as client,
    ):
        with pytest.raises(RpcFailed, match=said) as refused:
            await client.set_limit(replace(wanted, **changed))

    assert refused.value.field == field
    assert recorded(host) == []


async def test_the_same_request_is_one_limit(host):
    wanted = LimitWanted(request_id="r", kind=LimitKind.TOTAL, span_s=86_400, most=1, reason="why")
    async with (
        serving(host, selector=OPTIONS) as address,
        OperationsClient(address) as client,
    ):
        first, again = [await client.set_limit(wanted) for _ in range(2)]

    assert first == again
    assert len(recorded(host)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("everything",), "expected one of total"),
        (("total",), "expected --span hour, day or month"),
        (("total", "--span", "year"), "found 'year'"),
        (("job", "--span", "day"), "expected no --span for job"),
        (("tenant", "--span", "day"), "expected which tenant"),
        (("total", "x", "--span", "day"), "expected nothing after total"),
        (("quota", "pool", "--usd", "3"), "expected --instances"),
        (("job", "--instances", "3"), "expected --usd"),
        (("job", "--usd", "3"), "expected --reason WHY"),
    ],
)
async def test_a_command_that_says_no_limit_is_refused_before_anybody_is_asked(arguments, said):
    refused = await ran("127.0.0.1:1", "limits", "set", *arguments)

    assert refused.exit_code == 2
    assert said in " ".join(refused.output.split())
