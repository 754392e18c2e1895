"""The Price List: on-demand prices as AWS's query API gives them, one JSON text for each product.

An instance type has several products, as it has at AWS: by operating system, tenancy, and what
becomes of a capacity reservation. Who filters by too little gets prices of other things.
"""

from __future__ import annotations

import base64
import datetime
import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spotline.rehearsal.aws.pages import page_of
from spotline.rehearsal.aws.service import AwsCall, AwsError

# The Price List Query API's endpoints of the commercial partition:
# https://docs.aws.amazon.com/general/latest/gr/billing.html
REGIONS = ("us-east-1", "eu-central-1", "ap-south-1")
_SERVICE_CODE = "AmazonEC2"
_MOST_IN_PAGE = 100
_TERM, _RATE = "JRTCKXETXF", "6YS6EN2CT7"
_MICRO = 10**6

# Operating system, tenancy, capacity status, operation, and times the list price: made up but for
# the first, which is the market's.
_PRODUCTS = (
    ("Linux", "Shared", "Used", "RunInstances", 1.0),
    ("Linux", "Shared", "UnusedCapacityReservation", "RunInstances", 1.0),
    ("Linux", "Shared", "AllocatedCapacityReservation", "RunInstances", 0.0),
    ("Linux", "Dedicated", "Used", "RunInstances", 1.1),
    ("Windows", "Shared", "Used", "RunInstances:0002", 1.5),
)
_USAGE = {
    "Used": "BoxUsage",
    "UnusedCapacityReservation": "UnusedBox",
    "AllocatedCapacityReservation": "Reservation",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedType:
    """An instance type in a region, with its list price in micro-dollars an hour."""

    region: str
    instance_type: str
    vcpus: int
    memory_gib: float
    gpus: int
    on_demand_micro_usd_per_hour: int


class Pricing:
    """The service.

    Parameters
    ----------
    listed
        What is sold now; asked at each call, as prices change.
    now_ns
        Market time.
    """

    name = "pricing"

    def __init__(
        self, listed: Callable[[], Iterable[ListedType]], *, now_ns: Callable[[], int]
    ) -> None:
        self._listed = listed
        self._now_ns = now_ns

    async def answer(self, call: AwsCall) -> Mapping[str, Any]:
        """Answer a call of the Price List."""
        if call.region not in REGIONS:
            raise AwsError(
                "InvalidSignatureException",
                "Credential should be scoped to a valid region: the Price List is in "
                f"{', '.join(REGIONS)}, not in {call.region}",
            )
        if call.operation != "GetProducts":
            raise AwsError("UnknownOperationException", f"{call.operation} is not rehearsed")
        if call.params["ServiceCode"] != _SERVICE_CODE:
            raise AwsError("NotFoundException", f"{call.params['ServiceCode']} is not rehearsed")
        if call.params.get("FormatVersion", "aws_v1") != "aws_v1":
            raise AwsError("InvalidParameterException", "FormatVersion must be aws_v1")
        return self._products(call)

    def _products(self, call: AwsCall) -> Mapping[str, Any]:
        published = datetime.datetime.fromtimestamp(self._now_ns() // 10**9, tz=datetime.UTC)
        filters = call.params.get("Filters", ())
        found = [
            json.dumps(product, separators=(",", ":"))
            for listed in self._listed()
            for product in _products_of(listed, published)
            if all(_passes(one, product["product"]) for one in filters)
        ]
        size = call.params.get("MaxResults", _MOST_IN_PAGE)
        token = call.params.get("NextToken", "")
        page, following = page_of(found, size, token, refusal="InvalidNextTokenException")
        told: dict[str, Any] = {"FormatVersion": "aws_v1", "PriceList": page}
        return {**told, "NextToken": following} if following else told


def _passes(one: Mapping[str, str], product: Mapping[str, Any]) -> bool:
    """Whether a product passes a filter; a field that it lacks passes none but NONE_OF."""
    attributes = {
        **product["attributes"],
        "productFamily": product["productFamily"],
        "sku": product["sku"],
    }
    # The query API's fields go by AWS's own spelling, whatever the case: servicecode, ServiceCode.
    lowered = {name.lower(): str(value) for name, value in attributes.items()}
    value = lowered.get(one["Field"].lower())
    kind, wanted = one["Type"], one["Value"]
    if kind in ("TERM_MATCH", "EQUALS"):
        return value == wanted
    if kind == "CONTAINS":
        return value is not None and wanted in value
    listed = [part.strip() for part in wanted.split(",")]
    return (value in listed) if kind == "ANY_OF" else (value not in listed)


def _products_of(listed: ListedType, published: datetime.datetime) -> Iterator[dict[str, Any]]:
    for system, tenancy, capacity, operation, times in _PRODUCTS:
        usage = f"{_USAGE[capacity]}:{listed.instance_type}"
        if tenancy == "Dedicated":
            usage = usage.replace("Box", "Dedicated", 1)
        prefix = "" if listed.region == "us-east-1" else f"{listed.region}-"
        sku = _sku(listed.region, listed.instance_type, system, tenancy, capacity)
        attributes = {
            "instanceType": listed.instance_type,
            "vcpu": str(listed.vcpus),
            "memory": f"{listed.memory_gib:g} GiB",
            "gpu": str(listed.gpus),
            "instanceFamily": "GPU instance",
            "currentGeneration": "Yes",
            "operatingSystem": system,
            "preInstalledSw": "NA",
            "licenseModel": "No License required",
            "tenancy": tenancy,
            "capacitystatus": capacity,
            "marketoption": "OnDemand",
            "operation": operation,
            "usagetype": prefix + usage,
            "regionCode": listed.region,
            "location": location_of(listed.region),
            "locationType": "AWS Region",
            "availabilityzone": "NA",
            "servicecode": _SERVICE_CODE,
            "servicename": "Amazon Elastic Compute Cloud",
        }
        yield {
            "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
            "serviceCode": _SERVICE_CODE,
            "terms": {"OnDemand": _terms(listed, attributes, sku, times)},
            "version": f"{published:%Y%m%d%H%M%S}",
            "publicationDate": f"{published:%Y-%m-%dT%H:%M:%SZ}",
        }


def _terms(
    listed: ListedType, attributes: Mapping[str, str], sku: str, times: float
) -> dict[str, Any]:
    micro = round(listed.on_demand_micro_usd_per_hour * times)
    # AWS writes ten decimals.
    usd = f"{micro // _MICRO}.{micro % _MICRO:06d}0000"
    what = {"Used": "On Demand", "UnusedCapacityReservation": "Unused Reservation"}.get(
        attributes["capacitystatus"], "Reservation"
    )
    rate = f"{sku}.{_TERM}.{_RATE}"
    return {
        f"{sku}.{_TERM}": {
            "priceDimensions": {
                rate: {
                    "unit": "Hrs",
                    "beginRange": "0",
                    "endRange": "Inf",
                    "description": f"${usd} per {what} {attributes['operatingSystem']} "
                    f"{listed.instance_type} Instance Hour",
                    "appliesTo": [],
                    "rateCode": rate,
                    "pricePerUnit": {"USD": usd},
                }
            },
            "sku": sku,
            "effectiveDate": "2024-01-01T00:00:00Z",
            "offerTermCode": _TERM,
            "termAttributes": {},
        }
    }


def _sku(*names: str) -> str:
    return base64.b32encode(hashlib.sha256("|".join(names).encode()).digest()).decode()[:16]


@functools.cache
def location_of(region: str) -> str:
    """A region's long name, `US East (N. Virginia)`; its code where AWS has none of that code."""
    from botocore.loaders import Loader

    for partition in Loader().load_data("partitions")["partitions"]:
        if region in partition["regions"]:
            return str(partition["regions"][region].get("description", region))
    return region
