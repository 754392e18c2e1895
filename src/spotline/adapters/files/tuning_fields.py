"""The fields of a job file that only a draft has: its model, and how that is tuned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from spotline.adapters.files.fields import FieldRow, Name, Part, Positive, Text, Whole, expected
from spotline.domain.configuration.configuration import Method, MethodOption

_MOST_PARAMETERS_BILLION = 1e6


class ModelPart(Part):
    """Which model is tuned, and its size where it is not known by name."""

    name: Annotated[
        Name,
        FieldRow(
            "model_name",
            "| required with `model.parameters_billion` | the same, beside the model's size",
        ),
    ]
    parameters_billion: Annotated[
        Annotated[Positive, Field(le=_MOST_PARAMETERS_BILLION)] | None,
        FieldRow(
            "model_parameters", "10^9 parameters | | size of a model that nobody knows by name"
        ),
    ] = None

    def to_domain(self) -> dict[str, Any]:
        """What a draft says of its model."""
        return {
            "model_name": self.name,
            "model_parameters": round((self.parameters_billion or 0.0) * 1e9),
        }


def model_name_alone(value: Any) -> Any:
    """Take a name alone as the mapping that it is short for."""
    if isinstance(value, str):
        return {"name": value}
    if not isinstance(value, Mapping):
        raise expected("a model's name, or a mapping of name and parameters_billion")
    return value


def option_text(value: Any) -> str:
    """YAML's own types as a command line has them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise expected("text, a number, true or false")


class FineTuningPart(Part):
    """How the model is tuned, as far as the owner wants to say; `gpus` and `batch_size` in all."""

    method: Annotated[
        Literal["full", "lora", "qlora", "gptq-lora", "adapter"] | None,
        FieldRow("method", "| filled in | `full`, `lora`, `qlora`, `gptq-lora` or `adapter`"),
    ] = None
    gpu: Annotated[
        Name | None, FieldRow("gpu_model", "| filled in | GPU model, such as `a100-80gb`")
    ] = None
    gpus: Annotated[Whole | None, FieldRow("gpus", "GPUs | filled in | over all instances")] = None
    tokens_per_sample: Annotated[
        Whole | None, FieldRow("tokens_per_sample", "tokens | filled in | sequence length")
    ] = None
    batch_size: Annotated[
        Whole | None,
        FieldRow("batch_size", "samples | filled in | per optimiser step, over all GPUs"),
    ] = None
    precision: Annotated[
        Literal["bfloat16", "float16", "float32", "fp8"] | None,
        FieldRow("precision", "| filled in | `bfloat16`, `float16`, `float32` or `fp8`"),
    ] = None
    expert_parallel: Annotated[
        Whole | None, FieldRow("expert_parallel", "| 1 | GPUs that share a mixture's experts")
    ] = None
    options: Annotated[
        dict[Name, Annotated[Text, BeforeValidator(option_text)]],
        FieldRow("options", "| none | more settings of the training software, by name"),
    ] = Field(default={})

    def to_domain(self) -> dict[str, Any]:
        """What a draft says of its tuning."""
        return {
            "method": None if self.method is None else Method(self.method),
            "gpu_model": self.gpu or "",
            "gpus": self.gpus or 0,
            "tokens_per_sample": self.tokens_per_sample or 0,
            "batch_size": self.batch_size or 0,
            "precision": self.precision or "",
            "expert_parallel": self.expert_parallel or 0,
            "options": tuple(
                MethodOption(name=name, value=value) for name, value in sorted(self.options.items())
            ),
        }
