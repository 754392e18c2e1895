"""Lightning-AI litgpt: the resource tables of 2023 on A100-40GB, and the config hub on A10G.

`litgpt_a100_40gb_2023.csv` has minutes per 1,000 iterations, where an iteration is one micro-batch
on every GPU; a sample counts as a nominal 512 tokens (Alpaca; the table does not say). The batch
is `micro_batch_size * number_gpus`. `not_supported` is a run that was rejected.

`litgpt_a10g_config_hub.csv` has the run time of some epochs over 2,000 samples ("alpaca 2k"), each
counted as `max_seq_len` tokens. Rows of four GPUs show the run time of one, which the source does
not explain: they are refused.

litgpt recomputes activations where it shards a model over several GPUs, and only there.

The nominal scale is the same in a whole stack, so it changes no comparison within; nothing is
compared across stacks. Memory is the allocator's peak in 10^9 bytes, as litgpt prints it.
"""

from __future__ import annotations

from spotline.adapters.knowledge.cells import Row, RowRefused, options
from spotline.adapters.knowledge.mapping import (
    S_PER_MINUTE,
    Columns,
    Mapping,
    not_run,
    resolved,
    succeeded,
)
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Method

_COLUMNS = Columns(model="model", batch="micro_batch_size")
_ITERATIONS = 1000
_NOMINAL_TOKENS = 512
_HUB_SAMPLES = 2000
_OUTCOMES = {"ok": "succeeded", "oom": "out_of_memory", "not_supported": "rejected"}
_QUANTISATION = {"bnb.nf4": "nf4", "bnb.nf4-dq": "nf4-dq"}
_METHODS_2023 = {"lora": "lora", "adapter": "adapter", "adapter_v2": "adapter"}
_METHODS_HUB = {"full": "full", "lora": "lora", "qlora": "qlora"}

_REQUIRED_2023 = frozenset(
    {
        "method",
        "model",
        "size",
        "quantization",
        "micro_batch_size",
        "number_gpus",
        "minutes_per_1k_iterations",
        "status",
        "gpu_model",
    }
)
_REQUIRED_HUB = frozenset(
    {
        "model",
        "method",
        "epochs",
        "max_seq_len",
        "micro_batch_size",
        "number_gpus",
        "training_runtime_min",
        "status",
        "gpu_model",
    }
)


def read_2023(row: Row, stack: str) -> MeasuredRun:
    """Turn a row of the resource tables into a measured run."""
    method = Method(row.choice("method", _METHODS_2023))
    quantisation = row.choice("quantization", _QUANTISATION) if row.has("quantization") else ""
    if quantisation and method is Method.LORA:
        method = Method.QLORA
    gpus = row.count("number_gpus")
    batch = row.count("micro_batch_size") * gpus
    family = row.text("model")
    second = row.text("method").lower() == "adapter_v2"
    run = resolved(
        _COLUMNS,
        Configuration(
            # phi-1.5 says its size in its name.
            model_name=family
            if family.lower().startswith("phi")
            else f"{family}-{row.text('size')}",
            method=method,
            gpu_model=row.text("gpu_model"),
            gpus=gpus,
            nodes=1,
            tokens_per_sample=_NOMINAL_TOKENS,
            batch_size=batch,
            options=options(
                adapter_version="2" if second else "",
                gradient_checkpointing=gpus > 1,
                quantisation=quantisation,
            ),
        ),
    )
    ended = not_run(row, run, stack=stack, outcomes=_OUTCOMES, rate="minutes_per_1k_iterations")
    if ended is not None:
        return ended
    seconds = row.positive("minutes_per_1k_iterations") * S_PER_MINUTE
    return succeeded(
        _COLUMNS,
        run,
        stack=stack,
        tokens_per_s=_ITERATIONS * batch * _NOMINAL_TOKENS / seconds,
        peak_memory_gb=row.number("max_gpu_ram_gb", 0.0),
        runtime_s=seconds,
    )


def read_hub(row: Row, stack: str) -> MeasuredRun:
    """Turn a row of the config hub into a measured run."""
    gpus = row.count("number_gpus")
    if gpus > 1:
        raise RowRefused(
            "number_gpus",
            "1, for rows of more GPUs repeat the run time of one and say nothing of scaling",
            str(gpus),
        )
    tokens_per_sample = row.count("max_seq_len")
    run = resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model"),
            method=Method(row.choice("method", _METHODS_HUB)),
            gpu_model=row.text("gpu_model"),
            gpus=gpus,
            nodes=1,
            tokens_per_sample=tokens_per_sample,
            batch_size=row.count("micro_batch_size"),
            options=options(gradient_checkpointing=False),
        ),
    )
    ended = not_run(row, run, stack=stack, outcomes=_OUTCOMES, rate="training_runtime_min")
    if ended is not None:
        return ended
    seconds = row.positive("training_runtime_min") * S_PER_MINUTE
    return succeeded(
        _COLUMNS,
        run,
        stack=stack,
        tokens_per_s=row.count("epochs") * _HUB_SAMPLES * tokens_per_sample / seconds,
        peak_memory_gb=row.number("peak_memory_gb", 0.0),
        runtime_s=seconds,
    )


MAPPING_2023 = Mapping(
    name="litgpt-2023",
    stack="litgpt-2023",
    description="litgpt resource tables of 2023, A100-40GB",
    required=_REQUIRED_2023,
    used=_REQUIRED_2023 | {"trainable_params", "max_gpu_ram_gb"},
    read=read_2023,
)

MAPPING_HUB = Mapping(
    name="litgpt-hub",
    stack="litgpt-hub",
    description="litgpt config hub, A10G",
    required=_REQUIRED_HUB,
    used=_REQUIRED_HUB | {"cost_usd", "peak_memory_gb"},
    read=read_hub,
)
