"""Workloads: what jobs are drawn, what is held out, and what profiles say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from spotline.bench.knowledge.cluster import NodeGroup
from spotline.bench.knowledge.generated import GeneratedWorld
from spotline.bench.knowledge.profiles import (
    APPLICATIONS,
    ProfileRow,
    application_class,
    efficiency,
    fit_steps,
    load_rows,
)
from spotline.bench.knowledge.workloads import (
    FINE_TUNING_CLUSTER,
    fine_tuning_options,
    fine_tuning_workload,
    job_classes,
    sia_workload,
    training_runs,
)
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    NoPrediction,
    Prediction,
)
from spotline.domain.configuration.interface import SourceDescription


class _Oracle:
    """Knows the world but is sure of runs on fewer than eight GPUs only."""

    source_id = "oracle"

    def __init__(self) -> None:
        self.asked = 0

    def learn(self, runs: Sequence[MeasuredRun]) -> None: ...

    def observe(self, run: MeasuredRun) -> None: ...

    def predict(
        self, configurations: Sequence[Configuration], *, stack: str = ""
    ) -> tuple[Prediction | NoPrediction, ...]:
        self.asked += 1
        return tuple(self._predict(one) for one in configurations)

    def _predict(self, one: Configuration) -> Prediction | NoPrediction:
        rate = GeneratedWorld().rate_tokens_per_s(one)
        if not rate:
            return NoPrediction(source_id=self.source_id, reason="it fails")
        return Prediction(
            source_id=self.source_id,
            tokens_per_s=rate,
            low_tokens_per_s=rate,
            high_tokens_per_s=rate,
            success_probability=1.0 if one.gpus < 8 else 0.1,
        )

    def describe(self) -> SourceDescription:
        return SourceDescription(source_id=self.source_id, runs=0, failed_runs=0, stacks=())


def test_fine_tuning_jobs_make_the_load_that_was_asked_for() -> None:
    source = _Oracle()
    workload = fine_tuning_workload("half", load=0.5, jobs=60, seed=3, source=source)
    gpus = np.array([one.gpus for one in fine_tuning_options()])
    least_gpu_s = 0.0
    for job in workload.jobs:
        rates = workload.classes[job.job_class].true_rate
        runs = rates > 0
        least_gpu_s += job.work * float((gpus[runs] / rates[runs]).min())
    arrivals = [job.arrival_s for job in workload.jobs]
    capacity_gpu_s = arrivals[-1] * sum(group.gpus for group in FINE_TUNING_CLUSTER)
    assert arrivals == sorted(arrivals)
    assert least_gpu_s / capacity_gpu_s == pytest.approx(0.5, rel=0.1)
    assert source.asked == 1


def test_what_a_source_doubts_or_declines_is_not_believed() -> None:
    workload = fine_tuning_workload("one", load=0.5, jobs=5, seed=3, source=_Oracle())
    for one in workload.classes.values():
        for option, true, believed in zip(
            one.options, one.true_rate, one.predicted_rate, strict=True
        ):
            assert believed == (true if option.gpus < 8 else 0.0)


def test_the_usual_defaults_run_every_kind_of_job_in_the_end() -> None:
    workload = fine_tuning_workload("one", load=0.5, jobs=200, seed=4, source=_Oracle())
    for one in workload.classes.values():
        assert any(one.true_rate[index] > 0 for step in one.defaults for index in step)


def test_equal_seeds_draw_equal_jobs() -> None:
    first = fine_tuning_workload("one", load=0.5, jobs=9, seed=3, source=_Oracle())
    again = fine_tuning_workload("one", load=0.5, jobs=9, seed=3, source=_Oracle())
    other = fine_tuning_workload("one", load=0.5, jobs=9, seed=4, source=_Oracle())
    assert first.jobs == again.jobs
    assert first.jobs != other.jobs


def test_nothing_is_learned_of_the_jobs_own_classes() -> None:
    held_out = set(job_classes())
    runs = training_runs(400, 1)
    seen = {
        (
            run.configuration.model_name,
            run.configuration.method,
            run.configuration.tokens_per_sample,
        )
        for run in runs
    }
    assert len(runs) == 400
    assert not seen & held_out


@pytest.mark.parametrize(("load", "jobs"), [(0.0, 5), (0.5, 0)])
def test_a_load_or_count_that_is_not_positive_is_refused(load: float, jobs: int) -> None:
    with pytest.raises(ValueError, match="load must be > 0 and jobs >= 1"):
        fine_tuning_workload("bad", load=load, jobs=jobs, seed=1, source=_Oracle())


def test_a_sample_is_worth_half_at_the_noise_scale() -> None:
    cifar = APPLICATIONS["cifar10"]
    assert efficiency(cifar.initial_batch, cifar) == 1.0
    assert efficiency(cifar.noise_scale, cifar) == pytest.approx(0.5, abs=0.05)
    assert efficiency(cifar.largest_batch, cifar) < 0.5


def test_the_step_model_finds_a_law_of_its_own_form() -> None:
    rows = [
        ProfileRow(
            gpus=gpus,
            nodes=nodes,
            batch_per_gpu=batch,
            step_s=0.1 + 0.01 * batch + (0.0 if gpus == 1 else 0.05 if nodes == 1 else 0.2),
        )
        for gpus, nodes in ((1, 1), (2, 1), (4, 1), (8, 2), (12, 3))
        for batch in (4.0, 8.0, 16.0, 32.0)
    ]
    model = fit_steps(rows)
    said = model.step_s([(4, 1, 12.0), (8, 2, 12.0), (1, 1, 12.0)])
    assert said == pytest.approx([0.27, 0.42, 0.22], rel=0.05)


def _write_profiles(folder: Path, application: str) -> None:
    (folder / application).mkdir(parents=True)
    header = "placement,local_bsz,step_time,sync_time\n"
    rows = [
        f"{placement},{batch},{0.1 + 0.01 * batch / 8},0"
        for placement in ("1", "2", "3", "4", "44")
        for batch in (129, 182, 257)
    ]
    (folder / application / "placements-aws.csv").write_text(header + "\n".join(rows) + "\n")
    header = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
    (folder / application / "scalability-aws.csv").write_text(header + "3,12,129,0.5,0\n")


def test_profiles_become_the_options_that_sia_may_choose(tmp_path: Path) -> None:
    _write_profiles(tmp_path, "cifar10")
    groups = (NodeGroup(gpu_type="t4", nodes=3, gpus_per_node=4),)
    one = application_class(tmp_path, "cifar10", np.random.default_rng(1), groups=groups)
    sizes = {(option.gpus, option.nodes) for option in one.options}
    assert sizes == {(1, 1), (2, 1), (4, 1), (8, 2), (12, 3)}
    assert [one.options[index].batch_per_gpu for index in one.defaults[0]] == [129.0]
    assert np.median(np.abs(one.predicted_rate / one.true_rate - 1)) < 0.05


@pytest.mark.parametrize("cell", ["x", ""])
def test_a_malformed_profile_row_is_named(tmp_path: Path, cell: str) -> None:
    _write_profiles(tmp_path, "cifar10")
    path = tmp_path / "cifar10" / "placements-aws.csv"
    path.write_text(f"placement,local_bsz,step_time,sync_time\n1,{cell},0.1,0\n")
    with pytest.raises(ValueError, match=r"placements-aws\.csv line 2 must be a profile row"):
        load_rows(tmp_path, "cifar10", "t4")


def test_absent_profiles_and_traces_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="profiles must hold"):
        load_rows(tmp_path, "cifar10", "t4")
    with pytest.raises(ValueError, match="--data must hold"):
        sia_workload(tmp_path, "philly")


def test_a_trace_with_an_unknown_application_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "dl-cluster-traces" / "sia" / "workloads" / "philly"
    folder.mkdir(parents=True)
    (folder / "workload-1.csv").write_text("name,time,application\na,1.0,nothing\n")
    with pytest.raises(ValueError, match=r"workload-1\.csv line 2 must name a known application"):
        sia_workload(tmp_path, "philly")
