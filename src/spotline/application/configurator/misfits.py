"""Why a draft leaves nothing that runs, and the nearest that would."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spotline.application.admission import Refused
from spotline.application.configurator.places import Place
from spotline.application.configurator.trials import Trial, configuration_on, counts_at
from spotline.contracts.reasons import Reason
from spotline.domain.configuration.configuration import NoPrediction, Prediction
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.jobs.draft import JobDraft

# A configuration stays where it runs more likely than not.
LEAST_SUCCESS = 0.5


# --- refusals ---------------------------------------------------------------------------------


def misfit(draft: JobDraft, places: Sequence[Place], broken: dict[str, str]) -> Refused:
    """Why no configuration may even be tried: the stated field at fault, and what would fit."""
    per_instance = sorted({place.gpus_per_instance for place in places})
    if draft.gpus and not broken:
        sizes = " or ".join(str(number) for number in per_instance)
        largest = f" and equal the largest of allowed_counts ({draft.allowed_counts[-1]} instances)"
        return Refused(
            field="draft.gpus",
            message=f"must be a multiple of an instance's GPUs ({sizes})"
            f"{largest if draft.allowed_counts else ''}, was {draft.gpus}",
        )
    stated = {
        "throughputs": draft.throughputs,
        "batch_size": draft.batch_size,
        "gpus": draft.gpus or draft.allowed_counts,
        "expert_parallel": draft.expert_parallel,
    }
    fields = [field for field in stated if field in broken and stated[field]] or sorted(broken)
    field = fields[0]
    return Refused(field=f"draft.{field}", message=broken[field] + _would_fit(draft, places, field))


def _would_fit(draft: JobDraft, places: Sequence[Place], field: str) -> str:
    if field != "batch_size":
        return ""
    needs = []
    for place in places:
        counts = counts_at(draft, place, 1)
        if counts:
            whole = math.lcm(*(count * place.gpus_per_instance for count in counts))
            below = draft.batch_size // whole * whole
            nearest = f"{below} or {below + whole}" if below else f"{whole}"
            needs.append(f"{nearest} would fit {place.instance_type}")
    return f"; {', '.join(needs)}" if needs else ""


def all_fail(
    draft: JobDraft,
    rows: Sequence[Trial],
    predicted: Sequence[Prediction | NoPrediction],
    source: KnowledgeSource,
    stack: str,
) -> Refused:
    """Why nothing that may be tried is expected to run."""
    said = [
        (prediction.success_probability, -index, prediction)
        for index, prediction in enumerate(predicted)
        if isinstance(prediction, Prediction)
    ]
    if not said:
        reason = next(answer.reason for answer in predicted if isinstance(answer, NoPrediction))
        return Refused(
            field="draft.model_name",
            message=f"nothing is known of how {draft.model_name!r} runs: {reason}",
            reason=Reason.DRAFT_UNFIT,
        )
    likelihood, negative, prediction = max(said, key=lambda one: one[:2])
    row = rows[-negative]
    one = row.configuration
    nearest = (
        f"nearest is {row.count} x {row.place.instance_type} ({one.gpus} {one.gpu_model}) with "
        f"batch {one.batch_size}, which runs with a probability of {likelihood * 100:.0f} %"
    )
    if prediction.peak_memory_gb:
        nearest += (
            f" and needs about {prediction.peak_memory_gb:.0f} GB on each GPU of "
            f"{row.place.gpu.memory_gb:.0f} GB"
        )
    if likelihood >= LEAST_SUCCESS:
        # It would run, but not at all of the counts that are stated.
        nearest += "; not every count of allowed_counts would run"
    field = _field_of_failure(draft)
    return Refused(
        field=f"draft.{field}",
        message=f"no configuration of {draft.model_name} that keeps what is stated is likely to "
        f"run: {nearest}{_smaller(draft, rows, source, stack)}",
        reason=Reason.DRAFT_UNFIT,
    )


def _field_of_failure(draft: JobDraft) -> str:
    for field in ("batch_size", "tokens_per_sample", "gpus", "gpu_model", "method"):
        if getattr(draft, field):
            return field
    return "model_name"


def _smaller(draft: JobDraft, rows: Sequence[Trial], source: KnowledgeSource, stack: str) -> str:
    """Which smaller batch would run, where a batch is stated."""
    if not draft.batch_size:
        return "; a smaller model, a quantised method or larger GPUs would need less"
    tries = []
    for row in rows:
        one = row.configuration
        size = draft.batch_size
        while (size := size // 2) >= one.gpus:
            if size % one.gpus == 0:
                tries.append(configuration_on(draft, row.place, row.count, size, draft.options))
    answers = source.predict(tries, stack=stack) if tries else ()
    fit = [
        tried.batch_size
        for tried, answer in zip(tries, answers, strict=True)
        if isinstance(answer, Prediction) and answer.success_probability >= LEAST_SUCCESS
    ]
    return f"; batch_size {max(fit)} would fit" if fit else "; no smaller batch would fit either"
