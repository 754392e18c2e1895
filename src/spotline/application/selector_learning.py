"""Full-information feedback: the whole pool, replayed on what one job was offered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spotline.application.allocation import forecast_of
from spotline.application.selector_state import SelectorOptions, SelectorState
from spotline.domain.events import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord, replay_policy
from spotline.domain.selection.rules import SelectionRule, normalised_utility, weights_ppb
from spotline.domain.units import cost_micro_usd

REALISED = -1
"""`rehearsed_slot` of feedback from a job that ended."""


def feedback(
    pool: Sequence[Policy],
    rule: SelectionRule,
    job_id: str,
    program: JobProgram,
    records: Sequence[SlotRecord],
    rehearsed_slot: int = REALISED,
) -> PolicyWeightsUpdated:
    """Replay the whole pool on what a job was offered, and move `rule` by it."""
    short = program.end_slots - len(records)
    # After the deadline only on-demand runs; its price is taken to stay.
    padded = list(records) + [replace(records[-1], spot_available=0)] * max(0, short)
    fallback = policy_named(FALLBACK_POLICY_ID)
    utilities = np.array(
        [replay_policy(program, padded, policy, fallback).utility_micro_usd for policy in pool],
        dtype=np.int64,
    )
    dearest = max(record.on_demand_price for record in records)
    worst = cost_micro_usd(dearest, program.max_instances, program.slot_s) * program.end_slots
    ceiling = program.value_micro_usd[0]
    rule.update(normalised_utility(utilities, floor_micro_usd=-worst, ceiling_micro_usd=ceiling))
    weights = weights_ppb(rule.weights())
    return PolicyWeightsUpdated(
        round=rule.rounds,
        job_id=job_id,
        rule=rule.name,
        weights=tuple(
            PolicyWeight(
                policy_id=policy.policy_id,
                weight_ppb=weights[index],
                utility_micro_usd=int(utilities[index]),
            )
            for index, policy in enumerate(pool)
        ),
        rehearsed_slot=rehearsed_slot,
        utility_floor_micro_usd=-worst,
        utility_ceiling_micro_usd=ceiling,
    )


def rehearse(
    pool: Sequence[Policy],
    options: SelectorOptions,
    state: SelectorState,
    rule: SelectionRule,
    job: Job,
    offering_id: str,
) -> list[PolicyWeightsUpdated]:
    """Replay an arriving job on the market seen so far, while little has been realised."""
    missing = options.rehearsals - rule.rounds
    count = min(missing, options.rehearsals_per_job)
    program = state.program_of(job, offering_id)
    slots = len(state.history)
    room = slots - program.deadline_slots
    if count <= 0 or room < 0 or program.deadline_slots < 1:
        return []
    starts = sorted({round(i * room / max(1, count - 1)) for i in range(count)})
    events: list[PolicyWeightsUpdated] = []
    for start in starts:
        records = []
        for opened, forecast in state.history[start : start + program.end_slots]:
            quotes = {sq.quote.offering_id: sq.quote for sq in opened.quotes}
            quote = quotes[offering_id]
            residual = ResidualCapacity(opened.quotes)
            records.append(
                SlotRecord(
                    spot_price=quote.spot_price_micro_usd,
                    on_demand_price=quote.on_demand_price_micro_usd,
                    spot_available=residual.spot(offering_id),
                    on_demand_available=residual.on_demand(offering_id),
                    forecast=forecast_of(forecast, quote),
                )
            )
        first = state.history[start][0].slot
        events.append(feedback(pool, rule, job.job_id, program, records, first))
    return events
