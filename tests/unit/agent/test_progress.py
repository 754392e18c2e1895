import pytest

from spotline.agent.progress import (
    LineTail,
    ProgressMeter,
    parse_amount,
    reader_of_field,
    reader_of_pattern,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("12", 12.0),
        ("1,234,567", 1_234_567.0),
        ("1_000", 1000.0),
        (" 12.5k ", 12_500.0),
        ("3M", 3e6),
        ("3M tokens", None),
        ("3Mtok/s", 3e6),
        ("2.5G", 2.5e9),
        ("1B", 1e9),
        ("1.2e6", 1.2e6),
        (".5", 0.5),
        ("-1", -1.0),
        ("", None),
        ("k", None),
        ("nan", None),
        ("1e999", None),
        ("twelve", None),
    ],
)
def test_numbers_are_read_as_people_write_them(text, amount):
    assert parse_amount(text) == amount


def test_pattern_reads_the_last_match_of_a_line():
    read = reader_of_pattern(r"(?P<done>[\d.,]+[kM]?) tokens|(?P<other>x)")

    assert read("step 3: 1.5k tokens, 2k tokens") == 2000.0
    assert read("x") is None
    assert read("nothing") is None


@pytest.mark.parametrize(
    ("name", "line", "done"),
    [
        ("tokens", '{"tokens": 5}', 5.0),
        ("a.b", '{"a": {"b": 2.5}}', 2.5),
        ("a.b", '{"a.b": 3}', 3.0),
        ("tokens", '{"tokens": "1.5k"}', 1500.0),
        ("tokens", '{"tokens": true}', None),
        ("tokens", '{"tokens": NaN}', None),
        ("tokens", '{"loss": 1}', None),
        ("a.b", '{"a": 1}', None),
        ("tokens", "[1]", None),
        ("tokens", '{"tokens": 5', None),
    ],
)
def test_field_of_a_json_line_is_read(name, line, done):
    assert reader_of_field(name)(line) == done


def test_tail_reads_whole_lines_as_they_come(tmp_path):
    path = tmp_path / "events.jsonl"
    tail = LineTail(path)
    assert tail.read() == []

    path.write_bytes(b"one\ntw")
    assert tail.read() == ["one"]
    with path.open("ab") as file:
        file.write(b"o\nthree")
    assert tail.read() == ["two"]
    assert tail.read() == []
    assert tail.read(final=True) == ["three"]
    assert tail.read(final=True) == []


def test_tail_begins_again_with_a_file_that_was_cut(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("old\nold\n")
    tail = LineTail(path, from_end=True)
    assert tail.read() == []

    path.write_text("new\n")

    assert tail.read() == ["new"]


def test_rate_is_work_per_market_hour_of_the_undisturbed_stretch():
    meter = ProgressMeter(market_s_per_s=60.0)
    meter.observe(100.0, 10.0, step=1)
    assert meter.rate_per_hour == 0.0

    meter.observe(110.0, 10.5)
    assert meter.rate_per_hour == 0.0  # too short to say
    meter.observe(200.0, 20.0, step=7)

    # 100 in 10 s of wall time, which are 600 s of the market's.
    assert meter.rate_per_hour == pytest.approx(600.0)
    assert (meter.done, meter.step, meter.first_at_s) == (200.0, 7, 10.0)


def test_a_disturbance_begins_a_new_stretch():
    meter = ProgressMeter(market_s_per_s=1.0)
    meter.observe(0.0, 0.0)
    meter.observe(10.0, 10.0)

    meter.disturb()
    meter.observe(20.0, 100.0)
    assert meter.rate_per_hour == 0.0
    meter.observe(40.0, 110.0)

    assert meter.rate_per_hour == pytest.approx(7200.0)


def test_work_that_goes_back_begins_a_new_stretch_and_is_told():
    meter = ProgressMeter(market_s_per_s=1.0)
    meter.observe(100.0, 0.0)
    meter.observe(50.0, 10.0)
    meter.observe(-1.0, 11.0)

    assert meter.done == 50.0
    assert meter.rate_per_hour == 0.0


def test_rate_forgets_what_is_long_ago():
    meter = ProgressMeter(market_s_per_s=1.0)
    for minute in range(60):
        meter.observe(float(min(minute, 40)), minute * 60.0)

    assert meter.rate_per_hour == 0.0
