"""Spot prices as the rehearsal tells them: points of change, the one before, pages, never the future."""

import datetime as dt

import pytest

from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.service import AwsError
from tests.fakes.rehearsed_ec2 import (
    FAR,
    G5,
    NEAR,
    P4D,
    SLOT_S,
    START_NS,
    made_market,
    offering_id,
    rehearsed_ec2,
)

PRICES = {offering_id(): [9.0, 9.0, 9.123456, 9.123456, 8.0, 9.0]}


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path, made_market(prices=PRICES)) as made:
        yield made


def after(slots: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(START_NS // NS_PER_S + slots * SLOT_S, tz=dt.UTC)


def points(rig, **params) -> list[tuple[float, str]]:
    params = {"InstanceTypes": [P4D], "AvailabilityZoneId": NEAR, **params}
    history = rig.call("DescribeSpotPriceHistory", **params)["SpotPriceHistory"]
    return [
        ((point["Timestamp"] - after(0)).total_seconds() / SLOT_S, point["SpotPrice"])
        for point in history
    ]


def test_prices_are_told_where_they_change_and_not_before_they_do(rig):
    rig.pass_s(2.5 * SLOT_S)
    first = points(rig)
    rig.pass_s(2 * SLOT_S)

    assert first == [(2, "9.123456"), (0, "9.000000")]
    assert points(rig, EndTime=after(99)) == [(4, "8.000000"), *first]


def test_the_point_before_the_start_is_told_too(rig):
    rig.pass_s(5 * SLOT_S)

    assert points(rig, StartTime=after(3)) == [
        (5, "9.000000"),
        (4, "8.000000"),
        (2, "9.123456"),
    ]
    assert points(rig, StartTime=after(3), EndTime=after(3)) == [(2, "9.123456")]


def test_pages_hold_every_point_once(rig):
    rig.pass_s(5 * SLOT_S)
    whole = rig.call("DescribeSpotPriceHistory")["SpotPriceHistory"]
    paged, token = [], None
    while True:
        more = {"NextToken": token} if token else {}
        answer = rig.call("DescribeSpotPriceHistory", MaxResults=2, **more)
        paged += answer["SpotPriceHistory"]
        token = answer.get("NextToken")
        if token is None:
            break

    assert paged == whole
    assert {(one["AvailabilityZoneId"], one["InstanceType"]) for one in whole} == {
        (NEAR, P4D),
        (FAR, P4D),
        (NEAR, G5),
    }


def test_other_products_have_no_price_here(rig):
    assert points(rig, ProductDescriptions=["Windows"]) == []
    assert points(rig, ProductDescriptions=["Linux/UNIX (Amazon VPC)"])


def test_times_must_follow(rig):
    with pytest.raises(AwsError, match="EndTime"):
        points(rig, StartTime=after(3), EndTime=after(1))


def test_scores_say_how_much_of_a_request_there_is(rig):
    rig.launched(4)

    def scores(target):
        answer = rig.call(
            "GetSpotPlacementScores",
            InstanceTypes=[P4D],
            TargetCapacity=target,
            SingleAvailabilityZone=True,
        )
        return {s["AvailabilityZoneId"]: s["Score"] for s in answer["SpotPlacementScores"]}

    assert scores(8) == {NEAR: 5, FAR: 10}
    assert scores(800) == {NEAR: 1, FAR: 1}
