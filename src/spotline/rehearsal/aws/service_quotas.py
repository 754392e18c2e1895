"""Service Quotas: the vCPUs that an account may have in a region, by AWS's own codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from spotline.rehearsal.aws.pages import page_of
from spotline.rehearsal.aws.service import AwsCall, AwsError

_SERVICE_CODE = "ec2"
_SERVICE_NAME = "Amazon Elastic Compute Cloud (Amazon EC2)"
_MOST_IN_PAGE = 100
# What a new account has, in vCPUs; all others have 0.
# https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
_DEFAULTS = {"L-34B43A08": 5.0, "L-1216C47A": 5.0}


class AppliedQuota(Protocol):
    """A quota of an account in a region."""

    @property
    def code(self) -> str:
        """As AWS codes it: `L-3819A6DF`."""
        ...

    @property
    def name(self) -> str:
        """As AWS calls it."""
        ...

    @property
    def vcpus(self) -> float:
        """What the account has."""
        ...


class ServiceQuotas:
    """The service.

    Parameters
    ----------
    quotas
        Those of an account in a region.
    """

    name = "service-quotas"

    def __init__(self, quotas: Callable[[str, str], Iterable[AppliedQuota]]) -> None:
        self._quotas = quotas

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of Service Quotas."""
        if call.params.get("ServiceCode", _SERVICE_CODE) != _SERVICE_CODE:
            raise AwsError(
                "NoSuchResourceException",
                f"The request failed because the specified service {call.params['ServiceCode']} "
                "does not exist.",
            )
        if call.operation == "GetServiceQuota":
            return {"Quota": self._one(call, applied=True)}
        if call.operation == "GetAWSDefaultServiceQuota":
            return {"Quota": self._one(call, applied=False)}
        if call.operation == "ListServiceQuotas":
            return self._list(call, applied=True)
        if call.operation == "ListAWSDefaultServiceQuotas":
            return self._list(call, applied=False)
        raise AwsError("UnknownOperationException", f"{call.operation} is not rehearsed")

    def _one(self, call: AwsCall, *, applied: bool) -> Mapping[str, Any]:
        wanted = call.params["QuotaCode"]
        for quota in self._quotas(call.account_id, call.region):
            if quota.code == wanted:
                return _told(call, quota, applied=applied)
        raise AwsError(
            "NoSuchResourceException",
            "The request failed because the specified quota does not exist in the requested service",
        )

    def _list(self, call: AwsCall, *, applied: bool) -> Mapping[str, Any]:
        told = [
            _told(call, quota, applied=applied)
            for quota in sorted(
                self._quotas(call.account_id, call.region), key=lambda quota: quota.name
            )
            if quota.code == call.params.get("QuotaCode", quota.code)
        ]
        size = call.params.get("MaxResults", _MOST_IN_PAGE)
        token = call.params.get("NextToken", "")
        page, following = page_of(told, size, token, refusal="InvalidPaginationTokenException")
        return {"Quotas": page, **({"NextToken": following} if following else {})}


def _told(call: AwsCall, quota: AppliedQuota, *, applied: bool) -> dict[str, Any]:
    owner = call.account_id if applied else ""
    return {
        "ServiceCode": _SERVICE_CODE,
        "ServiceName": _SERVICE_NAME,
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:{owner}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": quota.vcpus if applied else _DEFAULTS.get(quota.code, 0.0),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }
