"""How a fine-tuning job is run, what was measured of such runs, and what is predicted of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from spotline.domain.canonical import canonical_as


@canonical_as("Method")
class Method(Enum):
    """How a model is tuned: all of its weights, or a few beside them."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"
    GPTQ_LORA = "gptq-lora"
    ADAPTER = "adapter"

    @property
    def quantised(self) -> bool:
        """Whether the frozen weights are held in about four bits."""
        return self in (Method.QLORA, Method.GPTQ_LORA)


PRECISIONS = ("bfloat16", "float16", "float32", "fp8")


@canonical_as("MethodOption", "name value")
@dataclass(frozen=True, slots=True, kw_only=True)
class MethodOption:
    """One more setting of the training software, such as `fast_kernels` = `true`."""

    name: str
    value: str

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("name of a method option must not be empty")


@canonical_as(
    "Configuration",
    "model_name method gpu_model gpus nodes tokens_per_sample batch_size precision "
    "expert_parallel model_parameters options",
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One complete way to run a fine-tuning job.

    `gpus` are all GPUs, over all `nodes`; `batch_size` is global, in samples per optimiser step;
    `tokens_per_sample` is the sequence length. `model_parameters` (0: as the catalogue or the
    model's name says) is needed for a model that is not known. `options` ascend by name.

    Whether the parts fit together is for `rules.broken_rules` to say: what was rejected is
    knowledge too, and must be representable.
    """

    model_name: str
    method: Method
    gpu_model: str
    gpus: int
    nodes: int
    tokens_per_sample: int
    batch_size: int
    precision: str = "bfloat16"
    expert_parallel: int = 1
    model_parameters: int = 0
    options: tuple[MethodOption, ...] = ()

    def __post_init__(self) -> None:
        for name in ("model_name", "gpu_model"):
            if not getattr(self, name):
                raise ValueError(f"{name} of a configuration must not be empty")
        for name in ("gpus", "nodes", "tokens_per_sample", "batch_size", "expert_parallel"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, was {getattr(self, name)}")
        if self.model_parameters < 0:
            raise ValueError(f"model_parameters must be >= 0, was {self.model_parameters}")
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}, was {self.precision!r}"
            )
        names = [option.name for option in self.options]
        if names != sorted(set(names)):
            raise ValueError(f"options must ascend by name without repeats, were {names}")

    def option(self, name: str) -> str:
        """The value of an option, empty where it is not given."""
        for option in self.options:
            if option.name == name:
                return option.value
        return ""


class RunOutcome(Enum):
    """How a run ended: done, refused before it started, out of GPU memory, or failed otherwise."""

    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """What a run of a configuration showed.

    `stack` names the software it was measured with: rates of two stacks are never mixed.
    `tokens_per_s` is over all GPUs, `peak_memory_gb` (10^9 bytes) of the fullest GPU; 0 is "not
    measured". A run that did not succeed has no rate.
    """

    configuration: Configuration
    stack: str
    outcome: RunOutcome
    tokens_per_s: float = 0.0
    peak_memory_gb: float = 0.0
    runtime_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.stack:
            raise ValueError("stack of a measured run must not be empty")
        for name in ("tokens_per_s", "peak_memory_gb", "runtime_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and >= 0, was {value}")
        if self.tokens_per_s and self.outcome is not RunOutcome.SUCCEEDED:
            raise ValueError(
                f"tokens_per_s must be 0 for a run that ended {self.outcome.value}, "
                f"was {self.tokens_per_s:g}"
            )

    @property
    def ran(self) -> bool:
        """Whether it succeeded."""
        return self.outcome is RunOutcome.SUCCEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a source expects of a configuration.

    `low_tokens_per_s` and `high_tokens_per_s` hold the measured rate in nine of ten cases;
    `success_probability` is that the run ends well. `measured` says that this very configuration
    has been run on this stack. `basis` says for people what it rests on.
    """

    source_id: str
    tokens_per_s: float
    low_tokens_per_s: float
    high_tokens_per_s: float
    success_probability: float
    peak_memory_gb: float = 0.0
    measured: bool = False
    basis: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.low_tokens_per_s <= self.tokens_per_s <= self.high_tokens_per_s < math.inf:
            raise ValueError(
                "a prediction must satisfy 0 < low <= rate <= high < inf tokens/s, was "
                f"{self.low_tokens_per_s:g}, {self.tokens_per_s:g}, {self.high_tokens_per_s:g}"
            )
        if not 0 <= self.success_probability <= 1:
            raise ValueError(
                f"success_probability must lie in 0..1, was {self.success_probability}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPrediction:
    """A source has nothing to say of a configuration, and why. A value, not an error."""

    source_id: str
    reason: str
