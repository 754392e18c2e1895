"""Short names that tell offerings apart, lengths of time, and labels that fit."""

from dataclasses import replace

import pytest

from spotline.domain.market.generate import generate
from spotline.replay.pictures.style import duration, fits, printable, short_names


@pytest.fixture
def offerings():
    return generate("mixed", seed=1, slots=2, slot_s=1800, start_ns=0).offerings


def test_zones_are_enough_where_they_differ(offerings):
    assert list(short_names(offerings).values()) == ["east-1a", "east-1b", "neo-1"]


def test_of_a_zone_with_several_types_both_are_said(offerings):
    twins = (offerings[0], replace(offerings[0], offering_id="b", instance_type="other"))
    assert list(short_names(twins).values()) == ["a100-1x", "other"]

    three = (*twins, replace(offerings[1], offering_id="c"))
    assert list(short_names(three).values()) == [
        "east-1a a100-1x",
        "east-1a other",
        "east-1b a100-1x",
    ]


def test_names_that_only_differ_where_they_are_shortened_are_numbered(offerings):
    long = tuple(
        replace(offerings[0], offering_id=f"{'a' * 50}{n}{'b' * 50}", zone="z", instance_type="t")
        for n in range(2)
    )

    shown = list(short_names(long).values())

    assert len(set(shown)) == 2
    assert all(len(name) <= 32 for name in shown)


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0.05, "3 min"),
        (0.5, "30 min"),
        (1.0, "1 h"),
        (47.5, "47.5 h"),
        (48.0, "2 d"),
        (720.0, "30 d"),
    ],
)
def test_lengths_have_the_unit_that_fits(hours, text):
    assert duration(hours) == text


def test_what_cannot_be_printed_is_a_question_mark_and_what_is_long_loses_its_middle():
    assert printable("a\x1b[31m\nb") == "a?[31m?b"
    assert fits("a" * 30) == "a" * 30
    assert fits("begin" + "x" * 100 + "end", 11) == "begin\u2026xxend"
