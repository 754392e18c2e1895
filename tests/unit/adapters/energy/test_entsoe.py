"""Reader of day-ahead electricity prices."""

from datetime import UTC, date, datetime

import pytest

from spotline.adapters.energy.entsoe import read_day_ahead
from spotline.contracts.errors import ContractError
from spotline.domain.units import ns_from_datetime

HEADER = "date,hour,country,area,price_eur_mwh\n"


def _table(folder, *rows):
    path = folder / "prices.csv"
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return path


def _ns(text):
    return ns_from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


def _read(path, zone="BE", **options):
    return read_day_ahead(path, [zone], **options)[zone]


@pytest.mark.parametrize(
    ("day", "hour", "utc"),
    [
        ("2023-01-06", 0, "2023-01-05T23:00:00"),
        ("2023-07-01", 0, "2023-06-30T22:00:00"),
        ("2023-03-26", 1, "2023-03-26T00:00:00"),
        ("2023-03-26", 3, "2023-03-26T01:00:00"),
        ("2023-10-29", 2, "2023-10-29T00:00:00"),
        ("2023-10-29", 3, "2023-10-29T02:00:00"),
        ("2023-10-30", 0, "2023-10-29T23:00:00"),
    ],
)
def test_market_clock_becomes_utc(tmp_path, day, hour, utc):
    prices = _read(_table(tmp_path, f"{day},{hour},Belgium,BZN BE,10"))

    assert prices.ts_ns.tolist() == [_ns(utc)]


def test_price_is_per_kilowatt_hour_and_may_be_negative(tmp_path):
    prices = _read(_table(tmp_path, "2023-01-06,0,Belgium,BZN BE,-25.5"))

    assert prices.eur_per_kwh.tolist() == [-0.0255]


def test_missing_hour_repeats_the_one_before_and_is_not_covered(tmp_path):
    rows = [f"2023-01-06,{hour},Belgium,BZN BE,{hour}" for hour in (0, 2)]
    prices = _read(_table(tmp_path, *rows))
    start = _ns("2023-01-05T23:00:00")
    hour_ns = 3600 * 10**9

    assert prices.at(start + hour_ns) == 0.0
    assert prices.at(start + 2 * hour_ns) == 0.002
    assert prices.covered(start, start + 4 * hour_ns) == 0.5
    with pytest.raises(ValueError, match="no price as early"):
        prices.at(start - 1)


def test_only_the_zones_and_days_asked_for_are_kept(tmp_path):
    path = _table(
        tmp_path,
        "2023-01-06,0,Belgium,BZN BE,1",
        "2023-01-07,0,Belgium,BZN BE,2",
        "2023-01-08,0,Belgium,BZN BE,3",
        "2023-01-07,0,Luxembourg,BZN DE-LU,9",
    )

    prices = _read(path, first=date(2023, 1, 7), last=date(2023, 1, 7))

    assert prices.eur_per_kwh.tolist() == [0.002]


@pytest.mark.parametrize(
    ("row", "where", "message"),
    [
        ("2023-01-06,24,Belgium,BZN BE,1", "field hour", "0..23"),
        ("2023-01-06,noon,Belgium,BZN BE,1", "field hour", "0..23"),
        ("6.1.2023,0,Belgium,BZN BE,1", "field date", "a day such as"),
        ("2023-01-06,0,Belgium,BZN BE,dear", "field price_eur_mwh", "EUR per MWh"),
        ("2023-01-06,0,Belgium,BZN BE,nan", "field price_eur_mwh", "EUR per MWh"),
        ("2023-01-06,0,France,BZN FR,1", "prices.csv", "zone BE"),
    ],
)
def test_row_that_makes_no_sense_is_refused(tmp_path, row, where, message):
    with pytest.raises(ContractError) as caught:
        _read(_table(tmp_path, row))
    assert where in caught.value.where
    assert message in caught.value.problem
