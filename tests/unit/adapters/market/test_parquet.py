import json
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spotline.adapters.market import parquet
from spotline.adapters.market.parquet import METADATA_KEY, read_market, write_market
from spotline.contracts.errors import ContractError
from spotline.domain.market.generate import PRESETS, generate
from spotline.domain.market.offering import AWS_BILLING, Disks, Reservation
from spotline.domain.market.reservations import reserved_offering, with_reservations
from spotline.domain.units import NS_PER_S

SPOT = "spot_price_micro_usd_per_instance_hour"
START_NS = 1_767_571_200 * NS_PER_S


@pytest.fixture
def market():
    return generate("mixed", seed=7, slots=20, slot_s=1800, start_ns=START_NS)


@pytest.fixture
def path(tmp_path, market):
    target = tmp_path / "m.parquet"
    write_market(market, target)
    return target


def _rewrite(path, change):
    """Write the table again after `change(columns, header)` altered it."""
    table = pq.ParquetFile(path).read()
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    header = json.loads(table.schema.metadata[METADATA_KEY.encode()])
    change(columns, header)
    changed = pa.table(columns).replace_schema_metadata({METADATA_KEY: json.dumps(header)})
    pq.write_table(changed, path)


def _set(name, row, value, dtype=None):
    def change(columns, header):
        values = columns[name].to_pylist()
        values[row] = value(values[row]) if callable(value) else value
        columns[name] = pa.array(values, dtype or columns[name].type)

    return change


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_market_survives_the_round_trip(tmp_path, preset):
    market = generate(preset, seed=1, slots=50, slot_s=300, start_ns=START_NS)
    write_market(market, tmp_path / "m.parquet")
    back = read_market(tmp_path / "m.parquet")
    assert back.offerings == market.offerings
    assert (back.slot_s, back.start_ns, back.source) == (300, START_NS, market.source)
    for name in (
        "spot_price_micro_usd",
        "on_demand_price_micro_usd",
        "spot_available",
        "spot_provenance",
        "on_demand_available",
        "on_demand_provenance",
        "quoted_ns",
    ):
        assert (getattr(back, name) == getattr(market, name)).all(), name


def test_how_an_offering_is_billed_survives_the_round_trip(tmp_path, market):
    first, *others = market.offerings
    billed = replace(market, offerings=(replace(first, billing=AWS_BILLING), *others))
    write_market(billed, tmp_path / "m.parquet")

    assert read_market(tmp_path / "m.parquet").offerings == billed.offerings


@pytest.mark.parametrize("plan", ["", "sp-1"])
def test_disks_and_plans_survive_the_round_trip(tmp_path, market, plan):
    disks = Disks(gb=200, micro_usd_per_gb_month=80_000)
    money = {"plan": plan, "plan_micro_usd_per_hour": 9} if plan else {}
    held = Reservation(instances=3, sunk_price_micro_usd=3, **money)
    first, *others = market.offerings
    whole = with_reservations(
        replace(market, offerings=(replace(first, disks=disks), *others)),
        [reserved_offering(first, "sp-1", held)],
    )
    write_market(whole, tmp_path / "m.parquet")

    assert read_market(tmp_path / "m.parquet").offerings == whole.offerings
    assert (b"plan_micro" in (tmp_path / "m.parquet").read_bytes()) is bool(plan)


def test_same_market_gives_the_same_bytes(tmp_path, market):
    write_market(market, tmp_path / "a.parquet")
    write_market(read_market(tmp_path / "a.parquet"), tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "b.parquet"]


def test_offerings_within_a_slot_may_come_in_any_order(path, market):
    def reverse(columns, header):
        order = np.arange(60).reshape(20, 3)[:, ::-1].ravel()
        for name in columns:
            columns[name] = columns[name].take(pa.array(order))

    _rewrite(path, reverse)
    assert (read_market(path).spot_available == market.spot_available).all()


def test_gaps_are_carried_forward_with_their_age(path, market):
    """Slot 10 is missing, the second offering in slots 4 and 5, the third before slot 2."""
    gone = {30, 31, 32, *(4 * 3 + 1, 5 * 3 + 1), *(2, 5)}
    kept = pa.array([row for row in range(60) if row not in gone])
    _rewrite(path, lambda c, h: c.update({name: c[name].take(kept) for name in c}))

    found = read_market(path)

    assert found.slots == market.slots == 20
    shown = np.arange(20)[:, None].repeat(3, axis=1)
    shown[10] = 9
    shown[4:6, 1] = 3
    shown[:2, 2] = 2
    for name in ("spot_price_micro_usd", "on_demand_price_micro_usd"):
        expected = np.take_along_axis(getattr(market, name), shown, axis=0)
        assert np.array_equal(getattr(found, name), expected), name
    expected = np.take_along_axis(market.quoted_ns, shown, axis=0)
    assert np.array_equal(found.quoted_ns[2:], expected[2:])
    assert (found.quoted_ns <= found.slot_starts_ns()[:, None]).all()
    # What had not begun cannot be had.
    assert not found.spot_available[:2, 2].any()
    assert not found.on_demand_available[:2, 2].any()
    assert np.array_equal(found.spot_available[10], market.spot_available[9])


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        (_set(SPOT, 16, 0), f"row 17, field {SPOT}", "expected a price > 0, found 0"),
        (_set(SPOT, 16, -5), f"row 17, field {SPOT}", "expected a price > 0, found -5"),
        (_set(SPOT, 16, float("nan"), pa.float64()), f"row 17, field {SPOT}", "found nan"),
        (_set(SPOT, 16, 1.5, pa.float64()), f": {SPOT}", "expected integers, found the type"),
        (_set(SPOT, 16, None), f"row 17, field {SPOT}", "found null"),
        (_set("spot_available", 3, -1), "row 4, field spot_available", "expected a count >= 0"),
        (
            _set("spot_available_provenance", 3, "guessed"),
            "row 4, field spot_available_provenance",
            "expected one of observed, inferred, unknown, found 'guessed'",
        ),
        (
            _set("offering_id", 5, "aws:mars-1a:p3.2xlarge"),
            "row 6, field offering_id",
            "expected one of cloud:east-1a:a100-1x, ",
        ),
        (
            _set("offering_id", 5, "cloud:east-1a:a100-1x"),
            "row 6, field offering_id",
            "expected each offering once per slot",
        ),
        (
            _set("quoted_at", 9, lambda t: t - timedelta(hours=3)),
            "row 10, field quoted_at",
            "a quote must not go back in time",
        ),
        (
            _set("quoted_at", 9, lambda t: t + timedelta(seconds=1)),
            "row 10, field quoted_at",
            "expected a time <= slot_start 2026-01-05T01:30:00Z, found 2026-01-05T01:30:01Z",
        ),
        (
            _set("slot_start", 9, lambda t: t - timedelta(hours=3)),
            "row 10, field slot_start",
            "rows must be in the order of slots",
        ),
        (lambda c, h: c.pop("quoted_at"), "m.parquet", "expected the column quoted_at, found "),
        (
            lambda c, h: c.update(
                {"spot_price_usd_per_instance_hour": c.pop(SPOT).cast(pa.float64())}
            ),
            "m.parquet",
            "is that another unit? prices are integer micro-USD",
        ),
        (
            lambda c, h: c.update({"slot_start": c["slot_start"].cast(pa.timestamp("us"))}),
            ": slot_start",
            "expected timestamps with time zone UTC, found the type timestamp[us]",
        ),
        (
            lambda c, h: c.update({n: c[n].slice(0, 59) for n in c}),
            "row 58, field offering_id",
            "found none for neocloud:neo-1:a100-1x: is the file truncated?",
        ),
        (
            _set("slot_start", 59, lambda t: t + timedelta(seconds=60)),
            "row 60, field slot_start",
            "one slot of 1800 s after the row before",
        ),
        (
            _set("slot_start", 59, lambda t: t + timedelta(days=365 * 200)),
            "row 60, field slot_start",
            "expected slots of 1800 s for at most 10,000,000 quotes",
        ),
        (lambda c, h: c.update({n: c[n][:0] for n in c}), "row 1", "expected at least one row"),
        (lambda c, h: h.update(format_version=2), "field format_version", "expected 1, found 2"),
        (lambda c, h: h.update(slot_s=0), "field slot_s", "expected seconds >= 1, found 0"),
        (lambda c, h: h.pop("slot_s"), "metadata spotline.market", "expected the field slot_s"),
        (
            lambda c, h: h["offerings"][1].update(gpus_per_instance="8"),
            "offering 2, field gpus_per_instance",
            "expected a whole number, found '8'",
        ),
        (lambda c, h: h["offerings"][1].update(gpus=8), "offering 2", "found gpus"),
        (lambda c, h: h["offerings"][1].pop("region"), "offering 2", "expected the field region"),
    ],
)
def test_broken_file_is_refused_naming_row_and_field(path, change, where, message):
    _rewrite(path, change)
    with pytest.raises(ContractError) as caught:
        read_market(path)
    assert where in caught.value.where
    assert message in caught.value.problem
    assert str(path) in caught.value.where


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_truncated_file_is_refused(path, kept):
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ContractError, match="expected a whole Parquet file"):
        read_market(path)


def test_a_file_that_unpacks_to_more_rows_than_allowed_is_not_read(path, monkeypatch):
    monkeypatch.setattr(parquet, "MOST_ROWS", 59)
    with pytest.raises(ContractError, match="expected at most 59 rows, found 60"):
        read_market(path)


def test_absent_file_is_refused(tmp_path):
    with pytest.raises(ContractError, match="found no such file"):
        read_market(tmp_path / "none.parquet")


def test_other_parquet_is_refused(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ContractError, match="expected a market file of Spotline"):
        read_market(tmp_path / "other.parquet")
