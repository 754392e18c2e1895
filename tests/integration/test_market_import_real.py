"""Importers on the published data sets; skipped where they are absent."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from spotline.adapters.market.importing import import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parquet import read_market, write_market
from spotline.adapters.market.parse import time_ns
from spotline.domain.market.market import INFERRED, OBSERVED, UNKNOWN
from spotline.domain.market.statistics import measure

DATA = Path(
    os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")
)
SKYPILOT = DATA / "spot-traces-skypilot" / "availability"
AWS = DATA / "spot-price-aws-gpu-2020" / "aws_spot_price_2019-12-20_2020-03-23.csv.gz"
PRIME = DATA / "gpu-market-prime-intellect"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not DATA.is_dir(), reason=f"real data absent: no folder {DATA}; set SPOTLINE_DATA"
    ),
]


@pytest.mark.parametrize(("slot_s", "slots"), [(300, 3247), (1800, 542)])
def test_two_gang_zones_with_aws_prices(tmp_path, slot_s, slots):
    files = sorted((SKYPILOT / "16-node" / "aws-08-27-2023").glob("*.json"))
    options = ImportOptions(
        price=AWS, start_ns=time_ns("2023-08-27T00:00:00Z", "test"), slot_s=slot_s
    )
    market = import_market("skypilot", files, options)
    assert [o.zone for o in market.offerings] == ["us-east-2b", "us-west-2a"]
    assert (market.slots, market.slot_s) == (slots, slot_s)
    assert (market.spot_provenance == OBSERVED).all()
    assert market.spot_price_micro_usd.min() == 918_000
    assert market.source.count("synthetic pairing") == 2

    first = measure(market).offerings[0].availability
    assert first.most_instances == 16
    assert 0.60 <= first.up_fraction <= 0.66
    assert first.none_or_full_fraction > 0.8

    write_market(market, tmp_path / "m.parquet")
    assert (read_market(tmp_path / "m.parquet").spot_available == market.spot_available).all()


def test_nine_aligned_zones_are_nearly_never_all_down():
    files = sorted((SKYPILOT / "1-node" / "aws-02-15-2023").glob("*.json"))
    options = ImportOptions(price=Decimal(1), start_ns=time_ns("2023-02-15T00:00:00Z", "test"))
    market = import_market("skypilot", files, options)
    statistics = measure(market)
    assert len(market.offerings) == 9
    assert statistics.any_up_fraction == pytest.approx(0.992, abs=0.001)


def test_aws_prices_are_sticky():
    options = ImportOptions(instance_type="p3.2xlarge", zones=("us-east-1", "us-west-2"))
    market = import_market("aws-spot-price-history", [AWS], options)
    assert len(market.offerings) == 7
    assert (market.spot_provenance == UNKNOWN).all()
    for one in measure(market).offerings:
        assert 0.30 <= one.price.mean_fraction_of_on_demand <= 0.35
        assert 1.5 <= one.price.changes_per_day <= 4.5
        assert one.availability is None


def test_prime_intellect_snapshots_of_two_gpus():
    files = [PRIME / "H100_80GB_PCIe.jsonl.gz", PRIME / "B200_180GB.jsonl.gz"]
    market = import_market("prime-intellect", files, ImportOptions(instance_type="8x"))
    assert [o.gpus_per_instance for o in market.offerings] == [8, 8]
    assert (market.spot_provenance == INFERRED).all()
    assert market.slots == 1315
    assert market.spot_price_micro_usd[:, 0].max() < market.spot_price_micro_usd[:, 1].max()
