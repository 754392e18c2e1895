"""What the rehearsed market takes back, and how that is made known: in time, late, twice, never."""

from collections import Counter
from dataclasses import replace

import pytest

from spotline.rehearsal.aws.weather import ORDINARY
from spotline.rehearsal.aws.world import INTERRUPTION, REBALANCE
from tests.fakes.rehearsed_ec2 import (
    NEAR,
    SLOT_S,
    ids_of,
    made_market,
    offering_id,
    rehearsed_ec2,
    rough,
)

FALLS = {offering_id(): [8, 8, 3, 3, 0, 8]}


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path, made_market(FALLS)) as made:
        yield made


def times(rig, change) -> list[float]:
    return [rig.at_s(at) for _, kind, at in rig.changes if kind == change]


def test_a_falling_count_takes_the_surplus_after_two_minutes_of_notice(rig):
    rig.launched(8)
    rig.pass_s(2 * SLOT_S - 1)
    alive_before = sum(one.alive for one in rig.world.state.instances.values())
    rig.pass_s(1)

    assert alive_before == 8
    assert times(rig, "noticed") == [2 * SLOT_S - 120] * 5
    assert times(rig, "shutting-down") == [2 * SLOT_S] * 5
    assert sum(one.alive for one in rig.world.state.instances.values()) == 3


def test_an_interrupted_instance_says_so(rig):
    rig.launched(8)
    rig.pass_s(5 * SLOT_S)
    answer = rig.call("DescribeInstances")
    told = [one for reservation in answer["Reservations"] for one in reservation["Instances"]]

    assert {one["StateReason"]["Code"] for one in told} == {"Server.SpotInstanceTermination"}
    assert all(one["StateTransitionReason"].startswith("Service") for one in told)


def test_a_warning_is_an_event_of_eventbridge(rig):
    (held,) = rig.launched(1)
    rig.pass_s(4 * SLOT_S)
    (warning,) = [event for event in rig.events if event.detail_type == INTERRUPTION]

    assert warning.detail == {"instance-id": held, "instance-action": "terminate"}
    assert warning.resources == (f"arn:aws:ec2:{NEAR}:instance/{held}",)
    assert rig.at_s(warning.at_ns) == 4 * SLOT_S - 120


def test_nothing_is_sold_that_would_be_taken_back_at_once(rig):
    rig.pass_s(2 * SLOT_S - 121)
    before = rig.world.free(offering_id(), "spot")
    rig.pass_s(1)

    assert (before, rig.world.free(offering_id(), "spot")) == (8, 3)


def test_on_demand_is_not_taken_back(rig):
    rig.launched(8, spot=False)
    rig.pass_s(6 * SLOT_S)

    assert all(one.alive for one in rig.world.state.instances.values())


def test_one_that_is_ended_under_notice_is_the_user_s(rig):
    (held,) = rig.launched(1)
    rig.pass_s(4 * SLOT_S - 60)
    rig.call("TerminateInstances", InstanceIds=[held])
    rig.pass_s(SLOT_S)

    assert rig.instance(held).reason == "Client.UserInitiatedShutdown"


def test_a_count_that_is_set_by_hand_takes_back_too(rig):
    rig.launched(8)
    rig.pass_s(30)
    rig.world.set_count(offering_id(), "spot", 2)
    rig.pass_s(120)
    left = sum(one.alive for one in rig.world.state.instances.values())
    rig.world.set_count(offering_id(), "spot", None)

    assert left == 2
    assert len(ids_of(rig.fleet(8))) == 6


def test_an_instance_is_interrupted_by_hand_with_its_lead(rig):
    first, second = rig.launched(2)
    rig.pass_s(10)
    rig.world.interrupt(first, 30)
    rig.world.interrupt(second, 0)
    rig.pass_s(30)

    assert [rig.at_s(rig.instance(one).ended_ns) for one in (second, first)] == [10, 40]
    assert rig.instance(first).in_metadata
    assert not rig.instance(second).in_metadata


def test_a_rebalance_recommendation_comes_before_its_warning(tmp_path):
    weather = rough(rebalance_share=1.0, rebalance_s=300)
    with rehearsed_ec2(tmp_path, made_market(FALLS), weather) as rig:
        rig.launched(8)
        rig.pass_s(2 * SLOT_S)

        recommended = {one for one, kind, _ in rig.changes if kind == "recommended"}
        noticed = {one for one, kind, _ in rig.changes if kind == "noticed"}
        told = [event for event in rig.events if event.detail_type == REBALANCE]

        assert recommended == noticed
        assert times(rig, "recommended") == [2 * SLOT_S - 420] * 5
        assert len(told) == 5


def test_notices_are_late_double_missing_and_silent_as_often_as_is_stated(tmp_path):
    weather = rough(late_share=0.2, double_share=0.2, missing_share=0.2, silent_share=0.2)
    many = {offering_id(): [400, 400, 0]}
    with rehearsed_ec2(tmp_path, made_market(many), weather, seed=5) as rig:
        rig.launched(400)
        rig.pass_s(2 * SLOT_S + 200)
        told = Counter(
            event.detail["instance-id"] for event in rig.events if event.detail_type == INTERRUPTION
        )
        early = {
            event.detail["instance-id"]
            for event in rig.events
            if event.detail_type == INTERRUPTION and rig.at_s(event.at_ns) == 2 * SLOT_S - 120
        }
        instances = rig.world.state.instances.values()
        kinds = Counter(
            (told[one.instance_id], one.instance_id in early, one.in_metadata) for one in instances
        )

    assert set(kinds) == {
        (1, True, True),
        (1, False, True),
        (2, True, True),
        (0, False, True),
        (0, False, False),
    }
    # Binomial, 400 draws of 0.2: 80 with a deviation of 8.
    assert all(48 <= count <= 112 for count in kinds.values())


def test_what_happens_is_the_same_however_often_one_looks(tmp_path):
    def history(folder, step_s):
        folder.mkdir()
        weather = replace(ORDINARY, throttled=False)
        with rehearsed_ec2(folder, made_market(FALLS), weather, seed=3) as rig:
            rig.fleet(8)
            for _ in range(round(6 * SLOT_S / step_s)):
                rig.pass_s(step_s)
            events = [(event.detail_type, event.at_ns, event.detail) for event in rig.events]
            return rig.changes, events

    assert history(tmp_path / "often", 7.5) == history(tmp_path / "once", 6 * SLOT_S)
