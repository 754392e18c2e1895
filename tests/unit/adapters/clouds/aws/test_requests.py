"""What is asked of AWS is what its model takes, and buys no part of a gang."""

from dataclasses import replace

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.clouds.aws import tags
from spotline.adapters.clouds.aws.requests import batches, client_token, fleet_of, payload_of
from spotline.application.cloud_actuator.ports import Owner
from spotline.domain.market.offering import CapacityType
from tests.fakes.actuator import launch
from tests.fakes.aws_api import SETTINGS

OFFERING = SETTINGS.offerings[0]


@pytest.fixture(scope="module")
def model():
    return ServiceModel(Loader().load_service_model("ec2", "service-2"), "ec2")


@pytest.mark.parametrize("capacity_type", CapacityType)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"subnet_id": "subnet-1", "placement_group": "ring"},
        {"capacity_reservation_id": "cr-1"},
        {"capacity_reservation_id": "cr-1", "capacity_block": True},
    ],
    ids=("zone", "subnet", "odcr", "block"),
)
def test_a_fleet_is_what_the_model_of_ec2_takes(model, capacity_type, changes):
    request = replace(launch("t", 8), capacity_type=capacity_type, allowed_counts=(4,))

    fleet = fleet_of(request, replace(OFFERING, **changes), client_token("o", "t"))

    shape = model.operation_model("CreateFleet").input_shape
    assert ParamValidator().validate(fleet, shape).generate_report() == ""
    kind = fleet["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
    if capacity_type is CapacityType.SPOT:
        assert kind == "spot"
        assert fleet["SpotOptions"]["InstanceInterruptionBehavior"] == "terminate"
    else:
        assert kind == ("capacity-block" if changes.get("capacity_block") else "on-demand")


def test_a_gang_begins_with_its_smallest_count_in_one_zone_or_not_at_all():
    gang = fleet_of(replace(launch("t", 8), allowed_counts=(4, 6)), OFFERING, "c")["SpotOptions"]
    whole = fleet_of(replace(launch("t", 8), allowed_counts=(8,)), OFFERING, "c")["SpotOptions"]
    any_count = fleet_of(launch("t", 8), OFFERING, "c")["SpotOptions"]

    assert gang["MinTargetCapacity"] == 4
    assert whole["MinTargetCapacity"] == 8
    assert "MinTargetCapacity" not in any_count
    for options in (gang, whole, any_count):
        assert options["SingleAvailabilityZone"]
        assert options["SingleInstanceType"]


def test_what_is_launched_carries_its_tags_from_the_first_moment_on():
    request = replace(launch("t", 1), installation_id="here", owner=Owner(name="us", epoch=3))

    stated = fleet_of(request, OFFERING, "c")["TagSpecifications"]

    assert {one["ResourceType"] for one in stated} == {"instance", "fleet"}
    for one in stated:
        found = {tag["Key"]: tag["Value"] for tag in one["Tags"]}
        assert found[tags.OWNER] == "us"
        assert found[tags.EPOCH] == "3"
        assert found[tags.TOKEN] == "t"
        assert found[tags.INSTALLATION] == "here"


def test_a_tag_that_is_too_long_is_named():
    with pytest.raises(ValueError, match="tag spotline-job must have at most 256 characters"):
        fleet_of(replace(launch("t", 1), job_id="j" * 257), OFFERING, "c")


@given(owner=st.text(), token=st.text(), tries=st.integers(0, 9))
def test_a_token_fits_into_64_characters_of_ascii(owner, token, tries):
    made = client_token(owner, token, tries)

    assert 0 < len(made) <= 64
    assert made.isascii()


@given(tries=st.integers(0, 5), other=st.integers(0, 5))
def test_each_try_and_each_owner_has_a_token_of_its_own(tries, other):
    assert (client_token("o", "t", tries) == client_token("o", "t", other)) == (tries == other)
    assert client_token("o", "t", tries) != client_token("p", "t", tries)


@given(ids=st.lists(st.text(min_size=1)), most=st.integers(1, 7))
def test_batches_are_full_and_lose_nothing(ids, most):
    made = batches(ids, most)

    assert [one for batch in made for one in batch] == ids
    assert all(len(batch) == most for batch in made[:-1])


def test_a_payload_is_the_same_at_another_time_and_for_a_newer_epoch():
    first = launch("t", 2)
    again = replace(launch("t", 2, epoch=2), at=replace(first.at, ts_ns=9))

    assert payload_of(again) == payload_of(first)
    for changes in ({"instances": 3}, {"job_id": "k"}, {"offering_id": "b"}):
        assert payload_of(replace(first, **changes)) != payload_of(first)
