"""Why a job missed its hard deadline: the slot after which nothing could save it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spotline.bench.quality.cells import CLAIRVOYANT, SPOTLINE, Cell
from spotline.bench.quality.episodes import program_of, table_for
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.law import run_states
from spotline.domain.policies.decision import after_slot, is_safe
from spotline.domain.policies.interface import PolicyView
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy

_MOST_LISTED = 20


def listed_misses(cell: Cell, policies: Sequence[str]) -> list[dict[str, object]]:
    """The misses of a cell, the first `_MOST_LISTED` of every policy.

    `deciding_slot` counts from 1 in the job's life; `impossible` says that even the clairvoyant
    missed the deadline.
    """
    return [
        _miss(cell, policy, job)
        for policy in policies
        if policy != CLAIRVOYANT
        for job in cell.late(policy)[:_MOST_LISTED].tolist()
    ]


def _miss(cell: Cell, policy: str, job: int) -> dict[str, object]:
    course = cell.courses[int(cell.hard.series[job])]
    start = int(cell.hard.start[job])
    program = program_of(
        cell.regime,
        cell.family.size,
        cell.deadline_slots,
        course.series.on_demand_price,
        hard=True,
    )
    law = course.frozen[0].law
    market = replace(course.market, run_state=run_states(law.space, course.market.spot_available))
    records = market.records(start, program.end_slots)
    name = policy
    if policy == SPOTLINE:
        drawn = [
            column for column in range(len(cell.policy_ids)) if not cell.hard.on_time[job, column]
        ]
        name = cell.policy_ids[max(drawn, key=lambda c: float(cell.served.weights[job, c]))]
    result = replay_policy(
        program,
        records,
        policy_named(name),
        policy_named(FALLBACK_POLICY_ID),
        table_for(program, law, course.market),
    )
    return {
        "family": cell.regime.named(cell.family.name),
        "deadline_slots": cell.deadline_slots,
        "policy": policy,
        "drawn": name,
        "series": course.series.name,
        "world": course.series.world,
        "start_slot": start,
        "deciding_slot": deciding_slot(program, records, result.holdings),
        "impossible": not clairvoyant_optimum(program, records).result.on_time,
    }


def deciding_slot(
    program: JobProgram, records: Sequence[SlotRecord], holdings: Sequence[Holding]
) -> int:
    """The first slot, from 1, after which on-demand alone could no longer meet the deadline.

    0 where the job was never lost. A slot that opens lost already counts as the one before it.
    """
    state = JobProgress()
    for elapsed, (record, holding) in enumerate(zip(records, holdings, strict=False)):
        view = PolicyView(
            program=program,
            elapsed_slots=elapsed,
            state=state,
            interrupted=state.holding.spot > record.spot_available,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=record.spot_available,
            on_demand_available=record.on_demand_available,
            forecast=None,
            slot_left_s=program.slot_s,
        )
        if not is_safe(view, holding):
            return elapsed + 1
        state = after_slot(view, holding)
    return 0
