"""What is drawn of a job is what its log says, and what it is compared with is what was replayed."""

from dataclasses import replace

import pytest

from spotline.contracts.build import event_of
from spotline.contracts.envelope import CarriedHeaders, StoredEntry
from spotline.contracts.errors import ContractError
from spotline.domain.events.capacity import (
    CapacityLost,
    InterruptionKind,
    InterruptionNoticed,
    InterruptionWithdrawn,
    LaunchRefused,
)
from spotline.domain.events.lifecycle import JobClosed, JobExited
from spotline.domain.events.training import CheckpointCommitted, CheckpointKind
from spotline.domain.market.offering import CapacityType
from spotline.domain.units import NS_PER_S
from spotline.replay.pictures.lives import DrawnJob, MarkKind, drawn_run
from spotline.replay.report import report_run
from tests.fakes.events import envelope
from tests.fakes.recorded_run import START_NS, recorded_run, small_market

SLOT_NS = 1800 * NS_PER_S


def with_events(log, *events) -> list[StoredEntry]:
    """The log, and behind it these events."""
    entries = list(log)
    for event in events:
        made = envelope(event)
        entries.append(
            replace(
                entries[-1],
                seq=entries[-1].seq + 1,
                subject=made.subject,
                headers=CarriedHeaders(made),
                payload=made.payload,
            )
        )
    return entries


def job_of(entries, options, whose) -> DrawnJob:
    return drawn_run(entries, options).chosen(whose["job_id"])


def known(log) -> dict[str, str]:
    """What every event of the first job names it by."""
    closed = next(e for e in map(event_of, log) if isinstance(e, JobClosed))
    return {"job_id": closed.job_id, "tenant": closed.tenant}


def noticed(whose, slot, *ids):
    return InterruptionNoticed(
        **whose,
        offering_id="a",
        instance_ids=ids,
        slot=slot,
        offset_s=60,
        lead_s=120,
        kind=InterruptionKind.CAPACITY_RECLAIMED,
    )


def lost(whose, slot, *ids):
    return CapacityLost(**whose, offering_id="a", instance_ids=ids, slot=slot, offset_s=180)


def test_a_job_costs_what_its_log_closed_it_with_and_was_done_when_it_says(log, run):
    closed = {e.job_id: e for e in map(event_of, log) if isinstance(e, JobClosed)}

    assert len(run.jobs) == len(closed) == 6
    for job in run.jobs:
        assert job.spent_micro_usd == closed[job.job.job_id].cost_micro_usd
        assert job.progress[-1][1] == closed[job.job.job_id].progress_ppm
        assert job.end_ns == START_NS + (closed[job.job.job_id].slot + 1) * SLOT_NS
        assert job.held[-1] == (job.end_ns, ())


def test_courses_never_go_back(run):
    for job in run.jobs:
        for course in (job.progress, job.spent, *job.otherwise.values()):
            assert list(course) == sorted(course)
            values = [value for _, value in course]
            assert values == sorted(values)


def test_what_it_would_have_cost_otherwise_is_what_the_report_replays(log, run, options):
    reported = {each.job.job_id: each for each in report_run(log, options).jobs}

    for job in run.jobs:
        assert job.compared
        ends = {name: course[-1][1] for name, course in job.otherwise.items()}
        lives = reported[job.job.job_id].otherwise
        assert ends == {name: life.cost_micro_usd for name, life in lives.items()}


def test_a_job_that_still_runs_is_compared_until_now_only(log, options):
    closed = [n for n, entry in enumerate(log) if isinstance(event_of(entry), JobClosed)]
    cut = drawn_run(log[: closed[0]], options)

    (running,) = [job for job in cut.jobs if job.ran]

    assert running.outcome is None
    assert not running.compared
    assert set(running.otherwise) == {"on_demand_only", "msu", "uniform_progress"}
    assert all(course[-1][0] <= running.end_ns for course in running.otherwise.values())


def test_a_loss_that_was_announced_is_one_interruption_and_other_losses_are_without_notice(
    log, options
):
    whose = known(log)
    entries = with_events(
        log,
        noticed(whose, 20, "i1", "i2"),
        lost(whose, 20, "i1", "i2", "i3"),
        lost(whose, 21, "i2"),
    )

    job = job_of(entries, options, whose)

    told = [(mark.kind, mark.instances, mark.at_ns) for mark in job.marks if mark.instances]
    at = START_NS + 20 * SLOT_NS
    assert told == [
        (MarkKind.NOTICED, 2, at + 60 * NS_PER_S),
        (MarkKind.LOST, 1, at + 180 * NS_PER_S),
    ]


def test_a_notice_told_again_counts_once_and_one_that_is_withdrawn_counts_again(log, options):
    whose = known(log)
    withdrawn = InterruptionWithdrawn(
        **whose, offering_id="a", instance_ids=("i1", "other"), slot=21, offset_s=0
    )
    entries = with_events(
        log,
        noticed(whose, 20, "i1"),
        replace(noticed(whose, 20, "i1"), offset_s=90),
        withdrawn,
        noticed(whose, 22, "i1"),
    )

    job = job_of(entries, options, whose)

    assert job.count(MarkKind.NOTICED) == 2
    assert job.count(MarkKind.WITHDRAWN) == 1


def test_refusals_checkpoints_and_failures_are_marked(log, options):
    whose = known(log)
    refused = LaunchRefused(
        **whose,
        command_id="c",
        offering_id="a",
        capacity_type=CapacityType.SPOT,
        slot=20,
        requested=4,
        granted=1,
        detail="",
    )
    saved = CheckpointCommitted(
        **whose,
        generation=1,
        step=1,
        done=1.0,
        uri="u",
        sha256="0" * 64,
        size_bytes=1,
        kind=CheckpointKind.PERIODIC,
        save_s=1,
        ts_event_ns=START_NS + 5,
    )
    failed, ended = (
        JobExited(**whose, generation=n, exit_code=code, detail="", ts_event_ns=START_NS + 9)
        for n, code in ((1, 1), (2, 0))
    )

    job = job_of(with_events(log, refused, saved, failed, ended), options, whose)

    assert [m.instances for m in job.marks if m.kind is MarkKind.REFUSED] == [3]
    assert [m.at_ns for m in job.marks if m.kind is MarkKind.SAVED] == [START_NS + 5]
    assert job.count(MarkKind.EXITED) == 1


def test_moves_are_those_that_were_decided(log, run, options):
    moved = {job.job.job_id: job.count(MarkKind.MOVED) for job in run.jobs}

    lives = {each.job.job_id: each.life.moves for each in report_run(log, options).jobs}
    assert moved == lives
    assert any(moved.values())


def test_a_job_is_chosen_by_id_by_how_it_begins_or_by_its_name(run):
    first = run.jobs[0]

    for name in (first.job.job_id, first.job.job_id[:9], first.job.name):
        assert run.chosen(name) is first
    with pytest.raises(ContractError, match=r"expected a job of the log \(fine-tune"):
        run.chosen("none")
    same = replace(
        run, jobs=(first, replace(run.jobs[1], job=replace(run.jobs[1].job, name=first.job.name)))
    )
    with pytest.raises(ContractError, match="expected one job, found 2 of 'fine-tune"):
        same.chosen(first.job.name)


def test_a_log_without_a_market_or_without_jobs_is_refused(options):
    with pytest.raises(ContractError, match="expected a log with a market"):
        drawn_run([], options)
    market = small_market(slots=16)
    with pytest.raises(ContractError, match="expected a log with jobs"):
        drawn_run(recorded_run(market, []), options)
