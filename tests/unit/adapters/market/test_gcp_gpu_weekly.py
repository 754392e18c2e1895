"""Reader of weekly GPU prices."""

import pytest

from spotline.adapters.market.importers.gcp_gpu_weekly import read_gcp_gpu_prices
from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError

HEADER = "observed_at,machine_type,region,on_demand_usd_per_hour,spot_usd_per_hour,commit\n"
ROWS = (
    "2024-02-01T00:00:00Z,a2-highgpu-1g,us-east1,3.7,1.2,b\n"
    "2024-01-01T00:00:00Z,a2-highgpu-1g,us-east1,3.7,1.1,a\n"
    "2024-01-01T00:00:00Z,a2-highgpu-1g,asia-east1,4.1,1.5,a\n"
    "2024-01-01T00:00:00Z,g2-standard-8,us-east1,0.9,0.3,a\n"
)


def _table(folder, rows=ROWS):
    path = folder / "prices.csv"
    path.write_text(HEADER + rows)
    return path


def test_price_holds_from_its_observation_until_the_next(tmp_path):
    prices = read_gcp_gpu_prices(_table(tmp_path), "a2-highgpu-1g")

    assert list(prices) == ["asia-east1", "us-east1"]
    east = prices["us-east1"]
    assert east.spot_at(time_ns("2024-01-20T00:00:00Z", "test")) == 1.1
    assert east.spot_at(time_ns("2024-03-01T00:00:00Z", "test")) == 1.2
    assert east.on_demand_usd_per_hour.tolist() == [3.7, 3.7]
    with pytest.raises(ValueError, match="no price as early"):
        east.spot_at(time_ns("2023-12-01T00:00:00Z", "test"))


def test_unknown_machine_type_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(ContractError, match="g2-standard-8"):
        read_gcp_gpu_prices(_table(tmp_path), "a9-nothing")


@pytest.mark.parametrize(
    ("row", "where"),
    [
        ("yesterday,a2-highgpu-1g,us-east1,3.7,1.2,b\n", "field observed_at"),
        ("2024-02-01T00:00:00Z,a2-highgpu-1g,us-east1,3.7,free,b\n", "field spot_usd_per_hour"),
        ("2024-02-01T00:00:00Z,a2-highgpu-1g,us-east1,0,1.2,b\n", "field on_demand_usd_per_hour"),
    ],
)
def test_row_that_makes_no_sense_is_refused(tmp_path, row, where):
    with pytest.raises(ContractError) as caught:
        read_gcp_gpu_prices(_table(tmp_path, row), "a2-highgpu-1g")
    assert where in caught.value.where
