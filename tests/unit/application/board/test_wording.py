"""How people read numbers, times and places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spotline.application.board.wording import (
    duration_text,
    lots_text,
    moment_text,
    place_text,
    usd_text,
    work_text,
)
from spotline.domain.jobs.job import Work
from spotline.domain.jobs.lot import Lot
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import EAST, START_NS, WEST, job, offering

ZONES = (offering(EAST), offering(WEST))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (45, "45 s"),
        (-90, "1 min 30 s"),
        (299, "4 min 59 s"),
        (301, "5 min"),
        (9_000, "2 h 30 min"),
        (7_200, "2 h"),
        (90_061, "1 d 1 h"),
        (86_460, "1 d 1 min"),
    ],
)
def test_durations_have_their_two_largest_units(seconds, text):
    assert duration_text(seconds) == text


def test_another_day_has_its_date():
    assert moment_text(START_NS + 3_600 * NS_PER_S, START_NS) == "01:00 UTC"
    assert moment_text(START_NS - NS_PER_S, START_NS) == "2026-02-28 23:59 UTC"


@pytest.mark.parametrize(
    ("amount", "unit", "share_ppm", "text"),
    [
        (5.0, "instance_hours", 600_000, "3 of 5 instance-hours done"),
        (5.0, "instance_hours", 999_999, "4.99 of 5 instance-hours done"),
        (17.5, "gpu_hours", 50_000, "0.8 of 17.5 gpu-hours done"),
        (72e6, "tokens", 521_000, "37,512,000 of 72,000,000 tokens done"),
        (5.0, "instance_hours", 1_000_000, "5 of 5 instance-hours done"),
    ],
)
def test_work_is_never_rounded_up_to_all_of_it(amount, unit, share_ppm, text):
    stated = replace(job(), work=Work(amount=amount, unit=unit))

    assert work_text(stated, share_ppm, None) == text


def test_what_its_program_says_counts_more_than_a_share():
    assert work_text(job(instance_hours=8.0), 0, 2.5) == "2.5 of 8 instance-hours done"


def test_lots_name_their_zones():
    lots = (Lot(offering_id=EAST, spot=2, on_demand=1), Lot(offering_id=WEST, spot=1))

    assert lots_text(lots, ZONES) == "2 spot + 1 on-demand in use1-az1 and 1 spot in usw2-az1"
    assert lots_text((), ZONES) == "nothing"
    assert lots_text((Lot(offering_id=EAST),), ZONES) == "nothing"


def test_a_zone_with_several_types_says_which():
    other = replace(ZONES[0], offering_id="other", instance_type="g5.xlarge")

    assert place_text(EAST, (*ZONES, other)) == "use1-az1 (p4d.24xlarge)"
    assert place_text(WEST, (*ZONES, other)) == "usw2-az1"
    assert place_text("gone", ZONES) == "gone"


def test_money_is_told_to_the_cent():
    assert usd_text(1_234_567_890) == "1,234.57 USD"
