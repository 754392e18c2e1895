"""Full-information feedback: the whole pool, replayed on what one job was offered."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spotline.application.allocation.tasks import forecast_of
from spotline.application.allocation.value_tables import terms_of
from spotline.application.selector.job_run import JobRun
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.domain.events.selection import PolicyWeight, PolicyWeightsUpdated
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import run_states
from spotline.domain.market.named_law import NamedLaw
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.selection.learner import Draw, Learner, PoolFeedback
from spotline.domain.selection.prior import initial_weights
from spotline.domain.selection.rules import AdaHedge, rule_named, weights_ppb
from spotline.domain.selection.saved import parse_saved
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.value_table import ValueTable
from spotline.domain.units import PPM, cost_micro_usd, micro_usd_from_usd

REALISED = -1
"""`rehearsed_slot` of feedback from a job that ended."""


def learner_of(options: SelectorOptions, pool: Sequence[Policy]) -> Learner:
    """Make the learner that `options` ask for, warm-started where they say so.

    Raises
    ------
    ValueError
        The options do not fit together, or the saved weights do not fit the rule or the pool.
    """
    policy_ids = [policy.policy_id for policy in pool]
    # The paper's rule starts with equal weights, as in the paper.
    prior = initial_weights(policy_ids) if options.rule == AdaHedge.name else None
    gap = 0.0
    if options.warm_start and len(pool) > 1:
        saved = parse_saved(options.warm_start)
        if saved.rule != options.rule:
            raise ValueError(
                f"weights were saved by the rule {saved.rule}, the selector's is {options.rule}: "
                "save them with the rule that is to use them"
            )
        prior, gap = saved.prior(policy_ids), saved.gap_worth
    rule = rule_named(
        options.rule,
        len(pool),
        decay=options.decay,
        horizon_jobs=options.horizon_jobs,
        prior=prior,
        gap=gap,
    )
    return Learner(rule, policy_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLesson:
    """What a job was offered, slot by slot.

    `draw` is how the job got its policy, None in a rehearsal; `table` its value table, if any.
    `agreed` is that of the paths that counts were sampled on (`CountPaths`).
    """

    job_id: str
    program: JobProgram
    records: Sequence[SlotRecord]
    draw: Draw | None = None
    rehearsed_slot: int = REALISED
    table: ValueTable | None = None
    agreed: float = 1.0


def feedback(
    pool: Sequence[Policy], options: SelectorOptions, learner: Learner, lesson: JobLesson
) -> PolicyWeightsUpdated:
    """Replay the whole pool on what a job was offered, and move `learner` by it.

    Where its counts were only believed, that is on every sampled path, and utilities are the means.
    """
    program, records = lesson.program, lesson.records
    short = program.end_slots - len(records)
    # After the deadline only on-demand runs; its price is taken to stay.
    padded = list(records) + [replace(records[-1], spot_available=0, sampled=())] * max(0, short)
    paths = max((len(record.sampled) for record in padded), default=0)
    utilities = _utilities_micro_usd(pool, program, padded, lesson.table, paths)
    misfit_ppm = math.ceil((1.0 - lesson.agreed) * PPM) if paths else 0
    floor, ceiling = _bounds_micro_usd(options, program, records)
    learner.learn(
        PoolFeedback(
            policy_ids=learner.policy_ids,
            utility_micro_usd=utilities,
            floor_micro_usd=floor,
            ceiling_micro_usd=ceiling,
            sampled_paths=paths,
            misfit_ppm=misfit_ppm,
        ),
        lesson.draw,
    )
    weights = weights_ppb(learner.weights())
    return PolicyWeightsUpdated(
        round=learner.rule.rounds,
        job_id=lesson.job_id,
        rule=learner.rule.name,
        weights=tuple(
            PolicyWeight(
                policy_id=policy.policy_id,
                weight_ppb=weights[index],
                utility_micro_usd=utilities[index],
            )
            for index, policy in enumerate(pool)
        ),
        rehearsed_slot=lesson.rehearsed_slot,
        utility_floor_micro_usd=floor,
        utility_ceiling_micro_usd=ceiling,
        regret=learner.regret(),
        sampled_paths=paths,
        misfit_ppm=misfit_ppm,
    )


def _utilities_micro_usd(
    pool: Sequence[Policy],
    program: JobProgram,
    records: Sequence[SlotRecord],
    table: ValueTable | None,
    paths: int,
) -> tuple[int, ...]:
    fallback = policy_named(FALLBACK_POLICY_ID)
    # What was seen may leave paths alike: each is replayed once.
    alike = Counter(
        tuple(record.on_path(path) for record in records) for path in range(max(1, paths))
    )
    total = [0] * len(pool)
    for seen, times in alike.items():
        for place, result in enumerate(replay_pool(program, seen, pool, fallback, table)):
            total[place] += times * result.utility_micro_usd
    return tuple(each // alike.total() for each in total)


def table_of_run(run: JobRun) -> ValueTable | None:
    """The value table of a job's first home, None where it never had one."""
    table = run.tables.get(run.first_offering_id)
    if table is None or table.stale or not table.is_announced:
        return None
    return table_of(terms_of(table.spec, run.compiled, table.named.law))


def _bounds_micro_usd(
    options: SelectorOptions, program: JobProgram, records: Sequence[SlotRecord]
) -> tuple[int, int]:
    """What scales to 0 and to 1: the options' bounds, or minus the worst cost and the value."""
    floor, ceiling = options.utility_floor_usd, options.utility_ceiling_usd
    if floor or ceiling:
        return micro_usd_from_usd(floor), micro_usd_from_usd(ceiling)
    dearest = max(record.on_demand_price for record in records)
    worst = cost_micro_usd(dearest, program.max_instances, program.slot_s) * program.end_slots
    return -worst, program.value_micro_usd[0]


def rehearse(
    pool: Sequence[Policy],
    options: SelectorOptions,
    state: SelectorState,
    learner: Learner,
    job: Job,
    offering_id: str,
) -> list[PolicyWeightsUpdated]:
    """Replay an arriving job on the market seen so far, while little has been learned on it.

    Where counts are only believed nothing was seen: paths drawn from the belief would teach what it
    held before, with the luck of the draw.
    """
    believed = state.beliefs is not None and offering_id in state.beliefs.offerings
    if len(pool) < 2 or believed:
        return []
    missing = options.rehearsals - learner.rule.rounds
    count = min(missing, options.rehearsals_per_job)
    program = state.program_of(job, offering_id)
    slots = len(state.history)
    room = slots - program.deadline_slots
    if count <= 0 or room < 0 or program.deadline_slots < 1:
        return []
    table = None
    named = state.laws.get(offering_id)
    states: Sequence[int] = [-1] * slots
    if named is not None:
        spec = state.table_spec(named, offering_id, program)
        table = table_of(terms_of(spec, program, named.law))
        states = _run_states(state, offering_id, named)
    starts = sorted({round(i * room / max(1, count - 1)) for i in range(count)})
    events: list[PolicyWeightsUpdated] = []
    for start in starts:
        records = []
        past = state.history[start : start + program.end_slots]
        for (opened, forecast), run_state in zip(past, states[start:], strict=False):
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
                    run_state=run_state,
                )
            )
        first = state.history[start][0].slot
        lesson = JobLesson(
            job_id=job.job_id,
            program=program,
            records=records,
            rehearsed_slot=first,
            table=table,
        )
        events.append(feedback(pool, options, learner, lesson))
    return events


def _run_states(state: SelectorState, offering_id: str, named: NamedLaw) -> Sequence[int]:
    """The run state of every slot of the history."""
    counts = []
    for opened, _ in state.history:
        residual = ResidualCapacity(opened.quotes)
        counts.append(residual.spot(offering_id))
    return [int(one) for one in run_states(named.law.space, counts)]
