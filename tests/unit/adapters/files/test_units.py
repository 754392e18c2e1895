"""Amounts as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.files.units import amount_of, duration_text, gigabytes_of, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90s", 90), ("3m", 180), ("1h", 3600), ("1h30m", 5400), ("36h", 129_600)),
        *(
            ("2d", 172_800),
            ("1d12h", 129_600),
            ("1w", 604_800),
            ("1.5h", 5400),
            (" 1d 2h ", 93_600),
        ),
        *(("0s", 0), ("1d2h3m4s", 93_784)),
    ],
)
def test_a_duration_is_seconds(text, seconds) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "3", "m", "3 min", "1h1h", "1m1h", "1.5s", "-3m", "3M", "٣m" * 40, "1h " * 40]
)
def test_what_is_no_duration_of_whole_seconds_is_none(text) -> None:
    assert seconds_of(text) is None


@given(st.integers(0, 10**9))
def test_a_duration_written_is_the_one_that_is_read(seconds) -> None:
    assert seconds_of(duration_text(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        *(("300M", 3e8, ""), ("300M tokens", 3e8, "tokens"), ("1.5B", 1.5e9, "")),
        *(("64 instance_hours", 64.0, "instance_hours"), ("2k", 2000.0, ""), ("3T", 3e12, "")),
        *(("1e3", 1000.0, ""), ("300_000_000", 3e8, ""), (".5G", 5e8, ""), ("-4", -4.0, "")),
        *(("0.1M", 100_000.0, ""), ("300 M", 3e8, ""), ("1.1M", 1_100_000.0, "")),
    ],
)
def test_an_amount_is_a_number_and_maybe_a_unit(text, number, unit) -> None:
    assert amount_of(text) == (number, unit)


@pytest.mark.parametrize(
    "text",
    ["", "tokens", "3m", "1e999", "1e400T", "nan", "inf", "1,000", "3 a b", "9" * 65],
)
def test_what_is_no_amount_is_none(text) -> None:
    assert amount_of(text) is None


@pytest.mark.parametrize(
    ("text", "gigabytes"),
    [
        *(("7GB", 7.0), ("7 GB", 7.0), ("500MB", 0.5), ("1.5TB", 1500.0), ("1GiB", 1.073741824)),
        *(("12kB", 12e-6), ("12KB", 12e-6), ("5B", 5e-9)),
    ],
)
def test_a_size_is_10_9_bytes(text, gigabytes) -> None:
    assert gigabytes_of(text) == pytest.approx(gigabytes, rel=1e-12)


@pytest.mark.parametrize("text", ["7", "7G", "7gb", "GB", "7 GB/s", "1e999GB"])
def test_what_is_no_size_with_a_unit_is_none(text) -> None:
    assert gigabytes_of(text) is None
