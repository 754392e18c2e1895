"""What the selector makes of programs that Spotline runs: saves, restarts, reports, egress."""

from __future__ import annotations

from spotline.application.allocator.handler import JobsHandler
from spotline.application.selector.job_run import RunPhase
from spotline.domain.events.knowledge import ThroughputReestimated
from spotline.domain.events.lifecycle import (
    JobClosed,
    JobExited,
    JobOutcome,
    JobSubmitted,
)
from spotline.domain.jobs.job import Throughput
from spotline.domain.jobs.lot import Lot
from spotline.domain.jobs.run import ProgressReading, ProgressSource, Run
from spotline.domain.units import WorkScale
from tests.fakes.selector import SelectorWorld, job_of, market_of
from tests.fakes.training import committed, formed, reported, restarted, run_job

HOURS = 2.0
"""Instance-hours of progress: a third of the work of `run_job`."""


def quanta(job, done: float) -> int:
    return WorkScale.for_amount(job.work.amount).quanta_from_work(done)


def running(job=None, **market: object) -> SelectorWorld:
    """A world in the second slot of a job whose program Spotline runs."""
    made = SelectorWorld(job or run_job(), market=market_of(**market))
    made.next_slot()
    made.next_slot()
    return made


def exit_of(job, code: int, at_ns: int, generation: int = 1) -> JobExited:
    return JobExited(
        job_id=job.job_id,
        tenant=job.tenant,
        generation=generation,
        exit_code=code,
        detail="",
        ts_event_ns=at_ns,
    )


# --- saves ------------------------------------------------------------------------------------


def test_until_a_save_was_measured_a_guaranteed_notice_saves_nothing() -> None:
    world = running(notice_lead_s=120)

    assert world.run_of().compiled.lost_s == 900
    assert running(job_of(), notice_lead_s=120).run_of().compiled.lost_s == 0


def test_a_measured_save_that_fits_is_believed_in_place_of_the_stated_one() -> None:
    world = running(notice_lead_s=120)
    run = world.run_of()
    run.memory = (1, 2, 3)

    world.feed(committed(run.job, 1, 10, HOURS, save_s=16))

    assert run.job.checkpoint.save_s == 20
    assert run.job.checkpoint.size_gb == 2.048
    assert run.compiled.lost_s == 0
    assert run.memory == ()


def test_a_measured_save_that_does_not_fit_keeps_the_loss() -> None:
    world = running(notice_lead_s=120)

    world.feed(committed(world.run_of().job, 1, 10, HOURS, save_s=100))

    assert world.run_of().compiled.lost_s == 900


def test_saves_that_differ_little_change_nothing_after_the_first() -> None:
    world = running()
    run = world.run_of()
    world.feed(committed(run.job, 1, 10, HOURS, save_s=16))
    job, program = run.job, run.compiled
    run.memory = (1, 2, 3)

    for step in range(11, 25):
        world.feed(committed(run.job, 1, step, HOURS, save_s=13 + step % 4))

    assert run.job is job
    assert run.compiled is program
    assert run.memory == (1, 2, 3)


def test_what_was_measured_stays_when_rates_are_re_estimated() -> None:
    world = running()
    run = world.run_of()
    world.feed(committed(run.job, 1, 10, HOURS, save_s=16))

    world.feed(
        ThroughputReestimated(
            job_id=run.job.job_id,
            tenant="t",
            throughputs=(Throughput(offering="*", alpha=0.5),),
            reports=3,
            factor_ppm=500_000,
            half_width_ppm=1,
        )
    )
    world.feed(committed(run.job, 1, 11, HOURS, save_s=40))

    assert run.job.throughputs[0].alpha == 0.5
    assert run.job.checkpoint.save_s == 52
    assert run.compiled.rate_quanta_per_s[1] > 0


def test_a_job_that_is_over_is_not_compiled_again() -> None:
    world = running()
    run = world.run_of()
    world.then(exit_of(run.job, 0, world.at(60)))
    assert run.phase is RunPhase.CLOSED
    before = run.job

    world.feed(committed(run.job, 1, 10, HOURS))

    assert run.job is before


# --- restarts ---------------------------------------------------------------------------------


def test_a_launch_that_takes_longer_than_stated_is_planned_with() -> None:
    world = running()
    run = world.run_of()
    slack = run.slack_slots(world.slot)

    world.feed(formed(run.job, 1, at_ns=world.at(600, slot=0)))
    world.feed(restarted(run.job, 1, restart_s=1800))

    assert run.job.overheads.launch_s == run.compiled.launch_s == 3072
    assert run.job.overheads.grow_s == 60
    assert run.slack_slots(world.slot) < slack


# --- the job board ----------------------------------------------------------------------------


def test_the_job_board_shows_the_corrected_job_and_keeps_the_stated_one() -> None:
    world = running()
    run = world.run_of()
    stated = run_job()
    handler = JobsHandler()
    board = handler.initial()
    handler.evolve(board, JobSubmitted(job=stated, ts_event_ns=0))

    for event in (committed(stated, 1, 10, HOURS), committed(stated, 1, 11, HOURS, save_s=40)):
        handler.evolve(board, event)
        world.feed(event)

    assert board.statuses["job-1"].job == run.job
    assert board.statuses["job-1"].job.checkpoint.save_s == 52
    assert board.submitted("job-1") == stated
    assert board.owners("job-1") == stated


# --- reports ----------------------------------------------------------------------------------


def test_a_job_whose_instances_never_come_up_is_not_believed_to_be_done() -> None:
    world = SelectorWorld(run_job())
    held = []
    for _ in range(20):
        world.next_slot()
        assert world.run_of().state.progress_quanta == 0
        held.append(world.held["job-1"])
    closed = [event for event in world.next_slot() if isinstance(event, JobClosed)]

    # Six slots of work and a launch: from slot 13 on only on-demand can do that, if it does.
    assert (held[12].spot, held[12].on_demand) == (2, 0)
    assert (held[13].spot, held[13].on_demand) == (0, 1)
    assert [event.outcome for event in closed] == [JobOutcome.MISSED_DEADLINE]
    assert closed[0].progress_ppm == 0


def test_a_job_that_somebody_else_runs_is_still_counted_on() -> None:
    world = SelectorWorld(job_of())
    closed: list[object] = []
    while not closed and world.slot < 30:
        closed = [event for event in world.next_slot() if isinstance(event, JobClosed)]

    assert closed[0].outcome is JobOutcome.COMPLETED  # type: ignore[attr-defined]


def test_between_reports_nothing_is_counted_inside_a_slot_either() -> None:
    world = running()
    run = world.run_of()
    world.feed(reported(run.job, 1, HOURS))

    assert run.state_at(1700).progress_quanta == quanta(run.job, HOURS)
    world.next_slot()
    assert run.state.progress_quanta == quanta(run.job, HOURS)
    world.next_slot()
    assert run.state.progress_quanta == quanta(run.job, HOURS)


def test_a_deadline_is_kept_where_a_program_stands_still_on_spot_only() -> None:
    world = SelectorWorld(run_job())
    job, done, closed = run_job(), 0.0, []
    while not closed and world.slot < 30:
        closed = [event for event in world.next_slot() if isinstance(event, JobClosed)]
        lot = world.held.get("job-1", Lot(offering_id=""))
        # It comes up on demand alone, and takes a minute to.
        taken_s = 60 if lot.on_demand and not done else 0
        if lot.on_demand and not closed:
            done = min(6.0, done + lot.on_demand * (1800 - taken_s) / 3600)
            world.feed(reported(job, 1, done))

    assert closed[0].outcome is JobOutcome.COMPLETED


def test_a_job_that_goes_on_is_trusted_with_spot_again() -> None:
    world = SelectorWorld(run_job())
    for _ in range(14):
        world.next_slot()
    assert world.held["job-1"].on_demand > 0

    world.feed(reported(run_job(), 1, 5.0))
    world.next_slot()

    assert world.held["job-1"].on_demand == 0
    assert not world.run_of().stands_still


def test_a_loss_falls_back_to_the_newest_checkpoint_until_the_next_start_tells() -> None:
    world = running()
    run = world.run_of()
    world.feed(committed(run.job, 1, 10, 1.0, save_s=400))
    world.feed(reported(run.job, 1, HOURS))
    assert world.held["job-1"].spot > 0

    world.lose(1, 900)
    assert run.reported_quanta == quanta(run.job, 1.0)
    world.next_slot()
    assert run.state.progress_quanta == quanta(run.job, 1.0)
    assert run.state.unsaved_quanta == 0

    world.feed(restarted(run.job, 2, done=0.5))
    world.feed(reported(run.job, 1, HOURS))
    world.next_slot()
    assert run.state.progress_quanta == quanta(run.job, 0.5)


def test_nothing_saved_yet_means_that_a_loss_takes_all() -> None:
    world = running()
    run = world.run_of()
    world.feed(reported(run.job, 1, HOURS))

    world.lose(1, 900)

    assert run.reported_quanta == 0


def test_a_program_with_checkpoints_of_its_own_loses_as_much_as_it_saves_at_a_time() -> None:
    reading = ProgressReading(source=ProgressSource.OUTPUT, pattern="step (?P<done>[0-9]+)")
    job = run_job(run=Run(command=("train",), progress=reading))
    world = running(job)
    run = world.run_of()
    world.feed(reported(job, 1, HOURS))
    world.next_slot()
    held = world.held["job-1"].spot
    assert held > 0

    world.lose(1, 1800 - 1)

    lost = quanta(job, HOURS) - (run.reported_quanta or 0)
    assert lost == run.compiled.rate_quanta_per_s[held] * 900
    # A start of it that says nothing of a checkpoint says nothing.
    world.feed(restarted(job, 2, done=0.0, sha256=""))
    assert quanta(job, HOURS) - (run.reported_quanta or 0) == lost


def test_saved_work_is_done_work() -> None:
    world = running()
    run = world.run_of()

    world.feed(committed(run.job, 1, 10, HOURS))

    assert run.reported_quanta == run.saved_quanta == quanta(run.job, HOURS)


def test_the_newest_checkpoint_counts_and_an_older_one_that_comes_late_does_not() -> None:
    world = running()
    run = world.run_of()
    world.feed(committed(run.job, 1, 20, 1.5))

    world.feed(committed(run.job, 1, 10, 1.0))
    assert run.saved_quanta == quanta(run.job, 1.5)
    world.feed(reported(run.job, 1, 1.6, checkpointed=1.0))
    assert run.saved_quanta == quanta(run.job, 1.5)

    # The second start could only read an older one, and has saved since.
    world.feed(restarted(run.job, 2, done=1.0))
    assert (run.saved_quanta, run.reported_quanta) == (quanta(run.job, 1.0),) * 2
    world.feed(committed(run.job, 1, 30, 1.8))
    assert run.saved_quanta == quanta(run.job, 1.0)
    world.feed(committed(run.job, 2, 12, 1.2))
    assert run.saved_quanta == quanta(run.job, 1.2)


def test_a_start_that_is_told_after_its_first_report_does_not_take_it_back() -> None:
    world = running()
    run = world.run_of()

    world.feed(reported(run.job, 2, 1.4))
    world.feed(restarted(run.job, 2, done=1.0))

    assert run.reported_quanta == quanta(run.job, 1.4)
    assert run.saved_quanta == quanta(run.job, 1.0)


# --- exits ------------------------------------------------------------------------------------


def test_a_program_that_wants_to_go_on_has_not_failed() -> None:
    world = running()
    run = world.run_of()
    held = world.held["job-1"]

    assert world.then(exit_of(run.job, 75, world.at(600))) == []

    assert (run.failure, run.ending, run.retry) == (None, None, 0)
    assert world.held["job-1"] == held
    # The end of the same start that does say something is heard.
    assert world.then(exit_of(run.job, 1, world.at(700)))
    assert run.outcome is JobOutcome.FAILED


def test_of_a_job_that_somebody_else_runs_75_is_a_failure_as_before() -> None:
    world = running(job_of())

    world.then(exit_of(world.run_of().job, 75, world.at(600)))

    assert world.run_of().outcome is JobOutcome.FAILED
