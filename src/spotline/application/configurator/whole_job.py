"""The whole job of a draft and a chosen configuration, with the origin of every value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spotline.application.admission import job_id_for
from spotline.application.configurator.candidates import HARD_QUANTILE_PERCENT, Point
from spotline.application.configurator.places import Place
from spotline.application.configurator.ranking import Candidate
from spotline.application.configurator.throughput import rounded, throughput_of
from spotline.application.configurator.trials import FEWEST_STEPS, LARGEST_BATCH
from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.models import model_facts
from spotline.domain.configuration.provenance import JobConfiguration, OriginKind, ParameterOrigin
from spotline.domain.configuration.steptime import trainable_parameters
from spotline.domain.jobs.draft import KEPT, JobDraft
from spotline.domain.jobs.job import (
    DEFAULT_CHECKPOINT_INTERVAL_S,
    DEFAULT_OVERHEADS,
    Checkpoint,
    DeadlineKind,
    Job,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.units import PPM, S_PER_HOUR

DEFAULT_TOPOLOGY = Topology.ONE_ZONE
# A checkpoint holds of every trained weight itself in 16 bits, a 32-bit copy and AdamW's two
# 32-bit moments; frozen weights are loaded from where they came.
CHECKPOINT_BYTES_PER_PARAMETER = 14
# What one node sustains to network storage, 10^9 bytes per second, and the least it takes.
_STORAGE_GB_PER_S = 1.0
_LEAST_SAVE_S = 10

_CHEAPEST = "meets the deadline at the least expected cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Otherwise:
    """Where a value comes from that the owner did not state."""

    kind: OriginKind
    detail: str
    source_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What completion rests on: the source asked, the stack assumed, and what could be chosen."""

    source_id: str
    stack: str
    gpu_models: int

    def picked(self, detail: str) -> _Otherwise:
        """The origin of a value that the source's predictions led to."""
        return _Otherwise(kind=OriginKind.PREDICTED, detail=detail, source_id=self.source_id)


# --- the job ----------------------------------------------------------------------------------


def checkpoint_gb(configuration: Configuration) -> float:
    """Size of a checkpoint, 10^9 bytes, by the model's size and the method."""
    model = model_facts(configuration.model_name, configuration.model_parameters)
    trained = trainable_parameters(configuration, model)
    return rounded(trained * CHECKPOINT_BYTES_PER_PARAMETER / 1e9)


def checkpoint_of(draft: JobDraft, configuration: Configuration) -> Checkpoint:
    """The checkpoint stated, else the default with the size that the formula says."""
    if draft.checkpoint is not None:
        return draft.checkpoint
    size_gb = checkpoint_gb(configuration)
    return Checkpoint(
        interval_s=DEFAULT_CHECKPOINT_INTERVAL_S,
        save_s=max(_LEAST_SAVE_S, math.ceil(size_gb / _STORAGE_GB_PER_S)),
        size_gb=size_gb,
    )


def job_with(
    draft: JobDraft,
    checkpoint: Checkpoint,
    counts: tuple[int, ...],
    throughputs: tuple[Throughput, ...],
    configuration: JobConfiguration | None = None,
) -> Job:
    """The draft as a job with these counts and throughputs."""
    return Job(
        job_id=draft.job_id or job_id_for(draft.tenant, draft.client_request_id),
        work=Work(amount=draft.tokens, unit="tokens"),
        allowed_counts=counts,
        throughputs=throughputs,
        topology=draft.topology or DEFAULT_TOPOLOGY,
        checkpoint=checkpoint,
        overheads=draft.overheads or DEFAULT_OVERHEADS,
        configuration=configuration,
        **{name: getattr(draft, name) for name in KEPT},
    )


def completed_job(
    draft: JobDraft,
    chosen: Candidate,
    others: Mapping[str, Mapping[int, Point]],
    places: Sequence[Place],
    basis: Basis,
) -> Job:
    """The job of the chosen candidate, with throughputs wherever all of its counts run.

    Parameters
    ----------
    others
        What is predicted of the same batch at every place, by place key and count.
    places
        All places that the draft leaves open.
    """
    counts = chosen.counts
    runs_at = {place.key: place for place in places if set(counts) <= set(others[place.key])}
    configuration = chosen.curve.points[chosen.size - 1].configuration
    checkpoint = checkpoint_of(draft, configuration)
    throughputs = list(draft.throughputs)
    origins = [_stated_throughput(throughput, counts[-1]) for throughput in draft.throughputs]
    for key, place in runs_at.items():
        if place.stated is None:
            points = [others[key][count] for count in counts]
            throughput = throughput_of(
                key, {point.count: point.planned_tokens_per_hour for point in points}
            )
            throughputs.append(throughput)
            origins.append(_throughput_origin(draft, throughput, points))
    job_configuration = JobConfiguration(
        configuration=configuration,
        weak_scaling=False,
        success_ppm=round(chosen.success_probability * PPM),
        stack=basis.stack,
        origins=(
            *_configuration_origins(draft, chosen, configuration, basis),
            *origins,
            *_running_origins(draft, checkpoint, configuration),
        ),
    )
    return job_with(draft, checkpoint, counts, tuple(throughputs), job_configuration)


# --- origins ----------------------------------------------------------------------------------


def _origin(parameter: str, value: str, *, stated: bool, otherwise: _Otherwise) -> ParameterOrigin:
    if stated:
        return ParameterOrigin(parameter=parameter, value=value, kind=OriginKind.USER)
    return ParameterOrigin(
        parameter=parameter,
        value=value,
        kind=otherwise.kind,
        source_id=otherwise.source_id,
        detail=otherwise.detail,
    )


def _default(detail: str = "") -> _Otherwise:
    return _Otherwise(kind=OriginKind.DEFAULT, detail=detail)


def _configuration_origins(
    draft: JobDraft, chosen: Candidate, configuration: Configuration, basis: Basis
) -> tuple[ParameterOrigin, ...]:
    model = model_facts(configuration.model_name, configuration.model_parameters)
    found = [
        ParameterOrigin(
            parameter="model_name",
            value=configuration.model_name,
            kind=OriginKind.USER,
            detail=f"{model.parameters / 1e9:.3g} billion parameters",
        ),
        _origin(
            "method",
            configuration.method.value,
            stated=draft.method is not None,
            otherwise=_default(
                "the usual method; cost does not choose it, as it changes what is learned"
            ),
        ),
        *_machine_origins(draft, chosen, configuration, basis),
        *_training_origins(draft, configuration, basis),
        _origin(
            "allowed_counts",
            ", ".join(map(str, chosen.counts)),
            stated=bool(draft.gpus or draft.allowed_counts),
            otherwise=basis.picked(
                "divide the batch, are likely to run, and are faster than fewer"
            ),
        ),
    ]
    if draft.model_parameters:
        found.append(_user("model_parameters", str(configuration.model_parameters)))
    if draft.expert_parallel:
        found.append(_user("expert_parallel", str(configuration.expert_parallel)))
    return tuple(found)


def _machine_origins(
    draft: JobDraft, chosen: Candidate, configuration: Configuration, basis: Basis
) -> tuple[ParameterOrigin, ...]:
    only_gpu = basis.gpu_models == 1
    largest = f"on the largest count, {chosen.counts[-1]} x {chosen.curve.place.instance_type}"
    return (
        _origin(
            "gpu_model",
            configuration.gpu_model,
            stated=bool(draft.gpu_model),
            otherwise=_default("the only one offered") if only_gpu else basis.picked(_CHEAPEST),
        ),
        _origin(
            "gpus",
            str(configuration.gpus),
            stated=bool(draft.gpus),
            otherwise=basis.picked(largest),
        ),
        _origin(
            "nodes",
            str(configuration.nodes),
            stated=bool(draft.gpus or draft.allowed_counts),
            otherwise=basis.picked("a node per instance"),
        ),
    )


def _training_origins(
    draft: JobDraft, configuration: Configuration, basis: Basis
) -> tuple[ParameterOrigin, ...]:
    options = ", ".join(f"{option.name}={option.value}" for option in configuration.options)
    no_options = _default("none beyond the software's own")
    return (
        _origin(
            "tokens_per_sample",
            str(configuration.tokens_per_sample),
            stated=bool(draft.tokens_per_sample),
            otherwise=_default("a usual sequence length"),
        ),
        _origin(
            "batch_size",
            str(configuration.batch_size),
            stated=bool(draft.batch_size),
            otherwise=basis.picked(
                f"{_CHEAPEST}, of sizes up to {LARGEST_BATCH} that leave {FEWEST_STEPS} steps; "
                "the same at every count"
            ),
        ),
        _origin(
            "precision",
            configuration.precision,
            stated=bool(draft.precision),
            otherwise=_default(f"native to {configuration.gpu_model}"),
        ),
        _origin(
            "options",
            options,
            stated=bool(draft.options),
            otherwise=basis.picked(f"faster; {_CHEAPEST}") if options else no_options,
        ),
    )


def _user(parameter: str, value: str) -> ParameterOrigin:
    return ParameterOrigin(parameter=parameter, value=value, kind=OriginKind.USER)


def _stated_throughput(throughput: Throughput, count: int) -> ParameterOrigin:
    reaches = not throughput.table or count <= len(throughput.table)
    value = _rate_text(throughput.rate_per_hour(count), count) if reaches else "stated"
    return _user(f"throughput.{throughput.offering}", value)


def _throughput_origin(
    draft: JobDraft, throughput: Throughput, points: Sequence[Point]
) -> ParameterOrigin:
    largest = points[-1]
    prediction = largest.prediction
    measured = all(point.prediction.measured for point in points)
    details = [prediction.basis] if prediction.basis else []
    if (
        draft.deadline.kind is DeadlineKind.HARD
        and prediction.low_tokens_per_s < prediction.tokens_per_s
    ):
        details.append(
            f"{prediction.tokens_per_s * S_PER_HOUR:.4g} tokens/h expected; the deadline is hard, "
            f"so the {HARD_QUANTILE_PERCENT} % quantile is planned on"
        )
    details.append("a table of rates" if throughput.table else "linear in instances")
    return ParameterOrigin(
        parameter=f"throughput.{throughput.offering}",
        value=_rate_text(throughput.rate_per_hour(largest.count), largest.count),
        kind=OriginKind.MEASURED if measured else OriginKind.PREDICTED,
        source_id=prediction.source_id,
        low=prediction.low_tokens_per_s * S_PER_HOUR,
        high=prediction.high_tokens_per_s * S_PER_HOUR,
        detail="; ".join(details),
    )


def _rate_text(tokens_per_hour: float, count: int) -> str:
    return f"{tokens_per_hour:.4g} tokens/h on {count}"


def _running_origins(
    draft: JobDraft, checkpoint: Checkpoint, configuration: Configuration
) -> tuple[ParameterOrigin, ...]:
    topology = draft.topology or DEFAULT_TOPOLOGY
    overheads = draft.overheads or DEFAULT_OVERHEADS
    trained = "all weights" if configuration.method is Method.FULL else "the trained weights"
    return (
        _origin(
            "topology", topology.value, stated=draft.topology is not None, otherwise=_default()
        ),
        _origin(
            "checkpoint",
            f"{checkpoint.size_gb:g} GB every {checkpoint.interval_s} s, {checkpoint.save_s} s to "
            "save",
            stated=draft.checkpoint is not None,
            otherwise=_Otherwise(
                kind=OriginKind.PREDICTED,
                detail=f"size by formula: {CHECKPOINT_BYTES_PER_PARAMETER} bytes of {trained}, "
                f"saved at {_STORAGE_GB_PER_S:g} GB/s; interval by default",
            ),
        ),
        _origin(
            "overheads",
            f"launch {overheads.launch_s} s, grow {overheads.grow_s} s, "
            f"shrink {overheads.shrink_s} s, migrate {overheads.migrate_s} s, "
            f"interrupted {overheads.interrupted_s} s",
            stated=draft.overheads is not None,
            otherwise=_default("as a job file assumes"),
        ),
    )
