"""How Sia's rounds are laid over a cluster, and what is measured of them."""

from __future__ import annotations

import numpy as np

from spotline.bench.knowledge.cluster import (
    START_S,
    ClusterJob,
    JobClass,
    NodeGroup,
    RunOption,
    Workload,
)
from spotline.bench.knowledge.sia_rounds import (
    ROUND_S,
    cluster_configurations,
    measure_round,
    run_sia,
)

_GROUPS = (NodeGroup(gpu_type="a100", nodes=2, gpus_per_node=4),)
_OPTIONS = tuple(
    RunOption(gpu_type="a100", gpus=gpus, nodes=max(1, gpus // 4), batch_per_gpu=1.0)
    for gpus in (1, 2, 4, 8)
)


def _class(*rates: float) -> JobClass:
    return JobClass(
        options=_OPTIONS,
        true_rate=np.array(rates),
        predicted_rate=np.array(rates),
        efficiency=np.ones(len(_OPTIONS)),
        defaults=((0,),),
    )


def _workload(*jobs: ClusterJob) -> Workload:
    return Workload(
        name="small",
        groups=_GROUPS,
        classes={
            "wide": _class(1.0, 2.0, 4.0, 8.0),
            "narrow": _class(1.0, 0.0, 0.0, 0.0),
            "node": _class(0.0, 0.0, 4.0, 0.0),
        },
        jobs=jobs,
    )


def _job(name: str, job_class: str, arrival_s: float, work: float) -> ClusterJob:
    return ClusterJob(name=name, arrival_s=arrival_s, work=work, job_class=job_class)


def test_configurations_follow_the_types_of_the_cluster() -> None:
    sizes = [(one.gpu_type, one.gpus, one.nodes) for one in cluster_configurations(_GROUPS)]
    assert sizes == [("a100", 1, 1), ("a100", 2, 1), ("a100", 4, 1), ("a100", 8, 2)]


def test_an_arrival_waits_for_the_next_round() -> None:
    run = run_sia(_workload(_job("a", "narrow", 61.0, 10.0)), "true")
    assert run.segments[0].start_s == 2 * ROUND_S
    assert run.completed_s["a"] == 2 * ROUND_S + START_S + 10.0


def test_a_running_job_gives_way_and_pays_when_it_starts_again() -> None:
    run = run_sia(
        _workload(_job("a", "wide", 0.0, 20000.0), _job("b", "wide", 600.0, 4000.0)), "true"
    )
    mine = [one for one in run.segments if one.job == "a"]
    assert [one.option.gpus for one in mine][:2] == [8, 4]
    second = mine[1]
    assert second.progress <= 4.0 * (second.end_s - second.start_s - START_S) + 1e-6


def test_scattered_jobs_are_packed_anew_for_one_that_needs_a_node() -> None:
    jobs = [_job(f"n{index}", "narrow", 0.0, 500.0 + 40 * index) for index in range(8)]
    run = run_sia(_workload(*jobs, _job("z", "node", 1.0, 4000.0)), "true")
    ends = sorted(run.completed_s[job.name] for job in jobs)
    begun = min(one.start_s for one in run.segments if one.job == "z")
    # As soon as four of the eight have ended, whichever nodes they were on.
    assert begun <= ends[3] + 2 * ROUND_S
    assert begun < ends[-1]


def test_rounds_are_measured_and_proven() -> None:
    figures = measure_round(jobs=40, gpus=64, rounds=3)
    assert figures["gpus"] == 64
    assert figures["optimal_share"] == 1.0
    assert figures["largest_gap"] == 0.0
    assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["max_ms"]
