"""Profiles of the jobs, from first principles: nothing here was measured or chosen by a result.

For a model of P parameters, L layers and width h on GPUs of F dense 16-bit FLOP/s each:

- a micro-batch is one sequence of 4096 tokens; training takes 6 P FLOPs per token (forward 2 P,
  backward 4 P), of which a GPU does EFFICIENCY * F per second: `compute_s`;
- a stage hands over tokens * h activations of 2 bytes, and gets as many gradients back:
  `activation_bytes`;
- an iteration has 64 micro-batches, 262,144 tokens; a stage loses 3 ms per micro-batch to
  launching its kernels and its sends: `stage_overhead_s` = 0.192 s;
- weights, gradients and Adam's state take 16 bytes per parameter and fill at most 80 % of the
  memory, the rest is for activations, which are recomputed: `min_gpus`; a stage holds at least one
  layer: `max_gpus`;
- a checkpoint is the optimiser's state, 12 bytes per parameter, written every 30 iterations (a
  quarter to three quarters of an hour); a restart takes 300 s.

What a stage wants of a link does not depend on the micro-batch: A / t_stage(k) = h k E F / (3 P).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.domain.placement.pipeline import PipelineJob

EFFICIENCY = 0.4
SEQUENCE_TOKENS = 4096
MICROBATCHES = 64
LAUNCH_S_PER_MICROBATCH = 0.003
TRAINING_BYTES_PER_PARAMETER = 16
USABLE_MEMORY = 0.8
CHECKPOINT_BYTES_PER_PARAMETER = 12
CHECKPOINT_INTERVAL_ITERATIONS = 30
RESTART_S = 300.0
INTERARRIVAL_S = 900.0
LEAST_ITERATIONS, MOST_ITERATIONS = 300, 800

_FLOPS_PER_PARAMETER_TOKEN = 6
_BYTES_PER_ACTIVATION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model as its card gives it."""

    name: str
    parameters: float
    layers: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuKind:
    """A GPU as its data sheet gives it: dense 16-bit tensor FLOP/s, memory, power under load."""

    name: str
    flops_per_s: float
    memory_bytes: float
    kw: float


A6000 = GpuKind(name="A6000", flops_per_s=154.8e12, memory_bytes=48e9, kw=0.3)
A100_40 = GpuKind(name="A100-40GB", flops_per_s=312e12, memory_bytes=40e9, kw=0.4)

MODELS = {
    model.name: model
    for model in (
        ModelShape(name="Qwen2.5-14B", parameters=14.8e9, layers=48, width=5120),
        ModelShape(name="Gemma-3-27B", parameters=27.4e9, layers=62, width=5376),
        ModelShape(name="Qwen2.5-32B", parameters=32.8e9, layers=64, width=5120),
        ModelShape(name="Falcon-40B", parameters=41.8e9, layers=60, width=8192),
        ModelShape(name="Llama-3.1-70B", parameters=70.6e9, layers=80, width=8192),
        ModelShape(name="FLM-101B", parameters=101.0e9, layers=80, width=10240),
    )
}

# The eight jobs in order of arrival: (model, iterations). Each model once, the two smallest again;
# large and small ones mixed, as the paper says only that early large ones block the queue.
PAPER_JOBS = (
    ("Llama-3.1-70B", 500),
    ("Qwen2.5-14B", 400),
    ("FLM-101B", 500),
    ("Gemma-3-27B", 600),
    ("Qwen2.5-32B", 500),
    ("Falcon-40B", 400),
    ("Qwen2.5-14B", 800),
    ("Gemma-3-27B", 300),
)


def profile(
    model: ModelShape, gpu: GpuKind, *, job_id: str, arrival_s: float, iterations: int
) -> PipelineJob:
    """Derive a job's profile; see the module for how."""
    compute_s = (
        _FLOPS_PER_PARAMETER_TOKEN
        * model.parameters
        * SEQUENCE_TOKENS
        / (EFFICIENCY * gpu.flops_per_s)
    )
    least = math.ceil(
        TRAINING_BYTES_PER_PARAMETER * model.parameters / (USABLE_MEMORY * gpu.memory_bytes)
    )
    return PipelineJob(
        job_id=job_id,
        arrival_s=arrival_s,
        iterations=iterations,
        microbatches=MICROBATCHES,
        compute_s=compute_s,
        activation_bytes=float(SEQUENCE_TOKENS * model.width * _BYTES_PER_ACTIVATION),
        stage_overhead_s=MICROBATCHES * LAUNCH_S_PER_MICROBATCH,
        min_gpus=least,
        max_gpus=max(model.layers, least),
        checkpoint_gb=CHECKPOINT_BYTES_PER_PARAMETER * model.parameters / 1e9,
        checkpoint_interval_iterations=CHECKPOINT_INTERVAL_ITERATIONS,
        restart_s=RESTART_S,
        model_name=model.name,
    )


def paper_jobs(count: int = len(PAPER_JOBS), gpu: GpuKind = A6000) -> tuple[PipelineJob, ...]:
    """The stated jobs, a quarter of an hour apart; more than eight repeat the list."""
    jobs = []
    for place in range(count):
        name, iterations = PAPER_JOBS[place % len(PAPER_JOBS)]
        jobs.append(
            profile(
                MODELS[name],
                gpu,
                job_id=f"job-{place + 1:02d}",
                arrival_s=place * INTERARRIVAL_S,
                iterations=iterations,
            )
        )
    return tuple(jobs)


def drawn_jobs(
    rng: np.random.Generator,
    count: int = len(PAPER_JOBS),
    gpu: GpuKind = A6000,
    *,
    interarrival_s: float = INTERARRIVAL_S,
) -> tuple[PipelineJob, ...]:
    """Jobs in a drawn order: each model once in six, 300-800 iterations, exponential gaps."""
    names = list(MODELS)
    order: list[str] = []
    while len(order) < count:
        order += [names[i] for i in rng.permutation(len(names))]
    arrivals = np.concatenate([[0.0], np.cumsum(rng.exponential(interarrival_s, count - 1))])
    iterations = rng.integers(LEAST_ITERATIONS, MOST_ITERATIONS + 1, count)
    return tuple(
        profile(
            MODELS[name],
            gpu,
            job_id=f"job-{place + 1:02d}",
            arrival_s=float(arrivals[place]),
            iterations=int(iterations[place]),
        )
        for place, name in enumerate(order[:count])
    )


def with_traffic(jobs: Sequence[PipelineJob], factor: float) -> tuple[PipelineJob, ...]:
    """The jobs with `factor` times the activations to send, and the same computing."""
    return tuple(replace(job, activation_bytes=factor * job.activation_bytes) for job in jobs)


def profile_table(jobs: Sequence[PipelineJob]) -> list[dict[str, float | int | str]]:
    """What the profiles say, per model in order of computing time."""
    seen: dict[str, PipelineJob] = {}
    for job in jobs:
        seen.setdefault(job.model_name, job)
    return [
        {
            "model": job.model_name,
            "compute_s": job.compute_s,
            "activation_mb": job.activation_bytes / 1e6,
            "min_gpus": job.min_gpus,
            "max_gpus": job.max_gpus,
            "best_gpus": job.best_gpus,
            "iteration_s": job.iteration_s(job.best_gpus),
            "demand_gbit_per_s": 8 * job.demand_bytes_per_s(job.best_gpus) / 1e9,
            "checkpoint_gb": job.checkpoint_gb,
        }
        for job in sorted(seen.values(), key=lambda job: job.compute_s)
    ]
