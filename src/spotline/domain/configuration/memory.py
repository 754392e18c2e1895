"""How much GPU memory a configuration needs, from first principles.

The peak is weights + optimiser states + saved activations + the larger of (gradients, output
logits): logits are freed before the last gradients exist. Sources: activation sizes after
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), with
attention computed blockwise; states after Rajbhandari et al., "ZeRO" (2020).
"""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.gpus import gpu_facts
from spotline.domain.configuration.models import ModelFacts, model_facts
from spotline.domain.configuration.steptime import (
    data_parallel_gpus,
    micro_batches,
    recomputes,
    trainable_parameters,
    weight_bytes,
)

_LOGIT_BYTES = 12.0  # 16 and 32 bits wide, and the gradient of the latter
_PRECISION_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "fp8": 2.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAssumptions:
    """What the training software decides.

    Attributes
    ----------
    mixed_precision
        Whether full tuning in 16 bits keeps a 32-bit copy: weights 2 + 4, gradients 2 + 4 and two
        moments of 4 are 20 bytes a parameter. Otherwise everything is held in the precision of
        the weights (8 bytes in 16 bits), as the public runs of sfttrainer and of
        fms-acceleration show (6.0 bytes a parameter between the steps).
    recompute_activations
        Where the configuration does not say so (option `gradient_checkpointing`).
    shard
        Whether several GPUs shard weights, gradients and states (FSDP, ZeRO-3) where the option
        `placement` does not say `replicated`.
    overhead_gb
        CUDA context, libraries and their workspaces.
    fragmentation
        Allocator's reserve over what is allocated.
    """

    mixed_precision: bool = False
    recompute_activations: bool = True
    shard: bool = True
    overhead_gb: float = 1.5
    fragmentation: float = 1.08


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """Peak memory of the fullest GPU by cause, in 10^9 bytes; `available_gb` is the GPU's."""

    weights_gb: float
    optimiser_gb: float
    gradients_gb: float
    activations_gb: float
    logits_gb: float
    overhead_gb: float
    available_gb: float

    @property
    def total_gb(self) -> float:
        """The peak: gradients and logits are not there at the same time."""
        passing = max(self.gradients_gb, self.logits_gb)
        held = self.weights_gb + self.optimiser_gb + self.activations_gb
        return held + passing + self.overhead_gb

    @property
    def fits(self) -> bool:
        """Whether it fits the GPU."""
        return self.total_gb <= self.available_gb


def gpu_memory(
    configuration: Configuration, assumptions: MemoryAssumptions | None = None
) -> MemoryBreakdown:
    """Estimate the peak memory of the fullest GPU. Pure; about 10 us.

    Raises
    ------
    UnknownModel, UnknownGpu
        Nobody knows the model's size, or the GPU.
    """
    assumed = assumptions or MemoryAssumptions()
    model = model_facts(configuration.model_name, configuration.model_parameters)
    gpu = gpu_facts(configuration.gpu_model)
    gpus, replicas = configuration.gpus, data_parallel_gpus(configuration)
    placement = configuration.option("placement")
    sharded = gpus > 1 and replicas == gpus and assumed.shard and placement != "replicated"
    # Split over the GPUs of one model copy, or of all of them.
    parts = gpus if sharded else max(1, gpus // replicas)
    trainable = trainable_parameters(configuration, model)
    plain = _PRECISION_BYTES[configuration.precision]
    gradient_bytes, state_bytes = _trained_bytes(configuration, assumed, plain)
    weights = weight_bytes(configuration, model)
    # A sharded layer is whole while it is computed, and the next one is fetched meanwhile.
    gathered = 2 * weights / model.layers if sharded else 0.0
    if configuration.method is not Method.FULL:
        weights += plain * trainable
    pass_tokens = (
        configuration.batch_size
        * configuration.tokens_per_sample
        / (replicas * micro_batches(configuration))
    )
    layers = model.layers / (parts if placement in ("split", "tensor") else 1)
    per_token = _activation_bytes_per_token(model, layers, plain, configuration, assumed)
    scale = assumed.fragmentation / 1e9
    return MemoryBreakdown(
        weights_gb=(weights / parts + gathered) * scale,
        optimiser_gb=state_bytes * trainable / parts * scale,
        gradients_gb=gradient_bytes * trainable / parts * scale,
        activations_gb=per_token * pass_tokens * scale,
        logits_gb=_LOGIT_BYTES * model.vocabulary * pass_tokens * scale,
        overhead_gb=assumed.overhead_gb,
        available_gb=gpu.memory_gb,
    )


def _trained_bytes(
    configuration: Configuration, assumed: MemoryAssumptions, plain: float
) -> tuple[float, float]:
    """Bytes of gradients and of optimiser states for each trained parameter."""
    if plain == 4.0:
        return 4.0, 8.0
    if assumed.mixed_precision or configuration.method is not Method.FULL:
        # Adapters are trained in 32 bits everywhere: they are small.
        return 6.0, 12.0
    return plain, 2 * plain


def _activation_bytes_per_token(
    model: ModelFacts,
    layers: float,
    plain: float,
    configuration: Configuration,
    assumed: MemoryAssumptions,
) -> float:
    """Saved for the backward pass: every layer's input, or all that a layer computes."""
    half = plain / 2  # the counts below are for two bytes a value
    keys_and_values = 2 * model.hidden * model.kv_heads / model.heads
    layer = half * (18 * model.hidden + 2 * keys_and_values + 8 * model.intermediate)
    if recomputes(configuration, assumed.recompute_activations):
        return half * 2 * model.hidden * layers + layer
    return layer * layers
