"""Plain torch: a stop within a step, and a generation of another size, leave the curve as it was."""

import pytest

from tests.train.harness import TrainingJob, assert_same_curve

pytestmark = pytest.mark.train("torch")


def test_a_job_of_two_ranks_and_then_one_trains_as_if_nothing_had_happened(tmp_path):
    undisturbed = TrainingJob(tmp_path / "undisturbed", "plain.py")
    assert undisturbed.run() == 0, undisturbed.output
    job = TrainingJob(tmp_path / "job", "plain.py")

    assert job.run(ranks=2, stop_in_step=4) == 75, job.output
    assert job.run(ranks=1, stop_in_step=7) == 75, job.output
    assert job.said("resumed.json")["step"] == 4
    assert job.run(ranks=2) == 0, job.output

    assert job.steps() == list(range(1, 13))  # every step once: nothing was lost
    assert_same_curve(job.losses(), undisturbed.losses(), relative=1e-4)
    assert job.said("resumed.json") == job.said("saved.json")  # bit for bit what was saved
    kinds = [(event["step"], event["checkpoint_kind"]) for event in job.checkpoints()]
    assert kinds == [(4, "preemption"), (7, "preemption"), (12, "final")]
    assert [event["sha256"] for event in job.files.events("resumed")] == [
        event["sha256"] for event in job.checkpoints()[:2]
    ]


def test_a_killed_rank_costs_the_steps_since_the_last_checkpoint(tmp_path):
    undisturbed = TrainingJob(tmp_path / "undisturbed", "plain.py")
    assert undisturbed.run() == 0, undisturbed.output
    job = TrainingJob(tmp_path / "job", "plain.py")

    assert job.run(stop_in_step=3) == 75, job.output
    assert job.run(ranks=2, KILL_IN_STEP=6) == -9, job.output
    assert job.run() == 0, job.output

    assert job.steps() == [1, 2, 3, 4, 5, *range(4, 13)]
    assert_same_curve(job.losses(), undisturbed.losses(), relative=1e-4)
