"""The workloads of the cluster experiment: Sia's traces, and generated fine-tuning jobs."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from spotline.bench.knowledge.cluster import (
    ClusterJob,
    JobClass,
    NodeGroup,
    RunOption,
    Workload,
)
from spotline.bench.knowledge.generated import (
    A100_PCIE,
    A100_SXM,
    L40S,
    METHODS,
    SEQUENCES,
    STACK,
    WORLD_MODELS,
    GeneratedWorld,
    generate_runs,
)
from spotline.bench.knowledge.profiles import APPLICATIONS, SIA_CLUSTER, application_class
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    Prediction,
)
from spotline.domain.configuration.interface import KnowledgeSource

SIA_WORKLOADS = ("newtrace", "saturn", "philly")
_TRACES = Path("dl-cluster-traces/sia")

# The fine-tuning cluster: three of the four GPU types of the public set, 80 GPUs in nodes of 8.
FINE_TUNING_CLUSTER = (
    NodeGroup(gpu_type=A100_SXM, nodes=4, gpus_per_node=8),
    NodeGroup(gpu_type=A100_PCIE, nodes=2, gpus_per_node=8),
    NodeGroup(gpu_type=L40S, nodes=4, gpus_per_node=8),
)
# Share of the cluster that the jobs would need if each ran where it needs fewest GPU-seconds.
FINE_TUNING_LOADS: Mapping[str, float] = {
    "fine_tuning_light": 0.25,
    "fine_tuning": 0.5,
    "fine_tuning_busy": 0.75,
}
# Jobs from 0.2 to 20 GPU-hours where they need fewest, even in the logarithm: Sia's small, medium
# and large ones. (Tokens drawn without regard to the model let two jobs of 405B decide all means.)
_LEAST_GPU_HOURS = (0.2, 20.0)
_GPU_COUNTS = (1, 2, 4, 8, 16, 32)
_LARGEST_BATCH = 128
# Hugging Face's `per_device_train_batch_size` is 8; then half of it, then more GPUs.
_DEFAULTS = (
    (1, 8.0),
    (1, 4.0),
    (1, 2.0),
    (1, 1.0),
    (2, 1.0),
    (4, 1.0),
    (8, 1.0),
)
# What a source gives less of a chance is not tried: a failed start costs a minute, and a better
# configuration saves some minutes.
_RUNS_FROM = 0.25

_JOB_CLASSES, _CLASSES_SEED = 120, 29

ClassKey = tuple[str, Method, int]


# --- Sia's traces ---------------------------------------------------------------------------------


def sia_workload(data: Path, name: str, number: int = 1, *, max_jobs: int = 0) -> Workload:
    """Read one of Sia's traces on its reference cluster.

    Parameters
    ----------
    data
        The folder that holds `dl-cluster-traces`.
    number
        Which of the trace's samples.
    max_jobs
        Only the first so many jobs; 0: all.

    Raises
    ------
    ValueError
        There is no such file, or a row is malformed.
    """
    path = data / _TRACES / "workloads" / name / f"workload-{number}.csv"
    if not path.is_file():
        raise ValueError(f"--data must hold {_TRACES / 'workloads' / name / path.name}")
    jobs = []
    with path.open(newline="", encoding="utf-8") as lines:
        for line, row in enumerate(csv.DictReader(lines), start=2):
            try:
                application = APPLICATIONS[row["application"]]
                arrival_s = float(row["time"])
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{path.name} line {line} must name a known application and a time"
                ) from error
            jobs.append(
                ClusterJob(
                    name=row["name"],
                    arrival_s=arrival_s,
                    work=application.work_samples,
                    job_class=row["application"],
                )
            )
    jobs.sort(key=lambda job: (job.arrival_s, job.name))
    if max_jobs:
        jobs = jobs[:max_jobs]
    profiles = data / _TRACES / "profiles"
    rng = np.random.default_rng([number, 17])
    classes = {
        one: application_class(profiles, one, rng, groups=SIA_CLUSTER)
        for one in sorted({job.job_class for job in jobs})
    }
    return Workload(
        name=name,
        groups=SIA_CLUSTER,
        classes=classes,
        jobs=tuple(jobs),
        notes=f"workload-{number}, {len(jobs)} jobs on 24 T4, 16 A100, 24 RTX 2080 Ti",
    )


# --- generated fine-tuning jobs -------------------------------------------------------------------


def fine_tuning_workload(
    name: str, *, load: float, jobs: int, seed: int, source: KnowledgeSource
) -> Workload:
    """Draw fine-tuning jobs of the generated world.

    A job is one of `job_classes` and as many tokens as take 0.2 to 20 GPU-hours where it needs
    fewest. Arrivals are even in time over as long as makes the load.

    Parameters
    ----------
    load
        Share of the cluster's GPU-seconds that the jobs need at the least.
    source
        Has learned; asked once for all configurations of all jobs.

    Raises
    ------
    ValueError
        `load` or `jobs` is not positive.
    """
    if load <= 0 or jobs < 1:
        raise ValueError(f"load must be > 0 and jobs >= 1, were {load:g} and {jobs}")
    rng = np.random.default_rng([seed, 23])
    kinds = job_classes()
    keys = [kinds[index] for index in rng.integers(0, len(kinds), jobs)]
    classes = _fine_tuning_classes(
        sorted(set(keys), key=_class_name), fine_tuning_options(), source
    )
    low, high = _LEAST_GPU_HOURS
    least_gpu_s = 3600 * np.exp(rng.uniform(math.log(low), math.log(high), jobs))
    work = [
        float(gpu_s) / _gpu_s_per_token(classes[_class_name(key)])
        for key, gpu_s in zip(keys, least_gpu_s, strict=True)
    ]
    gpus = sum(group.gpus for group in FINE_TUNING_CLUSTER)
    horizon_s = float(least_gpu_s.sum()) / (gpus * load)
    arrivals = np.sort(rng.uniform(0, horizon_s, jobs))
    return Workload(
        name=name,
        groups=FINE_TUNING_CLUSTER,
        classes=classes,
        jobs=tuple(
            ClusterJob(
                name=f"job-{index:04d}",
                arrival_s=float(arrivals[index]),
                work=work[index],
                job_class=_class_name(key),
            )
            for index, key in enumerate(keys)
        ),
        notes=f"load {load:g}, {jobs} jobs over {horizon_s / 3600:.1f} h on {gpus} GPUs",
    )


def fine_tuning_options() -> tuple[RunOption, ...]:
    """All options of a fine-tuning job: powers of two of GPUs, global batches up to 128."""
    return tuple(
        RunOption(
            gpu_type=group.gpu_type,
            gpus=gpus,
            nodes=max(1, gpus // group.gpus_per_node),
            batch_per_gpu=float(batch // gpus),
        )
        for group in FINE_TUNING_CLUSTER
        for gpus in _GPU_COUNTS
        if gpus <= group.gpus
        for batch in (2**power for power in range(_LARGEST_BATCH.bit_length()))
        if batch >= gpus
    )


def training_runs(count: int, seed: int) -> tuple[MeasuredRun, ...]:
    """Measured runs to learn from: none of a model, method and sequence that a job has.

    Raises
    ------
    ValueError
        `count` is negative.
    """
    jobs = set(job_classes())
    kept: list[MeasuredRun] = []
    part = 0
    while len(kept) < count:
        drawn = generate_runs(count, 1000 * seed + part)
        kept += [run for run in drawn if _class_key(run.configuration) not in jobs]
        part += 1
    return tuple(kept[:count])


@lru_cache(maxsize=1)
def job_classes() -> tuple[ClassKey, ...]:
    """The kinds of fine-tuning jobs, drawn from those that the usual defaults get to run.

    So each can run inside one node. A job that needs all nodes of a type makes the head of a queue
    without overtaking wait until they are empty: such jobs alone would decide every FIFO figure.
    """
    world = GeneratedWorld()
    every = [
        (model.name, method, sequence)
        for model in WORLD_MODELS
        for method in METHODS
        for sequence in SEQUENCES
    ]
    options = fine_tuning_options()
    runnable = [key for key in every if _default_runs(key, options, world)]
    rng = np.random.default_rng(_CLASSES_SEED)
    chosen = rng.choice(len(runnable), _JOB_CLASSES, replace=False)
    return tuple(runnable[index] for index in sorted(chosen))


def _default_runs(key: ClassKey, options: Sequence[RunOption], world: GeneratedWorld) -> bool:
    """Whether the usual defaults end with a run on some type."""
    return any(
        (one.gpus, one.batch_per_gpu) in _DEFAULTS
        and world.rate_tokens_per_s(_configuration(key, one)) > 0
        for one in options
    )


def _fine_tuning_classes(
    keys: Sequence[ClassKey],
    options: tuple[RunOption, ...],
    source: KnowledgeSource,
) -> dict[str, JobClass]:
    world = GeneratedWorld()
    every = [_configuration(key, one) for key in keys for one in options]
    answers = source.predict(every, stack=STACK)
    defaults = tuple(
        tuple(i for i, one in enumerate(options) if (one.gpus, one.batch_per_gpu) == step)
        for step in _DEFAULTS
    )
    predicted = np.array(
        [
            one.tokens_per_s
            if isinstance(one, Prediction) and one.success_probability >= _RUNS_FROM
            else 0.0
            for one in answers
        ]
    ).reshape(len(keys), len(options))
    true = np.array([world.rate_tokens_per_s(one) for one in every]).reshape(predicted.shape)
    return {
        _class_name(key): JobClass(
            options=options,
            true_rate=true[index],
            predicted_rate=predicted[index],
            efficiency=np.ones(len(options)),
            defaults=defaults,
        )
        for index, key in enumerate(keys)
    }


def _configuration(key: ClassKey, option: RunOption) -> Configuration:
    model, method, sequence = key
    return Configuration(
        model_name=model,
        method=method,
        gpu_model=option.gpu_type,
        gpus=option.gpus,
        nodes=option.nodes,
        tokens_per_sample=sequence,
        batch_size=round(option.gpus * option.batch_per_gpu),
    )


def _class_key(one: Configuration) -> ClassKey:
    return one.model_name, one.method, one.tokens_per_sample


def _class_name(key: ClassKey) -> str:
    model, method, sequence = key
    return f"{model}/{method.value}/{sequence}"


def _gpu_s_per_token(one: JobClass) -> float:
    gpus = np.array([option.gpus for option in one.options])
    runs = one.true_rate > 0
    return float((gpus[runs] / one.true_rate[runs]).min())
