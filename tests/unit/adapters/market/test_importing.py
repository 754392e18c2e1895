import gzip
import json
from decimal import Decimal

import numpy as np
import pytest

from spotline.adapters.market.importing import IMPORTERS, import_market
from spotline.adapters.market.options import ImportOptions
from spotline.adapters.market.parse import time_ns
from spotline.contracts.errors import ContractError
from spotline.domain.market.market import INFERRED, OBSERVED, UNKNOWN

START = time_ns("2023-08-27T00:00:00Z", "test")
HOUR_NS = 3600 * 10**9

AWS_HEADER = "timestamp,availability_zone,instance_type,product,spot_price_usd_per_hour\n"
AWS_ROWS = (
    "2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,0.9180\n"
    "2020-01-01T02:05:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,0.9200\n"
    "2020-01-01T00:20:00Z,us-east-2a,p3.2xlarge,Linux/UNIX,1.1000\n"
    "2020-01-01T03:20:00Z,us-east-2a,p3.2xlarge,Linux/UNIX,1.1000\n"
    "2020-01-01T00:00:00Z,us-east-2c,p3.2xlarge,Linux/UNIX,3.0600\n"
    "2020-01-01T00:00:00Z,us-west-2a,p3.2xlarge,Windows,9.0000\n"
)


def _skypilot(folder, name, counts, gap_s=300):
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"metadata": {"gap_seconds": gap_s}, "data": counts}))
    return path


def _aws(folder, rows=AWS_ROWS, header=AWS_HEADER):
    path = folder / "prices.csv"
    path.write_text(header + rows)
    return path


def _refused(source_format, files, where, message, **options):
    with pytest.raises(ContractError) as caught:
        import_market(source_format, files, ImportOptions(**options))
    assert where in caught.value.where
    assert message in caught.value.problem


# --- skypilot -----------------------------------------------------------------------------------


def test_skypilot_zones_are_cut_to_their_common_length_and_sorted(tmp_path):
    files = [
        _skypilot(tmp_path, "us-west-2a_v100_1", [0, 16, 16, 0]),
        _skypilot(tmp_path, "us-east-2b_v100_1", [16, 16, 3]),
    ]
    market = import_market("skypilot", files, ImportOptions(price=Decimal("0.95"), start_ns=START))
    assert [o.zone for o in market.offerings] == ["us-east-2b", "us-west-2a"]
    assert [o.region for o in market.offerings] == ["us-east-2", "us-west-2"]
    assert market.offerings[0].instance_type == "p3.2xlarge"
    assert market.spot_available.tolist() == [[16, 0], [16, 16], [3, 16]]
    assert (market.spot_provenance == OBSERVED).all()
    assert (market.on_demand_provenance == UNKNOWN).all()
    assert (market.spot_price_micro_usd == 950_000).all()
    assert (market.on_demand_price_micro_usd == 3_060_000).all()
    assert (market.slot_s, market.start_ns) == (300, START)


@pytest.mark.parametrize(
    ("slot_s", "expected"),
    [
        (600, [0, 2, 4, 6]),  # a multiple
        (450, [0, 1, 3, 4, 6]),  # not a multiple: the tick in force at the opening
        (150, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]),  # finer: held
    ],
)
def test_slot_takes_the_count_in_force_at_its_opening(tmp_path, slot_s, expected):
    path = _skypilot(tmp_path, "us-east-2b_v100_1", [0, 1, 2, 3, 4, 5, 6])
    options = ImportOptions(price=Decimal(1), start_ns=START, slot_s=slot_s)
    market = import_market("skypilot", [path], options)
    assert market.spot_available[:, 0].tolist() == expected
    tick_ns = np.array(expected) * 300 * 10**9 + START
    assert (market.quoted_ns[:, 0] == tick_ns).all()


def test_skypilot_takes_the_price_series_of_its_zone_from_its_own_beginning(tmp_path):
    trace = _skypilot(tmp_path, "us-east-2b_v100_1", [1] * 48)
    market = import_market("skypilot", [trace], ImportOptions(price=_aws(tmp_path), start_ns=START))
    price = market.spot_price_micro_usd[:, 0]
    # 0.9180 lasts 1 h 55 min = 23 ticks.
    assert price[:23].tolist() == [918_000] * 23
    assert (price[23:] == 920_000).all()
    assert "us-east-2b paired with p3.2xlarge spot prices of us-east-2b" in market.source
    assert "synthetic pairing: prices of 2020-01-01T00:10:00Z laid from the start" in market.source


def test_price_series_of_the_same_days_is_not_shifted(tmp_path):
    trace = _skypilot(tmp_path, "us-east-2b_v100_1", [1] * 12)
    start_ns = time_ns("2020-01-01T01:35:00Z", "test")
    market = import_market(
        "skypilot", [trace], ImportOptions(price=_aws(tmp_path), start_ns=start_ns)
    )
    assert market.spot_price_micro_usd[:, 0].tolist() == [918_000] * 6 + [920_000] * 6
    assert "synthetic" not in market.source


@pytest.mark.parametrize(
    ("zone", "paired"), [("us-east-2a", "us-east-2a"), ("us-east-2f", "us-east-2a"),
                         ("us-west-1a", "us-east-2a"), ("us-east-2c", "us-east-2a")]
)  # fmt: skip
def test_zone_without_moving_prices_takes_another_of_its_region_then_any(tmp_path, zone, paired):
    trace = _skypilot(tmp_path, f"{zone}_v100_1", [1] * 12)
    options = ImportOptions(price=_aws(tmp_path), start_ns=START, on_demand_usd=Decimal(3))
    market = import_market("skypilot", [trace], options)
    assert f"{zone} paired with p3.2xlarge spot prices of {paired}" in market.source
    assert "synthetic" in market.source


def test_skypilot_names_what_is_missing_or_wrong(tmp_path):
    good = _skypilot(tmp_path, "us-east-2b_v100_1", [1, 0])
    given = {"price": Decimal(1), "start_ns": START}
    _refused("skypilot", [good], "--start", "the traces hold none", price=Decimal(1))
    _refused("skypilot", [good], "--price", "the traces hold none", start_ns=START)
    _refused("skypilot", [], "FILE", "at least one", **given)
    _refused("skypilot", [good, good], "us-east-2b", "expected each zone once", **given)
    _refused("skypilot", [tmp_path / "us-east-2a_v100_1.json"], "us-east-2a", "found none", **given)
    _refused("skypilot", [good], "--zone", "of us-east-2b", zones=("eu-west-1",), **given)
    _refused("skypilot", [good], "--instance-type", "p3.2xlarge", instance_type="p9.huge",
             start_ns=START, price=_aws(tmp_path))  # fmt: skip
    other = _skypilot(tmp_path, "us-east-2a_v100_1", [1, 0], gap_s=195)
    _refused("skypilot", [good, other], "gap_seconds", "expected 195", **given)
    named = _skypilot(tmp_path, "something", [1])
    _refused("skypilot", [named], "something.json", "ZONE_GPU_GPUS.json", **given)
    unpriced = _skypilot(tmp_path, "eu-west-1a_v100_1", [1])
    _refused("skypilot", [unpriced], "--on-demand-usd", "p3.2xlarge in eu-west-1a", **given)


@pytest.mark.parametrize("value", [-1, 1.5, "x", None, True, float("nan"), 1e300])
def test_skypilot_count_that_is_no_count_is_named(tmp_path, value):
    path = _skypilot(tmp_path, "us-east-2b_v100_1", [1, 1, value])
    _refused("skypilot", [path], "tick 2, field data", "expected a whole number",
             price=Decimal(1), start_ns=START)  # fmt: skip


def test_truncated_json_and_gzip_are_named(tmp_path):
    path = _skypilot(tmp_path, "us-east-2b_v100_1", [1, 1])
    path.write_text(path.read_text()[:-4])
    _refused("skypilot", [path], path.name, "expected complete JSON", price=Decimal(1),
             start_ns=START)  # fmt: skip
    zipped = tmp_path / "prices.csv.gz"
    zipped.write_bytes(gzip.compress((AWS_HEADER + AWS_ROWS).encode())[:-9])
    _refused("aws-spot-price-history", [zipped], "prices.csv.gz", "truncated")


# --- aws-spot-price-history ---------------------------------------------------------------------


def test_aws_events_are_held_on_whole_slots_from_the_first_common_price(tmp_path):
    market = import_market("aws-spot-price-history", [_aws(tmp_path)], ImportOptions())
    assert [o.offering_id for o in market.offerings] == [
        "aws:us-east-2a:p3.2xlarge",
        "aws:us-east-2b:p3.2xlarge",
    ]
    assert market.start_ns == time_ns("2020-01-01T00:30:00Z", "test")
    assert market.slot_s == 1800
    assert market.spot_price_micro_usd[:, 1].tolist() == [918_000] * 4 + [920_000] * 2
    assert market.quoted_ns[3, 1] == time_ns("2020-01-01T00:10:00Z", "test")
    assert (market.spot_provenance == UNKNOWN).all()
    assert "left out, a single event each: p3.2xlarge in us-east-2c" in market.source


def test_aws_json_newest_first_gives_the_same_market(tmp_path):
    rows = [row.split(",") for row in AWS_ROWS.splitlines()]
    entries = [
        {
            "Timestamp": when.replace("Z", "+00:00"),
            "AvailabilityZone": zone,
            "InstanceType": kind,
            "ProductDescription": product,
            "SpotPrice": price,
        }
        for when, zone, kind, product, price in rows
    ]
    entries.sort(key=lambda entry: entry["Timestamp"], reverse=True)
    path = tmp_path / "history.json"
    path.write_text(json.dumps({"SpotPriceHistory": entries}))
    from_json = import_market("aws-spot-price-history", [path], ImportOptions())
    from_csv = import_market("aws-spot-price-history", [_aws(tmp_path)], ImportOptions())
    assert (from_json.spot_price_micro_usd == from_csv.spot_price_micro_usd).all()
    assert from_json.offerings == from_csv.offerings


def test_aws_takes_given_counts_and_price_and_start(tmp_path):
    options = ImportOptions(
        spot_available=8,
        on_demand_usd=Decimal("2.5"),
        start_ns=time_ns("2020-01-01T01:00:00Z", "test"),
        slot_s=3600,
        zones=("us-east-2b",),
    )
    market = import_market("aws-spot-price-history", [_aws(tmp_path)], options)
    assert (market.spot_available == 8).all()
    assert (market.spot_provenance == INFERRED).all()
    assert (market.on_demand_price_micro_usd == 2_500_000).all()
    assert market.slots == 2


@pytest.mark.parametrize(
    ("rows", "where", "message"),
    [
        (
            "2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,nan\n",
            "line 2, field spot",
            "nan",
        ),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,0\n", "line 2, field spot", "> 0"),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,-1\n", "line 2, field spot", "> 0"),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,1e-9\n", "line 2", "at least"),
        (
            "2020-01-01T00:10:00,us-east-2b,p3.2xlarge,Linux/UNIX,1\n",
            "field timestamp",
            "UTC offset",
        ),
        ("2500-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,1\n", "field timestamp", "year in"),
        ("2020-01-01T00:10:00Z,,p3.2xlarge,Linux/UNIX,1\n", "line 2", "a zone"),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge\n", "line 2", "expected 5 fields, found 3"),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,0.9", "last line", "truncated"),
        ("2020-01-01T00:10:00Z,us-east-2b,p3.2xlarge,Windows,1\n", "prices.csv", "expected Linux"),
        (
            AWS_ROWS + "2020-01-01T02:00:00Z,us-east-2b,p3.2xlarge,Linux/UNIX,1\n",
            "line 8, field timestamp",
            "expected a time >= 2020-01-01T02:05:00Z",
        ),
    ],
)
def test_aws_broken_row_is_named(tmp_path, rows, where, message):
    _refused("aws-spot-price-history", [_aws(tmp_path, rows)], where, message)


def test_aws_missing_column_is_named(tmp_path):
    path = _aws(tmp_path, header=AWS_HEADER.replace("spot_price_usd_per_hour", "price_eur"))
    _refused("aws-spot-price-history", [path], "line 1", "expected the column spot_price_usd")


# --- prime-intellect ----------------------------------------------------------------------------


def _snapshots(folder, edit=lambda lines: None):
    lines = [
        {
            "timestamp": f"2025-10-19T{hour:02d}:01:58.727366+00:00",
            "gpu_type": "H100_80GB",
            "socket_type": "PCIe",
            "price_stats": {"min": 1.89, "max": 2.5},
            "by_config": {"1x": {"count": 5, "min_per_gpu": 1.89}},
        }
        for hour in range(4)
    ]
    lines[1]["by_config"]["8x"] = {"count": 2, "min_per_gpu": 1.9}
    lines[3]["by_config"]["8x"] = {"count": 3, "min_per_gpu": 2.0}
    edit(lines)
    path = folder / "H100.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    return path


def test_prime_intellect_counts_offers_and_prices_whole_instances(tmp_path):
    options = ImportOptions(instance_type="8x", slot_s=3600)
    market = import_market("prime-intellect", [_snapshots(tmp_path)], options)
    assert market.offerings[0].instance_type == "8x-h100-80gb-pcie"
    assert market.offerings[0].gpus_per_instance == 8
    # From the first snapshot that lists the configuration; one that does not counts 0.
    assert market.start_ns == time_ns("2025-10-19T02:00:00Z", "test")
    assert market.spot_available[:, 0].tolist() == [2, 0]
    assert market.spot_price_micro_usd[:, 0].tolist() == [15_200_000, 15_200_000]
    assert (market.spot_provenance == INFERRED).all()
    assert (market.on_demand_price_micro_usd == 20_000_000).all()
    assert "one listed 8x offer taken as one available instance" in market.source


@pytest.mark.parametrize(
    ("edit", "where", "message"),
    [
        (lambda x: x[2].update(timestamp=x[0]["timestamp"]), "line 3, field timestamp", "go back"),
        (lambda x: x[2].pop("by_config"), "line 3", "expected the field by_config"),
        (lambda x: x[2]["by_config"]["1x"].update(min_per_gpu=None), "line 3", "expected a price"),
        (lambda x: x[2]["by_config"]["1x"].update(min_per_gpu=float("nan")), "line 3", "nan"),
        (lambda x: x[2].update(gpu_type="A100"), "H100.jsonl.gz", "expected one GPU model"),
    ],
)
def test_prime_intellect_broken_line_is_named(tmp_path, edit, where, message):
    _refused("prime-intellect", [_snapshots(tmp_path, edit)], where, message)


def test_prime_intellect_configuration_must_be_listed(tmp_path):
    path = _snapshots(tmp_path)
    _refused("prime-intellect", [path], "--instance-type", "(1x, 8x)", instance_type="4x")
    _refused("prime-intellect", [path], "--instance-type", "1x or 8x", instance_type="p3.2xlarge")
    _refused("prime-intellect", [path, path], "FILE", "each offering once")


# --- csv ----------------------------------------------------------------------------------------

CSV_HEADER = (
    "slot_start,offering_id,spot_price_usd_per_instance_hour,on_demand_price_usd_per_instance_hour,"
    "spot_available,spot_available_provenance,on_demand_available,on_demand_available_provenance,"
    "quoted_at\n"
)
CSV_ROWS = (
    "2026-01-01T00:00:00Z,aws:us-east-1a:p3.2xlarge,0.95,3.06,4,observed,,,2026-01-01T00:00:00Z\n"
    "2026-01-01T00:00:00Z,neo:x:h100,1.50,3.00,,unknown,2,inferred,2025-12-31T23:50:00Z\n"
    "2026-01-01T00:30:00Z,aws:us-east-1a:p3.2xlarge,0.96,3.06,0,observed,,,2026-01-01T00:30:00Z\n"
    "2026-01-01T00:30:00Z,neo:x:h100,1.50,3.00,,unknown,2,inferred,2025-12-31T23:50:00Z\n"
)


def _csv(folder, text=CSV_HEADER + CSV_ROWS):
    path = folder / "m.csv"
    path.write_text(text)
    return path


def test_csv_is_read_with_provenances_and_ages(tmp_path):
    market = import_market("csv", [_csv(tmp_path)], ImportOptions())
    assert [(o.provider, o.region, o.zone, o.gpu_model) for o in market.offerings] == [
        ("aws", "us-east-1", "us-east-1a", "v100"),
        ("neo", "x", "x", "unknown"),
    ]
    assert market.slot_s == 1800
    assert market.spot_price_micro_usd.tolist() == [[950_000, 1_500_000], [960_000, 1_500_000]]
    assert market.spot_provenance.tolist() == [[OBSERVED, UNKNOWN]] * 2
    assert market.on_demand_provenance.tolist() == [[UNKNOWN, INFERRED]] * 2
    assert market.quote(1, 1).age_s(int(market.slot_starts_ns()[1])) == 2400


def test_csv_of_the_three_required_columns_is_enough(tmp_path):
    text = (
        "slot_start,offering_id,spot_price_usd_per_instance_hour\n"
        "2026-01-01T00:00:00Z,a:b1:c,1\n2026-01-01T01:00:00Z,a:b1:c,1\n"
    )
    options = ImportOptions(on_demand_usd=Decimal(3), slot_s=1800)
    market = import_market("csv", [_csv(tmp_path, text)], options)
    assert (market.slots, market.slot_s) == (4, 1800)
    assert (market.spot_provenance == UNKNOWN).all()
    _refused("csv", [_csv(tmp_path, text)], "line 2", "or the option --on-demand-usd")


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("0.96", "nan", "line 4, field spot_price_usd_per_instance_hour", "found nan"),
        ("0.96", "-1", "line 4, field spot_price_usd_per_instance_hour", "> 0"),
        (",0,observed", ",0,seen", "line 4, field spot_available_provenance", "found 'seen'"),
        (",0,observed", ",,observed", "line 4, field spot_available", "expected a count"),
        ("usd_per_instance_hour,on", "eur_per_instance_hour,on", "line 1", "expected the column"),
        ("on_demand_price_usd", "on_demand_price_eur", "line 1", "prices are in USD"),
        ("01T00:30:00Z\n", "01T00:31:00Z\n", "line 4, field quoted_at", "expected a time <="),
        ("25-12-31T23:50:00Z\n2026-01-01T00:30", "25-12-31T23:55:00Z\n2026-01-01T00:30",
         "line 5, field quoted_at", "go back in time"),
        ("neo:x:h100", "x", "line 3, field provider", "PROVIDER:ZONE:INSTANCE_TYPE"),
    ],
)  # fmt: skip
def test_csv_broken_field_is_named(tmp_path, old, new, where, message):
    text = CSV_HEADER + CSV_ROWS
    assert old in text
    _refused("csv", [_csv(tmp_path, text.replace(old, new, 1))], where, message)


# --- options ------------------------------------------------------------------------------------


def test_unknown_format_and_meaningless_option_are_refused(tmp_path):
    _refused("gcp", [tmp_path], "--format", ", ".join(IMPORTERS))
    _refused("csv", [_csv(tmp_path)], "--price", "expected only --on-demand-usd, --slot",
             price=Decimal(1))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"price": Decimal("nan")}, "--price"),
        ({"on_demand_usd": Decimal(0)}, "--on-demand-usd"),
        ({"slot_s": 0}, "--slot"),
        ({"spot_available": -1}, "--spot-available"),
    ],
)
def test_bad_option_is_refused(options, where):
    with pytest.raises(ContractError) as caught:
        ImportOptions(**options)
    assert caught.value.where == where
