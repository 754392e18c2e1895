"""What the allocator only shows parks nothing: it is set aside where it cannot be folded."""

from __future__ import annotations

from dataclasses import replace

from spotline.domain.events.lifecycle import JobAdvanced, JobCancelled
from spotline.domain.events.parking import EntryParked, ParkedEntryDropped
from spotline.replay.jobs import generated_jobs
from tests.fakes.odd_run import OddRun
from tests.fakes.recorded_run import small_market

MARKET = small_market(slots=16)
JOBS = generated_jobs(MARKET, 3, 5)
JOB = JOBS[0]


def begun():
    run = OddRun(MARKET, JOBS)
    run.begin()
    return run


def advanced(job_id):
    return JobAdvanced(
        job_id=job_id,
        tenant=JOB.tenant,
        slot=1,
        lots=(),
        progress_ppm=1,
        slot_cost_micro_usd=0,
        cost_micro_usd=0,
    )


def test_what_the_outlook_cannot_follow_is_left_out_there_and_nowhere_else(monkeypatch):
    run = begun()
    state = run.state_of("allocator")
    following = state.following
    apply = following._apply

    def failing(known, event):
        apply(known, event)
        if isinstance(event, JobCancelled):
            raise KeyError("planted")

    monkeypatch.setattr(following, "_apply", failing)

    run.host.publish(JobCancelled(job_id=JOB.job_id, tenant=JOB.tenant), source="allocator")

    assert following.left_out == 1
    assert following.last_left_out == "JobCancelled: KeyError: 'planted'"
    # It was applied when it failed: that is taken back.
    assert not following._state.runs[JOB.job_id].cancelled
    assert JOB.job_id in run.state_of("allocator").cancelled
    assert run.parked() == []


def test_what_the_board_cannot_fold_is_said_in_the_jobs_headline(monkeypatch):
    run = begun()
    state = run.state_of("allocator")
    fold = type(state.board).fold

    def failing(board, event, market):
        fold(board, event, market)
        if isinstance(event, JobAdvanced):
            raise KeyError("planted")

    monkeypatch.setattr(type(state.board), "fold", failing)

    run.host.publish(advanced(JOB.job_id), source="selector")

    board = run.state_of("allocator").board
    assert board.left_out >= 1
    assert board.entries[JOB.job_id].unseen == "JobAdvanced"
    assert all(parked.kind != "job.advanced" for parked in run.parked())


def test_a_parked_entry_is_on_the_board_until_somebody_has_dealt_with_it():
    run = begun()
    parked = EntryParked(
        service="selector",
        seq=3,
        place=0,
        event_id="e",
        kind="job.updated",
        error="no",
        error_type="Unfit",
        job_id=JOB.job_id,
    )

    run.host.publish(parked, source="selector")
    run.host.publish(replace(parked, event_id="other", job_id="nobody"), source="selector")
    entry = run.state_of("allocator").board.entries[JOB.job_id]
    assert entry.parked == {("selector", "e"): "selector could not take job.updated"}

    run.host.publish(ParkedEntryDropped(service="selector", event_id="e"), source="allocator")
    assert entry.parked == {}
