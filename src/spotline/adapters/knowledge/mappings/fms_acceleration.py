"""Benchmarks of foundation-model-stack/fms-acceleration on A100-80GB: `fms_accel_*.csv`.

Three tables, three stacks: the general one, the one of Granite (PowerLM-3b only) and the one of
mixtures of experts. Assumptions:

- The GPU is taken for the SXM version; the tables say A100-80GB only. One node.
- `train_tokens_per_second` is per GPU: tokens per sample come out the same for all GPU counts
  only if it is multiplied by `num_gpus`. So it is.
- Tokens per sample are that rate over `train_samples_per_second`: 2048 (santacoder) or 4096 in the
  first two tables, about 280 in the third (unpacked; to the nearest multiple of 8).
- The global batch is `per_device_train_batch_size * num_gpus * gradient_accumulation_steps`.
- `framework_config` tells the method: `bnb` is QLoRA, `autogptq` GPTQ-LoRA, otherwise LoRA with
  `peft_method` = lora and full tuning without; `foak` are the fused kernels; `epN` is expert
  parallelism over N GPUs with ScatterMoE.
- Memory is what the driver shows (`mem_nvidia_mem_reserved`, MiB, mean over the GPUs).
- A blank rate is a run that did not end well: out of memory where that memory is 90 % of the
  GPU's or more, another failure otherwise. Its tokens per sample are those of the table.
"""

from __future__ import annotations

import math
import re

from spotline.adapters.knowledge.cells import Row, options
from spotline.adapters.knowledge.mapping import (
    MIB_GB,
    Columns,
    Mapping,
    not_succeeded,
    resolved,
    succeeded,
)
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    RunOutcome,
)
from spotline.domain.configuration.gpus import gpu_facts

_COLUMNS = Columns(
    model="model_name_or_path",
    gpu="framework_config",
    gpus="num_gpus",
    batch="per_device_train_batch_size",
    expert_parallel="framework_config",
)
_GPU = "a100-80gb"
_RATE = "train_tokens_per_second"
_NEARLY_FULL = 0.9
# Packed to the model's or the benchmark's longest sample.
_SANTACODER_TOKENS = 2048
_TOKENS = 4096
_EXPERTS = re.compile(r"-ep(\d+)")

_COMMON = frozenset(
    {
        "framework_config",
        "mem_nvidia_mem_reserved",
        "model_name_or_path",
        "num_gpus",
        "per_device_train_batch_size",
        "torch_dtype",
        "train_runtime",
        "train_samples_per_second",
        _RATE,
    }
)
_SAYS_NOTHING = frozenset({"epoch", "learning_rate", "train_loss", "train_steps_per_second"})
_DENSE_REQUIRED = _COMMON | {"peft_method", "r", "mem_peak_torch_mem_alloc_in_bytes"}
_MIXTURE_REQUIRED = _COMMON | {"gradient_accumulation_steps"}


def read(row: Row, stack: str) -> MeasuredRun:
    """Turn a row into a measured run."""
    gpus = row.count("num_gpus")
    steps = row.count("gradient_accumulation_steps", 1)
    # Here `none` is a name: the plain software.
    framework = row.cells["framework_config"].strip().lower()
    experts = _EXPERTS.search(framework)
    run = resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model_name_or_path"),
            method=_method(row, framework),
            gpu_model=_GPU,
            gpus=gpus,
            nodes=1,
            tokens_per_sample=_tokens_per_sample(row, gpus),
            batch_size=row.count("per_device_train_batch_size") * gpus * steps,
            precision=row.precision("torch_dtype", "bfloat16"),
            expert_parallel=int(experts[1]) if experts else 1,
            options=options(
                accelerated="true" if framework.startswith("accelerated") else "",
                fast_kernels="true" if "foak" in framework else "",
                fast_moe="true" if experts else "",
                gradient_accumulation_steps=steps if steps > 1 else "",
                lora_rank=row.count("r") if row.has("r") else "",
                padding_free="true" if "padding-free" in framework else "",
            ),
        ),
    )
    memory_gb = row.number("mem_nvidia_mem_reserved", 0.0) * MIB_GB
    if not row.has(_RATE):
        full = memory_gb >= _NEARLY_FULL * gpu_facts(_GPU).memory_gb
        outcome = RunOutcome.OUT_OF_MEMORY if full else RunOutcome.FAILED
        return not_succeeded(run, stack=stack, outcome=outcome)
    return succeeded(
        _COLUMNS,
        run,
        stack=stack,
        tokens_per_s=row.positive(_RATE) * gpus,
        peak_memory_gb=memory_gb,
        runtime_s=row.number("train_runtime", 0.0),
    )


def read_dense(row: Row, stack: str) -> MeasuredRun:
    """Turn a row of the first two tables into a run; PowerLM is what tells them apart."""
    granite = stack == MAPPING.stack and "powerlm" in row.text("model_name_or_path").lower()
    return read(row, f"{stack}-granite" if granite else stack)


MAPPING = Mapping(
    name="fms-acceleration",
    stack="fms-acceleration",
    description="fms-acceleration benchmarks on A100-80GB, dense models",
    required=_DENSE_REQUIRED,
    used=_DENSE_REQUIRED
    | _SAYS_NOTHING
    | {
        "bf16",
        "fp16",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
        "mem_torch_mem_alloc_in_bytes",
    },
    read=read_dense,
)

MIXTURE_MAPPING = Mapping(
    name="fms-acceleration-moe",
    stack="fms-acceleration-moe",
    description="fms-acceleration benchmarks on A100-80GB, mixtures of experts",
    required=_MIXTURE_REQUIRED,
    used=_MIXTURE_REQUIRED | _SAYS_NOTHING,
    read=read,
)


def _method(row: Row, framework: str) -> Method:
    if "bnb" in framework:
        return Method.QLORA
    if "autogptq" in framework:
        return Method.GPTQ_LORA
    return Method(row.choice("peft_method", {"lora": "lora"})) if _peft(row) else Method.FULL


def _peft(row: Row) -> bool:
    return row.has("peft_method")


def _tokens_per_sample(row: Row, gpus: int) -> int:
    if row.has(_RATE):
        tokens = row.positive(_RATE) * gpus / row.positive("train_samples_per_second")
        if tokens > 1024:
            return int(2 ** round(math.log2(tokens)))
        return max(8, 8 * round(tokens / 8))
    small = "santacoder" in row.text("model_name_or_path").lower()
    return _SANTACODER_TOKENS if small else _TOKENS
