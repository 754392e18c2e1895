"""Vector Institute's vectorlm reference throughput: `vectorlm_2024_matrix.csv`.

Tokens per second over all GPUs at a batch of 8 in all. Samples have the model's longest context
(the source says so; lengths are the published ones). One node. `unsupported` is a run that was
rejected.
"""

from __future__ import annotations

from spotline.adapters.knowledge.cells import Row, RowRefused
from spotline.adapters.knowledge.mapping import Columns, Mapping, not_run, resolved, succeeded
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Method

_COLUMNS = Columns(model="model")
_RATE = "tokens_per_second_total"
_OUTCOMES = {"ok": "succeeded", "oom": "out_of_memory", "unsupported": "rejected"}
_METHODS = {"full_rank": "full", "full": "full", "lora": "lora"}
# How names begin -> longest context in tokens.
_CONTEXTS = {
    "llama-2-": 4096,
    "mistral-7b": 32768,
    "mixtral-8x7b": 32768,
    "gemma-": 8192,
    "opt-": 2048,
}
_REQUIRED = frozenset(
    {"model", "method", "gpu_model", "number_gpus", "batch_size", _RATE, "status"}
)


def read(row: Row, stack: str) -> MeasuredRun:
    """Turn a row into a measured run."""
    run = resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model"),
            method=Method(row.choice("method", _METHODS)),
            gpu_model=row.text("gpu_model"),
            gpus=row.count("number_gpus"),
            nodes=1,
            tokens_per_sample=_context(row.text("model")),
            batch_size=row.count("batch_size"),
        ),
    )
    ended = not_run(row, run, stack=stack, outcomes=_OUTCOMES, rate=_RATE)
    if ended is not None:
        return ended
    return succeeded(_COLUMNS, run, stack=stack, tokens_per_s=row.positive(_RATE))


MAPPING = Mapping(
    name="vectorlm",
    stack="vectorlm",
    description="Vector Institute vectorlm reference throughput",
    required=_REQUIRED,
    used=_REQUIRED,
    read=read,
)


def _context(model: str) -> int:
    for beginning, tokens in _CONTEXTS.items():
        if model.lower().startswith(beginning):
            return tokens
    raise RowRefused("model", f"a name that begins with {', '.join(_CONTEXTS)}", repr(model))
