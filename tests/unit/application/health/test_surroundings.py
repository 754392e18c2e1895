"""Slots, quotes, disks, loop and tasks: each rule well, not well, and at its limit."""

from __future__ import annotations

from dataclasses import replace

from spotline.application.health.conditions import HealthLimits
from spotline.application.health.surroundings import (
    LoopJudge,
    SlotFacts,
    SlotJudge,
    disk,
    quotes,
    tasks,
)

LIMITS = HealthLimits(slot_least_s=60.0, slot_lengths=3)
OPEN = SlotFacts(slot=12, due=True, interval_s=30.0)


def test_a_slot_that_is_late_by_slot_lengths_is_told() -> None:
    judge = SlotJudge(limits=LIMITS)
    assert judge.judge(OPEN, 0.0).healthy
    assert judge.judge(OPEN, 89.9).healthy
    late = judge.judge(OPEN, 90.0)
    assert not late.healthy
    assert late.detail == "no slot for 90 s: slot 12 is open, one is due every 30 s"
    assert judge.judge(replace(OPEN, slot=13), 91.0).healthy


def test_short_slots_have_the_least_time_all_the_same() -> None:
    judge = SlotJudge(limits=LIMITS)
    quick = replace(OPEN, interval_s=0.0)
    judge.judge(quick, 0.0)
    assert judge.judge(quick, 59.0).healthy
    assert not judge.judge(quick, 60.0).healthy


def test_an_unsettled_slot_says_who_is_waited_for() -> None:
    judge = SlotJudge(limits=LIMITS)
    waiting = replace(OPEN, settled=False)
    judge.judge(waiting, 0.0)
    assert "slot 12 is not settled: selector and actuator" in judge.judge(waiting, 90.0).detail


def test_before_the_first_slot_it_counts_too() -> None:
    judge = SlotJudge(limits=LIMITS)
    none = replace(OPEN, slot=-1)
    judge.judge(none, 0.0)
    assert judge.judge(none, 90.0).detail.startswith("no slot for 90 s: none is open yet")


def test_a_market_that_stands_on_purpose_is_well_and_has_its_time_afterwards() -> None:
    judge = SlotJudge(limits=LIMITS)
    held = replace(OPEN, due=False, why_not="it waits for work")
    judge.judge(OPEN, 0.0)
    standing = judge.judge(held, 1e6)
    assert standing.healthy
    assert standing.detail == "slot 12 is open, no other is due: it waits for work"
    assert judge.judge(OPEN, 1e6 + 89.0).healthy
    assert not judge.judge(OPEN, 1e6 + 90.0).healthy


def test_quotes_are_not_well_where_their_source_is_said_to_be_silent() -> None:
    ages_s = {"a:1:x": 0, "a:2:x": 7200}
    assert quotes(ages_s, ()).healthy
    assert quotes(ages_s, ()).detail == "the oldest of 2 quotes is 2 h old"
    some = quotes(ages_s, ("a:2:x",))
    assert not some.healthy
    assert some.detail == (
        "1 of 2 offerings were not quoted for too long, such as a:2:x; a:2:x was for 2 h"
    )
    assert some.figure == 7200


def test_a_silent_offering_stops_nothing_and_a_dead_feed_does() -> None:
    ages_s = {"a:1:x": 9000, "a:2:x": 7200}
    assert not quotes(ages_s, ("a:2:x",)).stops_events
    assert quotes(ages_s, ("a:1:x", "a:2:x")).stops_events


def test_a_market_without_quotes_has_none_that_are_stale() -> None:
    assert quotes({}, ()).healthy


def test_the_fullest_disk_counts() -> None:
    limits = HealthLimits(disk_free_bytes=1000)
    assert disk({"the store": 1000, "the ledger": 5000}, limits).healthy
    full = disk({"the store": 5000, "the ledger": 999}, limits)
    assert not full.healthy
    assert full.detail == "999 B are free where the ledger is"
    assert disk({}, limits).healthy


def test_a_loop_that_stood_still_is_told_for_a_minute() -> None:
    judge = LoopJudge(limits=HealthLimits(loop_blocked_s=10.0))
    assert judge.judge(9.9, 0.0).healthy
    blocked = judge.judge(10.0, 2.0)
    assert not blocked.healthy
    assert not blocked.stops_events
    assert not judge.judge(0.0, 62.0).healthy
    assert judge.judge(0.0, 62.1).healthy


def test_a_task_that_ended_is_told_with_its_error() -> None:
    assert tasks({}).healthy
    ended = tasks({"HTTP": "OSError(9)"})
    assert not ended.healthy
    assert ended.stops_events
    assert ended.detail == "HTTP has ended: OSError(9)"
