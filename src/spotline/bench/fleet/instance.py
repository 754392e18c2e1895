"""One crowd on one market: what is fair to all policies is made here, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spotline.application.allocation.tasks import program_of
from spotline.application.selector.options import SelectorOptions
from spotline.bench.fleet.jobs import LARGEST_COUNT, LONGEST_SLOTS, fleet_jobs, instance_slots
from spotline.bench.fleet.markets import FleetMarket
from spotline.contracts.errors import ContractError
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.migration import migration_cost
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.market.offering import Offering
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.solvers.joint_bound import JointBound, joint_bound
from spotline.domain.solvers.moving_job import MovingJob, SharedCapacity
from spotline.domain.units import micro_usd_from_usd
from spotline.replay.course import first_slot

# Slots of the reported half that are used at most; a small crowd is put into fewer.
_SPANS = (144, 120, 96, 72, 54)
# Counts of a crowd too small for its market are scaled down to half at least: gangs still fit.
_LEAST_FACTOR = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """So many jobs at such a load on a market, of one seed."""

    market: str
    jobs: int
    load: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LaidCrowd:
    """A crowd laid out.

    `whole` is the scaled market from its beginning to the end of what is reported, whose first slot
    is `begin`; `reported` only the latter. All jobs live within it.
    """

    crowd: Crowd
    whole: Market
    reported: Market
    begin: int
    jobs: tuple[Job, ...]
    factor: float

    @property
    def demanded(self) -> float:
        """LaidCrowd-slots of work."""
        return sum(instance_slots(job, self.whole.slot_s) for job in self.jobs)

    @property
    def load(self) -> float:
        """Demanded instance-slots over those that spot has in the reported slots."""
        return self.demanded / float(self.reported.spot_available.sum())


def lay_instance(source: FleetMarket, crowd: Crowd) -> LaidCrowd:
    """Scale a market until a crowd is its load, on the longest span on which gangs still fit.

    Raises
    ------
    ContractError
        The market is too short.
    """
    begin = source.half
    spans = [span for span in _SPANS if begin + span <= source.market.slots]
    if not spans:
        raise ContractError(
            "--data",
            f"{source.name} must have >= {2 * _SPANS[-1]} slots, has {source.market.slots}",
        )
    for span in spans:
        end = begin + span
        # Jobs are drawn on the market as recorded: their sizes do not depend on its counts.
        jobs = fleet_jobs(source.market.between(begin, end), crowd.jobs, crowd.seed)
        demanded = sum(instance_slots(job, source.market.slot_s) for job in jobs)
        offered = float(source.market.spot_available[begin:end].sum())
        factor = demanded / (crowd.load * max(1.0, offered))
        if factor >= _LEAST_FACTOR:
            break
    scaled = source.scaled(factor, LARGEST_COUNT).between(0, end)
    return LaidCrowd(
        crowd=crowd,
        whole=scaled,
        reported=scaled.between(begin, end),
        begin=begin,
        jobs=jobs,
        factor=factor,
    )


def training_jobs(source: FleetMarket, crowd: Crowd, whole: Market) -> tuple[Job, ...]:
    """Jobs of the same classes for the half that may be learned from, of another seed."""
    first = whole.between(0, source.half)
    if first.slots < LONGEST_SLOTS:
        raise ContractError("--data", f"{source.name} is too short to learn from its first half")
    return fleet_jobs(first, min(crowd.jobs, 240), crowd.seed + 1_000_000)


def bound_of(instance: LaidCrowd, options: SelectorOptions) -> JointBound:
    """The joint clairvoyant of an instance; see `domain/solvers/joint_bound.py`."""
    market = instance.reported
    unknown = market.on_demand_provenance == UNKNOWN
    capacity = SharedCapacity(
        spot_price=market.spot_price_micro_usd,
        on_demand_price=market.on_demand_price_micro_usd,
        spot=market.spot_available,
        on_demand=np.where(unknown, UNCOUNTED, market.on_demand_available),
    )
    return joint_bound([_moving(market, job, options) for job in instance.jobs], capacity)


def programs_of(market: Market, job: Job) -> tuple[JobProgram | None, ...]:
    """The job compiled for every offering from its first slot on, None where it cannot run."""
    start_ns = int(market.slot_starts_ns()[first_slot(market, job)])
    return tuple(
        program_of(
            job,
            offering.offering_id,
            offering.instance_type,
            market.slot_s,
            start_ns,
            offering.notice_lead_s,
        )
        if job.throughput_on(offering.offering_id, offering.instance_type) is not None
        else None
        for offering in market.offerings
    )


def _moving(market: Market, job: Job, options: SelectorOptions) -> MovingJob:
    least = _least_egress_micro_usd_per_gb(market.offerings, options)
    fee = migration_cost(job, egress_micro_usd_per_gb=least)
    return MovingJob(
        job_id=job.job_id,
        programs=programs_of(market, job),
        first_slot=first_slot(market, job),
        migrate_s=fee.overhead_s,
        fee_micro_usd=fee.cost_micro_usd,
    )


def _least_egress_micro_usd_per_gb(offerings: Sequence[Offering], options: SelectorOptions) -> int:
    """What leaving an offering for another costs at least, over all pairs."""
    places = {(o.provider, o.region, o.zone) for o in offerings}
    if len(places) < len(offerings):
        return 0
    regions = {(o.provider, o.region) for o in offerings}
    usd = options.egress_usd_per_gb
    if len(regions) < len(places):
        usd = min(usd, options.zone_egress_usd_per_gb)
    return micro_usd_from_usd(usd)
