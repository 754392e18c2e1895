"""A whole system whose log is wiped or cut: accepted jobs are there again, and nothing is bought twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotline.domain.events.agreement import IncarnationBegun
from spotline.domain.events.lifecycle import JobSubmitted
from spotline.domain.events.market import SlotOpened
from tests.fakes.log_losses import flip_bytes
from tests.fakes.whole_system import JOBS, events_in, ledger_of, log_in, until_slot, verified, wipe

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


async def test_jobs_outlive_a_wiped_log_with_what_was_spent_and_nothing_is_bought_twice(
    tmp_path: Path,
) -> None:
    async with until_slot(tmp_path, 6, JOBS):
        pass
    spend, launched, held = ledger_of(tmp_path)
    assert set(spend) == {each.job_id for each in JOBS}
    await wipe(tmp_path)

    async with until_slot(tmp_path, 7):
        pass

    log = await log_in(tmp_path)
    events = events_in(log)
    begun = [event for event in events if isinstance(event, IncarnationBegun)]
    assert [(event.incarnation, event.last_slot_before) for event in begun] == [(2, 6)]
    assert [event.slot for event in events if isinstance(event, SlotOpened)] == [7]
    again = {event.job.job_id: event.job for event in events if isinstance(event, JobSubmitted)}
    assert again.keys() == spend.keys()
    assert {each.job_id: each.deadline for each in again.values()} == {
        each.job_id: each.deadline for each in JOBS
    }
    spend_after, launched_after, held_after = ledger_of(tmp_path)
    assert all(spend_after[job_id] >= spent for job_id, spent in spend.items())
    assert all(count <= held[job_id] or not held[job_id] for job_id, count in held_after.items())
    assert set(launched) <= set(launched_after)
    verified(log, tmp_path)


async def test_a_log_cut_under_a_whole_system_goes_on_behind_the_ledgers_last_slot(
    tmp_path: Path,
) -> None:
    async with until_slot(tmp_path, 6, JOBS):
        pass
    before = await log_in(tmp_path)
    spend, _, held = ledger_of(tmp_path)
    flip_bytes(tmp_path / "broker", at=0.5)

    async with until_slot(tmp_path, 8):
        pass

    log = await log_in(tmp_path)
    events = events_in(log)
    (begun,) = [event for event in events if isinstance(event, IncarnationBegun)]
    assert begun.last_slot_before == 6
    slots = [event.slot for event in events if isinstance(event, SlotOpened)]
    assert slots[-2:] == [7, 8], "no slot is opened twice, and none runs backwards"
    assert sorted(set(slots)) == slots
    assert len(log) > begun.last_seq_before - len(before)
    spend_after, _, held_after = ledger_of(tmp_path)
    assert all(spend_after[job_id] >= spent for job_id, spent in spend.items())
    assert sum(held_after.values()) <= sum(held.values())
    verified(log, tmp_path)
