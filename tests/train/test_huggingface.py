"""Hugging Face Trainer: a stop within a step, and a generation of another size."""

import pytest

from tests.train.harness import TrainingJob, assert_same_curve

pytestmark = pytest.mark.train("torch", "transformers", "accelerate")


def test_a_job_of_two_ranks_and_then_one_trains_as_if_nothing_had_happened(tmp_path):
    undisturbed = TrainingJob(tmp_path / "undisturbed", "hf.py")
    assert undisturbed.run() == 0, undisturbed.output
    job = TrainingJob(tmp_path / "job", "hf.py")

    # 6 steps are an epoch: one stop within the first, one within the second.
    assert job.run(ranks=2, stop_in_step=4) == 75, job.output
    assert job.run(ranks=1, stop_in_step=9) == 75, job.output
    assert job.said("resumed.json")["step"] == 4
    assert job.run(ranks=2) == 0, job.output

    assert job.steps() == list(range(1, 13))
    assert_same_curve(job.losses(), undisturbed.losses(), relative=2e-3)
    assert job.said("resumed.json") == job.said("saved.json")
    told = [(event["step"], event["done"], event["checkpoint_kind"]) for event in job.checkpoints()]
    assert told == [
        (4, 4 * 8 * 12, "preemption"),
        (9, 9 * 8 * 12, "preemption"),
        (12, 1152, "final"),
    ]
    assert list((tmp_path / "job" / "hf").glob("checkpoint-*")) == []
