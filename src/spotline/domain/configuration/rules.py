"""Hard rules: a configuration that breaks one is rejected before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from spotline.domain.configuration.configuration import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenRule:
    """A rule that a configuration breaks: its short name, the field at fault, and a sentence."""

    rule: str
    field: str
    message: str


def broken_rules(configuration: Configuration) -> tuple[BrokenRule, ...]:
    """Say which hard rules a configuration breaks, none where it may be tried.

    Notes
    -----
    batch % gpus, gpus % nodes, gpus % expert_parallel (measured on the public data set of
    30,920 runs by its authors). What merely tends to fail, such as bfloat16 on a GPU without it,
    is for the sources' success probability.
    """
    batch, gpus = configuration.batch_size, configuration.gpus
    nodes, experts = configuration.nodes, configuration.expert_parallel
    broken: list[BrokenRule] = []
    if batch % gpus:
        broken.append(
            BrokenRule(
                rule="batch_divisible_by_gpus",
                field="batch_size",
                message=(
                    f"batch_size must be a multiple of gpus ({gpus}), was {batch}: "
                    "every GPU takes an equal part of the batch"
                ),
            )
        )
    if gpus % nodes:
        broken.append(
            BrokenRule(
                rule="gpus_divisible_by_nodes",
                field="gpus",
                message=(
                    f"gpus must be a multiple of nodes ({nodes}), was {gpus}: "
                    "every node has an equal number of GPUs"
                ),
            )
        )
    if gpus % experts:
        broken.append(
            BrokenRule(
                rule="gpus_divisible_by_expert_parallel",
                field="expert_parallel",
                message=(
                    f"expert_parallel must divide gpus ({gpus}), was {experts}: "
                    "the experts are spread over equal groups of GPUs"
                ),
            )
        )
    return tuple(broken)
