"""The crowd: jobs of a few classes, drawn from a seed.

Classes differ in what they may hold, how tight they are and what a change costs them: overheads of
a sixth of a slot, of a third, and longer than a slot. All are multiples of 300 s, so that the exact
programs of the bound stay small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.application.admission import job_id_for
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
from spotline.domain.market.market import Market
from spotline.domain.units import NS_PER_S, S_PER_HOUR

TENANTS = ("research", "search", "support")
LARGEST_COUNT = 8
LONGEST_SLOTS = 36

_SOFT_SHARE = 0.5
_VALUE_OF_ON_DEMAND = (1.3, 2.0)
_CENT_MICRO_USD = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdClass:
    """What jobs of a kind have in common.

    `deadline_slots` and `tightness` (share of the time to the deadline that the largest count needs
    on demand, before overheads) are drawn between their ends; a job is of each of `TENANTS` with a
    probability of its own. Tenants so differ in which jobs they have.
    """

    name: str
    share: float
    tenants: tuple[float, ...]
    counts: tuple[int, ...]
    deadline_slots: tuple[int, int]
    tightness: tuple[float, float]
    launch_s: int
    shrink_s: int
    migrate_s: int
    interrupted_s: int


CLASSES = (
    CrowdClass(
        name="small", share=0.25, tenants=(0.2, 0.2, 0.6), counts=(1, 2, 4), deadline_slots=(8, 24),
        tightness=(0.40, 0.78), launch_s=300, shrink_s=300, migrate_s=600, interrupted_s=600,
    ),
    CrowdClass(
        name="elastic", share=0.30, tenants=(0.2, 0.6, 0.2), counts=(2, 4, 8), deadline_slots=(8, 24),
        tightness=(0.40, 0.78), launch_s=300, shrink_s=300, migrate_s=600, interrupted_s=600,
    ),
    CrowdClass(
        name="gang", share=0.30, tenants=(0.6, 0.2, 0.2), counts=(8,), deadline_slots=(8, 24),
        tightness=(0.40, 0.78), launch_s=600, shrink_s=300, migrate_s=900, interrupted_s=900,
    ),
    CrowdClass(
        name="heavy", share=0.15, tenants=(0.6, 0.2, 0.2), counts=(4, 8), deadline_slots=(18, 24),
        tightness=(0.35, 0.60), launch_s=2700, shrink_s=900, migrate_s=3600, interrupted_s=3600,
    ),
)  # fmt: skip


def fleet_jobs(
    market: Market,
    n: int,
    seed: int,
    *,
    classes: Sequence[CrowdClass] = CLASSES,
    arriving: int | None = None,
) -> tuple[Job, ...]:
    """Draw `n` jobs that begin and end within a market; equal arguments give equal jobs.

    Half of the deadlines are hard, half soft (worthless after half as long again). Every job can
    meet its deadline on its largest count on demand with one interruption and a slot to spare.
    Values are 1.3 to 2 times what the work costs on the dearest on-demand.

    Parameters
    ----------
    market
        Its slot grid places the jobs; arrivals are uniform over all slots from which a job of its
        length ends within the market, or over the first `arriving` of them.

    Raises
    ------
    ValueError
        `n` < 1, or the market is shorter than a job.
    """
    if n < 1:
        raise ValueError(f"n must be >= 1, was {n}")
    rng = np.random.Generator(np.random.PCG64([seed, n]))
    # Apart, so that whose jobs they are changes nothing else about them.
    whose = np.random.Generator(np.random.PCG64([seed, n, 1]))
    shares = [kind.share for kind in classes]
    drawn = []
    for index in range(n):
        kind = classes[int(rng.choice(len(classes), p=shares))]
        deadline = int(rng.integers(kind.deadline_slots[0], kind.deadline_slots[1] + 1))
        hard = bool(rng.random() >= _SOFT_SHARE)
        end = deadline if hard else deadline + deadline // 2
        tightness = float(rng.uniform(*kind.tightness))
        margin = float(rng.uniform(*_VALUE_OF_ON_DEMAND))
        latest = market.slots - end
        if latest < 0:
            raise ValueError(f"market must have >= {end} slots, had {market.slots}")
        first = int(rng.integers(0, latest + 1 if arriving is None else min(arriving, latest + 1)))
        tenant = TENANTS[int(whose.choice(len(TENANTS), p=kind.tenants))]
        drawn.append((first, index, kind, (deadline, end), tightness, margin, tenant))
    drawn.sort(key=lambda placed: placed[:2])
    return tuple(
        _job(market, kind, first, slots, tightness, margin, (tenant, f"fleet-{seed}-{number:05d}"))
        for number, (first, _, kind, slots, tightness, margin, tenant) in enumerate(drawn)
    )


def instance_slots(job: Job, slot_s: int) -> float:
    """LaidCrowd-slots of work of a job of this crowd."""
    return job.work.amount * S_PER_HOUR / slot_s


def _job(
    market: Market,
    kind: CrowdClass,
    first: int,
    slots: tuple[int, int],
    tightness: float,
    margin: float,
    whose: tuple[str, str],
) -> Job:
    deadline, end = slots
    slot_s, most = market.slot_s, kind.counts[-1]
    free_s = (deadline - 1) * slot_s - kind.launch_s - kind.interrupted_s
    # Whole slots of the largest count, so that work falls on the grid of progress.
    busy = max(1, min(round(deadline * tightness), free_s // slot_s))
    start_ns = market.start_ns + first * slot_s * NS_PER_S
    dearest = int(market.on_demand_price_micro_usd[first].max())
    on_demand = dearest * most * busy * slot_s // S_PER_HOUR
    tenant, request_id = whose
    number = int(request_id.rsplit("-", 1)[-1])
    return Job(
        job_id=job_id_for(tenant, request_id),
        tenant=tenant,
        client_request_id=request_id,
        name=f"{kind.name} {number}",
        work=Work(amount=most * busy * slot_s / S_PER_HOUR, unit="instance_hours"),
        deadline=Deadline(
            kind=DeadlineKind.HARD if deadline == end else DeadlineKind.SOFT,
            at_ns=start_ns + deadline * slot_s * NS_PER_S,
            expires_ns=start_ns + end * slot_s * NS_PER_S,
        ),
        value_micro_usd=round(on_demand * margin / _CENT_MICRO_USD) * _CENT_MICRO_USD,
        start_ns=start_ns,
        allowed_counts=kind.counts,
        throughputs=(Throughput(offering="*", alpha=1.0),),
        topology=Topology.ONE_ZONE,
        checkpoint=Checkpoint(interval_s=900, save_s=30, size_gb=14.0),
        overheads=Overheads(
            launch_s=kind.launch_s,
            grow_s=kind.launch_s,
            shrink_s=kind.shrink_s,
            migrate_s=kind.migrate_s,
            interrupted_s=kind.interrupted_s,
        ),
    )
