"""What has happened to jobs: bounded, in order, with market time."""

from __future__ import annotations

import asyncio

from spotline.adapters.grpc.allocator.history import JobHistory
from spotline.domain.events.allocation import AllocationDecided
from spotline.domain.events.capacity import CapacityLost
from spotline.domain.events.lifecycle import JobCancelled
from spotline.domain.jobs.lot import Lot
from spotline.domain.policies.answer import DecisionReason
from tests.fakes.allocator import EAST, SLOT_NS, START_NS, market_opened, slot_opened


def decided(slot, *lots, reason=DecisionReason.POLICY):
    return AllocationDecided(
        job_id="j",
        tenant="t",
        slot=slot,
        revision=0,
        offset_s=0,
        policy_id="msu",
        lots=lots,
        reason=reason,
        forecast_used=False,
        explanation="by msu",
    )


def cancelled(ts_ns):
    return JobCancelled(job_id="j", tenant="t", ts_event_ns=ts_ns)


def test_only_decisions_that_change_something_are_kept_with_the_time_of_their_slot():
    history = JobHistory()
    history.note(market_opened(), "", 1)
    history.note(slot_opened(2), "", 2)
    lot = Lot(offering_id=EAST, spot=2)
    for seq, event in enumerate((decided(2), decided(2, lot), decided(3, lot), decided(3)), 3):
        history.note(event, "j", seq)
    lost = CapacityLost(
        job_id="j", tenant="t", offering_id=EAST, instance_ids=("i",), slot=2, offset_s=30
    )
    history.note(lost, "j", 9)

    found = history.of("j")
    assert [one.text for one in found[:2]] == [
        f"is to hold 2 spot {EAST}: by msu",
        "is to hold nothing: by msu",
    ]
    assert [one.ts_event_ns - START_NS for one in found] == [
        *(2 * SLOT_NS, 3 * SLOT_NS, 2 * SLOT_NS + 30 * 10**9)
    ]
    assert [one.seq for one in history.of("j", after_seq=6)] == [9]


def test_a_job_keeps_its_latest_and_all_together_are_bounded():
    history = JobHistory(most=3, most_of_all=5)
    for seq in range(10):
        history.note(cancelled(seq), "first", seq)
    assert [one.seq for one in history.of("first")] == [7, 8, 9]

    for seq in range(10, 13):
        history.note(cancelled(seq), "second", seq)
    assert history.of("first") == []
    assert len(history.of("second")) == 3


async def test_who_waits_is_woken_by_what_comes_and_by_the_end():
    history = JobHistory()
    waiting = asyncio.create_task(history.change("j", 0))
    await asyncio.sleep(0)
    history.note(cancelled(1), "j", 1)
    await asyncio.wait_for(waiting, 30)

    waiting = asyncio.create_task(history.change("j", 1))
    await asyncio.sleep(0)
    history.end()
    await asyncio.wait_for(waiting, 30)


def test_that_a_limit_is_reached_is_told_though_nothing_else_is_held():
    history = JobHistory()
    history.note(slot_opened(2), "", 1)
    reasons = (DecisionReason.POLICY, DecisionReason.BUDGET, DecisionReason.BUDGET)
    for seq, reason in enumerate(reasons, 2):
        history.note(decided(2, reason=reason), "j", seq)

    assert [(one.seq, one.text) for one in history.of("j")] == [
        (3, "is to hold nothing, as its budget allows no more: by msu")
    ]


def test_a_happening_says_when_the_log_stored_it():
    history = JobHistory()
    history.note(cancelled(START_NS), "j", 1, wall_ns=77)

    assert history.of("j")[0].wall_ns == 77
