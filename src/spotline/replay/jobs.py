"""Jobs to try a market with: mixed sizes, gangs, deadlines and tightness, from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spotline.application.admission import job_id_for
from spotline.domain.configuration.gpus import GpuFacts, UnknownGpu, gpu_facts
from spotline.domain.configuration.models import model_facts
from spotline.domain.jobs.draft import JobDraft
from spotline.domain.jobs.job import (
    Checkpoint,
    Deadline,
    DeadlineKind,
    Job,
    Overheads,
    Throughput,
    Topology,
    Work,
)
from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.units import NS_PER_S, S_PER_HOUR

_DAY_S = 24 * S_PER_HOUR
_TENANTS = ("research", "search", "support")

_SHORTEST_SLOTS, _LONGEST_SLOTS = 8, 24
_SMALLEST_GANG, _LARGEST_GANG = 4, 12

# Their halves and the slot of half an hour share a large divisor, so exact programs stay small.
_LAUNCH_S = (180, 240, 300, 360)

# Share of the time to the deadline that the largest count needs on demand.
_TIGHTNESS = (0.40, 0.78)
_VALUE_OF_ON_DEMAND = (1.3, 2.0)
_SOFT_SHARE = 0.5
_CENT_MICRO_USD = 10_000

# Models that fit a GPU of that many GB when LoRA-tuned, largest first.
_DRAFT_MODELS = (("granite-3.1-8b", 40.0), ("granite-3.1-2b", 0.0))
_DRAFT_SLOTS = 96
_DRAFT_INSTANCES = 4
_DRAFT_TIGHTNESS = 0.35
_DRAFT_STREAM = 4
# Share of a data sheet's arithmetic that fine-tuning usually reaches.
_USUAL_EFFICIENCY = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What is drawn for a job before its place in the market."""

    deadline_slots: int
    end_slots: int
    hard: bool
    allowed_counts: tuple[int, ...]
    instance_slots: int
    launch_s: int
    margin: float


def generated_jobs(market: Market, n: int, seed: int) -> tuple[Job, ...]:
    """Draw `n` jobs for a market; the same arguments give the same jobs.

    Half of the deadlines are hard, half soft (worthless after half as long again). Every job can
    meet its deadline on the largest count on demand from its first slot, with a slot to spare, and
    ends a slot before the market does. Arrivals come after a warm-up of a day, or of a quarter of
    a market shorter than four days.

    Parameters
    ----------
    market
        Its slot grid places the jobs; values follow its on-demand prices (USD) at arrival.
    n
        Number of jobs, >= 1.
    seed
        Seed of numpy's PCG64, >= 0.

    Returns
    -------
    tuple of Job
        By start; deadlines are 8 to 24 slots after it, fewer in a market that is too short.

    Raises
    ------
    ValueError
        `n` < 1, `seed` < 0, or the market is shorter than 16 slots or has no on-demand capacity.
    """
    if n < 1 or seed < 0:
        raise ValueError(f"n must be >= 1 and seed >= 0, were {n} and {seed}")
    if market.slots < 2 * _SHORTEST_SLOTS:
        raise ValueError(f"market must have >= {2 * _SHORTEST_SLOTS} slots, had {market.slots}")
    rng = np.random.Generator(np.random.PCG64(seed))
    largest = _largest_gang(market)
    warm_up = min(_DAY_S // market.slot_s, market.slots // 4)
    longest = min(_LONGEST_SLOTS, (market.slots - 1 - warm_up) * 2 // 3)
    drawn = []
    for index in range(n):
        shape = _shape(rng, market.slot_s, longest, largest)
        first = int(rng.integers(warm_up, market.slots - shape.end_slots))
        drawn.append((first, index, shape))
    drawn.sort(key=lambda placed: placed[:2])
    return tuple(
        _job(market, first, shape, f"generated-{seed}-{number:04d}", _TENANTS[number % 3])
        for number, (first, _, shape) in enumerate(drawn)
    )


def generated_draft(market: Market, seed: int) -> JobDraft | None:
    """Draw a fine-tuning job that states only model, tokens, deadline and value; None for no GPU.

    Its deadline is hard, `_DRAFT_SLOTS` slots after a start in the second quarter of what is left
    after the warm-up. A few instances would do the work in a third of it, if the GPUs reached
    the usual share of their data sheet; its value is twice what that costs on demand.

    Parameters
    ----------
    market
        As for `generated_jobs`; the model is chosen to fit the smallest of its known GPUs.
    seed
        Seed of numpy's PCG64, >= 0; the drawings are not those of `generated_jobs`.
    """
    gpus = _known_gpus(market)
    if not gpus:
        return None
    rng = np.random.Generator(np.random.PCG64([seed, _DRAFT_STREAM]))
    model_name = next(
        name for name, least_gb in _DRAFT_MODELS if least_gb <= min(gpu.memory_gb for gpu in gpus)
    )
    warm_up = min(_DAY_S // market.slot_s, market.slots // 4)
    slots = min(_DRAFT_SLOTS, (market.slots - 1 - warm_up) * 2 // 3)
    latest = max(warm_up + 1, (warm_up + market.slots - slots) // 2)
    first = int(rng.integers(warm_up, latest))
    start_ns = int(market.slot_starts_ns()[first])
    end_ns = start_ns + slots * market.slot_s * NS_PER_S
    slowest = min(
        facts.dense_tflops * offering.gpus_per_instance
        for offering in market.offerings
        if (facts := _facts(offering.gpu_model)) is not None
    )
    parameters = model_facts(model_name).active_parameters
    tokens_per_hour = slowest * 1e12 * _USUAL_EFFICIENCY / (6 * parameters) * S_PER_HOUR
    hours = slots * market.slot_s / S_PER_HOUR * _DRAFT_TIGHTNESS
    instance_hours = _DRAFT_INSTANCES * hours
    on_demand = int(market.on_demand_price_micro_usd[first].max()) * instance_hours
    request_id = f"draft-{seed}"
    return JobDraft(
        job_id=job_id_for(_TENANTS[0], request_id),
        tenant=_TENANTS[0],
        client_request_id=request_id,
        name=f"tune {model_name}",
        model_name=model_name,
        tokens=float(f"{tokens_per_hour * instance_hours:.2g}"),
        deadline=Deadline(kind=DeadlineKind.HARD, at_ns=end_ns, expires_ns=end_ns),
        value_micro_usd=round(2 * on_demand / _CENT_MICRO_USD) * _CENT_MICRO_USD,
        start_ns=start_ns,
    )


def _known_gpus(market: Market) -> list[GpuFacts]:
    found = [_facts(offering.gpu_model) for offering in market.offerings]
    return [facts for facts in found if facts is not None]


def _facts(gpu_model: str) -> GpuFacts | None:
    try:
        return gpu_facts(gpu_model)
    except UnknownGpu:
        return None


def _largest_gang(market: Market) -> int:
    known = market.on_demand_available[market.on_demand_provenance != UNKNOWN]
    largest = min(_LARGEST_GANG, int(known.min(initial=_LARGEST_GANG)))
    if largest < 1:
        raise ValueError("market must always have on-demand capacity: it had none in some slot")
    return largest


def _shape(rng: np.random.Generator, slot_s: int, longest: int, largest: int) -> _Shape:
    deadline = int(rng.integers(min(_SHORTEST_SLOTS, longest), longest + 1))
    hard = bool(rng.random() >= _SOFT_SHARE)
    count = int(rng.integers(min(_SMALLEST_GANG, largest), largest + 1))
    # On a fine grid overheads shrink with the jobs, or they would be all there is.
    launch_s = max(2, min(int(rng.choice(_LAUNCH_S)), deadline * slot_s // 8))
    wanted = round(deadline * count * float(rng.uniform(*_TIGHTNESS)))
    # One interruption must never cost the deadline: its overhead and a slot are kept free.
    free_s = (deadline - 1) * slot_s - launch_s - _interrupted_s(launch_s)
    return _Shape(
        deadline_slots=deadline,
        end_slots=deadline if hard else deadline + max(1, deadline // 2),
        hard=hard,
        allowed_counts=_counts(rng, count),
        instance_slots=max(1, min(wanted, count * max(0, free_s) // slot_s)),
        launch_s=launch_s,
        margin=float(rng.uniform(*_VALUE_OF_ON_DEMAND)),
    )


def _counts(rng: np.random.Generator, largest: int) -> tuple[int, ...]:
    """Three in five run on any count, one in five on multiples, one in five whole or not at all."""
    kind = rng.random()
    if kind < 0.2:
        return (largest,)
    if kind < 0.4:
        step = 4 if largest >= 8 else 2
        return tuple(sorted({*range(step, largest + 1, step), largest}))
    return tuple(range(1, largest + 1))


def _interrupted_s(launch_s: int) -> int:
    return launch_s + launch_s // 2


def _job(market: Market, first: int, shape: _Shape, request_id: str, tenant: str) -> Job:
    start_ns = int(market.slot_starts_ns()[first])
    slot_ns = market.slot_s * NS_PER_S
    price = int(market.on_demand_price_micro_usd[first].max())
    on_demand = price * shape.instance_slots * market.slot_s // S_PER_HOUR
    launch_s = shape.launch_s
    return Job(
        job_id=job_id_for(tenant, request_id),
        tenant=tenant,
        client_request_id=request_id,
        name=f"fine-tune {request_id.rsplit('-', 1)[-1]}",
        work=Work(
            amount=round(shape.instance_slots * market.slot_s / S_PER_HOUR, 6),
            unit="instance_hours",
        ),
        deadline=Deadline(
            kind=DeadlineKind.HARD if shape.hard else DeadlineKind.SOFT,
            at_ns=start_ns + shape.deadline_slots * slot_ns,
            expires_ns=start_ns + shape.end_slots * slot_ns,
        ),
        value_micro_usd=round(on_demand * shape.margin / _CENT_MICRO_USD) * _CENT_MICRO_USD,
        start_ns=start_ns,
        allowed_counts=shape.allowed_counts,
        throughputs=(Throughput(offering="*", alpha=1.0),),
        topology=Topology.ONE_ZONE,
        checkpoint=Checkpoint(interval_s=900, save_s=60, size_gb=14.0),
        overheads=Overheads(
            launch_s=launch_s,
            grow_s=launch_s,
            shrink_s=launch_s // 2,
            migrate_s=2 * launch_s,
            interrupted_s=_interrupted_s(launch_s),
        ),
    )
