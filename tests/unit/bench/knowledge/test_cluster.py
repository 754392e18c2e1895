"""The cluster simulations: capacity, work and order are kept whatever is believed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.bench.knowledge.cluster import (
    FAILED_START_S,
    KNOWLEDGE_LEVELS,
    START_S,
    ClusterJob,
    ClusterRun,
    FreeNodes,
    JobClass,
    LearningBeliefs,
    NodeGroup,
    PredictedBeliefs,
    RunOption,
    Workload,
    certain_failures,
)
from spotline.bench.knowledge.cluster_report import report_text, write_report
from spotline.bench.knowledge.fifo import run_fifo
from spotline.bench.knowledge.run import run_knowledge, targets
from spotline.bench.knowledge.sia_rounds import run_sia
from tests.depth import examples

_GROUPS = (
    NodeGroup(gpu_type="a100", nodes=2, gpus_per_node=4),
    NodeGroup(gpu_type="t4", nodes=2, gpus_per_node=2),
)
_OPTIONS = tuple(
    RunOption(
        gpu_type=group.gpu_type,
        gpus=gpus,
        nodes=max(1, gpus // group.gpus_per_node),
        batch_per_gpu=batch,
    )
    for group in _GROUPS
    for gpus in (1, 2, 4, 8)
    if gpus <= group.gpus
    for batch in (2.0, 1.0)
)
_RUNNERS = (run_fifo, run_sia)
_Runner = Callable[[Workload, str], ClusterRun]


def _step(gpus: int, batch: float) -> tuple[int, ...]:
    return tuple(
        i for i, one in enumerate(_OPTIONS) if (one.gpus, one.batch_per_gpu) == (gpus, batch)
    )


_DEFAULTS = (_step(1, 2.0), _step(1, 1.0), _step(2, 1.0), _step(4, 1.0))


def _class(true_rate: list[float], predicted_rate: list[float] | None = None) -> JobClass:
    return JobClass(
        options=_OPTIONS,
        true_rate=np.array(true_rate),
        predicted_rate=np.array(true_rate if predicted_rate is None else predicted_rate),
        efficiency=np.ones(len(_OPTIONS)),
        defaults=_DEFAULTS,
    )


def _rates(per_gpu: float = 1.0, *, memory: float = 99.0) -> list[float]:
    """Rates that rise with GPUs and batch; a batch needs `batch / GPUs` of `memory`."""
    return [
        0.0
        if 4 * one.batch_per_gpu / one.gpus > memory
        else per_gpu
        * one.gpus**0.9
        * (1.3 if one.batch_per_gpu == 2 else 1.0)
        * (3.0 if one.gpu_type == "a100" else 1.0)
        for one in _OPTIONS
    ]


def _workload(arrivals: list[float], classes: dict[str, JobClass], work: float) -> Workload:
    names = sorted(classes)
    return Workload(
        name="small",
        groups=_GROUPS,
        classes=classes,
        jobs=tuple(
            ClusterJob(
                name=f"job-{index}",
                arrival_s=arrival,
                work=work * (1 + index % 3),
                job_class=names[index % len(names)],
            )
            for index, arrival in enumerate(sorted(arrivals))
        ),
    )


def _most_held(run: ClusterRun, gpu_type: str) -> int:
    """Most GPUs of a type that were held at any instant."""
    moves = []
    for one in run.segments:
        if one.option.gpu_type == gpu_type:
            moves += [(one.start_s, 1, one.option.gpus), (one.end_s, 0, -one.option.gpus)]
    held = most = 0
    for _, _, change in sorted(moves):
        held += change
        most = max(most, held)
    return most


_believed = st.lists(
    st.sampled_from([0.0, 0.5, 2.0, 7.0]), min_size=len(_OPTIONS), max_size=len(_OPTIONS)
)


@settings(max_examples=examples(25), deadline=None)
@given(
    arrivals=st.lists(st.floats(0, 2000), min_size=1, max_size=9),
    believed=_believed,
    memory=st.sampled_from([99.0, 4.0, 1.0]),
    knowledge=st.sampled_from(KNOWLEDGE_LEVELS),
    runner=st.sampled_from(_RUNNERS),
)
def test_all_jobs_end_within_capacity_and_do_their_work_exactly(
    arrivals: list[float],
    believed: list[float],
    memory: float,
    knowledge: str,
    runner: _Runner,
) -> None:
    classes = {"easy": _class(_rates()), "hard": _class(_rates(memory=memory), believed)}
    workload = _workload(arrivals, classes, work=900.0)
    run = runner(workload, knowledge)
    for group in _GROUPS:
        assert _most_held(run, group.gpu_type) <= group.gpus
    for job in workload.jobs:
        mine = [one for one in run.segments if one.job == job.name]
        assert sum(one.progress for one in mine) == pytest.approx(job.work)
        assert min(one.start_s for one in mine) >= job.arrival_s
        assert max(one.end_s for one in mine) == pytest.approx(run.completed_s[job.name])
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(mine))
        rates = workload.classes[job.job_class].true_rate
        for one in mine:
            rate = float(rates[_OPTIONS.index(one.option)])
            assert one.failed == (rate == 0)
            assert one.progress <= rate * (one.end_s - one.start_s) + 1e-6


@pytest.mark.parametrize("runner", _RUNNERS)
@pytest.mark.parametrize("knowledge", KNOWLEDGE_LEVELS)
def test_equal_workloads_run_alike(runner: _Runner, knowledge: str) -> None:
    workload = _workload([0.0, 30.0, 40.0, 400.0], {"one": _class(_rates(memory=4.0))}, 2000.0)
    assert runner(workload, knowledge) == runner(workload, knowledge)


@pytest.mark.parametrize("runner", _RUNNERS)
def test_knowing_the_truth_beats_knowing_nothing(runner: _Runner) -> None:
    workload = _workload([100.0 * i for i in range(8)], {"one": _class(_rates(memory=2.0))}, 3000.0)
    none = runner(workload, "none").figures(workload)
    true = runner(workload, "true").figures(workload)
    assert true["mean_jct_s"] < none["mean_jct_s"]
    assert true["failed_starts"] == 0 < none["failed_starts"]


@pytest.mark.parametrize("runner", _RUNNERS)
def test_a_perfect_prediction_is_as_good_as_the_truth(runner: _Runner) -> None:
    workload = _workload([100.0 * i for i in range(8)], {"one": _class(_rates())}, 3000.0)
    assert runner(workload, "predicted") == runner(workload, "true")


def test_fifo_never_overtakes() -> None:
    classes = {"one": _class(_rates())}
    workload = _workload([float(i) for i in range(12)], classes, work=5000.0)
    run = run_fifo(workload, "true")
    starts = {one.job: one.start_s for one in run.segments}
    in_order = [starts[job.name] for job in workload.jobs]
    assert in_order == sorted(in_order)


def test_fifo_without_knowledge_halves_the_batch_and_then_adds_gpus() -> None:
    workload = _workload([0.0], {"one": _class(_rates(memory=1.0))}, work=100.0)
    run = run_fifo(workload, "none")
    tried = [(one.option.gpus, one.option.batch_per_gpu, one.failed) for one in run.segments]
    assert tried == [(1, 2.0, True), (1, 1.0, True), (2, 1.0, True), (4, 1.0, False)]
    work_s = 100.0 / float(workload.classes["one"].true_rate[_step(4, 1.0)[0]])
    assert run.completed_s["job-0"] == pytest.approx(3 * FAILED_START_S + START_S + work_s)


def test_fifo_pays_for_a_wrong_prediction_and_goes_on() -> None:
    believed = [0.0] * len(_OPTIONS)
    believed[_step(1, 2.0)[0]] = 9.0
    true = _rates(memory=4.0)
    workload = _workload([0.0], {"one": _class(true, believed)}, work=100.0)
    run = run_fifo(workload, "predicted")
    assert [one.failed for one in run.segments] == [True, False]


def test_sia_without_knowledge_starts_on_one_gpu_of_each_type() -> None:
    workload = _workload([0.0], {"one": _class(_rates())}, work=5000.0)
    run = run_sia(workload, "none")
    first, second = run.segments[:2]
    assert (first.option.gpus, second.option.gpus) == (1, 1)
    assert {first.option.gpu_type, second.option.gpu_type} == {"a100", "t4"}
    sizes = [one.option.gpus for one in run.segments]
    seen = 1
    for size in sizes:
        assert size <= 2 * seen
        seen = max(seen, size)
    assert seen > 2


def test_sia_pays_for_every_change() -> None:
    workload = _workload([0.0], {"one": _class(_rates())}, work=5000.0)
    run = run_sia(workload, "true")
    rate = float(max(workload.classes["one"].true_rate))
    assert run.starts == 1
    assert run.completed_s["job-0"] == pytest.approx(START_S + 5000.0 / rate)


@pytest.mark.parametrize("runner", _RUNNERS)
def test_an_unknown_level_of_knowledge_is_refused(runner: _Runner) -> None:
    workload = _workload([0.0], {"one": _class(_rates())}, work=1.0)
    with pytest.raises(ValueError, match="knowledge must be none, predicted or true, was 'some'"):
        runner(workload, "some")


def test_fifo_says_which_job_can_never_start() -> None:
    workload = _workload([0.0], {"one": _class([0.0] * len(_OPTIONS))}, work=1.0)
    with pytest.raises(ValueError, match="job job-0 must fit the cluster"):
        run_fifo(workload, "none")


def test_a_measured_rate_rescales_what_else_was_predicted() -> None:
    job_class = _class(_rates(), [2.0] * len(_OPTIONS))
    beliefs = PredictedBeliefs(job_class)
    beliefs.observe(0, 1.0)
    assert beliefs.rates() == pytest.approx([1.0] * len(_OPTIONS))


def test_what_runs_out_of_memory_rules_out_larger_batches_on_fewer_gpus() -> None:
    failed = _OPTIONS.index(RunOption(gpu_type="a100", gpus=2, nodes=1, batch_per_gpu=1.0))
    ruled_out = {_OPTIONS[index] for index in certain_failures(_OPTIONS, failed)}
    assert {(one.gpu_type, one.gpus, one.batch_per_gpu) for one in ruled_out} == {
        ("a100", 1, 1.0),
        ("a100", 1, 2.0),
        ("a100", 2, 1.0),
        ("a100", 2, 2.0),
    }


def test_beliefs_learnt_on_the_job_scale_in_proportion_until_more_is_seen() -> None:
    beliefs = LearningBeliefs(_class(_rates()), _GROUPS)
    one_gpu, two_gpus = _step(1, 2.0)[0], _step(2, 2.0)[0]
    beliefs.observe(one_gpu, 10.0)
    before = beliefs.rates()[two_gpus]
    beliefs.observe(two_gpus, 15.0)
    four = beliefs.rates()[_step(4, 2.0)[0]]
    assert before == pytest.approx(20.0)
    assert four == pytest.approx(10.0 * 4 ** np.log2(1.5))


def test_nodes_stay_whole_where_they_can_and_cannot_be_given_back_twice() -> None:
    nodes = FreeNodes(_GROUPS)
    small = RunOption(gpu_type="a100", gpus=1, nodes=1, batch_per_gpu=1.0)
    first, second = nodes.place(small), nodes.place(small)
    assert first is not None
    assert first == second
    whole = nodes.place(RunOption(gpu_type="a100", gpus=4, nodes=1, batch_per_gpu=1.0))
    assert whole is not None
    assert whole != first
    assert nodes.place(RunOption(gpu_type="a100", gpus=4, nodes=1, batch_per_gpu=1.0)) is None
    assert nodes.free_gpus("a100") == 2
    nodes.release("a100", whole)
    with pytest.raises(ValueError, match="free GPUs of a a100 node must be <= 4"):
        nodes.release("a100", whole)


def _figures(none_s: float, predicted_s: float, true_s: float) -> dict[str, Any]:
    row = {"p99_jct_s": 9.0, "makespan_s": 9.0, "gpu_hours": 9.0, "failed_starts": 1.0}
    levels = {
        level: {"mean_jct_s": mean_s, **row}
        for level, mean_s in zip(KNOWLEDGE_LEVELS, (none_s, predicted_s, true_s), strict=True)
    }
    error = {"combined": {"mdape_percent": 4.0}}
    return {
        "default_source": "combined",
        "throughput": {
            "random_split": error,
            "leave_one_model_out": error,
            "by_samples": {"combined": {"25": {"mdape_percent": 6.0}}},
        },
        "validity": {
            "error_percent": 3.0,
            "tried_error_percent": 4.0,
            "precision": 0.9,
            "recall": 0.9,
            "brier": 0.03,
            "real": {},
        },
        "interval_coverage": 0.9,
        "interval_coverage_by_split": {"random": 0.9},
        "complete_ms": {
            "calls": 500.0,
            "runs": 2000.0,
            "p50": 12.0,
            "p99": 19.0,
            "max": 40.0,
            "new_slot": 50.0,
            "options_considered": 12.0,
        },
        "cluster": {"fine_tuning": {"fifo": levels, "sia": levels}},
        "cluster_notes": {"fine_tuning": "a few jobs"},
        "sia_round": {
            "jobs": 500.0,
            "gpus": 512.0,
            "rounds": 3.0,
            "p50_ms": 60.0,
            "p99_ms": 90.0,
            "max_ms": 95.0,
            "optimal_share": 1.0,
            "largest_gap": 0.0,
        },
        "meta": {
            "command": "spotline bench knowledge",
            "environment": {"spotline": "1", "python": "3", "platform": "here"},
            "wall_s": 1.0,
            "samples": 5000,
            "seeds": [1],
            "quick": False,
        },
    }


@pytest.mark.parametrize(
    ("times_s", "lower_met", "near_met"),
    [((1000.0, 299.0, 280.0), True, True), ((1000.0, 301.0, 250.0), False, False)],
)
def test_targets_are_judged_by_completion_times(
    times_s: tuple[float, float, float], lower_met: bool, near_met: bool
) -> None:
    met = {row["what"]: row["met"] for row in targets(_figures(*times_s))}
    for scheduler in ("fifo", "sia"):
        lower = f"{scheduler}: completion time lower with predicted than without knowledge, %"
        assert met[lower] is lower_met
        assert met[f"{scheduler}: completion time above true knowledge, %"] is near_met


def test_the_report_shows_what_was_missed(tmp_path: Path) -> None:
    figures = _figures(1000.0, 400.0, 395.0)
    figures["targets"] = targets(figures)
    text = report_text(figures)
    assert "7 of 9 met" in text
    assert "| fifo | predicted | 400 | -60 % |" in text
    path = write_report(figures, tmp_path)
    assert path.read_text(encoding="utf-8") == text
    assert (tmp_path / "knowledge-cluster.png").stat().st_size > 1000


def test_a_folder_without_the_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--data must hold the folder llm-finetune-perf"):
        run_knowledge(tmp_path)
