"""ModelScope ms-swift benchmark on A100-80GB: `ms_swift_a100_80gb.csv`.

- `samples_per_second` counts over all GPUs; a sample counts as `max_seq_len` tokens. Samples were
  cut at that length, so the true rate is lower, more so for long lengths: good for comparisons
  at one length, and within this stack only.
- The global batch is `batch_size * grad_accum`. On two GPUs the layers were laid over both
  (`placement` = split): they take turns, and memory is given as "a+b" GiB, of which the larger
  counts.
- `int4-bnb` is QLoRA, `int4-gptq` and `int8-gptq` are GPTQ-LoRA (option `quantisation`).
- The GPU is taken for the SXM version.
"""

from __future__ import annotations

import math

from spotline.adapters.knowledge.cells import Row, RowRefused, options
from spotline.adapters.knowledge.mapping import (
    GIB_GB,
    Columns,
    Mapping,
    not_run,
    resolved,
    succeeded,
)
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Method

_COLUMNS = Columns(model="model")
_GPU = "a100-80gb"
_OUTCOMES = {"ok": "succeeded", "oom": "out_of_memory"}
_METHODS = {"full": "full", "lora": "lora"}
_QUANTISED = {
    "int4-bnb": Method.QLORA,
    "int8-bnb": Method.QLORA,
    "int4-gptq": Method.GPTQ_LORA,
    "int8-gptq": Method.GPTQ_LORA,
}
# Queries, keys, values, output and three of the feed-forward layer.
_ALL_MATRICES = 7
_REQUIRED = frozenset(
    {
        "model",
        "method",
        "max_seq_len",
        "batch_size",
        "precision_or_quant",
        "number_gpus",
        "grad_accum",
        "samples_per_second",
        "gpu_memory_gib",
        "status",
    }
)


def read(row: Row, stack: str) -> MeasuredRun:
    """Turn a row into a measured run."""
    steps = row.count("grad_accum", 1)
    gpus = row.count("number_gpus")
    tokens_per_sample = row.count("max_seq_len")
    quantisation = row.text("precision_or_quant").lower()
    method = Method(row.choice("method", _METHODS))
    if quantisation in _QUANTISED:
        if method is Method.FULL:
            raise RowRefused("method", f"lora, for weights are {quantisation}", "full")
        method = _QUANTISED[quantisation]
        precision = "bfloat16"
    else:
        precision = row.precision("precision_or_quant", "bf16")
        quantisation = ""
    run = resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model"),
            method=method,
            gpu_model=_GPU,
            gpus=gpus,
            nodes=1,
            tokens_per_sample=tokens_per_sample,
            batch_size=row.count("batch_size") * steps,
            precision=precision,
            options=options(
                flash_attention=row.flag("flash_attn") if row.has("flash_attn") else "",
                gradient_accumulation_steps=steps if steps > 1 else "",
                gradient_checkpointing=row.flag("grad_checkpointing")
                if row.has("grad_checkpointing")
                else "",
                lora_matrices=_ALL_MATRICES if row.text("lora_target", "") == "ALL" else "",
                lora_rank=row.count("lora_rank") if row.has("lora_rank") else "",
                placement="split" if gpus > 1 else "",
                quantisation=quantisation,
            ),
        ),
    )
    ended = not_run(row, run, stack=stack, outcomes=_OUTCOMES, rate="samples_per_second")
    if ended is not None:
        return ended
    return succeeded(
        _COLUMNS,
        run,
        stack=stack,
        tokens_per_s=row.positive("samples_per_second") * tokens_per_sample,
        peak_memory_gb=_largest_gib(row, gpus) * GIB_GB,
    )


MAPPING = Mapping(
    name="ms-swift",
    stack="ms-swift",
    description="ModelScope ms-swift benchmark, A100-80GB",
    required=_REQUIRED,
    used=_REQUIRED | {"flash_attn", "grad_checkpointing", "lora_rank", "lora_target"},
    read=read,
)


def _largest_gib(row: Row, gpus: int) -> float:
    if not row.has("gpu_memory_gib"):
        return 0.0
    text = row.text("gpu_memory_gib")
    try:
        parts = [float(part) for part in text.split("+")]
    except ValueError as error:
        raise RowRefused("gpu_memory_gib", "GiB such as 40.1, or 40.1+38.2", repr(text)) from error
    if not all(math.isfinite(part) and part >= 0 for part in parts):
        raise RowRefused("gpu_memory_gib", "finite GiB >= 0", text)
    if len(parts) not in (1, gpus):
        raise RowRefused("gpu_memory_gib", f"one value, or one for each of {gpus} GPUs", text)
    return max(parts)
