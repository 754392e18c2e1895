"""The rules of gangs: stories by hand, and laws over stories that chance writes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.application.allocator.agent_messages import AllocationState
from spotline.application.allocator.gang_facts import AgentTimes
from spotline.application.allocator.gangs import told
from spotline.domain.events.lifecycle import JobClosed, JobOutcome
from spotline.domain.events.training import CheckpointCommitted, CheckpointKind, JobHeard, JobSilent
from tests.depth import examples
from tests.fakes.allocator import START_NS
from tests.fakes.training_story import NS, Story


def running_story(members=2, **options):
    story = Story(**options)
    for _ in range(members):
        story.join(story.launch())
    story.until(story.all_run)
    return story


def state_of(story, name):
    allocation = told(story.view(), name)
    return None if allocation is None else allocation.state


# --- forming ------------------------------------------------------------------------------------


def test_a_generation_is_formed_when_all_that_are_held_have_joined():
    story = Story()
    first, second = story.launch(), story.launch()
    story.join(first)
    story.step()

    assert story.generations() == []
    assert told(story.view(), first).detail == "i-2 to join"

    story.join(second)
    story.step()

    (formed,) = story.generations()
    assert (formed.generation, formed.instance_ids) == (1, (first, second))
    members = told(story.view(), second).members
    assert [(one.node_rank, one.host) for one in members] == [(0, "host-i-1"), (1, "host-i-2")]


def test_an_agent_that_joins_before_its_instance_is_reported_waits():
    story = Story()
    story.launch()
    story.machines["early"] = type(story.machines["i-1"])("early")
    story.join("early")

    assert state_of(story, "early") is AllocationState.WAIT


def test_a_count_that_is_not_allowed_forms_nothing():
    story = Story(counts=(2, 4))
    for _ in range(3):
        story.join(story.launch())
    story.step()

    assert story.generations() == []
    assert told(story.view(), "i-1").detail == "3 instances are held, the program runs on 2, 4"


def test_an_instance_that_comes_in_addition_stops_the_program_only_once_it_has_joined():
    story = running_story(2)
    third = story.launch()
    story.step()
    assert state_of(story, "i-1") is AllocationState.RUN

    story.join(third)
    story.step()
    assert state_of(story, "i-1") is AllocationState.STOP
    story.until(story.all_run)

    formed = story.generations()[-1]
    assert (formed.generation, formed.instance_ids) == (2, ("i-1", "i-2", "i-3"))
    assert formed.detail == "i-3 came"


def test_those_who_stay_keep_their_order():
    story = running_story(3)
    story.release("i-1")
    story.join(story.launch())
    story.until(story.all_run)

    assert story.generations()[-1].instance_ids == ("i-2", "i-3", "i-4")
    assert story.exits() == []


# --- ending -------------------------------------------------------------------------------------


def test_a_member_that_is_held_no_more_leaves_and_the_others_save():
    story = running_story(2)
    story.release("i-2")
    story.decide()

    assert state_of(story, "i-2") is AllocationState.LEAVE
    assert state_of(story, "i-1") is AllocationState.STOP
    story.until(story.all_run)
    assert story.generations()[-1].instance_ids == ("i-1",)
    assert not story.machines["i-2"].alive


def test_a_member_that_is_lost_aborts_the_others():
    story = running_story(2)
    story.kill("i-2")
    story.tell_lost()
    story.decide()

    assert state_of(story, "i-1") is AllocationState.ABORT
    story.until(story.all_run)
    assert story.generations()[-1].detail == "i-2 left"
    assert story.exits() == []


def test_a_member_that_dies_while_it_leaves_is_not_waited_for_once_its_end_is_seen():
    story = running_story(2)
    story.release("i-2")
    story.step()
    story.kill("i-2")
    story.until(lambda: not story.machines["i-1"].running)
    story.step()
    assert len(story.generations()) == 1

    story.tell_ended()
    story.step()

    assert len(story.generations()) == 2
    assert not story.silent(story.machines["i-2"])
    assert story.exits() == []


def test_zero_of_all_is_the_end():
    story = running_story(2)
    story.ranks_end("i-1", 0)
    story.step()
    assert story.exits() == []

    story.ranks_end("i-2", 0)
    story.until(story.exits)

    (exited,) = story.exits()
    assert (exited.generation, exited.exit_code) == (1, 0)
    assert state_of(story, "i-1") is AllocationState.WAIT
    story.record(
        story.of_job(
            JobClosed,
            slot=0,
            outcome=JobOutcome.COMPLETED,
            policy_id="p",
            cost_micro_usd=0,
            value_micro_usd=0,
            progress_ppm=1_000_000,
        )
    )
    assert state_of(story, "i-1") is AllocationState.OVER


def test_a_heartbeat_that_comes_before_the_end_is_said_stops_nobody():
    story = running_story(2)
    for _ in range(20):
        story.step()
    assert story.machines["i-2"].slow_news
    story.ranks_end("i-2", 0)
    story.step()
    assert story.facts.running("i-2") == 0
    assert state_of(story, "i-1") is AllocationState.RUN

    for _ in range(5):
        story.step()
    assert state_of(story, "i-1") is AllocationState.RUN
    story.ranks_end("i-1", 0)
    story.until(story.exits)
    assert [one.exit_code for one in story.exits()] == [0]
    assert len(story.generations()) == 1


def test_a_program_that_wants_to_go_on_is_started_again_and_uses_no_retry():
    story = running_story(2)
    story.ranks_end("i-1", 75)
    story.until(lambda: len(story.generations()) == 2)

    assert story.exits() == []
    assert story.generations()[-1].instance_ids == ("i-1", "i-2")
    story.until(story.all_run)


def test_a_failure_aborts_those_who_hang_and_is_told_once():
    story = running_story(2)
    story.ranks_end("i-1", 3)
    story.step()
    assert state_of(story, "i-2") is AllocationState.RUN  # it may end by itself
    story.until(lambda: story.machines["i-2"].running == 0)
    story.until(story.exits)
    for _ in range(10):
        story.step()

    (exited,) = story.exits()
    assert exited.exit_code == 3
    assert len(story.generations()) == 1


def test_a_retry_does_not_run_before_its_time():
    story = running_story(1)
    story.ranks_end("i-1", 3)
    story.until(story.exits)
    at_s = story.now_s + 8
    story.retry(at_s)
    while story.now_s < at_s - 0.5:
        story.step()
        assert len(story.generations()) == 1
    story.until(story.all_run)

    assert story.generations()[-1].detail == "a retry"
    assert story.generations()[-1].ts_event_ns >= START_NS + round(at_s * NS)


@pytest.mark.parametrize("happening", ["notice", "release", "lose"])
def test_what_a_program_exits_with_after_an_interruption_is_no_failure(happening):
    story = running_story(2)
    if happening == "notice":
        story.notice("i-2")
    elif happening == "release":
        story.release("i-2")
    else:
        story.kill("i-2")
        story.tell_lost()
    story.ranks_end("i-1", 1)
    story.ranks_end("i-2", 1)
    story.until(lambda: len(story.generations()) == 2)

    assert story.exits() == []


def test_an_instance_that_dies_just_after_it_said_how_its_program_was_killed_did_not_fail():
    story = running_story(1)
    story.ranks_end("i-1", -15)
    story.step(0.1)
    story.kill("i-1")
    for _ in range(4):
        story.step()
    story.tell_lost()
    story.join(story.launch())
    story.until(story.all_run)

    assert story.exits() == []


def test_an_end_of_an_older_generation_says_nothing():
    story = running_story(2)
    story.ranks_end("i-1", 75)
    story.until(lambda: len(story.generations()) == 2 and story.all_run())
    story.facts.stop("i-1", 1, 7, "", story.now_s)
    story.step()

    assert story.all_run()
    assert story.exits() == []


# --- silence ------------------------------------------------------------------------------------


def test_a_silent_member_is_told_of_once_and_does_not_stop_the_others():
    story = running_story(2)
    story.machines["i-2"].reached = False
    for _ in range(12):
        story.step()

    assert [type(event) for event in story.log[-1:]] == [JobSilent]
    assert sum(isinstance(event, JobSilent) for event in story.log) == 1
    assert state_of(story, "i-1") is AllocationState.RUN

    story.machines["i-2"].reached = True
    story.step()
    assert isinstance(story.log[-1], JobHeard)
    assert len(story.generations()) == 1


def test_nothing_is_formed_beside_a_silent_member_that_is_held():
    story = running_story(2)
    story.machines["i-2"].reached = False
    story.until(lambda: any(isinstance(event, JobSilent) for event in story.log))
    story.ranks_end("i-1", 1)
    for _ in range(10):
        story.step()
    assert len(story.generations()) == 1

    story.release("i-2")
    story.until(story.all_run)
    assert story.generations()[-1].instance_ids == ("i-1",)
    assert story.exits() == []


def test_who_comes_back_with_an_older_generation_ends_it_first():
    story = running_story(2)
    story.machines["i-2"].reached = False
    story.release("i-2")
    story.until(lambda: len(story.generations()) == 2)
    story.held.append("i-2")
    story.report_holding()
    story.machines["i-2"].reached = True
    story.facts.beat("i-2", 1, story.now_s)

    allocation = told(story.view(), "i-2")
    assert (allocation.state, allocation.generation) == (AllocationState.ABORT, 1)
    story.until(lambda: len(story.generations()) == 3 and story.all_run())


# --- after a restart ----------------------------------------------------------------------------


def test_after_a_restart_nothing_is_told_before_it_is_known_what_runs():
    story = running_story(2)
    story.restart_control_plane()
    assert told(story.view(), "i-1") is None

    story.step()
    assert state_of(story, "i-1") is AllocationState.RUN
    assert len(story.generations()) == 1


def test_an_end_that_was_forgotten_leads_to_another_start_and_never_to_a_completion():
    story = running_story(2)
    story.ranks_end("i-1", 0)
    story.step()
    story.restart_control_plane()
    story.ranks_end("i-2", 0)
    story.until(lambda: len(story.generations()) == 2)

    assert story.exits() == []
    story.until(story.all_run)


def test_those_who_wait_for_a_member_whose_end_was_forgotten_are_stopped():
    story = running_story(2)
    story.ranks_end("i-1", -15)
    story.step()
    story.restart_control_plane()
    story.until(lambda: len(story.generations()) == 2 and story.all_run())

    assert story.exits() == []


# --- notices and checkpoints ----------------------------------------------------------------------


def test_notices_are_told_until_they_are_withdrawn():
    story = running_story(2)
    story.notice("i-2", lead_s=60)
    (notice,) = told(story.view(), "i-1").notices
    assert notice.instance_ids == ("i-2",)
    assert notice.deadline_ns == START_NS + 61 * NS
    assert state_of(story, "i-1") is AllocationState.RUN

    story.withdraw("i-2")
    assert told(story.view(), "i-1").notices == ()


def test_the_newest_checkpoint_is_that_of_the_latest_generation():
    story = running_story(1)
    for generation, step in ((1, 50), (2, 10), (1, 60)):
        story.record(
            story.of_job(
                CheckpointCommitted,
                generation=generation,
                step=step,
                done=1.0,
                uri="u",
                sha256="",
                size_bytes=1,
                kind=CheckpointKind.PERIODIC,
                save_s=1,
                ts_event_ns=0,
            )
        )
    assert (story.gang.newest.generation, story.gang.newest.step) == (2, 10)


@pytest.mark.parametrize(
    "wrong", [{"heartbeat_s": 0}, {"lease_s": 0}, {"heartbeat_s": 2.0, "silent_s": 2.0}]
)
def test_times_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="must be >"):
        AgentTimes(**wrong)


# --- laws ---------------------------------------------------------------------------------------

CALAMITIES = st.sampled_from(
    (
        *("launch", "release", "join", "notice", "withdraw", "kill", "lost", "ended"),
        *("lose_contact", "contact", "crash_with_others", "wish", "restart"),
        *("step", "step", "step", "pass"),
    )
)
STORIES = st.lists(st.tuples(CALAMITIES, st.integers(0, 7)), max_size=60)


def happen(story, what, which):
    names = sorted(story.machines)
    name = names[which % len(names)] if names else None
    if what == "launch" and len(story.held) < 4:
        launched = story.launch()
        if which % 2:
            story.join(launched)
    elif what == "restart":
        story.restart_control_plane()
    elif what == "lost":
        story.tell_lost()
    elif what == "ended":
        story.tell_ended()
    elif what == "pass":
        for _ in range(which * 2):
            story.step()
    elif name is not None:
        _happen_to(story, what, name)


def _happen_to(story, what, name):
    machine = story.machines[name]
    if what == "join":
        story.join(name)
    elif what == "release" and name in story.held:
        story.release(name)
    elif what == "notice" and name in story.held:
        story.notice(name)
    elif what == "withdraw":
        story.withdraw(name)
    elif what == "kill":
        others = [one for one in story.machines.values() if one.running == machine.running > 0]
        story.kill(name)
        for other in others:
            story.ranks_end(other.name, 1)  # it waited for the one that is gone
    elif what == "lose_contact":
        machine.reached = False
    elif what == "contact":
        machine.reached = True
    elif what == "crash_with_others":
        # Its instance is taken back, and it is killed by that before anybody heard of it.
        story.notice(name)
        story.ranks_end(name, -15)
    elif what == "wish":
        story.ranks_end(name, 75)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 4), STORIES)
def test_interruptions_never_fail_a_job_nor_run_two_generations_and_in_the_end_it_runs(
    members, story_told
):
    story = running_story(members) if members else Story()
    for what, which in story_told:
        happen(story, what, which)
        story.step()
        assert len(story.running()) <= 1
    assert [event for event in story.exits() if event.exit_code] == []

    for machine in story.machines.values():
        machine.reached = True
    story.tell_lost()
    if not story.held:
        story.launch()
    for name in story.held:
        story.join(name)
    for _ in range(30):
        story.step()
        assert len(story.running()) <= 1
    # Agents that left by themselves are lost, as a cloud finds out.
    for name in [name for name in story.held if not story.machines[name].alive]:
        story.kill(name)
    story.tell_lost()
    if not story.held:
        story.join(story.launch())
    story.until(story.all_run)
    assert [event for event in story.exits() if event.exit_code] == []


@settings(max_examples=examples(50), deadline=None)
@given(STORIES, st.integers(1, 3))
def test_a_program_that_fails_by_itself_is_a_failure_after_any_story(story_told, members):
    story = running_story(members)
    for what, which in story_told:
        happen(story, what, which)
        story.step()
    for name in list(story.held):
        story.release(name)
    story.tell_lost()
    for machine in story.machines.values():
        machine.alive = False
    for _ in range(members):
        story.join(story.launch())
    story.until(story.all_run)
    for _ in range(3):
        story.step()
    generation = story.gang.generation
    story.ranks_end(story.held[0], 9)
    story.until(lambda: story.exits() and story.exits()[-1].exit_code == 9)

    assert story.exits()[-1].generation == generation
