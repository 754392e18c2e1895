"""H(n): how the rate of a job grows with instances, from any knowledge source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

import numpy as np

from spotline.domain.configuration.configuration import Configuration, NoPrediction, Prediction
from spotline.domain.configuration.interface import KnowledgeSource
from spotline.domain.units import S_PER_HOUR

# A line that misses a predicted rate by more than this is replaced by the table: the noise between
# two runs of one configuration, and far below what a plan could notice.
LINEAR_TOLERANCE_PERCENT = 2.0
# Counts that are likelier to fail than to run have no rate.
FEWEST_CHANCES = 0.5


class ScalingMode(Enum):
    """What stays the same on more GPUs: each one's batch, or the batch over all of them."""

    WEAK = "weak"
    CONSTANT_GLOBAL = "constant_global"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRate:
    """The rate on some instances, tokens per hour, with its 90 % interval."""

    instances: int
    configuration: Configuration
    tokens_per_hour: float
    low_tokens_per_hour: float
    high_tokens_per_hour: float
    success_probability: float
    measured: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedCount:
    """A number of instances that was left out, and why."""

    instances: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Rates by number of instances and what a scheduler makes of them.

    Attributes
    ----------
    rates
        Ascending by instances; counts that break a rule or are likely to fail are in `skipped`.
    alpha, beta
        Least squares: tokens per hour = alpha * instances + beta. With one count beta is 0.
    residual_percent
        Largest miss of the line, in percent of the predicted rate.
    linear
        The line misses no rate by more than `LINEAR_TOLERANCE_PERCENT` and alpha is positive;
        beta is at least -alpha, so that one instance has no negative rate.
    table
        H(1) .. H(largest count) in tokens per hour. Counts that were not asked for are
        interpolated, those below the least one that runs are 0, and one that was skipped has
        the rate of the next smaller one that runs: the rest of the instances idle.
    """

    mode: ScalingMode
    rates: tuple[CountRate, ...]
    skipped: tuple[SkippedCount, ...]
    alpha: float
    beta: float
    residual_percent: float
    linear: bool
    table: tuple[float, ...]


def configuration_at(
    configuration: Configuration,
    instances: int,
    gpus_per_instance: int,
    mode: ScalingMode,
    *,
    gpus_per_node: int = 0,
) -> Configuration:
    """The same job on another number of instances.

    Notes
    -----
    Each instance is a node, unless `gpus_per_node` says that several share one.
    Weak scaling keeps the samples per GPU; where the batch does not divide by the GPUs it was
    given for, the nearest whole number >= 1 of samples is meant.
    """
    gpus = instances * gpus_per_instance
    batch = configuration.batch_size
    if mode is ScalingMode.WEAK:
        batch = max(1, round(configuration.batch_size / configuration.gpus)) * gpus
    nodes = -(-gpus // gpus_per_node) if gpus_per_node else instances
    return replace(configuration, gpus=gpus, nodes=nodes, batch_size=batch)


def scaling_of(
    source: KnowledgeSource,
    configuration: Configuration,
    gpus_per_instance: int,
    counts: Sequence[int],
    mode: ScalingMode = ScalingMode.WEAK,
    stack: str = "",
    *,
    gpus_per_node: int = 0,
) -> Scaling | NoPrediction:
    """Ask a source for the rate at several numbers of instances and fit H(n).

    Parameters
    ----------
    gpus_per_instance
        GPUs of the instance type, >= 1.
    counts
        Numbers of instances, >= 1, in any order.
    gpus_per_node
        GPUs that share a node's links; 0: an instance is a node.

    Returns
    -------
    Scaling
        Some count can be predicted and is likelier to run than to fail.
    NoPrediction
        None; the first reason.

    Raises
    ------
    ValueError
        There are no counts, or a number is < 1.
    """
    asked = sorted(set(counts))
    if not asked or asked[0] < 1:
        raise ValueError(f"counts must be at least one number >= 1, were {list(counts)}")
    if gpus_per_instance < 1:
        raise ValueError(f"gpus_per_instance must be >= 1, was {gpus_per_instance}")
    configurations = [
        configuration_at(configuration, count, gpus_per_instance, mode, gpus_per_node=gpus_per_node)
        for count in asked
    ]
    answers = source.predict(configurations, stack=stack)
    rates: list[CountRate] = []
    skipped: list[SkippedCount] = []
    for count, one, answer in zip(asked, configurations, answers, strict=True):
        if isinstance(answer, NoPrediction):
            skipped.append(SkippedCount(instances=count, reason=answer.reason))
        elif answer.success_probability < FEWEST_CHANCES:
            percent = 100 * answer.success_probability
            reason = f"runs with a probability of {percent:.0f} % only"
            skipped.append(SkippedCount(instances=count, reason=reason))
        else:
            rates.append(_count_rate(count, one, answer))
    if not rates:
        return NoPrediction(source_id=source.source_id, reason=skipped[0].reason)
    return fit_scaling(mode, tuple(rates), tuple(skipped))


def _count_rate(instances: int, one: Configuration, said: Prediction) -> CountRate:
    return CountRate(
        instances=instances,
        configuration=one,
        tokens_per_hour=said.tokens_per_s * S_PER_HOUR,
        low_tokens_per_hour=said.low_tokens_per_s * S_PER_HOUR,
        high_tokens_per_hour=said.high_tokens_per_s * S_PER_HOUR,
        success_probability=said.success_probability,
        measured=said.measured,
    )


def fit_scaling(
    mode: ScalingMode, rates: tuple[CountRate, ...], skipped: tuple[SkippedCount, ...] = ()
) -> Scaling:
    """Fit the line and build the table from rates, ascending by instances; at least one."""
    counts = [rate.instances for rate in rates]
    values = [rate.tokens_per_hour for rate in rates]
    alpha, beta = fit_line(counts, values)
    missed = missed_percent(alpha, beta, counts, values)
    increasing = all(before < after for before, after in pairwise(values))
    linear = missed <= LINEAR_TOLERANCE_PERCENT and alpha > 0 and alpha + beta >= 0 and increasing
    return Scaling(
        mode=mode,
        rates=rates,
        skipped=skipped,
        alpha=alpha,
        beta=beta,
        residual_percent=missed,
        linear=linear,
        table=_table(rates, skipped),
    )


def fit_line(counts: Sequence[int], rates: Sequence[float]) -> tuple[float, float]:
    """Least-squares alpha and beta of rate = alpha * count + beta; beta is 0 with one count."""
    if len(counts) == 1:
        return rates[0] / counts[0], 0.0
    mean_count = math.fsum(counts) / len(counts)
    mean_rate = math.fsum(rates) / len(rates)
    alpha = math.fsum(
        (count - mean_count) * (rate - mean_rate) for count, rate in zip(counts, rates, strict=True)
    ) / math.fsum((count - mean_count) ** 2 for count in counts)
    return alpha, mean_rate - alpha * mean_count


def missed_percent(
    alpha: float, beta: float, counts: Sequence[int], rates: Sequence[float]
) -> float:
    """Largest miss of a line, in percent of the rate."""
    return 100.0 * max(
        abs(alpha * count + beta - rate) / rate for count, rate in zip(counts, rates, strict=True)
    )


def _table(rates: tuple[CountRate, ...], skipped: tuple[SkippedCount, ...]) -> tuple[float, ...]:
    counts = [rate.instances for rate in rates]
    values = [rate.tokens_per_hour for rate in rates]
    left_out = {left.instances for left in skipped}
    table: list[float] = []
    for count in range(1, counts[-1] + 1):
        if count < counts[0]:
            table.append(0.0)
        elif count in left_out:
            table.append(table[-1])
        else:
            table.append(float(np.interp(count, counts, values)))
    return tuple(table)
