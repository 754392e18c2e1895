"""How long an optimiser step takes, from first principles: compute, optimiser, communication.

A step of `batch_size * tokens_per_sample` tokens takes

    forward          2 * active parameters * tokens, and 2 * sequence * hidden * layers a token
                     for causal attention, over (peak * efficiency);
                     never less than reading the weights once per pass
    backward         twice the forward pass; once more forward where activations are recomputed
    optimiser        20 bytes per trainable parameter over the memory bandwidth
    communication    ring all-reduce of the gradients; sharded (FSDP, ZeRO-3) a reduce-scatter
                     and two gathers of the weights, over the slowest link of the ring

and a fixed overhead. The form is that of the analytic model in the reference ("CoTune"); the
defaults are usual figures, meant to be calibrated per stack. Everything is computed on arrays:
`step_work` collects what configurations need once, `step_times` applies coefficients to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from spotline.domain.configuration.configuration import Configuration, Method
from spotline.domain.configuration.gpus import GpuFacts, gpu_facts
from spotline.domain.configuration.models import ModelFacts, model_facts

Floats = NDArray[np.float64]

# Moved by AdamW in mixed precision: read and write of both moments and of the weights.
OPTIMISER_BYTES = 20.0
_WEIGHT_BYTES = {"bfloat16": 2.0, "float16": 2.0, "float32": 4.0, "fp8": 2.0}
# Four bits and a scale per group of 64 or 128 weights.
QUANTISED_WEIGHT_BYTES = 0.56
# Rank 8 on the four attention projections: the usual default of training software.
DEFAULT_LORA_RANK = 8
DEFAULT_LORA_MATRICES = 4
# bfloat16 on a GPU without it, and float32, run beside the tensor cores.
_WITHOUT_TENSOR_CORES = 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """What differs between training software; to be calibrated on measured runs of one stack.

    Attributes
    ----------
    efficiency
        Share of peak arithmetic that a large batch reaches, 0..1 (PaLM reports 46 %).
    half_efficiency_tokens
        Tokens per GPU and pass at which half of `efficiency` is reached.
    quantised_efficiency, mixture_efficiency
        Factors on `efficiency` for weights held in four bits, and for mixtures of experts.
    backward_over_forward, frozen_backward_over_forward
        Time of the backward pass in forward passes, with all weights trained and with few.
    memory_efficiency, link_efficiency, roce_efficiency, tcp_efficiency
        Shares of the data-sheet bandwidths that are reached; the last two between nodes.
    overlap
        Share of communication that can hide behind computation, 0..1.
    overhead_s, overhead_s_per_layer, collective_s_per_layer
        Per step; per layer and pass of a micro-batch; the same, where there are several GPUs.
    """

    efficiency: float = 0.45
    half_efficiency_tokens: float = 256.0
    quantised_efficiency: float = 0.8
    mixture_efficiency: float = 0.6
    backward_over_forward: float = 2.0
    frozen_backward_over_forward: float = 1.7
    memory_efficiency: float = 0.8
    link_efficiency: float = 0.7
    roce_efficiency: float = 0.7
    tcp_efficiency: float = 0.15
    overlap: float = 0.7
    overhead_s: float = 0.02
    overhead_s_per_layer: float = 0.0005
    collective_s_per_layer: float = 0.0001

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{field.name} must be finite and >= 0, was {value}")
        if self.overlap > 1:
            raise ValueError(f"overlap must lie in 0..1, was {self.overlap}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one step of each configuration moves and computes; every array has shape (rows,).

    `*_flops` and `*_bytes` are per GPU and step, `peak_flops` and `*_bytes_per_s` per second;
    `network_bytes_per_s` is what a node has for one ring. Flags are 0.0 or 1.0.
    """

    tokens: Floats
    pass_tokens: Floats
    passes: Floats
    forward_flops: Floats
    peak_flops: Floats
    weight_bytes: Floats
    optimiser_bytes: Floats
    communication_bytes: Floats
    memory_bytes_per_s: Floats
    link_bytes_per_s: Floats
    network_bytes_per_s: Floats
    layers: Floats
    gpus: Floats
    several_gpus: Floats
    several_nodes: Floats
    tcp: Floats
    all_trained: Floats
    recomputed: Floats
    quantised: Floats
    mixture: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step by cause; arrays of shape (rows,). Communication: what is not hidden."""

    compute_s: Floats
    optimiser_s: Floats
    communication_s: Floats
    overhead_s: Floats
    tokens: Floats

    @property
    def step_s(self) -> Floats:
        """Seconds of the whole step."""
        return self.compute_s + self.optimiser_s + self.communication_s + self.overhead_s

    @property
    def tokens_per_s(self) -> Floats:
        """Tokens per second over all GPUs."""
        return np.asarray(self.tokens / self.step_s, dtype=np.float64)


def trainable_parameters(configuration: Configuration, model: ModelFacts) -> int:
    """Weights that are trained: all of them, or `2 * rank * hidden * matrices * layers`.

    Notes
    -----
    The options `lora_rank` and `lora_matrices` (adapted matrices a layer) overrule the usual 8
    and 4. An adapter method is taken for as small.
    """
    if configuration.method is Method.FULL:
        return model.parameters
    rank = whole_option(configuration, "lora_rank", DEFAULT_LORA_RANK)
    matrices = whole_option(configuration, "lora_matrices", DEFAULT_LORA_MATRICES)
    return min(model.parameters, 2 * rank * model.hidden * matrices * model.layers)


def weight_bytes(configuration: Configuration, model: ModelFacts) -> float:
    """Bytes of the model's weights as a pass reads them, over all of the model.

    Four bits for quantised methods, and where an option `quantisation` says so for others; eight
    where it begins with `int8`.
    """
    quantisation = configuration.option("quantisation")
    if configuration.method.quantised or quantisation:
        # Embeddings and the output layer stay in 16 bits.
        plain = min(model.parameters, 2 * model.vocabulary * model.hidden)
        each = QUANTISED_WEIGHT_BYTES + (0.5 if quantisation.startswith("int8") else 0.0)
        return 2.0 * plain + each * (model.parameters - plain)
    return _WEIGHT_BYTES[configuration.precision] * model.parameters


def whole_option(configuration: Configuration, name: str, otherwise: int) -> int:
    """A whole number >= 1 among the options; `otherwise` where it is absent or says something else.

    Options are free text for the training software: what cannot be read says nothing here.
    """
    text = configuration.option(name)
    return int(text) if text.isdecimal() and int(text) >= 1 else otherwise


def data_parallel_gpus(configuration: Configuration) -> int:
    """GPUs that work on different samples: all, unless `placement` is `split` or `tensor`.

    `split` lays the model's layers over the GPUs, which then take turns; `tensor` has groups of
    `model_parallel` GPUs (all, where it is not given) share every layer.
    """
    placement = configuration.option("placement")
    if placement == "split":
        return 1
    if placement == "tensor":
        group = whole_option(configuration, "model_parallel", configuration.gpus)
        return max(1, configuration.gpus // group)
    return configuration.gpus


def micro_batches(configuration: Configuration) -> int:
    """Passes a step takes: option `gradient_accumulation_steps`, else one."""
    return whole_option(configuration, "gradient_accumulation_steps", 1)


def recomputes(configuration: Configuration, otherwise: bool) -> bool:
    """Whether activations are recomputed: option `gradient_checkpointing`, else `otherwise`."""
    text = configuration.option("gradient_checkpointing")
    return text == "true" if text else otherwise


def step_work(configurations: Sequence[Configuration]) -> StepWork:
    """Collect what steps of these configurations move and compute.

    Raises
    ------
    UnknownModel, UnknownGpu
        Nobody knows a model's size, or a GPU.

    Notes
    -----
    About 8 us a row; call it once and apply many coefficients to it.
    """
    rows = [_row(configuration) for configuration in configurations]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), len(fields(StepWork)))
    return StepWork(
        **{field.name: table[:, column].copy() for column, field in enumerate(fields(StepWork))}
    )


def step_times(work: StepWork, coefficients: Coefficients) -> StepTimes:
    """Apply coefficients to collected work. Pure; a few hundred microseconds for 30,000 rows."""
    c = coefficients
    efficiency = (
        c.efficiency
        * np.where(work.quantised > 0, c.quantised_efficiency, 1.0)
        * np.where(work.mixture > 0, c.mixture_efficiency, 1.0)
        * work.pass_tokens
        / (work.pass_tokens + c.half_efficiency_tokens)
    )
    forward_and_backward = (
        1.0
        + np.where(work.all_trained > 0, c.backward_over_forward, c.frozen_backward_over_forward)
        + work.recomputed
    )
    memory_rate = work.memory_bytes_per_s * c.memory_efficiency
    arithmetic_s = work.forward_flops / (work.peak_flops * efficiency)
    reading_s = work.passes * work.weight_bytes / memory_rate
    compute_s = forward_and_backward * np.maximum(arithmetic_s, reading_s)
    network_efficiency = np.where(work.tcp > 0, c.tcp_efficiency, c.roce_efficiency)
    link_rate = work.link_bytes_per_s * c.link_efficiency
    ring_rate = np.where(
        work.several_nodes > 0,
        np.minimum(link_rate, work.network_bytes_per_s * network_efficiency),
        link_rate,
    )
    sending_s = work.communication_bytes / ring_rate
    per_layer_s = c.overhead_s_per_layer + work.several_gpus * c.collective_s_per_layer
    return StepTimes(
        compute_s=np.asarray(compute_s, dtype=np.float64),
        optimiser_s=np.asarray(work.optimiser_bytes / memory_rate, dtype=np.float64),
        communication_s=np.asarray(
            sending_s - c.overlap * np.minimum(sending_s, compute_s), dtype=np.float64
        ),
        overhead_s=np.asarray(
            c.overhead_s + per_layer_s * work.layers * work.passes, dtype=np.float64
        ),
        tokens=work.tokens,
    )


def _peak_flops(configuration: Configuration, gpu: GpuFacts) -> float:
    peak = gpu.dense_tflops * 1e12
    match configuration.precision:
        case "fp8":
            # Twice the 16-bit rate on the GPUs that have it (Hopper, Ada and later).
            return 2 * peak if gpu.dense_tflops >= 350 else peak
        case "float32":
            return peak * _WITHOUT_TENSOR_CORES
        case "bfloat16" if not gpu.bfloat16:
            return peak * _WITHOUT_TENSOR_CORES
        case _:
            return peak


def _row(configuration: Configuration) -> tuple[float, ...]:
    """One row of `StepWork`, in the order of its fields."""
    model = model_facts(configuration.model_name, configuration.model_parameters)
    gpu = gpu_facts(configuration.gpu_model)
    gpus = configuration.gpus
    passes = micro_batches(configuration)
    replicas = data_parallel_gpus(configuration)
    tokens = configuration.batch_size * configuration.tokens_per_sample
    # Tensor-parallel GPUs share a sample's arithmetic; GPUs that take turns do not.
    working = gpus if configuration.option("placement") == "tensor" else replicas
    attention = 2.0 * configuration.tokens_per_sample * model.hidden * model.layers
    forward_flops = (2.0 * model.active_parameters + attention) * tokens / working
    weights = weight_bytes(configuration, model)
    trainable = trainable_parameters(configuration, model)
    placement = configuration.option("placement")
    sharded = gpus > 1 and placement not in ("replicated", "split", "tensor")
    share = (replicas - 1) / replicas
    if sharded:
        sent = share * (2.0 * trainable + 2.0 * weights * passes)
    else:
        sent = share * 2.0 * 2.0 * trainable * replicas / gpus
    gpus_per_node = max(1, gpus // configuration.nodes)
    return (
        float(tokens),
        tokens / (replicas * passes),
        float(passes),
        forward_flops,
        _peak_flops(configuration, gpu),
        weights * replicas / gpus if not sharded else weights,
        OPTIMISER_BYTES * trainable / (gpus if sharded else max(1, gpus // replicas)),
        sent,
        gpu.memory_gb_per_s * 1e9,
        gpu.link_gb_per_s * 1e9,
        gpu.network_gb_per_s * gpus_per_node * 1e9,
        float(model.layers),
        float(gpus),
        1.0 if gpus > 1 else 0.0,
        1.0 if configuration.nodes > 1 else 0.0,
        1.0 if configuration.option("enable_roce") in ("false", "0") else 0.0,
        1.0 if configuration.method is Method.FULL else 0.0,
        1.0 if recomputes(configuration, otherwise=False) else 0.0,
        1.0 if configuration.method.quantised or configuration.option("quantisation") else 0.0,
        1.0 if model.active_parameters < model.parameters else 0.0,
    )
