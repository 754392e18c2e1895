"""NVIDIA's published rates on DGX-H100: `nemo_h100_finetune.csv`.

`tokens_per_sec_per_gpu` is multiplied by the GPUs; a node has eight. `source` tells NeMo from
Automodel, which is a stack of its own (`nemo-automodel`). Where `tp * pp` is above one, groups of
that many GPUs share a sample (options `placement` = tensor, `model_parallel`).
"""

from __future__ import annotations

from spotline.adapters.knowledge.cells import Row, RowRefused, options
from spotline.adapters.knowledge.mapping import Columns, Mapping, resolved, succeeded
from spotline.domain.configuration.configuration import Configuration, MeasuredRun, Method

_COLUMNS = Columns(model="model", batch="gbs")
_GPU = "h100-80gb"
_GPUS_PER_NODE = 8
_METHODS = {"sft": "full", "lora": "lora"}
_REQUIRED = frozenset(
    {
        "model",
        "task",
        "number_gpus",
        "gbs",
        "mbs",
        "seq_len",
        "tp",
        "pp",
        "precision",
        "tokens_per_sec_per_gpu",
    }
)


def read(row: Row, stack: str) -> MeasuredRun:
    """Turn a row into a measured run."""
    gpus, batch = row.count("number_gpus"), row.count("gbs")
    tensor, pipeline = row.count("tp"), row.count("pp")
    group = tensor * pipeline
    if gpus % group:
        raise RowRefused("tp", f"tp * pp to divide number_gpus ({gpus})", f"{tensor} * {pipeline}")
    together = row.count("mbs") * (gpus // group)
    if batch % together:
        raise RowRefused("gbs", f"a multiple of mbs * GPUs / (tp * pp) ({together})", str(batch))
    steps = batch // together
    run = resolved(
        _COLUMNS,
        Configuration(
            model_name=row.text("model"),
            method=Method(row.choice("task", _METHODS)),
            gpu_model=_GPU,
            gpus=gpus,
            nodes=-(-gpus // _GPUS_PER_NODE),
            tokens_per_sample=row.count("seq_len"),
            batch_size=batch,
            precision=row.precision("precision", "bf16"),
            options=options(
                gradient_accumulation_steps=steps if steps > 1 else "",
                model_parallel=group if group > 1 else "",
                placement="tensor" if group > 1 else "",
            ),
        ),
    )
    automodel = stack == MAPPING.stack and "automodel" in row.text("source", "").lower()
    return succeeded(
        _COLUMNS,
        run,
        stack=f"{stack}-automodel" if automodel else stack,
        tokens_per_s=row.positive("tokens_per_sec_per_gpu") * gpus,
    )


MAPPING = Mapping(
    name="nemo",
    stack="nemo",
    description="NVIDIA NeMo and Automodel performance summaries, DGX-H100",
    required=_REQUIRED,
    used=_REQUIRED | {"source", "tflops_per_gpu"},
    read=read,
)
