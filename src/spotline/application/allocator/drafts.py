"""A draft that was submitted before: the same job again, or another one under its request id.

What a draft leaves out is filled in from the market and the knowledge of that moment, so completing
it again may give another job. What its owner stated does not change: that is what is compared.
"""

from __future__ import annotations

from spotline.application.admission import (
    Accepted,
    Refused,
    all_refused,
    refuse_other_id,
    refuse_run,
    refuse_stated_value,
    submitted_again,
)
from spotline.application.allocator.handler import JobsState
from spotline.application.allocator.statements import stated_again, unattended_again
from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts
from spotline.domain.configuration.provenance import JobConfiguration, OriginKind
from spotline.domain.jobs.draft import KEPT, JobDraft
from spotline.domain.jobs.job import Job

_THROUGHPUT = "throughput."


def check_draft(state: JobsState, draft: JobDraft) -> Accepted | Refused | None:
    """Say whether a draft is a job that is known, None where it is a new one."""
    other = refuse_other_id(draft, "draft.job_id")
    before = state.submitted(draft.job_id)
    if other is not None:
        return other
    if before is None:
        return all_refused((*refuse_run(draft, "draft"), refuse_stated_value(draft, "draft")))
    asked = unattended_again(before, draft) if state.recent.mode.on_paper else draft
    return submitted_again(draft, differing_fields(before, asked), "draft.client_request_id")


def differing_fields(before: Job, draft: JobDraft) -> tuple[str, ...]:
    """The fields in which a draft states something else than the owner of a recorded job did."""
    configuration = before.configuration
    if configuration is None:
        return ("throughputs, which were all stated",)
    draft = stated_again(before, draft)
    said = {
        **{name: (getattr(before, name), getattr(draft, name)) for name in KEPT},
        "tokens": ((before.work.amount, before.work.unit), (draft.tokens, "tokens")),
        "model_name": (configuration.configuration.model_name, draft.model_name),
        "model_parameters": (configuration.configuration.model_parameters, draft.model_parameters),
        "throughputs": (_stated_throughputs(before, configuration), {*draft.throughputs}),
        **_fillable(before, configuration, draft),
    }
    return tuple(name for name, (then, now) in said.items() if then != now)


def _fillable(
    before: Job, configuration: JobConfiguration, draft: JobDraft
) -> dict[str, tuple[object, object]]:
    """What may be left out: the value then and now, None where the owner did not state it."""
    one = configuration.configuration
    then = {
        "method": one.method,
        "gpu_model": one.gpu_model,
        "gpus": one.gpus,
        "tokens_per_sample": one.tokens_per_sample,
        "batch_size": one.batch_size,
        "precision": one.precision,
        "expert_parallel": one.expert_parallel,
        "options": one.options,
        "allowed_counts": before.allowed_counts,
        "topology": before.topology,
        "checkpoint": before.checkpoint,
        "overheads": before.overheads,
    }
    found: dict[str, tuple[object, object]] = {}
    for name, value in then.items():
        origin = configuration.origin_of(name)
        stated = origin is not None and origin.kind is OriginKind.USER
        found[name] = (value if stated else None, getattr(draft, name) or None)
    if draft.gpu_model:
        found["gpu_model"] = (found["gpu_model"][0], _canonical(draft.gpu_model))
    if draft.gpus and not draft.allowed_counts:
        # A number of GPUs says on how many instances: it is stated by saying the other.
        found["allowed_counts"] = (len(before.allowed_counts), 1)
    return found


def _canonical(gpu_model: str) -> str:
    try:
        return gpu_facts(gpu_model).name
    except UnknownGpu:
        return gpu_model


def _stated_throughputs(before: Job, configuration: JobConfiguration) -> set[object]:
    stated = {
        origin.parameter.removeprefix(_THROUGHPUT)
        for origin in configuration.origins
        if origin.parameter.startswith(_THROUGHPUT) and origin.kind is OriginKind.USER
    }
    return {throughput for throughput in before.throughputs if throughput.offering in stated}
