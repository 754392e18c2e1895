"""What disks cost over a life: the second's share of its month, a minute at least, rounded once."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.ledger.disk_bill import disk_cost_micro_usd
from spotline.domain.market.offering import CapacityType, Disks
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.disk_bill import volume_micro_usd

GP3 = Disks(gb=2000, micro_usd_per_gb_month=80_000)


def second(*at):
    return int(datetime(*at, tzinfo=UTC).timestamp())


def life(begin_s, end_s, **said):
    return BilledLife(capacity_type=CapacityType.SPOT, begin_s=begin_s, end_s=end_s, **said)


def test_the_example_of_aws_comes_to_what_aws_says():
    # 2000 GB for 12 hours of a month of 30 days at 0.08 USD: 2.67 USD (aws.amazon.com/ebs/pricing).
    begin_s = second(2026, 4, 10)

    assert disk_cost_micro_usd(GP3, life(begin_s, begin_s + 43_200)) == 2_666_667


def test_a_life_over_the_end_of_a_month_costs_each_months_share():
    begin_s = second(2026, 2, 28, 12)
    half_a_day = 2000 * 80_000 / 2

    found = disk_cost_micro_usd(GP3, life(begin_s, begin_s + 86_400))

    assert found == round(half_a_day / 28 + half_a_day / 31)


def test_no_disks_cost_nothing():
    assert disk_cost_micro_usd(None, life(0, 3600)) == 0


def test_a_short_life_costs_a_minute():
    begin_s = second(2026, 4, 10)

    minute = disk_cost_micro_usd(GP3, life(begin_s, begin_s + 60))

    assert minute > 0
    assert disk_cost_micro_usd(GP3, life(begin_s, begin_s)) == minute
    assert disk_cost_micro_usd(GP3, life(begin_s, begin_s + 61)) > minute


def test_spot_that_is_taken_back_for_nothing_had_disks():
    assert disk_cost_micro_usd(GP3, life(0, 600, taken_back=True)) > 0


def test_the_rate_of_an_hour_is_never_below_what_an_hour_costs_in_a_common_month():
    assert Disks(gb=1, micro_usd_per_gb_month=1).micro_usd_per_hour == 1
    assert GP3.micro_usd_per_hour == 219_179


@pytest.mark.parametrize("wrong", [{"gb": 0}, {"micro_usd_per_gb_month": 0}, {"gb": 10**7}])
def test_disks_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match=f"disks.{next(iter(wrong))} must lie in"):
        Disks(**{"gb": 1, "micro_usd_per_gb_month": 1, **wrong})


@given(
    st.integers(1, 20_000),
    st.integers(1, 10**6),
    st.integers(0, 2 * 10**9),
    st.integers(0, 5 * 10**6),
)
def test_the_rehearsals_own_bill_says_the_same(gb, price, begin_s, ran_s):
    disks = Disks(gb=gb, micro_usd_per_gb_month=price)

    ours = disk_cost_micro_usd(disks, life(begin_s, begin_s + ran_s))

    theirs = volume_micro_usd(gb, price, begin_s * NS_PER_S, (begin_s + ran_s) * NS_PER_S)
    assert ours == theirs
