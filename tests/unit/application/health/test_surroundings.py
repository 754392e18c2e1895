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
from spotline.domain.market.generate import generate
from spotline.domain.market.slot_quote import SlotQuote

LIMITS = HealthLimits(slot_least_s=60.0, slot_lengths=3)
OPEN = SlotFacts(slot=12, due=True, interval_s=30.0)
MARKET = generate("mixed", seed=1, slots=2, slot_s=600, start_ns=0)


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


def quoted(*ages_s: int) -> list[SlotQuote]:
    return [
        SlotQuote(quote=quote, age_s=age_s)
        for quote, age_s in zip(MARKET.quotes(0), ages_s, strict=False)
    ]


def test_a_quote_is_stale_beyond_its_slots_and_its_least_time() -> None:
    limits = HealthLimits(quote_slots=6, quote_least_s=3600)
    assert quotes(quoted(0, 3600), 600, limits).healthy
    stale = quotes(quoted(0, 3601), 600, limits)
    assert not stale.healthy
    second = MARKET.quotes(0)[1].offering_id
    assert stale.detail == f"1 of 2 quotes are older than 60 min: {second} is 60 min old"
    assert stale.figure == 3601
    # Of longer slots they may be older.
    assert quotes(quoted(0, 3601), 1200, limits).healthy


def test_a_market_without_quotes_has_none_that_are_stale() -> None:
    assert quotes([], 600, LIMITS).healthy


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
