"""Prices of a geography over time: steps, tables beside the file, and public price lists."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.energy.entsoe import DAY_AHEAD_FILE
from spotline.adapters.files.geography.geography_file import parse_geography, read_geography
from spotline.adapters.market.importers.gcp_gpu_weekly import GCP_GPU_FILE
from spotline.adapters.network.skyplane import EGRESS_FILE, THROUGHPUT_FILE
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.contracts.errors import ContractError
from spotline.domain.events.placement import RegionObserved
from spotline.domain.market.generate import generate
from spotline.domain.placement.price_steps import MOST_HOURS, PriceSteps
from tests.fakes.placer import START_NS

EXAMPLES = Path(__file__).parents[5] / "docs" / "examples"
DATA = Path(os.environ.get("SPOTLINE_DATA", "../shared/data"))
HOUR_S = 3600

CSV = """\
at,where,kwh,rent
2026-01-01T00:00:00Z,a,100,8.0
2026-01-01T00:00:00Z,b,900,9.0
2026-01-01T02:00:00+01:00,a,50,8.0
2026-01-01T02:00:00Z,a,-10,4.0
"""
ENERGY = "{format: csv, file: p.csv, time: at, price: kwh, unit: usd_per_mwh, only: {where: a}}"
RENT = (
    "{format: csv, file: p.csv, time: at, price: rent, unit: usd_per_instance_hour, "
    "gpus_per_instance: 8, only: {where: a}}"
)


def geography_of(
    folder: Path, energy: object = 0.1, rent: object = 0.0, begins="2026-01-01T00:00:00Z"
):
    """A geography of one region, a table of prices beside it."""
    (folder / "p.csv").write_text(CSV)
    text = f"begins: {begins}\nregions:\n  - id: a\n    gpus: 8\n"
    text += f"    energy_usd_per_kwh: {energy}\n    rent_usd_per_gpu_hour: {rent}\n"
    return parse_geography(text, where="geography.yaml", folder=folder)


def rents(geography, *hours: float) -> list[float]:
    return [geography.region_at("a", hour * HOUR_S).region.rent_usd_per_gpu_hour for hour in hours]


# --- steps ------------------------------------------------------------------------------------


def test_prices_of_an_hour_are_averaged_by_how_long_they_hold() -> None:
    steps = PriceSteps.spaced([1.0, 2.0, 6.0], every_hours=0.75)

    # 45 min of 1 and 15 of 2, then 30 of 2 and 30 of 6.
    assert steps.hourly() == pytest.approx((1.25, 4.0, 6.0))


@given(
    prices=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12),
    every_hours=st.sampled_from([0.25, 1 / 3, 1.0, 7.0]),
)
def test_hours_cost_together_what_the_steps_do(prices, every_hours) -> None:
    steps = PriceSteps.spaced(prices, every_hours=every_hours)

    hourly = steps.hourly()

    edges = np.append(steps.after_s, len(hourly) * HOUR_S)
    assert sum(hourly) * HOUR_S == pytest.approx(
        float(np.diff(edges) @ steps.usd), rel=1e-9, abs=1e-5
    )
    assert hourly[-1] == steps.at(1e12) == prices[-1]


@given(prices=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_hourly_prices_stay_what_they_are(prices) -> None:
    assert PriceSteps.spaced(prices).hourly() == tuple(prices)


# --- rents ------------------------------------------------------------------------------------


def test_rents_may_be_hourly_or_spaced_and_the_last_holds_on(tmp_path: Path) -> None:
    hourly = geography_of(tmp_path, rent="[2.0, 1.0]")
    weekly = geography_of(tmp_path, rent="{every_hours: 168, prices: [2.0, 1.0]}")

    assert rents(hourly, 0, 0.9, 1, 1000) == [2.0, 2.0, 1.0, 1.0]
    assert rents(weekly, 0, 167.9, 168, 10_000) == [2.0, 2.0, 1.0, 1.0]
    assert weekly.graph_at(200 * HOUR_S).regions[0].rent_usd_per_gpu_hour == 1.0


def test_a_slot_shows_a_region_whose_rent_alone_changed_with_both_its_prices(
    tmp_path: Path,
) -> None:
    geography = geography_of(tmp_path, energy="[0.1, 0.1, 0.3]", rent="[2.0, 1.0]")
    market = generate("mixed", seed=3, slots=4, slot_s=HOUR_S, start_ns=START_NS)
    handler = IngestHandler(market, IngestOptions(), geography)

    slots = [
        [event for event in handler.slot_events(slot) if isinstance(event, RegionObserved)]
        for slot in range(4)
    ]

    shown = [
        (event.region.energy_usd_per_kwh, event.region.rent_usd_per_gpu_hour)
        for slot in slots
        for event in slot
    ]
    assert shown == [(0.1, 2.0), (0.1, 1.0), (0.3, 1.0)]
    assert slots[3] == []


# --- tables -----------------------------------------------------------------------------------


def test_a_csv_table_gives_energy_and_rent_in_the_units_it_names(tmp_path: Path) -> None:
    geography = geography_of(tmp_path, ENERGY, RENT)

    first = geography.region_at("a", 0)
    assert (first.region.energy_usd_per_kwh, *first.ahead) == pytest.approx((0.1, 0.05, -0.01))
    assert rents(geography, 0, 1.9, 2) == [1.0, 1.0, 0.5]


def test_the_series_begins_where_the_geography_does(tmp_path: Path) -> None:
    geography = geography_of(tmp_path, ENERGY, RENT, begins="2026-01-01T01:30:00Z")

    first = geography.region_at("a", 0)
    # Half an hour of 50 and half an hour of -10 USD per MWh.
    assert (first.region.energy_usd_per_kwh, *first.ahead) == pytest.approx((0.02, -0.01))
    assert rents(geography, 0, 0.4, 0.5) == [1.0, 1.0, 0.5]


def test_euros_are_turned_into_dollars_at_the_stated_price(tmp_path: Path) -> None:
    euros = ENERGY.replace("unit: usd_per_mwh", "unit: eur_per_mwh, usd_per_eur: 1.1")

    geography = geography_of(tmp_path, euros)

    assert geography.region_at("a", 0).region.energy_usd_per_kwh == pytest.approx(0.11)


TIMES = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in (0, 1, 2)]


@pytest.mark.parametrize(
    "times",
    [
        pa.array(TIMES, pa.timestamp("us", tz="UTC")),
        pa.array(TIMES, pa.timestamp("ns", tz="Europe/Paris")),
        pa.array([one.isoformat() for one in TIMES]),
    ],
    ids=["utc", "another_zone", "text"],
)
def test_a_parquet_table_gives_what_a_csv_table_does(tmp_path: Path, times) -> None:
    columns = {"at": times, "rent": [8.0, 8.0, 4.0], "where": ["a", "a", "a"]}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")

    geography = geography_of(
        tmp_path, rent=RENT.replace("format: csv, file: p.csv", "format: parquet, file: p.parquet")
    )

    assert rents(geography, 0, 1.9, 2) == [1.0, 1.0, 0.5]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([0], pa.timestamp("ns")), "row 1, field at: expected a time with UTC offset"),
        (pa.array([1_700_000_000]), "row 1, field at: expected a time with UTC offset"),
        (pa.array(["2026-01-01T00:00:00"]), "row 1, field at: expected a time with UTC offset"),
        (pa.array([None], pa.string()), "row 1, field at: expected a time with UTC offset"),
        (
            pa.array([-8_500_000_000], pa.timestamp("s", tz="UTC")),
            "row 1, field at: expected a year in 1971..2199",
        ),
        (
            pa.array([10**12], pa.timestamp("s", tz="UTC")),
            "p.parquet: expected a whole Parquet file",
        ),
    ],
    ids=["naive", "seconds", "naive_text", "empty", "too_early", "beyond_nanoseconds"],
)
def test_parquet_times_that_could_mean_anything_are_refused(tmp_path, column, said) -> None:
    pq.write_table(pa.table({"at": column, "rent": [8.0]}), tmp_path / "p.parquet")
    stated = "{format: parquet, file: p.parquet, time: at, price: rent, unit: usd_per_gpu_hour}"

    with pytest.raises(ContractError) as caught:
        geography_of(tmp_path, rent=stated)

    assert said in str(caught.value)


def test_the_example_has_rents_in_steps_of_both_kinds() -> None:
    geography = read_geography(EXAMPLES / "geography-series.yaml")

    virginia = [geography.region_at("virginia", hour * HOUR_S).region for hour in range(4)]
    ireland = geography.region_at("ireland", 169 * HOUR_S).region
    assert [one.rent_usd_per_gpu_hour for one in virginia] == pytest.approx([1.4, 1.4, 1.4, 1.35])
    assert [one.energy_usd_per_kwh for one in virginia] == pytest.approx(
        [0.156, 0.151, 0.149, 0.149]
    )
    assert (ireland.rent_usd_per_gpu_hour, ireland.energy_usd_per_kwh) == (1.05, 0.18)


# --- public price lists -----------------------------------------------------------------------


def test_weekly_prices_of_a_whole_vm_become_rents_of_its_gpus(tmp_path: Path) -> None:
    (tmp_path / "gcp.csv").write_text(
        "observed_at,machine_type,region,on_demand_usd_per_hour,spot_usd_per_hour\n"
        "2025-12-30T13:00:00Z,a3-highgpu-8g,us-east1,80,16\n"
        "2026-01-02T00:00:00Z,a3-highgpu-8g,us-east1,72,24\n"
    )
    stated = (
        "{format: gcp_gpu_weekly, file: gcp.csv, machine_type: a3-highgpu-8g, region: us-east1, "
        "price: spot, gpus_per_instance: 8}"
    )

    spot = geography_of(tmp_path, rent=stated)
    on_demand = geography_of(tmp_path, rent=stated.replace("spot,", "on_demand,"))

    assert rents(spot, 0, 23, 24) == [2.0, 2.0, 3.0]
    assert rents(on_demand, 0, 24) == [10.0, 9.0]
    with pytest.raises(ContractError, match="expected the region us-west1, found us-east1"):
        geography_of(tmp_path, rent=stated.replace("us-east1", "us-west1"))


def test_day_ahead_prices_of_several_zones_come_from_one_file(tmp_path: Path) -> None:
    rows = "".join(
        f"2024-02-05,{hour},X,BZN {zone},{price}\n"
        for zone, price in (("FR", 50), ("NL", 80))
        for hour in range(24)
    )
    (tmp_path / "e.csv").write_text(f"date,hour,country,area,price_eur_mwh\n{rows}")
    stated = "{{format: entsoe, file: e.csv, zone: {}, usd_per_eur: 1.1}}"
    text = "begins: 2024-02-05T06:00:00Z\nregions:\n"
    for zone in ("FR", "NL"):
        text += f"  - {{id: {zone}, gpus: 8, energy_usd_per_kwh: {stated.format(zone)}}}\n"

    geography = parse_geography(text, where="geography.yaml", folder=tmp_path)

    found = [geography.region_at(zone, 0) for zone in ("FR", "NL")]
    assert [one.region.energy_usd_per_kwh for one in found] == pytest.approx([0.055, 0.088])
    # The last delivery hour began at 22:00 UTC.
    assert [len(one.ahead) for one in found] == [16, 16]


SKYPLANE = """
regions:
  - {id: x, gpus: 8, energy_usd_per_kwh: 0.1}
  - {id: y, gpus: 8, energy_usd_per_kwh: 0.1}
skyplane_links:
  throughput: t.csv
  egress: e.csv
  vms: 4
  regions: {x: "aws:us-east-1", y: "gcp:us-east1-b"}
"""


def skyplane_tables(folder: Path) -> None:
    header = "src_region,src_tier,dst_region,dst_tier,throughput_received,success\n"
    pairs = [("aws:us-east-1", "gcp:us-east1-b", 4e9), ("gcp:us-east1-b", "aws:us-east-1", 8e9)]
    (folder / "t.csv").write_text(
        header + "".join(f"{one},PREMIUM,{two},PREMIUM,{bits},True\n" for one, two, bits in pairs)
    )
    (folder / "e.csv").write_text(
        "src,dest,cost\naws:us-east-1,gcp:us-east1-b,0.09\ngcp:us-east1-b,aws:us-east-1,0.12\n"
    )


def test_measured_pairs_become_links_of_so_many_vms(tmp_path: Path) -> None:
    skyplane_tables(tmp_path)

    geography = parse_geography(SKYPLANE, where="geography.yaml", folder=tmp_path)

    assert {ends: link.bytes_per_s for ends, link in geography.links.items()} == {
        ("x", "y"): 2e9,
        ("y", "x"): 4e9,
    }
    assert geography.links["x", "y"].egress_usd_per_gb == 0.09


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("gcp:us-east1-b", "gcp:us-west1-a"), "the pair aws:us-east-1 -> gcp:us-west1-a"),
        (("t.csv", "nowhere.csv"), "skyplane_links: "),
        (("vms: 4", "vms: 0"), "skyplane_links.vms: expected a number >= 1, found 0"),
        (("y: ", "z: "), "no region z"),
    ],
)
def test_links_that_were_not_measured_are_refused(tmp_path: Path, change, said) -> None:
    skyplane_tables(tmp_path)

    with pytest.raises(ContractError) as caught:
        parse_geography(SKYPLANE.replace(*change), where="geography.yaml", folder=tmp_path)

    assert said in str(caught.value)


# --- mistakes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("p.csv", "nowhere.csv"), "nowhere.csv: expected a file, found none"),
        (("time: at", "time: when"), "expected the column when, found at, where, kwh, rent"),
        (("only: {where: a}", "only: {where: c}"), "expected rows with where: c"),
        ((", only: {where: a}", ""), "line 3: expected one price per time"),
        (
            ("usd_per_instance_hour", "usd"),
            "rent_usd_per_gpu_hour.unit: expected one of usd_per_gpu_hour or",
        ),
        (("gpus_per_instance: 8, ", ""), "expected gpus_per_instance with the unit"),
        (
            ("gpus_per_instance: 8", "gpus_per_instance: 0"),
            "gpus_per_instance: expected a number >= 1, found 0",
        ),
        (("price: rent", "price: where"), "line 2, field where: expected a number, found 'a'"),
        (("price: rent", "price: kwh"), "expected prices in 0..1e+06 USD, found -1.25"),
        (("format: csv", "format: xls"), "with every_hours or a format of csv, parquet, gcp_gpu_"),
        (
            ("format: csv, ", ""),
            "rent_usd_per_gpu_hour.every_hours: expected this field, found nothing",
        ),
        (("format: csv", "format: parquet"), "p.csv: expected a whole Parquet file"),
    ],
)
def test_a_mistake_in_a_series_is_named(tmp_path: Path, change, said) -> None:
    with pytest.raises(ContractError) as caught:
        geography_of(tmp_path, rent=RENT.replace(*change))

    message = str(caught.value)
    assert said in message
    assert message.startswith("geography.yaml: regions[0].rent_usd_per_gpu_hour")


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (
            "2025-12-31T22:00:00Z",
            "a price at begins or before it, found the first 2.0 hours after it",
        ),
        ("2026-01-01T07:00:00Z", "prices from begins on, found the last 5.0 hours before it"),
        ("1971-01-01T00:00:00Z", "found the first"),
        ("2026-01-01T00:00:00", "begins: expected a time with its UTC offset"),
        ("2026-01-01", "begins: expected a time with its UTC offset"),
        ("null", "expected begins, such as 2026-01-01T00:00:00Z"),
    ],
)
def test_a_beginning_outside_the_series_is_refused(tmp_path: Path, begins, said) -> None:
    with pytest.raises(ContractError) as caught:
        geography_of(tmp_path, rent=RENT, begins=begins)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    "rent", ["true", "much", "[]", "[1, .inf]", "{every_hours: 0, prices: [1]}", "-1", "1e9"]
)
def test_a_rent_that_is_none_is_refused(tmp_path: Path, rent) -> None:
    with pytest.raises(ContractError, match=r"regions\[0\]\.rent_usd_per_gpu_hour"):
        geography_of(tmp_path, rent=rent)


def test_prices_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=f"at most {MOST_HOURS:,} hours, found 1,000,000"):
        geography_of(tmp_path, energy="{every_hours: 1e6, prices: [0.1, 0.2]}")


# --- real data --------------------------------------------------------------------------------


def test_real_prices_and_links_make_a_geography(tmp_path: Path) -> None:
    for file in (DAY_AHEAD_FILE, GCP_GPU_FILE, THROUGHPUT_FILE, EGRESS_FILE):
        if not (DATA / file).exists():
            pytest.skip(f"needs {file} below {DATA} (or SPOTLINE_DATA)")
    data = DATA.resolve()
    text = "begins: 2024-02-05T00:00:00Z\nregions:\n"
    for name, zone in (("europe-west3", "DE-LU"), ("europe-west4", "NL")):
        text += f"""\
  - id: {name}
    gpus: 16
    energy_usd_per_kwh: {{format: entsoe, file: {data / DAY_AHEAD_FILE}, zone: {zone}, usd_per_eur: 1.08}}
    rent_usd_per_gpu_hour: {{format: gcp_gpu_weekly, file: {data / GCP_GPU_FILE}, machine_type: a2-highgpu-1g, region: {name}, price: spot, gpus_per_instance: 1}}
"""
    text += f"""\
skyplane_links:
  throughput: {data / THROUGHPUT_FILE}
  egress: {data / EGRESS_FILE}
  regions: {{europe-west3: "gcp:europe-west3-a", europe-west4: "gcp:europe-west4-a"}}
"""

    geography = parse_geography(text, where="geography.yaml")

    quarter = [
        geography.region_at("europe-west4", hour * HOUR_S).region for hour in range(0, 2160, 24)
    ]
    assert len({one.energy_usd_per_kwh for one in quarter}) > 50
    assert all(0.5 < one.rent_usd_per_gpu_hour < 5 for one in quarter)
    later = geography.region_at("europe-west4", 2 * 365 * 24 * HOUR_S).region
    assert later.rent_usd_per_gpu_hour != quarter[0].rent_usd_per_gpu_hour
    assert all(1e8 < link.bytes_per_s < 1e10 for link in geography.links.values())
