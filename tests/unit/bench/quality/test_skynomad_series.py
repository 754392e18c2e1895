"""Real counts and real prices of the same days, as the quality benchmark reads them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from spotline.bench.quality.families import load_families
from spotline.bench.quality.skynomad_series import read_h100, read_v100_prices, with_prices
from spotline.contracts.errors import ContractError

REAL = Path(os.environ.get("SPOTLINE_DATA", Path(__file__).resolve().parents[5] / "shared/data"))


def write_zone(root: Path, zone: str, counts: list[int]) -> None:
    folder = root / "spot-traces-skypilot" / "availability" / "16-node" / "aws-08-27-2023"
    folder.mkdir(parents=True)
    trace = {"metadata": {"gap_seconds": 1800}, "data": counts}
    (folder / f"{zone}_v100_1.json").write_text(json.dumps(trace), encoding="utf-8")


def write_probes(root: Path, *, gpus: str = "8") -> None:
    folder = root / "spot-skynomad"
    folder.mkdir(parents=True)
    rounds = [
        f"2025-10-04T{10 * k // 60:02d}:{10 * k % 60:02d}:00Z,us-east4-a,{count},16,0"
        for k, count in ((0, 16), (1, 12), (3, 4), (6, 0))
    ]
    header = "time_utc,zone,created,requested,capacity_exhausted"
    (folder / "h100_counts.csv.gz").write_bytes(
        gzip.compress("\n".join((header, *rounds, "")).encode())
    )
    (folder / "h100_prices.csv").write_text(
        "region,machine_type,gpus,spot_usd_per_machine_hour,on_demand_usd_per_machine_hour\n"
        f"us-east4,a3-highgpu-8g,{gpus},16,80\n",
        encoding="utf-8",
    )


def test_probe_rounds_become_slots_and_missing_ones_are_carried_forward(tmp_path: Path) -> None:
    write_probes(tmp_path)

    (market,) = read_h100(tmp_path, 600)

    assert market.spot_available[:, 0].tolist() == [16, 12, 12, 4, 4, 4, 0]
    assert set(market.spot_price_micro_usd[:, 0].tolist()) == {2_000_000}
    assert set(market.on_demand_price_micro_usd[:, 0].tolist()) == {10_000_000}
    assert read_h100(tmp_path / "elsewhere", 600) == ()


def test_a_machine_without_gpus_is_refused_by_its_line(tmp_path: Path) -> None:
    write_probes(tmp_path, gpus="0")

    with pytest.raises(ContractError, match=r"gpus.*expected a number >= 1, found 0"):
        read_h100(tmp_path, 600)


def test_recorded_prices_hold_from_their_change_on(tmp_path: Path) -> None:
    folder = tmp_path / "spot-skynomad"
    folder.mkdir()
    (folder / "v100_spot_prices_2023.csv.gz").write_bytes(
        gzip.compress(
            b"time,zone,instance_type,spot_usd_per_instance_hour\n"
            b"2023-08-27T00:00:00Z,us-east-2b,p3.2xlarge,1.5\n"
            b"2023-08-27T00:40:00Z,us-east-2b,p3.2xlarge,1.25\n"
        )
    )
    prices = read_v100_prices(tmp_path)
    write_zone(tmp_path, "us-east-2b", [16, 0, 16])
    market = load_families(tmp_path, names=("16-node",))[0][0].series[0].market

    priced = with_prices(market, prices)

    assert priced.spot_price_micro_usd[:3, 0].tolist() == [1_500_000, 1_500_000, 1_250_000]
    with pytest.raises(ContractError, match="expected prices of us-east-2b"):
        with_prices(market, {})


@pytest.mark.skipif(not (REAL / "spot-skynomad").is_dir(), reason=f"no recorded data in {REAL}")
def test_the_first_four_days_of_h100_are_learned_from() -> None:
    nine, family = load_families(REAL, names=("h100", "nine-zones"))[0]

    assert (nine.name, family.name) == ("nine-zones", "h100")
    assert {one.half for one in family.series} == {4 * 48}
    assert len(family.series) == len(nine.series) == 9
