"""Configurations as numbers and categories: what the knowledge sources learn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spotline.domain.configuration.configuration import Configuration
from spotline.domain.configuration.gpus import UnknownGpu, gpu_facts
from spotline.domain.configuration.memory import gpu_memory
from spotline.domain.configuration.models import UnknownModel, model_facts
from spotline.domain.configuration.rules import broken_rules
from spotline.domain.configuration.steptime import (
    StepWork,
    data_parallel_gpus,
    micro_batches,
    step_work,
    trainable_parameters,
)

Floats = NDArray[np.float64]

# Columns of `FeatureTable.numbers`, natural logarithms all but the last.
NUMBERS = (
    "active_parameters",
    "parameters",
    "trainable_parameters",
    "samples_per_pass",  # of one GPU
    "tokens_per_sample",
    "gpus",
    "nodes",
    "passes",
    "tflops",
    "memory_gb_per_s",
    "memory_share",  # estimated peak over the GPU's memory
    "state_share",  # weights and optimiser states over it
    "activation_share",  # activations and logits over it
    "quantised",  # 0 or 1
)
COLUMN = {name: place for place, name in enumerate(NUMBERS)}

# Categories of every row. Options follow, one category for each name.
CATEGORIES = ("model", "method", "gpu", "precision", "expert_parallel")

# Options that the columns hold as numbers.
_COUNTED_OPTIONS = frozenset({"gradient_accumulation_steps", "lora_rank", "lora_matrices"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow:
    """One configuration: numbers in the order of `NUMBERS`, categories by name, memory in GB."""

    numbers: tuple[float, ...]
    categories: tuple[tuple[str, str], ...]
    memory_gb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureTable:
    """Several configurations.

    `numbers` has shape (rows, len(NUMBERS)); `categories` holds a value per row, empty where an
    option is not given; `work` and `memory_gb` (estimated peak) are the analytic model's.
    """

    configurations: tuple[Configuration, ...]
    numbers: Floats
    categories: dict[str, tuple[str, ...]]
    memory_gb: Floats
    work: StepWork

    def column(self, name: str) -> Floats:
        """One column of `numbers`, shape (rows,)."""
        return self.numbers[:, COLUMN[name]]

    def values(self, category: str) -> tuple[str, ...]:
        """A category's value of every row, empty where no row has it."""
        found = self.categories.get(category)
        return found if found is not None else ("",) * len(self)

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> FeatureTable:
        """The rows at some places, in that order."""
        chosen = [int(place) for place in places]
        index = np.array(chosen, dtype=np.intp)
        work = {field.name: getattr(self.work, field.name)[index] for field in fields(StepWork)}
        return FeatureTable(
            configurations=tuple(self.configurations[place] for place in chosen),
            numbers=self.numbers[index],
            categories={
                name: tuple(values[place] for place in chosen)
                for name, values in self.categories.items()
            },
            memory_gb=self.memory_gb[index],
            work=StepWork(**work),
        )

    def __len__(self) -> int:
        return len(self.configurations)


def unpredictable(configuration: Configuration) -> str:
    """Why a configuration cannot be predicted, empty where it can: a sentence for people."""
    broken = broken_rules(configuration)
    return broken[0].message if broken else unknown_part(configuration)


@lru_cache(maxsize=65_536)
def unknown_part(configuration: Configuration) -> str:
    """Which part of a configuration is in no catalogue, empty where all are."""
    try:
        model_facts(configuration.model_name, configuration.model_parameters)
        gpu_facts(configuration.gpu_model)
    except (UnknownModel, UnknownGpu) as error:
        return str(error)
    return ""


@lru_cache(maxsize=65_536)
def canonical_configuration(configuration: Configuration) -> Configuration:
    """The same configuration under canonical names: two spellings of a model are one.

    Raises
    ------
    UnknownModel, UnknownGpu
        `unknown_part` says so beforehand.
    """
    model = model_facts(configuration.model_name, configuration.model_parameters)
    gpu = gpu_facts(configuration.gpu_model)
    if configuration.model_name == model.name and configuration.gpu_model == gpu.name:
        return configuration
    return replace(configuration, model_name=model.name, gpu_model=gpu.name)


@lru_cache(maxsize=65_536)
def features_of(configuration: Configuration) -> FeatureRow:
    """Describe one configuration.

    Raises
    ------
    UnknownModel, UnknownGpu
        `unknown_part` says so beforehand.
    """
    one = configuration
    model = model_facts(one.model_name, one.model_parameters)
    gpu = gpu_facts(one.gpu_model)
    passes = micro_batches(one)
    memory = gpu_memory(one)
    available = memory.available_gb
    options = [(o.name, o.value) for o in one.options if o.name not in _COUNTED_OPTIONS]
    return FeatureRow(
        numbers=(
            math.log(model.active_parameters),
            math.log(model.parameters),
            math.log(trainable_parameters(one, model)),
            math.log(one.batch_size / (data_parallel_gpus(one) * passes)),
            math.log(one.tokens_per_sample),
            math.log(one.gpus),
            math.log(one.nodes),
            math.log(passes),
            math.log(gpu.dense_tflops),
            math.log(gpu.memory_gb_per_s),
            math.log(memory.total_gb / available),
            math.log((memory.weights_gb + memory.optimiser_gb) / available),
            math.log((memory.activations_gb + memory.logits_gb) / available),
            1.0 if one.method.quantised else 0.0,
        ),
        categories=(
            ("model", model.name),
            ("method", one.method.value),
            ("gpu", gpu.name),
            ("precision", one.precision),
            ("expert_parallel", str(one.expert_parallel)),
            *options,
        ),
        memory_gb=memory.total_gb,
    )


def table_of(configurations: Sequence[Configuration]) -> FeatureTable:
    """Describe configurations whose parts are all known, in order."""
    rows = [features_of(configuration) for configuration in configurations]
    numbers = np.array([row.numbers for row in rows], dtype=np.float64)
    categories: dict[str, list[str]] = {name: [] for name in CATEGORIES}
    for place, row in enumerate(rows):
        for name, value in row.categories:
            column = categories.setdefault(name, [])
            column.extend([""] * (place - len(column)))
            column.append(value)
    return FeatureTable(
        configurations=tuple(configurations),
        numbers=numbers.reshape(len(rows), len(NUMBERS)),
        categories={
            name: (*values, *[""] * (len(rows) - len(values)))
            for name, values in sorted(categories.items())
        },
        memory_gb=np.array([row.memory_gb for row in rows], dtype=np.float64),
        work=step_work(configurations),
    )
