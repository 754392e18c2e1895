"""Quotas are counted by family and kind of purchase, with what others use of them."""

from dataclasses import replace

import pytest

from spotline.adapters.clouds.aws.api import AwsPlace
from spotline.adapters.clouds.aws.errors import AwsRefused
from spotline.adapters.clouds.aws.feeds.offerings import market_offering
from spotline.adapters.clouds.aws.quotas import code_of, read_quotas
from spotline.domain.market.offering import CapacityType
from tests.fakes.aws_api import SETTINGS, ScriptedApi, instance, page

HERE = AwsPlace("default", "us-east-1")


@pytest.mark.parametrize(
    ("instance_type", "spot", "on_demand"),
    [
        ("p4d.24xlarge", "L-7212CCBC", "L-417A185B"),
        ("p5.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("p5en.48xlarge", "L-C4BD4855", "L-417A185B"),
        ("g5.xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("gr6.4xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("vt1.3xlarge", "L-3819A6DF", "L-DB2E81BA"),
        ("m7i.large", "L-34B43A08", "L-1216C47A"),
        ("inf2.xlarge", "L-B5D1601B", "L-1945791B"),
        ("trn1.32xlarge", "L-6B0D517C", "L-2C3B7624"),
        ("dl1.24xlarge", "L-85EED4F7", "L-6E869C2A"),
        ("hpc7a.96xlarge", "", ""),
        ("mac2.metal", "", ""),
    ],
)
def test_a_type_counts_in_the_quota_of_its_family(instance_type, spot, on_demand):
    assert code_of(instance_type, CapacityType.SPOT) == spot
    assert code_of(instance_type, CapacityType.ON_DEMAND) == on_demand


async def test_use_by_others_is_told_apart_from_ours():
    api = ScriptedApi()
    ours = instance("i-1", InstanceType="p4d.24xlarge", InstanceLifecycle="spot")
    theirs = {**instance("i-2", InstanceType="p3.2xlarge", InstanceLifecycle="spot"), "Tags": []}
    bought = {**instance("i-3", InstanceType="p4d.24xlarge"), "Tags": []}
    api.will("describe_instances", page(ours, theirs, bought))
    vcpus = {"p4d.24xlarge": 96, "p3.2xlarge": 8}
    api.will(
        "describe_instance_types",
        lambda asked: {
            "InstanceTypes": [
                {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": vcpus[name]}}
                for name in asked["InstanceTypes"]
            ]
        },
    )
    quota = {"L-7212CCBC": 192.0, "L-417A185B": 96.0}
    answer = lambda asked: {"Quota": {"Value": quota[asked["QuotaCode"]]}}  # noqa: E731
    api.will("get_service_quota", answer, answer)

    found = {one.capacity_type: one for one in await read_quotas(api, SETTINGS, HERE)}

    spot, on_demand = found[CapacityType.SPOT], found[CapacityType.ON_DEMAND]
    assert (spot.vcpus, spot.used, spot.ours, spot.foreign, spot.left) == (192, 104, 96, 8, 88)
    assert (on_demand.used, on_demand.ours, on_demand.left) == (96, 0, 0)


async def test_a_quota_that_may_not_be_read_is_a_refusal():
    api = ScriptedApi()
    api.will("get_service_quota", AwsRefused("AccessDeniedException", "no"))

    with pytest.raises(AwsRefused):
        await read_quotas(api, SETTINGS, HERE)


def test_what_shares_a_quota_of_spot_shares_a_pool():
    pools = {
        name: market_offering(replace(SETTINGS.offerings[0], instance_type=name)).quota_pool
        for name in ("p3.2xlarge", "p4d.24xlarge", "p5.48xlarge", "hpc7a.96xlarge")
    }

    assert pools["p3.2xlarge"] == pools["p4d.24xlarge"] == "aws:default:us-east-1:p"
    assert pools["p5.48xlarge"] == "aws:default:us-east-1:p5"
    assert pools["hpc7a.96xlarge"] == "aws:default:us-east-1:hpc7a"
