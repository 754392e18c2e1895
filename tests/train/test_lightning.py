"""Lightning: a stop within a step, and a generation of another size, leave the curve as it was."""

import pytest

from tests.train.harness import TrainingJob, assert_same_curve

pytestmark = pytest.mark.train("torch", "lightning")


def test_a_job_of_one_rank_then_two_then_one_trains_as_if_nothing_had_happened(tmp_path):
    undisturbed = TrainingJob(tmp_path / "undisturbed", "light.py")
    assert undisturbed.run() == 0, undisturbed.output
    job = TrainingJob(tmp_path / "job", "light.py")

    assert job.run(stop_in_step=3) == 75, job.output
    assert job.run(ranks=2, stop_in_step=8) == 75, job.output
    assert job.said("resumed.json")["step"] == 3
    assert job.run() == 0, job.output

    assert job.steps() == list(range(1, 13))
    assert_same_curve(job.losses(), undisturbed.losses(), relative=1e-3)
    assert job.said("resumed.json") == job.said("saved.json")
    told = [(event["step"], event["done"], event["checkpoint_kind"]) for event in job.checkpoints()]
    assert told == [(3, 24, "preemption"), (8, 64, "preemption"), (12, 96, "final")]
