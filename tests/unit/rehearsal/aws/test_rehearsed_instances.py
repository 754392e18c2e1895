"""Instances of the rehearsal once they are there: seen late, ended, filtered, paged, tagged."""

import pytest

from spotline.rehearsal.aws.service import AwsError
from tests.fakes.rehearsed_ec2 import FAR, G5, NEAR, rehearsed_ec2, rough


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path) as made:
        yield made


def seen(rig, **params) -> list[dict]:
    answer = rig.call("DescribeInstances", **params)
    return [one for reservation in answer["Reservations"] for one in reservation["Instances"]]


def named(*pairs) -> list[dict]:
    return [{"Name": name, "Values": list(values)} for name, *values in pairs]


def test_a_new_instance_is_missing_for_a_while(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(hidden_s=5.0)) as rig:
        ids = rig.launched(8)
        at_once = {one["InstanceId"] for one in seen(rig)}
        with pytest.raises(AwsError, match=r"InvalidInstanceID\.NotFound"):
            rig.call("DescribeInstances", InstanceIds=ids)
        rig.pass_s(5)

        assert at_once < set(ids)
        assert {one["InstanceId"] for one in seen(rig, InstanceIds=ids)} == set(ids)


def test_ending_a_new_instance_may_not_find_it(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(hidden_s=5.0)) as rig:
        unknown = set()
        for instance_id in rig.launched(8):
            try:
                rig.call("TerminateInstances", InstanceIds=[instance_id])
            except AwsError as error:
                unknown.add((error.code, rig.instance(instance_id).state))
        ended = sum(not one.alive for one in rig.world.state.instances.values())

    assert unknown == {("InvalidInstanceID.NotFound", "running")}
    assert 0 < ended < 8


def test_states_follow_one_another_with_delay(tmp_path):
    weather = rough(pending_s=(20.0, 20.0), ending_s=(15.0, 15.0))
    with rehearsed_ec2(tmp_path, weather=weather) as rig:
        (held,) = rig.launched(1)
        states = [rig.instance(held).state]
        rig.pass_s(19)
        states.append(rig.instance(held).state)
        rig.pass_s(1)
        states.append(rig.instance(held).state)
        rig.call("TerminateInstances", InstanceIds=[held])
        states.append(rig.instance(held).state)
        rig.pass_s(15)
        states.append(rig.instance(held).state)

    assert states == ["pending", "pending", "running", "shutting-down", "terminated"]
    assert [(change, rig.at_s(at)) for _, change, at in rig.changes] == [
        ("pending", 0),
        ("running", 20),
        ("shutting-down", 20),
        ("terminated", 35),
    ]
    assert [event.detail["state"] for event in rig.events] == [one for _, one, _ in rig.changes]


def test_its_launch_is_told_from_when_it_ran(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(pending_s=(20.0, 20.0))) as rig:
        rig.launched(1)
        (pending,) = seen(rig)
        rig.pass_s(30)
        (running,) = seen(rig)

    assert (running["LaunchTime"] - pending["LaunchTime"]).total_seconds() == 20


def test_an_ended_instance_is_shown_for_an_hour_and_says_who_ended_it(rig):
    (held,) = rig.launched(1)
    rig.pass_s(90)
    rig.call("TerminateInstances", InstanceIds=[held])
    (ended,) = seen(rig, InstanceIds=[held])
    rig.pass_s(3599)
    still = len(seen(rig))
    rig.pass_s(1)

    assert ended["State"] == {"Code": 48, "Name": "terminated"}
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert ended["StateTransitionReason"] == "User initiated (2026-01-01 00:01:30 GMT)"
    assert (still, len(seen(rig))) == (1, 0)


def test_ending_is_idempotent_and_all_or_nothing(rig):
    first, second = rig.launched(2)
    rig.call("TerminateInstances", InstanceIds=[first])
    again = rig.call("TerminateInstances", InstanceIds=[first])["TerminatingInstances"]

    assert again[0]["PreviousState"] == again[0]["CurrentState"]
    with pytest.raises(AwsError, match=r"InvalidInstanceID\.NotFound"):
        rig.call("TerminateInstances", InstanceIds=[second, "i-0123456789abcdef0"])
    assert rig.instance(second).alive
    with pytest.raises(AwsError, match=r"InvalidInstanceID\.Malformed"):
        rig.call("TerminateInstances", InstanceIds=["i-nothing"])


def test_filters_are_met_by_all_names_and_any_value(rig):
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "owner", "Value": "us*"}]}]
    ours = rig.launched(2, TagSpecifications=tags)
    rig.launched(1, zone=FAR)
    rig.launched(1, spot=False)

    def count(*pairs) -> int:
        return len(seen(rig, Filters=named(*pairs)))

    assert {one["InstanceId"] for one in seen(rig, Filters=named(("tag:owner", "us\\*")))} == set(
        ours
    )
    assert count(("tag:owner", "u?*")) == 2
    assert count(("tag:owner", "other", "us*")) == 2
    assert count(("tag-key", "owner"), ("availability-zone", FAR)) == 0
    assert count(("instance-lifecycle", "spot")) == 3
    assert count(("instance-state-name", "running", "pending")) == 4
    with pytest.raises(AwsError, match="filter 'moon'"):
        rig.call("DescribeInstances", Filters=named(("moon", "x")))


def test_pages_hold_every_instance_once(rig):
    ids = set(rig.launched(8)) | set(rig.launched(5, zone=FAR))
    found, token = [], None
    while True:
        more = {"NextToken": token} if token else {}
        answer = rig.call("DescribeInstances", MaxResults=5, **more)
        found += [one["InstanceId"] for r in answer["Reservations"] for one in r["Instances"]]
        token = answer.get("NextToken")
        if token is None:
            break

    assert len(found) == 13
    assert set(found) == ids


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"MaxResults": 4}, "InvalidParameterValue"),
        ({"NextToken": "nonsense"}, "InvalidParameterValue"),
        ({"MaxResults": 5, "InstanceIds": ["i-0123456789abcdef0"]}, "InvalidParameterCombination"),
    ],
)
def test_wrong_pages_are_refused(rig, params, code):
    with pytest.raises(AwsError) as raised:
        rig.call("DescribeInstances", **params)
    assert raised.value.code == code


def test_status_is_of_what_runs(rig):
    first, _ = rig.launched(2)
    rig.call("TerminateInstances", InstanceIds=[first])

    assert len(rig.call("DescribeInstanceStatus")["InstanceStatuses"]) == 1
    everyone = rig.call("DescribeInstanceStatus", IncludeAllInstances=True)
    assert len(everyone["InstanceStatuses"]) == 2


def test_tags_are_set_and_taken_off(rig):
    (held,) = rig.launched(1)
    rig.call("CreateTags", Resources=[held], Tags=[{"Key": "a", "Value": "1"}])
    rig.call("CreateTags", Resources=[held], Tags=[{"Key": "b", "Value": "2"}])
    rig.call("DeleteTags", Resources=[held], Tags=[{"Key": "a", "Value": "other"}, {"Key": "b"}])
    told = rig.call("DescribeTags", Filters=named(("resource-id", held)))["Tags"]

    assert {tag["Key"] for tag in told if not tag["Key"].startswith("aws:")} == {"a"}
    with pytest.raises(AwsError, match="aws:"):
        rig.call("CreateTags", Resources=[held], Tags=[{"Key": "aws:x", "Value": "1"}])


def test_types_tell_their_gpus(rig):
    answer = rig.call("DescribeInstanceTypes", InstanceTypes=["p4d.24xlarge"])
    (one,) = answer["InstanceTypes"]
    sold = rig.call("DescribeInstanceTypeOfferings", LocationType="availability-zone-id")

    assert one["GpuInfo"]["Gpus"][0]["Count"] == 8
    assert one["VCpuInfo"]["DefaultVCpus"] == 96
    places = {(o["InstanceType"], o["Location"]) for o in sold["InstanceTypeOfferings"]}
    assert (G5, NEAR) in places
    assert (G5, FAR) not in places
    with pytest.raises(AwsError, match="InvalidInstanceType"):
        rig.call("DescribeInstanceTypes", InstanceTypes=["p9.huge"])


def test_what_was_set_up_before_is_described(rig):
    (zone, _) = rig.call("DescribeAvailabilityZones")["AvailabilityZones"]
    subnets = rig.call("DescribeSubnets", Filters=named(("availability-zone-id", NEAR)))["Subnets"]
    free = subnets[0]["AvailableIpAddressCount"]
    rig.launched(3)
    (after,) = rig.call("DescribeSubnets", SubnetIds=[subnets[0]["SubnetId"]])["Subnets"]

    assert zone["ZoneId"] == NEAR
    assert free - after["AvailableIpAddressCount"] == 3
    assert len(rig.call("DescribePlacementGroups")["PlacementGroups"]) == 2
    assert len(rig.call("DescribeLaunchTemplateVersions")["LaunchTemplateVersions"]) == 2
    assert [r["RegionName"] for r in rig.call("DescribeRegions")["Regions"]] == ["us-east-1"]
    assert rig.call("DescribeAccountAttributes", AttributeNames=["max-instances"])
