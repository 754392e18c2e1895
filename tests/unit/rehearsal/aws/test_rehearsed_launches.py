"""CreateFleet and RunInstances of the rehearsal: what is granted, what is refused, and what twice."""

import pytest

from spotline.domain.market.offering import Reservation
from spotline.rehearsal.aws.service import AwsError
from tests.fakes.rehearsed_ec2 import (
    ACCOUNT,
    FAR,
    G5,
    NEAR,
    OTHER,
    P4D,
    REGION,
    codes_of,
    fleet_params,
    ids_of,
    made_market,
    offering_id,
    rehearsed_ec2,
    rough,
)

SPOT_P, ON_DEMAND_P = "L-7212CCBC", "L-417A185B"


@pytest.fixture
def rig(tmp_path):
    with rehearsed_ec2(tmp_path) as made:
        yield made


def refused(rig, operation, **params) -> str:
    with pytest.raises(AwsError) as raised:
        rig.call(operation, **params)
    return raised.value.code


def gang(rig, count, least, *, zones=(NEAR, FAR), **options):
    params = fleet_params(rig, count)
    params["LaunchTemplateConfigs"][0]["Overrides"] = [
        {"InstanceType": P4D, "AvailabilityZone": zone} for zone in zones
    ]
    options = {"MinTargetCapacity": least, "SingleAvailabilityZone": True, **options}
    return rig.call("CreateFleet", **params, SpotOptions=options)


def test_a_fleet_gets_what_there_is_and_the_rest_in_errors(rig):
    answer = rig.fleet(10)

    assert len(ids_of(answer)) == 8
    assert codes_of(answer) == ["InsufficientInstanceCapacity"]
    error = answer["Errors"][0]
    assert error["Lifecycle"] == "spot"
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == NEAR


def test_spot_and_on_demand_have_capacity_of_their_own(rig):
    rig.launched(8)

    assert ids_of(rig.fleet(1)) == []
    assert len(ids_of(rig.fleet(8, spot=False))) == 8


def test_accounts_have_places_of_their_own(rig):
    rig.launched(8)
    with pytest.raises(AwsError, match=r"InvalidLaunchTemplateId\.NotFound"):
        rig.fleet(1, account=OTHER)

    assert rig.call("DescribeInstances", account=OTHER) == {"Reservations": []}


def test_a_gang_below_its_least_launches_nothing(rig):
    rig.launched(5)
    rig.launched(6, zone=FAR)

    answer = gang(rig, 8, 4)

    assert ids_of(answer) == []
    assert "UnfulfillableCapacity" in codes_of(answer)
    assert len(ids_of(gang(rig, 8, 3))) == 3


def test_a_gang_lies_in_the_one_zone_that_has_most(rig):
    rig.launched(5)

    answer = gang(rig, 8, 4)

    assert [group["AvailabilityZone"] for group in answer["Instances"]] == [FAR]
    assert len(ids_of(answer)) == 8


def test_without_a_single_zone_a_fleet_spreads(rig):
    params = fleet_params(rig, 12)
    params["LaunchTemplateConfigs"][0]["Overrides"] = [
        {"InstanceType": P4D, "AvailabilityZone": zone} for zone in (NEAR, FAR)
    ]
    answer = rig.call("CreateFleet", **params)

    assert sorted(len(group["InstanceIds"]) for group in answer["Instances"]) == [4, 8]


def test_the_cheapest_pool_is_filled_first(tmp_path):
    market = made_market(prices={offering_id(FAR): [8.5]})
    with rehearsed_ec2(tmp_path, market) as rig:
        params = fleet_params(rig, 3)
        params["LaunchTemplateConfigs"][0]["Overrides"] = [{"InstanceType": P4D}]

        answer = rig.call("CreateFleet", **params)

    assert [group["AvailabilityZone"] for group in answer["Instances"]] == [FAR]


def test_a_gang_needs_one_zone_or_type(rig):
    params = fleet_params(rig, 4)

    code = refused(rig, "CreateFleet", **params, SpotOptions={"MinTargetCapacity": 2})

    assert code == "InvalidParameterCombination"


@pytest.mark.parametrize(("most", "granted"), [("27.0", 3), ("26.99", 2), ("8.0", 0)])
def test_a_total_price_bounds_a_fleet(rig, most, granted):
    assert len(ids_of(rig.fleet(5, SpotOptions={"MaxTotalPrice": most}))) == granted


def test_a_price_that_is_too_low_is_refused_by_its_pool(rig):
    params = fleet_params(rig, 1)
    params["LaunchTemplateConfigs"][0]["Overrides"][0]["MaxPrice"] = "8.99"

    assert codes_of(rig.call("CreateFleet", **params)) == ["SpotMaxPriceTooLow"]


def test_weights_count_towards_the_target(rig):
    params = fleet_params(rig, 20)
    params["LaunchTemplateConfigs"][0]["Overrides"][0]["WeightedCapacity"] = 8.0

    assert len(ids_of(rig.call("CreateFleet", **params))) == 3


# --- quota ------------------------------------------------------------------------------------


def set_quota(rig, code, vcpus):
    rig.world.record(
        "quota", rig.world.now_ns(), account_id=ACCOUNT, region=REGION, code=code, vcpus=vcpus
    )


def test_quota_is_apart_from_capacity_and_pooled_over_zones(rig):
    set_quota(rig, SPOT_P, 3 * 96)
    rig.launched(2)

    answer = rig.fleet(4, zone=FAR)

    assert len(ids_of(answer)) == 1
    assert codes_of(answer) == ["MaxSpotInstanceCountExceeded"]
    assert len(ids_of(rig.fleet(2, spot=False))) == 2
    assert len(ids_of(rig.fleet(2, kind=G5))) == 2


def test_on_demand_quota_has_a_code_of_its_own(rig):
    set_quota(rig, ON_DEMAND_P, 96)

    assert codes_of(rig.fleet(2, spot=False)) == ["VcpuLimitExceeded"]


def test_ending_instances_use_quota_until_they_are_gone(tmp_path):
    with rehearsed_ec2(tmp_path, weather=rough(ending_s=(30.0, 30.0))) as rig:
        set_quota(rig, SPOT_P, 96)
        (held,) = rig.launched(1)
        rig.call("TerminateInstances", InstanceIds=[held])

        assert codes_of(rig.fleet(1)) == ["MaxSpotInstanceCountExceeded"]
        rig.pass_s(31)
        assert len(ids_of(rig.fleet(1))) == 1


# --- tokens -----------------------------------------------------------------------------------


def test_a_token_that_comes_again_gets_the_same_answer_and_launches_nothing(rig):
    first = rig.fleet(3, ClientToken="once")
    again = rig.fleet(3, ClientToken="once")

    assert again == first
    assert len(rig.world.state.instances) == 3


def test_a_token_of_a_fleet_that_got_nothing_gets_nothing_again(rig):
    rig.launched(8)
    rig.fleet(1, ClientToken="none")
    rig.call("TerminateInstances", InstanceIds=list(rig.world.state.instances))

    assert ids_of(rig.fleet(1, ClientToken="none")) == []


def test_a_token_with_other_parameters_is_a_mismatch(rig):
    rig.fleet(3, ClientToken="once")

    with pytest.raises(AwsError, match="IdempotentParameterMismatch"):
        rig.fleet(4, ClientToken="once")


def test_a_fleet_s_token_gives_its_answer_though_all_has_ended(rig):
    first = rig.fleet(2, ClientToken="once")
    rig.call("TerminateInstances", InstanceIds=ids_of(first))

    assert rig.fleet(2, ClientToken="once") == first


def run(rig, **params):
    return rig.call(
        "RunInstances",
        **{
            "MinCount": 1,
            "MaxCount": 2,
            "LaunchTemplate": {"LaunchTemplateName": f"spotline-{P4D}"},
            "Placement": {"AvailabilityZone": NEAR},
            "InstanceMarketOptions": {"MarketType": "spot"},
            **params,
        },
    )


def test_an_instance_token_is_known_until_its_instances_have_ended(rig):
    first = run(rig, ClientToken="once")
    ids = [one["InstanceId"] for one in first["Instances"]]
    again = run(rig, ClientToken="once")

    assert [one["InstanceId"] for one in again["Instances"]] == ids
    rig.call("TerminateInstances", InstanceIds=ids)
    with pytest.raises(AwsError, match="IdempotentInstanceTerminated"):
        run(rig, ClientToken="once")


def test_a_token_is_forgotten_a_day_after_the_end(rig):
    (held,) = ids_of(rig.fleet(1, ClientToken="once"))
    rig.pass_s(3 * 86_400)
    assert ids_of(rig.fleet(1, ClientToken="once")) == [held]
    rig.call("TerminateInstances", InstanceIds=[held])
    rig.pass_s(86_400)

    assert ids_of(rig.fleet(1, ClientToken="once")) != [held]


def test_a_token_is_short_and_of_ascii(rig):
    for token in ("x" * 65, "münze"):
        with pytest.raises(AwsError, match="ClientToken"):
            rig.fleet(1, ClientToken=token)


# --- what is asked for ------------------------------------------------------------------------


def test_run_instances_is_refused_below_its_least(rig):
    rig.launched(7)

    code = refused(
        rig,
        "RunInstances",
        MinCount=2,
        MaxCount=4,
        ImageId="ami-1",
        InstanceType=P4D,
        Placement={"AvailabilityZone": NEAR},
        InstanceMarketOptions={"MarketType": "spot"},
    )

    assert code == "InsufficientInstanceCapacity"


def test_a_dry_run_launches_nothing_and_says_that_it_could(rig):
    params = fleet_params(rig, 1)

    assert refused(rig, "CreateFleet", **params, DryRun=True) == "DryRunOperation"
    assert rig.world.state.instances == {}


@pytest.mark.parametrize(
    ("override", "code"),
    [
        ({"AvailabilityZone": "use1-az9"}, "InvalidParameterValue"),
        ({"InstanceType": "p5.48xlarge"}, "Unsupported"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"Placement": {"GroupName": "nowhere"}}, "InvalidPlacementGroup.Unknown"),
    ],
)
def test_what_an_override_has_wrong_stands_in_errors(rig, override, code):
    params = fleet_params(rig, 1)
    params["LaunchTemplateConfigs"][0]["Overrides"] = [override]

    assert codes_of(rig.call("CreateFleet", **params)) == [code]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Type": "maintain"}, "UnsupportedOperation"),
        ({"LaunchTemplateConfigs": []}, "MissingParameter"),
        ({"TargetCapacitySpecification": {"TotalTargetCapacity": 0}}, "InvalidParameterValue"),
        ({"SpotOptions": {"InstanceInterruptionBehavior": "stop"}}, "UnsupportedOperation"),
        ({"TagSpecifications": [{"ResourceType": "moon"}]}, "InvalidParameterValue"),
    ],
)
def test_a_wrong_request_is_refused_as_a_whole(rig, changes, code):
    assert refused(rig, "CreateFleet", **{**fleet_params(rig, 1), **changes}) == code


def test_a_version_that_is_not_there_is_refused(rig):
    params = fleet_params(rig, 1)
    params["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] = "7"

    assert refused(rig, "CreateFleet", **params) == "InvalidLaunchTemplateId.VersionNotFound"


def test_an_operation_that_is_not_there_is_no_action(rig):
    assert refused(rig, "CreateVpc") == "InvalidAction"


def test_tags_are_on_instances_as_they_are_made_and_aws_adds_its_own(rig):
    tags = [{"Key": "spotline:owner", "Value": "me"}]
    specification = [{"ResourceType": "instance", "Tags": tags}]
    answer = rig.fleet(1, TagSpecifications=specification)
    (held,) = ids_of(answer)

    assert rig.instance(held).tags["spotline:owner"] == "me"
    assert rig.instance(held).tags["aws:ec2:fleet-id"] == answer["FleetId"]


def test_a_reservation_is_bought_by_its_template_only(tmp_path):
    market = made_market(reservation=Reservation(instances=3))
    with rehearsed_ec2(tmp_path, market) as rig:
        (held,) = rig.call("DescribeCapacityReservations")["CapacityReservations"]
        params = fleet_params(rig, 5, zone=FAR, spot=False)
        name = f"spotline-{P4D}-{held['CapacityReservationId']}"
        params["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"] = {
            "LaunchTemplateName": name,
            "Version": "1",
        }
        answer = rig.call("CreateFleet", **params)
        (after,) = rig.call("DescribeCapacityReservations")["CapacityReservations"]

    assert (held["TotalInstanceCount"], after["AvailableInstanceCount"]) == (3, 0)
    assert len(ids_of(answer)) == 3
    assert codes_of(answer) == ["InsufficientInstanceCapacity"]
