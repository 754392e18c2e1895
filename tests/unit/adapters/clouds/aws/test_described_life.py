"""What DescribeInstances says of the end of an instance, read as what is billed."""

from datetime import UTC, datetime

import pytest

from spotline.adapters.clouds.aws.described_life import described_life
from spotline.adapters.clouds.aws.settings import AwsOffering
from spotline.contracts.errors import ContractError
from spotline.domain.ledger.billing_rules import BilledLife
from spotline.domain.market.offering import CapacityType, Reservation

BEGAN = datetime(2026, 1, 5, 12, 0, 7, tzinfo=UTC)


def row(**said):
    return {
        "InstanceId": "i-1",
        "InstanceType": "g5.xlarge",
        "InstanceLifecycle": "spot",
        "State": {"Name": "terminated", "Code": 48},
        "StateTransitionReason": "User initiated (2026-01-05 13:30:00 GMT)",
        "StateReason": {"Code": "Client.UserInitiatedShutdown"},
        "LaunchTime": BEGAN,
        "Placement": {"AvailabilityZone": "us-east-1a", "AvailabilityZoneId": "use1-az4"},
        **said,
    }


def test_an_instance_that_we_ended_is_billed_until_it_shut_down():
    found = described_life(row())

    assert found is not None
    assert found.life == BilledLife(
        capacity_type=CapacityType.SPOT,
        begin_s=int(BEGAN.timestamp()),
        end_s=int(BEGAN.timestamp()) + 5393,
        taken_back=False,
    )


def test_one_that_ec2_took_back_is_told_apart():
    code = {"Code": "Server.SpotInstanceTermination"}
    ended = "Service initiated (2026-01-05 13:30:00 GMT)"

    found = described_life(row(StateReason=code, StateTransitionReason=ended))

    assert found is not None
    assert found.life.taken_back


def test_what_is_not_spot_is_on_demand():
    stated = row()
    del stated["InstanceLifecycle"]

    found = described_life(stated)

    assert found is not None
    assert found.life.capacity_type is CapacityType.ON_DEMAND


@pytest.mark.parametrize(
    "said",
    [
        {"State": {"Name": "running"}},
        {"StateTransitionReason": ""},
        {"StateTransitionReason": "User initiated shutdown"},
    ],
)
def test_where_no_end_is_stated_nothing_is_known_yet(said):
    assert described_life(row(**said)) is None


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"LaunchTime": None}, "LaunchTime"),
        ({"LaunchTime": BEGAN.replace(tzinfo=None)}, "LaunchTime"),
        ({"InstanceId": ""}, "InstanceId"),
    ],
)
def test_what_cannot_be_read_is_refused_by_the_name_of_its_member(said, field):
    with pytest.raises(ContractError, match=field):
        described_life(row(**said))


def offering(**said):
    return AwsOffering(
        **{
            "account": "default",
            "region": "us-east-1",
            "zone": "use1-az4",
            "instance_type": "p4d.24xlarge",
            "gpu_model": "a100-40gb",
            "gpus_per_instance": 8,
            "launch_template_id": "lt-1",
            **said,
        }
    )


def test_a_commitment_is_an_offering_of_its_own_with_hours_expiry_and_sunk_cost():
    block = offering(
        capacity_reservation_id="cr-7",
        reserved_instances=4,
        reserved_until_ns=5,
        reserved_usd_per_hour=11.5,
    )

    assert block.reservation == Reservation(instances=4, ends_ns=5, sunk_price_micro_usd=11_500_000)
    assert block.offering_id == "aws:default:use1-az4:p4d.24xlarge/reserved/cr-7"
    assert offering().reservation is None
    with pytest.raises(ValueError, match="reserved_instances needs a capacity_reservation_id"):
        offering(reserved_instances=4)
