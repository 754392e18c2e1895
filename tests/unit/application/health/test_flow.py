"""Whether events flow: each rule well, not well, and at its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotline.application.health.conditions import HealthLimits, Judged
from spotline.application.health.flow import (
    BusJudge,
    Failing,
    FollowJudge,
    LogFacts,
    PlaceFacts,
    publishing,
    snapshot,
    storage,
)

LIMITS = HealthLimits()


def place(floor: int, waiting: int = 0) -> PlaceFacts:
    return PlaceFacts(floor_seq=floor, waiting=waiting)


def following() -> FollowJudge:
    return FollowJudge(limits=LIMITS)


def judged(
    judge: FollowJudge, now_s: float, *, applied: int, floor: int, last: int, waiting: int = 0
) -> Judged:
    return judge.judge(applied_seq=applied, place=place(floor, waiting), last_seq=last, now_s=now_s)


# --- the log ----------------------------------------------------------------------------------


def test_a_service_at_the_end_of_its_log_is_well() -> None:
    found = judged(following(), 0.0, applied=494, floor=494, last=499)
    assert found.healthy
    assert found.figure == 0


def test_a_log_that_ends_before_what_was_acknowledged_has_lost_its_end_at_once() -> None:
    found = judged(following(), 0.0, applied=0, floor=494, last=161)
    assert not found.healthy
    assert found.stops_events
    assert found.detail == (
        "the log lost its end: it ends at 161, but this service has taken entries up to 494"
    )
    assert found.figure == 333
    assert found.condition().continue_with == "spotline store check"


def test_what_was_applied_counts_where_the_place_is_gone_with_the_log() -> None:
    found = following().judge(applied_seq=12, place=None, last_seq=0, now_s=0.0)
    assert not found.healthy


def test_a_log_that_grew_past_what_was_taken_is_still_one_with_a_hole() -> None:
    judge = following()
    judged(judge, 0.0, applied=494, floor=494, last=161)
    grown = judged(judge, 1.0, applied=494, floor=494, last=600)
    assert not grown.healthy
    assert "new ones below that were left out" in grown.detail
    followed = judged(judge, 2.0, applied=600, floor=600, last=600)
    assert followed.healthy


def test_a_service_that_begins_anew_on_what_is_left_is_well() -> None:
    judge = following()
    judged(judge, 0.0, applied=494, floor=494, last=161)
    assert judged(judge, 1.0, applied=162, floor=162, last=162).healthy


def test_entries_that_wait_and_are_not_taken_are_told_after_a_while() -> None:
    judge = following()
    assert judged(judge, 0.0, applied=5, floor=5, last=9, waiting=4).healthy
    just_before = judged(judge, LIMITS.stall_s - 0.1, applied=5, floor=5, last=9, waiting=4)
    assert just_before.healthy
    stalled = judged(judge, LIMITS.stall_s, applied=5, floor=5, last=9, waiting=4)
    assert not stalled.healthy
    assert stalled.detail == "4 entries wait, and none was taken for 60 s"
    assert judged(judge, LIMITS.stall_s + 1, applied=6, floor=5, last=9, waiting=3).healthy


def test_a_service_with_nothing_to_take_may_stand_for_ever() -> None:
    judge = following()
    judged(judge, 0.0, applied=5, floor=5, last=9)
    assert judged(judge, 1e6, applied=5, floor=5, last=2000).healthy
    # Then something comes: it has its time from now on.
    assert judged(judge, 1e6 + 1, applied=5, floor=5, last=2001, waiting=1).healthy


def test_a_backlog_that_only_grows_is_told_although_entries_are_taken() -> None:
    judge = following()
    for second in range(0, int(LIMITS.stall_s) + 1, 2):
        found = judged(
            judge, second, applied=second, floor=second, last=9000, waiting=2000 + second
        )
    assert not found.healthy
    assert "they become no fewer" in found.detail
    assert judged(judge, 62.0, applied=99, floor=99, last=9000, waiting=1999).healthy


def test_a_large_backlog_that_shrinks_is_no_matter() -> None:
    judge = following()
    found = [
        judged(judge, second, applied=second, floor=second, last=9000, waiting=5000 - second)
        for second in range(0, 200, 2)
    ]
    assert all(one.healthy for one in found)


@given(
    applied=st.integers(0, 1000),
    floor=st.integers(0, 1000),
    last=st.integers(0, 1000),
    waiting=st.integers(0, 5000),
)
def test_at_first_sight_only_a_lost_end_is_not_well(
    applied: int, floor: int, last: int, waiting: int
) -> None:
    found = judged(following(), 3.0, applied=applied, floor=floor, last=last, waiting=waiting)
    assert found.healthy == (max(applied, floor) <= last)


# --- the broker -------------------------------------------------------------------------------


def test_a_broker_that_does_not_answer_for_a_moment_is_well_then_not() -> None:
    judge = BusJudge(limits=LIMITS)
    assert judge.judge(problem="", now_s=0.0).healthy
    assert judge.judge(problem="timeout", now_s=9.9).healthy
    silent = judge.judge(problem="timeout", now_s=10.0)
    assert not silent.healthy
    assert silent.detail == "the broker has not told of the log for 10 s: timeout"
    assert judge.judge(problem="", now_s=11.0).healthy


def test_a_broker_that_never_answered_is_not_well_after_the_same_time() -> None:
    judge = BusJudge(limits=LIMITS)
    assert judge.judge(problem="refused", now_s=100.0).healthy
    assert not judge.judge(problem="refused", now_s=110.0).healthy


def test_a_log_that_is_gone_is_told_at_once() -> None:
    found = BusJudge(limits=LIMITS).judge(problem="stream not found", now_s=0.0, is_final=True)
    assert not found.healthy
    assert found.continue_with == "spotline store check"


# --- storing ----------------------------------------------------------------------------------


def failing(since_s: float, last_s: float) -> Failing:
    return Failing(since_s=since_s, last_s=last_s, times=3, problem="insufficient resources")


def test_events_that_cannot_be_stored_are_told_with_the_reason() -> None:
    found = publishing(failing(10.0, 12.0), LIMITS, 13.0)
    assert not found.healthy
    assert found.detail == ("events could not be stored for 3 s, 3 times: insufficient resources")
    assert publishing(None, LIMITS, 13.0).healthy


def test_a_failure_that_nobody_repeats_is_forgotten() -> None:
    assert not publishing(failing(0.0, 12.0), LIMITS, 12.0 + LIMITS.stall_s - 0.1).healthy
    assert publishing(failing(0.0, 12.0), LIMITS, 12.0 + LIMITS.stall_s).healthy


def test_a_snapshot_that_is_not_saved_does_not_stop_the_service() -> None:
    found = snapshot(failing(0.0, 1.0), 3600.0)
    assert not found.healthy
    assert not found.stops_events
    assert snapshot(None, 0.0).healthy


@pytest.mark.parametrize(
    ("used", "limit", "healthy"), [(95, 100, True), (96, 100, False), (0, 0, True), (7, 0, True)]
)
def test_jetstream_is_not_well_when_hardly_anything_is_free(
    used: int, limit: int, healthy: bool
) -> None:
    facts = LogFacts(first_seq=1, last_seq=1, storage_bytes=used, storage_limit_bytes=limit)
    found = storage(facts, LIMITS)
    assert found.healthy == healthy
    assert found.figure == (limit - used if limit else None)


def test_a_limit_must_be_a_number_that_can_be_reached() -> None:
    with pytest.raises(ValueError, match="stall_s must be finite and >= 0, was nan"):
        HealthLimits(stall_s=float("nan"))
    with pytest.raises(ValueError, match="disk_free_bytes must be finite and >= 0, was -1"):
        HealthLimits(disk_free_bytes=-1)
