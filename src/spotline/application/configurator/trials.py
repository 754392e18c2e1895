"""The configurations that are worth asking a knowledge source about: counts, batches, options."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from spotline.application.admission import MOST_INSTANCES
from spotline.application.configurator.places import MOST_CHOSEN_INSTANCES, Place
from spotline.domain.configuration.configuration import Configuration, Method, MethodOption
from spotline.domain.configuration.gpus import GpuFacts
from spotline.domain.configuration.rules import broken_rules
from spotline.domain.jobs.draft import JobDraft

# The usual way to tune on few GPUs. Cost does not choose it: it changes what is learned.
DEFAULT_METHOD = Method.LORA
DEFAULT_TOKENS_PER_SAMPLE = 2048

# Global batch sizes that fine-tuning recipes use; the smallest is tried however short the job is.
SMALLEST_BATCH = 8
LARGEST_BATCH = 128
# Larger batches are tried only where this many optimiser steps are left of the job.
FEWEST_STEPS = 100

# Place key, batch size, and the options by name and value.
CurveKey: TypeAlias = tuple[str, int, tuple[tuple[str, str], ...]]


def curve_key(place: Place, batch_size: int, options: Sequence[MethodOption]) -> CurveKey:
    """The key of one batch size and set of options at a place."""
    return place.key, batch_size, tuple((option.name, option.value) for option in options)


# --- counts and batches -----------------------------------------------------------------------


def counts_at(draft: JobDraft, place: Place, bound: int) -> tuple[int, ...]:
    """The counts to try on a place, none where what is stated does not fit its instances."""
    if draft.gpus:
        count, rest = divmod(draft.gpus, place.gpus_per_instance)
        if (
            rest
            or count > MOST_INSTANCES
            or (draft.allowed_counts and count != draft.allowed_counts[-1])
        ):
            return ()
        return draft.allowed_counts or (count,)
    return draft.allowed_counts or tuple(range(1, bound + 1))


def _batch_sizes(
    draft: JobDraft,
    counts_by_place: Iterable[tuple[Place, tuple[int, ...]]],
    tokens_per_sample: int,
) -> tuple[int, ...]:
    if draft.batch_size:
        return (draft.batch_size,)
    fixed = bool(draft.gpus or draft.allowed_counts)
    found: set[int] = set()
    for place, counts in counts_by_place:
        if not counts:
            continue
        whole = place.gpus_per_instance * (math.lcm(*counts) if fixed else 1)
        size = whole << max(0, math.ceil(math.log2(SMALLEST_BATCH / whole)))
        found.add(size)
        while (size := 2 * size) <= LARGEST_BATCH:
            if draft.tokens >= FEWEST_STEPS * size * tokens_per_sample:
                found.add(size)
    return tuple(sorted(found))


def tokens_per_sample_of(draft: JobDraft) -> int:
    """The sequence length stated, else the default."""
    return draft.tokens_per_sample or DEFAULT_TOKENS_PER_SAMPLE


def precision_of(draft: JobDraft, gpu: GpuFacts) -> str:
    """The precision stated, else what the GPU computes natively."""
    return draft.precision or ("bfloat16" if gpu.bfloat16 else "float16")


def configuration_on(
    draft: JobDraft, place: Place, count: int, batch_size: int, options: tuple[MethodOption, ...]
) -> Configuration:
    """The configuration of `count` instances of a place, a node each."""
    return Configuration(
        model_name=draft.model_name,
        method=draft.method or DEFAULT_METHOD,
        gpu_model=place.gpu.name,
        gpus=count * place.gpus_per_instance,
        nodes=count,
        tokens_per_sample=tokens_per_sample_of(draft),
        batch_size=batch_size,
        precision=precision_of(draft, place.gpu),
        expert_parallel=draft.expert_parallel or 1,
        model_parameters=draft.model_parameters,
        options=options,
    )


# --- trials -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A configuration to be predicted, and where it belongs."""

    place: Place
    count: int
    configuration: Configuration

    @property
    def key(self) -> CurveKey:
        """The curve it is a point of."""
        configuration = self.configuration
        return curve_key(self.place, configuration.batch_size, configuration.options)


def option_sets_of(
    draft: JobDraft, speed_options: Sequence[MethodOption]
) -> tuple[tuple[MethodOption, ...], ...]:
    """The options stated, else none or all that only change the speed."""
    if draft.options or not speed_options:
        return (draft.options,)
    return ((), tuple(sorted(speed_options, key=lambda option: option.name)))


def trials_of(
    draft: JobDraft, places: Sequence[Place], option_sets: Sequence[tuple[MethodOption, ...]]
) -> tuple[list[Trial], dict[str, str]]:
    """Configurations without a broken rule, and one sentence per field of the rules broken."""
    bound = min(
        MOST_INSTANCES, MOST_CHOSEN_INSTANCES, max(place.most_instances for place in places)
    )
    tried = [(place, counts_at(draft, place, bound)) for place in places]
    batches = _batch_sizes(draft, tried, tokens_per_sample_of(draft))
    # Of free counts most do not divide the batch: they are passed over before anything is built.
    free = not (draft.allowed_counts or draft.gpus)
    rows: list[Trial] = []
    broken: dict[str, str] = {}
    for place, counts in tried:
        for count, batch_size, options in product(counts, batches, option_sets):
            if free and count > 1 and batch_size % (count * place.gpus_per_instance):
                continue
            row = Trial(
                place=place,
                count=count,
                configuration=configuration_on(draft, place, count, batch_size, options),
            )
            faults = _faults(draft, row)
            if not faults:
                rows.append(row)
            for field, message in faults:
                broken.setdefault(field, message)
    return (_whole_sets(draft, rows) if draft.allowed_counts else rows), broken


def _faults(draft: JobDraft, row: Trial) -> list[tuple[str, str]]:
    """Fields and sentences of what is wrong with a configuration before it is tried."""
    found = [(rule.field, rule.message) for rule in broken_rules(row.configuration)]
    beyond = _beyond_stated(draft, row.count)
    return [*found, ("throughputs", beyond)] if beyond else found


def _whole_sets(draft: JobDraft, rows: Sequence[Trial]) -> list[Trial]:
    """Only places and batches on which every stated count may be tried."""
    tried = Counter(row.key for row in rows)
    return [row for row in rows if tried[row.key] == len(draft.allowed_counts)]


def _beyond_stated(draft: JobDraft, count: int) -> str:
    """Which stated throughput has no rate for a count, empty if none: they are all kept."""
    for throughput in draft.throughputs:
        if throughput.table and count > len(throughput.table):
            return (
                f"table on {throughput.offering} must reach {count} instances, "
                f"has {len(throughput.table)}"
            )
        if throughput.rate_per_hour(count) <= 0:
            return f"on {throughput.offering} must be > 0 for {count} instances"
    return ""
