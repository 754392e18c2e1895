"""Runs of IBM's SFTTrainer benchmark: `coastline_run_database.csv` and the public data set.

The public one is ibm-research/LLMFineTuningBench, `ado-sfttrainer-v1-0-0.csv` (30,920 x 38); its
columns are those of the `ado` SFTTrainer actuator. Meaning of the columns, as its authors state
or as their own checks imply:

- `number_gpus` are all GPUs, `batch_size` is over all of them; `dataset_tokens_per_second` too.
- `tokens_per_sample` is called `model_max_length` in raw exports.
- `fast_moe` is the degree of expert parallelism, 0 or empty without; `fast_kernels` is empty
  where they are off.
- `is_valid` = 0: rejected before the start where the configuration breaks a hard rule, failed at
  run time otherwise. The table does not say of what: it is taken for out of memory where the
  GPU memory it reached (`gpu_memory_utilization_peak` or `_max`, percent) is 95 % or more, or a
  column `status`, `error` or `failure_reason` says so; for another failure elsewhere.
- `identifier` and `experiment_id` hold settings without a column; read are the version of the
  training software, the time limit, and whether weights were replicated instead of sharded.
- `enable_roce` counts between nodes only.
"""

from __future__ import annotations

import re

from spotline.adapters.knowledge.cells import Row, RowRefused, options
from spotline.adapters.knowledge.mapping import Columns, Mapping, not_succeeded, resolved, succeeded
from spotline.domain.configuration.configuration import (
    Configuration,
    MeasuredRun,
    Method,
    RunOutcome,
)
from spotline.domain.configuration.gpus import gpu_facts
from spotline.domain.configuration.rules import broken_rules

METHODS = {
    "full": "full",
    "full_rank": "full",
    "full-finetune": "full",
    "sft": "full",
    "lora": "lora",
    "qlora": "qlora",
    "gptq-lora": "gptq-lora",
    "gptq_lora": "gptq-lora",
    "adapter": "adapter",
}
_COLUMNS = Columns(model="model_name", expert_parallel="fast_moe")
_RATE = "dataset_tokens_per_second"
_RATE_PER_GPU = "dataset_tokens_per_second_per_gpu"
_MEMORY_PERCENT = ("gpu_memory_utilization_peak", "gpu_memory_utilization_max")
_REASONS = ("status", "error", "failure_reason")
_FULL_PERCENT = 95.0
_RATES_AGREE = 0.02

_REQUIRED = frozenset({"model_name", "method", "gpu_model", "number_gpus", "batch_size", _RATE})
_USED = _REQUIRED | {
    "number_nodes",
    "tokens_per_sample",
    "model_max_length",
    "torch_dtype",
    "enable_roce",
    "fast_kernels",
    "fast_moe",
    "is_valid",
    "train_runtime",
    "identifier",
    "experiment_id",
    "generatorid",
    _RATE_PER_GPU,
    *_MEMORY_PERCENT,
    *_REASONS,
    # Measurements of which a configuration's speed and memory are not made.
    "train_samples_per_second",
    "train_steps_per_second",
    "train_tokens_per_second",
    "train_tokens_per_gpu_per_second",
    "gpu_memory_utilization_min",
    "gpu_memory_utilization_avg",
    "gpu_compute_utilization_min",
    "gpu_compute_utilization_avg",
    "gpu_compute_utilization_max",
    "gpu_power_watts_min",
    "gpu_power_watts_avg",
    "gpu_power_watts_max",
    "gpu_power_percent_min",
    "gpu_power_percent_avg",
    "gpu_power_percent_max",
    "cpu_compute_utilization",
    "cpu_memory_utilization",
    "model_load_time",
}
_VERSION = re.compile(r"fms_hf_tuning_version\.([0-9]+(?:\.[0-9]+)*)")
_LIMIT = re.compile(r"stop_after_seconds\.([0-9]+)")
_REPLICATED = re.compile(r"fsdp_sharding_strategy\.NO_SHARD|distributed_backend\.DDP")


def read(row: Row, stack: str) -> MeasuredRun:
    """Turn a row into a measured run."""
    run = _configuration(row)
    valid = row.flag("is_valid", otherwise=row.has(_RATE))
    if valid:
        rate = row.positive(_RATE)
        _check_rate_per_gpu(row, rate, run.gpus)
        return succeeded(
            _COLUMNS,
            run,
            stack=stack,
            tokens_per_s=rate,
            peak_memory_gb=_memory_percent(row) / 100 * gpu_facts(run.gpu_model).memory_gb,
            runtime_s=row.number("train_runtime", 0.0),
        )
    if row.number(_RATE, 0.0) > 0:
        raise RowRefused(_RATE, "no rate, for is_valid is 0", row.text(_RATE))
    return not_succeeded(run, stack=stack, outcome=_failure(row, run))


MAPPING = Mapping(
    name="sfttrainer",
    stack="sfttrainer",
    description="SFTTrainer benchmark: coastline run database, ibm-research/LLMFineTuningBench",
    required=_REQUIRED,
    used=_USED,
    read=read,
)


def _configuration(row: Row) -> Configuration:
    nodes = row.count("number_nodes", 1)
    length = "tokens_per_sample" if row.has("tokens_per_sample") else "model_max_length"
    experts = _experts(row)
    hidden = row.text("experiment_id", "") + "-" + row.text("identifier", "")
    version, limit = _VERSION.search(hidden), _LIMIT.search(hidden)
    return resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model_name"),
            method=Method(row.choice("method", METHODS)),
            gpu_model=row.text("gpu_model"),
            gpus=row.count("number_gpus"),
            nodes=nodes,
            tokens_per_sample=row.count("tokens_per_sample" if length not in row.cells else length),
            batch_size=row.count("batch_size"),
            precision=row.precision("torch_dtype", "bfloat16"),
            expert_parallel=max(1, experts),
            options=options(
                enable_roce=row.flag("enable_roce") if nodes > 1 and row.has("enable_roce") else "",
                fast_kernels="true" if _on(row, "fast_kernels") else "",
                fast_moe="true" if experts else "",
                placement="replicated" if _REPLICATED.search(hidden) else "",
                software_version=version[1] if version else "",
                stop_after_s=limit[1] if limit and limit[1] != "0" else "",
            ),
        ),
    )


def _experts(row: Row) -> int:
    degree = row.number("fast_moe", 0.0)
    return row.count("fast_moe") if degree else 0


def _on(row: Row, name: str) -> bool:
    return row.has(name) and row.text(name).lower() not in ("false", "0", "0.0", "[]")


def _memory_percent(row: Row) -> float:
    for name in _MEMORY_PERCENT:
        if row.has(name):
            percent = row.number(name)
            # A sampled percentage can come out a little above.
            if percent > 101:
                raise RowRefused(name, "a percentage in 0..100", row.text(name))
            return min(100.0, percent)
    return 0.0


def _check_rate_per_gpu(row: Row, rate: float, gpus: int) -> None:
    if not row.has(_RATE_PER_GPU):
        return
    per_gpu = row.number(_RATE_PER_GPU)
    if abs(per_gpu * gpus / rate - 1) > _RATES_AGREE:
        raise RowRefused(
            _RATE_PER_GPU, f"{_RATE} / number_gpus = {rate / gpus:g}", row.text(_RATE_PER_GPU)
        )


def _failure(row: Row, run: Configuration) -> RunOutcome:
    if broken_rules(run):
        return RunOutcome.REJECTED
    said = " ".join(row.text(name, "") for name in _REASONS).lower()
    if "oom" in said or "out of memory" in said or "out_of_memory" in said:
        return RunOutcome.OUT_OF_MEMORY
    if "rejected" in said:
        return RunOutcome.REJECTED
    full = _memory_percent(row) >= _FULL_PERCENT
    return RunOutcome.OUT_OF_MEMORY if full else RunOutcome.FAILED
