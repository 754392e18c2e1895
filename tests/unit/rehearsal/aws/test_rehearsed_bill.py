"""The rehearsal's bill: from its state log alone, by the second."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.market.offering import Disks, Reservation
from spotline.domain.units import NS_PER_S
from spotline.rehearsal.aws.__main__ import main
from spotline.rehearsal.aws.bill import bill_of, lines, total_micro_usd
from spotline.rehearsal.aws.places import Places
from spotline.rehearsal.aws.state_log import BrokenLog
from tests.fakes.rehearsed_ec2 import (
    CALM,
    FAR,
    P4D,
    SLOT_S,
    START_NS,
    made_market,
    offering_id,
    rehearsed_ec2,
    rough,
)

RISES = {offering_id(): [9.0, 18.0, 3.6]}
PLACES = Places(
    made_market(prices={offering_id(): [9.0, 18.000001, 3.6, 7.213431]}),
    {"default": "000000000001", "other": "000000000002"},
    CALM,
    0,
)


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path, made_market({offering_id(): [8] * 8 + [0]}, RISES)) as made:
        yield made


def test_spot_costs_the_price_in_force_in_each_second(rig):
    (held,) = rig.launched(1)
    rig.pass_s(SLOT_S + 90)
    rig.call("TerminateInstances", InstanceIds=[held])
    (line,) = bill_of(rig.state)

    assert line.billed_s == SLOT_S + 90
    assert line.micro_usd == (9_000_000 * SLOT_S + 18_000_000 * 90) // 3600
    assert not line.open


def test_on_demand_costs_the_list_price(rig):
    (held,) = rig.launched(1, spot=False)
    rig.pass_s(1801)
    rig.call("TerminateInstances", InstanceIds=[held])

    assert bill_of(rig.state)[0].micro_usd == 30_000_000 * 1801 // 3600


def test_a_short_life_costs_a_minute(rig):
    (held,) = rig.launched(1)
    rig.pass_s(5)
    rig.call("TerminateInstances", InstanceIds=[held])

    assert bill_of(rig.state)[0].micro_usd == 150_000


def test_what_never_ran_is_not_on_the_bill(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(pending_s=(30.0, 30.0))) as rig:
        (held,) = rig.launched(1)
        rig.pass_s(20)
        rig.call("TerminateInstances", InstanceIds=[held])

        assert bill_of(rig.state) == []


def test_time_that_is_pending_costs_nothing(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(pending_s=(30.0, 30.0))) as rig:
        (held,) = rig.launched(1)
        rig.pass_s(130)
        rig.call("TerminateInstances", InstanceIds=[held])

        assert bill_of(rig.state)[0].billed_s == 100


def test_spot_that_is_taken_within_its_first_hour_costs_nothing(rig):
    early, late, ended = rig.launched(3)
    rig.pass_s(3599 - 120)
    rig.world.interrupt(early, 120)
    rig.world.interrupt(ended, 120)
    rig.pass_s(60)
    rig.call("TerminateInstances", InstanceIds=[ended])
    rig.pass_s(60)
    rig.world.interrupt(late, 1)
    rig.pass_s(1)
    by_id = {line.instance_id: line for line in bill_of(rig.state)}

    assert (by_id[early].billed_s, by_id[early].micro_usd) == (0, 0)
    assert by_id[ended].billed_s == 3539
    assert by_id[late].billed_s == 3600


def test_one_that_runs_on_costs_what_it_has_used_so_far(rig):
    rig.launched(1)
    rig.pass_s(400)
    (line,) = bill_of(rig.state, rig.world.now_ns())

    assert line.open
    assert line.billed_s == 400


def test_a_reservation_costs_nothing_more(tmp_path):
    market = made_market(reservation=Reservation(instances=3))
    with rehearsed_ec2(tmp_path, market) as rig:
        (held,) = rig.call("DescribeCapacityReservations")["CapacityReservations"]
        name = f"spotline-{P4D}-{held['CapacityReservationId']}"
        specification = {"LaunchTemplateName": name, "Version": "1"}
        configs = [{"LaunchTemplateSpecification": specification}]
        rig.fleet(1, zone=FAR, spot=False, LaunchTemplateConfigs=configs)
        rig.pass_s(3600)

        assert [line.micro_usd for line in bill_of(rig.state, rig.world.now_ns())] == [0]


def with_disks(market, gb=7300):
    disks = Disks(gb=gb, micro_usd_per_gb_month=80_000)
    return replace(market, offerings=tuple(replace(each, disks=disks) for each in market.offerings))


def test_a_volume_costs_beside_an_instance_that_costs_nothing(tmp_path):
    with rehearsed_ec2(tmp_path, with_disks(made_market())) as rig:
        taken, ended = rig.launched(2)
        rig.pass_s(1800 - 120)
        rig.world.interrupt(taken, 120)
        rig.pass_s(120)
        rig.call("TerminateInstances", InstanceIds=[ended])
        by_id = {line.instance_id: line for line in bill_of(rig.state)}

    disks = round(7300 * 80_000 * 1800 / (31 * 86_400))
    assert [by_id[name].disk_micro_usd for name in (taken, ended)] == [disks, disks]
    assert by_id[taken].total_micro_usd == disks
    assert total_micro_usd(by_id.values()) == 2 * disks + by_id[ended].micro_usd


def test_what_never_ran_had_a_volume_for_a_minute(tmp_path):
    market = with_disks(made_market())
    with rehearsed_ec2(tmp_path, market, weather=rough(pending_s=(30.0, 30.0))) as rig:
        (held,) = rig.launched(1)
        rig.pass_s(20)
        assert bill_of(rig.state) == []
        rig.call("TerminateInstances", InstanceIds=[held])
        (line,) = bill_of(rig.state)

    assert (line.billed_s, line.micro_usd, line.open) == (0, 0, False)
    assert line.disk_micro_usd == round(7300 * 80_000 * 60 / (31 * 86_400))


def test_a_volume_is_described_by_template_and_instance_alike(tmp_path):
    with rehearsed_ec2(tmp_path, with_disks(made_market(), gb=123)) as rig:
        (held,) = rig.launched(1)
        rig.pass_s(60)
        (version, *_) = rig.call("DescribeLaunchTemplateVersions")["LaunchTemplateVersions"]
        ((shown,),) = [one["Instances"] for one in rig.call("DescribeInstances")["Reservations"]]
        rig.call("TerminateInstances", InstanceIds=[held])
        (line,) = bill_of(rig.state)

    (mapping,) = version["LaunchTemplateData"]["BlockDeviceMappings"]
    assert mapping["Ebs"]["VolumeSize"] == 123
    assert shown["BlockDeviceMappings"][0]["Ebs"]["VolumeId"] == line.volume_id


def test_a_bill_has_tags_as_they_were_last(rig):
    (held,) = rig.launched(1)
    rig.call("CreateTags", Resources=[held], Tags=[{"Key": "owner", "Value": "us"}])

    assert bill_of(rig.state)[0].tags["owner"] == "us"


def test_the_command_prints_the_bill_of_a_folder(rig, capsys):
    rig.launched(2)
    rig.pass_s(60)
    rig.call("TerminateInstances", InstanceIds=list(rig.world.state.instances))

    assert main(["bill", str(rig.state)]) == 0
    assert json.loads(capsys.readouterr().out)["total_micro_usd"] == 300_000
    assert main(["bill", str(rig.state / "nothing")]) == 2
    assert "expected the log" in capsys.readouterr().err


def test_a_folder_without_a_log_has_no_bill(tmp_path):
    with pytest.raises(BrokenLog, match="expected the log"):
        bill_of(tmp_path)


@given(
    begins_s=st.integers(0, 5 * SLOT_S),
    lasts_s=st.integers(0, 3 * SLOT_S),
    taken=st.booleans(),
    lifecycle=st.sampled_from(["spot", "on-demand"]),
)
def test_a_line_is_its_seconds_added_up_one_by_one(begins_s, lasts_s, taken, lifecycle):
    running_ns = START_NS + begins_s * NS_PER_S
    reason = "Server.SpotInstanceTermination" if taken else "Client.UserInitiatedShutdown"
    entry = {
        "instance_id": "i-1", "account_id": "1", "region": "r", "zone": "z", "instance_type": "t",
        "lifecycle": lifecycle, "tags": {}, "foreign": False, "offering_id": offering_id(),
    }  # fmt: skip
    records = [
        {"kind": "launched", "at_ns": running_ns, "instances": [entry], "token": None},
        {"kind": "running", "at_ns": running_ns, "instance_id": "i-1"},
        {
            "kind": "shutting-down",
            "at_ns": running_ns + lasts_s * NS_PER_S,
            "instance_id": "i-1",
            "reason": reason,
        },
    ]
    owed = 0
    for second in range(max(60, lasts_s)):
        at_ns = running_ns + second * NS_PER_S
        owed += PLACES.price_micro_usd(offering_id(), lifecycle, at_ns)
    free = taken and lifecycle == "spot" and lasts_s < 3600
    expected = 0 if free else int(np.floor((2 * owed + 3600) / 7200))

    assert total_micro_usd(lines(records, PLACES, running_ns)) == expected
