"""Charges are divided among instances to the micro-USD."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.ledger.bills import (
    BillSource,
    HeldSpan,
    InstanceBill,
    Settlement,
    apportion,
    strongest,
)
from spotline.domain.market.offering import CapacityType

WEIGHTS = st.lists(st.integers(0, 10**6), min_size=1, max_size=20).filter(any)


@given(st.integers(0, 10**15), WEIGHTS)
def test_parts_sum_to_the_amount_and_each_is_its_share(micro_usd, weights):
    parts = apportion(micro_usd, weights)

    assert sum(parts) == micro_usd
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * total - micro_usd * weight) <= total
        assert part >= 0
        assert weight or not part


def test_nobody_to_pay_is_an_error():
    with pytest.raises(ValueError, match="some weight"):
        apportion(5, [0, 0])


def span(start, end=(None, None)):
    return HeldSpan(
        instance_id="i",
        job_id="j",
        offering_id="a",
        capacity_type=CapacityType.SPOT,
        start_slot=start[0],
        start_offset_s=start[1],
        end_slot=end[0],
        end_offset_s=end[1],
    )


@pytest.mark.parametrize(
    ("held", "overlap_s"),
    [
        (span((0, 0)), 60),
        (span((1, 0)), 60),
        (span((1, 130)), 30),
        (span((1, 160)), 0),
        (span((2, 0)), 0),
        (span((0, 0), (0, 90)), 0),
        (span((0, 0), (1, 110)), 10),
        (span((1, 120), (1, 130)), 10),
        (span((1, 120), (2, 5)), 40),
        (span((1, 130), (1, 130)), 0),
    ],
)
def test_overlap_counts_the_seconds_held_of_a_stretch(held, overlap_s):
    assert held.overlap_s(1, 100, 160) == overlap_s


def word(source, micro_usd=5, ts_ns=1):
    return Settlement(instance_id="i", source=source, micro_usd=micro_usd, ts_ns=ts_ns)


def test_the_word_of_the_provider_outweighs_a_later_count_of_ours():
    said, counted = word(BillSource.PROVIDER), word(BillSource.OWN_COUNT, ts_ns=9)

    assert strongest([said, counted]) == strongest([counted, said]) == {"i": said}


def test_a_bill_is_reckoned_with_as_settled_once_it_is():
    bill = InstanceBill(
        instance_id="i", job_id="j", tenant="t", quota_pool="q", estimate_micro_usd=9
    )

    assert bill.micro_usd == 9
    settled = word(BillSource.OWN_COUNT, micro_usd=0)
    assert (
        InstanceBill(
            instance_id="i",
            job_id="j",
            tenant="t",
            quota_pool="q",
            estimate_micro_usd=9,
            settled=settled,
        ).micro_usd
        == 0
    )


def test_a_settled_amount_is_not_negative():
    with pytest.raises(ValueError, match="micro_usd must be >= 0, was -1"):
        word(BillSource.PROVIDER, micro_usd=-1)
