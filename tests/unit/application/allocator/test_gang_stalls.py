"""A program that reports nothing: when it is stalled, what ends a stall, what a restart costs."""

from __future__ import annotations

import pytest

from spotline.application.allocator.agent_messages import AllocationState
from spotline.application.allocator.gangs import STALLED, told
from spotline.domain.events.training import (
    CheckpointCommitted,
    CheckpointKind,
    JobSilent,
    JobStalled,
    JobStallEnded,
)
from spotline.domain.jobs.run import OnStall, Run
from spotline.domain.units import NS_PER_S
from tests.fakes.allocator import START_NS
from tests.fakes.training_story import Story

LIMIT_S = 60


def program(**options):
    return Run(command=("train",), stalled_after_s=LIMIT_S, **options)


def running(members=2, **options):
    story = Story(run=program(**options))
    for _ in range(members):
        story.join(story.launch())
    story.until(story.all_run)
    return story


def wait(story, seconds):
    for _ in range(round(seconds * 2)):
        story.step(0.5)


def stalls(story):
    return [event for event in story.log if isinstance(event, JobStalled | JobStallEnded)]


def states(story):
    return [told(story.view(), name).state for name in story.held]


def test_a_program_that_reports_nothing_is_stalled_once_and_runs_on():
    story = running()
    formed_ns = story.generations()[0].ts_event_ns

    wait(story, LIMIT_S - 5)
    assert stalls(story) == []

    wait(story, 4 * LIMIT_S)
    (stalled,) = stalls(story)
    assert (stalled.generation, stalled.since_ns) == (1, formed_ns)
    assert stalled.on_stall is OnStall.ALARM
    assert stalled.ts_event_ns - formed_ns >= LIMIT_S * NS_PER_S
    assert states(story) == [AllocationState.RUN, AllocationState.RUN]
    assert story.exits() == []
    assert len(story.generations()) == 1


def test_a_report_ends_a_stall_and_the_next_silence_is_another_one():
    story = running()
    wait(story, LIMIT_S + 5)
    story.report(2.0)
    again_ns = story.now_ns
    wait(story, 5)

    stalled, ended = stalls(story)
    assert isinstance(ended, JobStallEnded)
    assert ended.since_ns == stalled.since_ns
    assert story.gang.stall is None

    wait(story, LIMIT_S + 5)
    assert [type(event) for event in stalls(story)] == [JobStalled, JobStallEnded, JobStalled]
    assert stalls(story)[-1].since_ns == again_ns


@pytest.mark.parametrize("kind", ["progress", "checkpoint"])
def test_a_program_that_reports_in_time_is_never_stalled(kind):
    story = running()
    for step in range(1, 5):
        wait(story, LIMIT_S - 10)
        if kind == "progress":
            story.report(float(step))
            continue
        story.record(
            story.of_job(
                CheckpointCommitted,
                generation=1,
                step=step,
                done=float(step),
                uri="file:///c",
                sha256="ab",
                size_bytes=1,
                kind=CheckpointKind.PERIODIC,
                save_s=1,
                ts_event_ns=story.now_ns,
            )
        )
        story.facts.report(story.now_s)

    assert stalls(story) == []


def test_a_report_of_an_earlier_start_does_not_count():
    story = running()
    story.join(story.launch())
    story.until(lambda: story.all_run() and story.gang.generation == 2)
    wait(story, LIMIT_S - 20)
    reported_ns = story.gang.reported_ns
    story.report(2.0, generation=1)

    assert story.gang.reported_ns == reported_ns


def test_a_restart_ends_the_program_and_counts_as_a_failure():
    story = running(on_stall=OnStall.RESTART)
    wait(story, LIMIT_S + 5)

    (stalled,) = stalls(story)
    assert stalled.on_stall is OnStall.RESTART
    (exited,) = story.exits()
    assert (exited.generation, exited.exit_code) == (1, STALLED)
    assert exited.detail.startswith("the program reported nothing for 6")
    assert story.gang.awaits_retry
    assert len(story.generations()) == 1

    story.retry(story.now_s + 10)
    story.until(lambda: story.all_run() and story.gang.generation == 2)
    assert story.generations()[1].detail == "a retry"
    assert story.gang.stall is None
    assert not story.gang.restarting


def test_a_report_on_its_way_does_not_keep_a_program_that_is_being_ended():
    story = running(on_stall=OnStall.RESTART)
    while not stalls(story):
        story.step(0.5)
    story.report(3.0)
    wait(story, 10)

    assert [event.exit_code for event in story.exits()] == [STALLED]
    assert [type(event) for event in stalls(story)] == [JobStalled]


def test_a_report_that_the_log_has_before_the_stall_refutes_it():
    story = running(on_stall=OnStall.RESTART)
    since_ns = story.gang.reported_ns
    wait(story, 10)
    story.report(1.0)
    story.record(
        story.of_job(
            JobStalled,
            generation=1,
            since_ns=since_ns,
            on_stall=OnStall.RESTART,
            ts_event_ns=story.now_ns,
        )
    )
    wait(story, 5)

    assert story.exits() == []
    assert states(story) == [AllocationState.RUN, AllocationState.RUN]
    assert isinstance(stalls(story)[-1], JobStallEnded)


def test_a_program_that_is_done_before_it_is_killed_is_done():
    story = running(on_stall=OnStall.RESTART)
    while not stalls(story):
        for machine in story.machines.values():
            machine.slow_news = False
        story.now_s += 0.5
        story.decide()
        for machine in story.machines.values():
            story.facts.beat(machine.name, machine.running, story.now_s)
    for name in story.held:
        story.ranks_end(name, 0)
    wait(story, 5)

    assert [event.exit_code for event in story.exits()] == [0]


def test_a_silent_agent_is_no_stalled_program():
    story = running()
    for machine in story.machines.values():
        machine.reached = False
    wait(story, 2 * LIMIT_S)

    assert stalls(story) == []
    assert any(isinstance(event, JobSilent) for event in story.log)


def test_what_waits_for_instances_or_a_retry_is_not_stalled():
    waiting = Story(run=program())
    waiting.launch()
    wait(waiting, 2 * LIMIT_S)
    assert stalls(waiting) == []

    failed = running(1)
    failed.ranks_end("i-1", 1)
    wait(failed, 2 * LIMIT_S)
    assert failed.gang.awaits_retry
    assert stalls(failed) == []


def test_after_a_restart_of_the_allocator_agents_have_time_to_report():
    story = running()
    wait(story, LIMIT_S - 1)
    story.restart_control_plane()
    wait(story, 2)
    assert stalls(story) == []

    wait(story, 10)
    assert len(stalls(story)) == 1


def test_a_restart_that_was_decided_goes_on_after_one_of_the_allocator():
    story = running(on_stall=OnStall.RESTART)
    while not stalls(story):
        story.step(0.5)
    story.restart_control_plane()
    wait(story, 20)

    assert [event.exit_code for event in story.exits()] == [STALLED]


def test_the_default_is_three_slots_and_at_least_a_quarter_of_an_hour():
    stated = Run(command=("train",))

    assert stated.seconds_to_stall(0) == 900
    assert stated.seconds_to_stall(60) == 900
    assert stated.seconds_to_stall(600) == 1800
    assert program().seconds_to_stall(600) == LIMIT_S


def test_the_time_since_when_is_market_time():
    story = running()
    wait(story, LIMIT_S + 5)

    (stalled,) = stalls(story)
    assert START_NS <= stalled.since_ns < stalled.ts_event_ns <= story.now_ns
