"""What the Price List says, and what it says to those who filter by too little."""

from __future__ import annotations

import asyncio
import json

import pytest

from spotline.rehearsal.aws.pricing import ListedType, Pricing, location_of
from spotline.rehearsal.aws.service import AwsCall, AwsError
from spotline.rehearsal.aws.wire.models import describe, unfitting

LISTED = [
    ListedType(
        region=region, instance_type=kind, vcpus=96, memory_gib=1152, gpus=8,
        on_demand_micro_usd_per_hour=price,
    )
    for region, kind, price in (
        ("eu-west-1", "p4d.24xlarge", 35_396_540),
        ("us-east-1", "p4d.24xlarge", 32_772_600),
        ("us-east-1", "p5.48xlarge", 98_320_000),
    )
]  # fmt: skip
ALL = {
    "regionCode": "us-east-1",
    "instanceType": "p4d.24xlarge",
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "capacitystatus": "Used",
    "preInstalledSw": "NA",
}


def asked(region="us-east-1", operation="GetProducts", **params):
    pricing = Pricing(lambda: LISTED, now_ns=lambda: 1_700_000_000 * 10**9)
    call = AwsCall(
        service="pricing", operation=operation, params={"ServiceCode": "AmazonEC2", **params},
        region=region, account_id="000000000001", access_key="AKIA", request_id="id",
    )  # fmt: skip
    answer = asyncio.run(pricing.answer(call))
    assert unfitting(answer, describe("pricing").operation(operation).output_shape) == ""
    return answer


def filters(fields):
    return [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]


def test_one_product_is_left_where_everything_is_said():
    (text,) = asked(Filters=filters(ALL))["PriceList"]

    product = json.loads(text)
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert dimension["pricePerUnit"] == {"USD": "32.7726000000"}
    assert dimension["unit"] == "Hrs"
    assert dimension["rateCode"].startswith(f"{product['product']['sku']}.JRTCKXETXF.")
    assert product["product"]["attributes"]["location"] == "US East (N. Virginia)"


@pytest.mark.parametrize(
    "forgotten", ["operatingSystem", "tenancy", "capacitystatus", "regionCode"]
)
def test_who_forgets_a_filter_gets_prices_of_other_things(forgotten):
    said = {name: value for name, value in ALL.items() if name != forgotten}

    assert len(asked(Filters=filters(said))["PriceList"]) > 1


def test_pages_hold_all_products_once():
    pages, token = [], None
    while token or not pages:
        more = {"NextToken": token} if token else {}
        page = asked(MaxResults=4, **more)
        pages.append(page["PriceList"])
        token = page.get("NextToken")

    assert [len(page) for page in pages] == [4, 4, 4, 3]
    skus = [json.loads(text)["product"]["sku"] for page in pages for text in page]
    assert len(set(skus)) == 15
    with pytest.raises(AwsError, match="InvalidNextTokenException"):
        asked(NextToken="mine")


def test_filters_are_of_five_kinds():
    def found(kind, value):
        wanted = [{"Type": kind, "Field": "instanceType", "Value": value}]
        return len(asked(Filters=wanted)["PriceList"])

    assert found("EQUALS", "p5.48xlarge") == 5
    assert found("CONTAINS", "xlarge") == 15
    assert found("ANY_OF", "p5.48xlarge,p4d.24xlarge") == 15
    assert found("NONE_OF", "p5.48xlarge") == 10


def test_there_is_no_price_list_in_most_regions():
    for region in ("eu-central-1", "ap-south-1"):
        assert asked(region=region)["PriceList"]
    with pytest.raises(AwsError, match="valid region"):
        asked(region="eu-west-1")


def test_region_that_nobody_knows_has_its_code_for_a_name():
    assert location_of("mars-north-1") == "mars-north-1"
