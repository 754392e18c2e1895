"""What other rules would have cost a job until now, on what the market offered it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotline.application.allocation.tasks import program_of
from spotline.application.board.offers import OFFER_WIDTH, JobOffers
from spotline.application.market_view import MarketFold
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.measured import planned_lead_s
from spotline.domain.jobs.program import JobProgram
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.msu import MaximalSpotUtilisation
from spotline.domain.policies.on_demand_only import OnDemandOnly
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord

_RULES = (OnDemandOnly(), MaximalSpotUtilisation())


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCosts:
    """What other rules would have cost a job until now, micro-USD; 0 where it cannot be told."""

    on_demand_micro_usd: int = 0
    msu_micro_usd: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLives:
    """What replaying needs, taken at one moment: a thread may work on it while the fold goes on."""

    program: JobProgram
    records: tuple[SlotRecord, ...]


def other_lives(offers: JobOffers | None, job: Job, market: MarketFold) -> OtherLives | None:
    """What replaying a job on what it was offered needs; None where that was offered to no one job.

    It cannot be told of a job that has moved to where it runs at other rates, or of one that was
    over so long ago that its offers are forgotten.
    """
    opened = market.opened
    if offers is None or not offers.slots or opened is None:
        return None
    programs = {_program(offers, job, market, home) for home in offers.homes}
    if len(programs) != 1:
        return None
    program = programs.pop()
    if program is None:
        return None
    rows = offers.rows
    records = tuple(
        SlotRecord(
            spot_price=rows[at],
            on_demand_price=rows[at + 1],
            spot_available=rows[at + 2],
            on_demand_available=rows[at + 3],
            forecast=None,
            reserve_slots=rows[at + 4],
            rescue_instances=rows[at + 5],
        )
        for at in range(0, len(rows), OFFER_WIDTH)
    )
    # What came after the deadline of a job that was over is as the selector's feedback takes it.
    passed = min(opened.slot - offers.first_slot, program.end_slots)
    late = replace(records[-1], spot_available=0)
    return OtherLives(program=program, records=(*records, *[late] * max(0, passed - len(records))))


def other_costs(lives: OtherLives) -> OtherCosts:
    """Replay on-demand alone and the MSU rule. Milliseconds; longer while kernels are compiled."""
    fallback = policy_named(FALLBACK_POLICY_ID)
    on_demand, msu = replay_pool(lives.program, lives.records, _RULES, fallback)
    return OtherCosts(
        on_demand_micro_usd=on_demand.cost_micro_usd, msu_micro_usd=msu.cost_micro_usd
    )


def _program(
    offers: JobOffers, job: Job, market: MarketFold, offering_id: str
) -> JobProgram | None:
    for offering in market.offerings:
        if offering.offering_id == offering_id:
            if job.throughput_on(offering_id, offering.instance_type) is None:
                return None
            return program_of(
                job,
                offering_id,
                offering.instance_type,
                market.slot_s,
                offers.first_slot_start_ns,
                planned_lead_s(job, offering.notice_lead_s),
            )
    return None
