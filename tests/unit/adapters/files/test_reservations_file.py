"""Reservations are read from a file, and added to a market as offerings of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.adapters.files.mistake import BadFile
from spotline.adapters.files.reservations_file import add_reservations
from spotline.adapters.market.parquet import read_market, write_market
from spotline.contracts.errors import ContractError
from spotline.domain.market.offering import Reservation
from tests.fakes.recorded_run import small_market
from tests.fakes.reserved import with_one

EXAMPLE = Path(__file__).parents[4] / "docs" / "examples" / "reservations.yaml"
MARKET = small_market(slots=8)
FIRST = MARKET.offerings[0].offering_id


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    return path


def test_the_example_is_an_offering_beside_the_one_it_was_bought_of():
    market = add_reservations(MARKET, EXAMPLE)

    *before, added = market.offerings
    assert tuple(before) == MARKET.offerings
    assert added.offering_id == "cloud:east-1a:a100-1x/reserved/block-7"
    assert added.reservation == Reservation(
        instances=8, ends_ns=1_768_176_000_000_000_000, sunk_price_micro_usd=1_500_000
    )


def test_without_a_file_the_market_is_as_it_was():
    assert add_reservations(MARKET, None) is MARKET


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "{offering: none, id: a, instances: 1}",
            "reservations[0].offering: expected one offering",
        ),
        ("{offering: {instance_type: zz}, id: a, instances: 1}", "found instance_type zz"),
        (f"{{offering: '{FIRST}', id: a}}", "reservations[0].instances: expected this field"),
        (f"{{offering: '{FIRST}', id: a, instances: 0}}", "expected a number >= 1"),
        (f"{{offering: '{FIRST}', id: '', instances: 1}}", "reservations[0].id: expected text"),
        (f"{{offering: '{FIRST}', id: a, instances: 1, ends: 2026-01-01}}", "reservations[0].ends"),
        (f"{{offering: '{FIRST}', id: a, instances: 1, sunk: 2}}", "expected a known field"),
        (
            f"{{offering: '{FIRST}', id: a, instances: 1, sunk_usd_per_instance_hour: -1}}",
            "expected a number >= 0",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, entry, said):
    path = written(tmp_path, f"reservations:\n  - {entry}\n")

    with pytest.raises(BadFile) as refused:
        add_reservations(MARKET, path)

    assert str(refused.value).startswith(f"{path}: ")
    assert said in str(refused.value)


def test_an_offering_that_is_several_and_an_id_given_twice_are_refused(tmp_path):
    market = small_market(slots=8)
    alike = (
        f"{{offering: {{instance_type: {market.offerings[0].instance_type}}}, id: a, instances: 1}}"
    )
    once = f"{{offering: '{FIRST}', id: b, instances: 1}}"
    path = written(tmp_path, f"reservations: [{alike}, {once}, {once}]")

    with pytest.raises(BadFile) as refused:
        add_reservations(market, path)

    mistakes = [mistake.field for mistake in refused.value.mistakes]
    assert mistakes == ["reservations[0].offering", "reservations[2].id"]


def test_a_market_file_keeps_reservations_and_refuses_other_prices(tmp_path):
    market = with_one(MARKET, instances=3, slots=5)
    path = tmp_path / "m.parquet"
    write_market(market, path)

    back = read_market(path)

    assert back.offerings == market.offerings
    assert back.quotes(6) == market.quotes(6)


def test_a_free_offering_that_is_no_reservation_is_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "m.parquet"
    write_market(MARKET, path)
    table = pq.ParquetFile(path).read()
    name = "on_demand_price_micro_usd_per_instance_hour"
    prices = table.column(name).to_pylist()
    prices[1] = 0
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, pa.array(prices, pa.int64())), path)

    with pytest.raises(ContractError, match=f"row 2, field {name}: expected a price > 0, found 0"):
        read_market(path)
