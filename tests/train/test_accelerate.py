"""Accelerate: a stop within a step, and a generation of another size, leave the curve as it was."""

import pytest

from tests.train.harness import TrainingJob, assert_same_curve

pytestmark = pytest.mark.train("torch", "accelerate")


def test_a_job_of_two_ranks_and_then_one_trains_as_if_nothing_had_happened(tmp_path):
    undisturbed = TrainingJob(tmp_path / "undisturbed", "acc.py")
    assert undisturbed.run() == 0, undisturbed.output
    job = TrainingJob(tmp_path / "job", "acc.py")

    assert job.run(ranks=2, stop_in_step=4) == 75, job.output
    assert job.run(stop_in_step=9) == 75, job.output
    assert job.said("resumed.json")["step"] == 4
    assert job.run(ranks=2) == 0, job.output

    assert job.steps() == list(range(1, 13))
    assert_same_curve(job.losses(), undisturbed.losses(), relative=1e-4)
    assert job.said("resumed.json") == job.said("saved.json")
    told = [(event["step"], event["done"], event["checkpoint_kind"]) for event in job.checkpoints()]
    assert told == [(4, 32, "preemption"), (9, 72, "preemption"), (12, 96, "final")]
