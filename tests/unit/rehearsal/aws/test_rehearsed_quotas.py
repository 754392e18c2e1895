"""What an account may have, in vCPUs, by AWS's codes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.service_quotas import ServiceQuotas
from spotline.rehearsal.aws.wire.models import describe, unfitting


@dataclass
class OneQuota:
    code: str
    name: str
    vcpus: float


def quotas_of(account_id, region):
    if (account_id, region) != ("000000000001", "us-east-1"):
        return []
    return [
        OneQuota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", 192.0),
        OneQuota("L-3819A6DF", "All G and VT Spot Instance Requests", 64.0),
        OneQuota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot", 640.0),
    ]


def asked(operation, **params):
    call = AwsCall(
        service="service-quotas", operation=operation, params={"ServiceCode": "ec2", **params},
        region="us-east-1", account_id="000000000001", access_key="AKIA", request_id="id",
    )  # fmt: skip
    answer = asyncio.run(ServiceQuotas(quotas_of).answer(call))
    shape = describe("service-quotas").operation(operation).output_shape
    assert unfitting(answer, shape) == ""
    return answer


def test_applied_quota_is_the_accounts_and_the_default_is_awss():
    applied = asked("GetServiceQuota", QuotaCode="L-3819A6DF")["Quota"]
    default = asked("GetAWSDefaultServiceQuota", QuotaCode="L-3819A6DF")["Quota"]

    assert (applied["Value"], default["Value"]) == (64.0, 0.0)
    assert applied["QuotaName"] == "All G and VT Spot Instance Requests"
    assert applied["QuotaArn"] == "arn:aws:servicequotas:us-east-1:000000000001:ec2/L-3819A6DF"
    assert asked("GetAWSDefaultServiceQuota", QuotaCode="L-34B43A08")["Quota"]["Value"] == 5.0


def test_all_quotas_are_listed_by_pages():
    first = asked("ListServiceQuotas", MaxResults=2)
    rest = asked("ListServiceQuotas", MaxResults=2, NextToken=first["NextToken"])

    codes = [quota["QuotaCode"] for quota in [*first["Quotas"], *rest["Quotas"]]]
    assert codes == ["L-3819A6DF", "L-7212CCBC", "L-34B43A08"]
    assert "NextToken" not in rest


def test_quota_and_service_that_are_not_there_are_refused():
    with pytest.raises(AwsError, match="NoSuchResourceException"):
        asked("GetServiceQuota", QuotaCode="L-00000000")
    with pytest.raises(AwsError, match="NoSuchResourceException"):
        asked("ListServiceQuotas", ServiceCode="s3")
    with pytest.raises(AwsError, match="InvalidPaginationTokenException"):
        asked("ListServiceQuotas", NextToken="mine")
