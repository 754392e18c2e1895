"""Spot prices beside a bill."""

from __future__ import annotations

import json

import pytest

from spotline.adapters.bills.assessing import read_assessed
from spotline.contracts.errors import ContractError
from spotline.domain.assessment.facts import HiredMachine, SpotPriceSeries
from tests.fakes.bills import focus
from tests.fakes.bills.drawn import Drawn


def entry(at, price, product="Linux/UNIX"):
    return {
        "AvailabilityZone": "us-east-2b",
        "InstanceType": "p4d.24xlarge",
        "ProductDescription": product,
        "SpotPrice": price,
        "Timestamp": at,
    }


def assessed(tmp_path, entries):
    bill = focus.written(tmp_path / "bill.csv", Drawn(1, jobs=1, days=4).charges())
    (tmp_path / "prices.json").write_text(json.dumps({"SpotPriceHistory": entries}))
    return read_assessed(bill, jobs=None, prices=tmp_path / "prices.json")


def test_a_history_as_aws_tells_it_the_latest_first(tmp_path):
    bill = assessed(
        tmp_path,
        [
            entry("2026-09-02T00:00:00+00:00", "11.5"),
            entry("2026-09-01T00:00:00+00:00", "9.8301"),
            entry("2026-09-01T12:00:00+00:00", "20", product="Windows"),
        ],
    )

    machine = HiredMachine(
        provider="aws", region="us-east-2", zone="us-east-2b", instance_type="p4d.24xlarge", gpus=8
    )
    assert bill.prices == (
        SpotPriceSeries(
            machine=machine,
            times_s=(1_788_220_800, 1_788_307_200),
            prices_micro=(9_830_100, 11_500_000),
        ),
    )


def test_a_price_that_is_wrong_is_named(tmp_path):
    with pytest.raises(ContractError, match=r"prices\.json: entry 1, field SpotPrice: expected"):
        assessed(tmp_path, [entry("2026-09-02T00:00:00+00:00", "cheap")])
