"""The closed loop without a broker: jobs on a market, under any policy, with the same accounting.

Only `spotline` moves jobs between offerings; a policy asked for by its name runs where a job was
placed. The clairvoyant of a job that moved is the better one of two: where the job was placed, and
where it was in each slot, moving being free.

By default every job runs alone: all policies meet the same jobs on the same market, and one
job's luck is not another's loss. With contention all jobs of a policy share the market in the
selector's order of (slack, job id), and each policy's clairvoyant gets what its jobs were left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from spotline.application.allocation.tasks import program_of
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.offering_choice import best_offering
from spotline.application.selector.options import SelectorOptions
from spotline.contracts.errors import ContractError
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.unattended import without_program
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.market import Market
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import (
    Clairvoyant,
    SlotRecord,
    clairvoyant_optimum,
    replay_policy,
)
from spotline.domain.selection.learner import Learner
from spotline.domain.solvers.table_store import table_of
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable
from spotline.replay.closed_loop import no_digest, run_rule
from spotline.replay.clouds import Information, TellingCloud
from spotline.replay.course import MarketCourse, course_of, coverage, first_slot
from spotline.replay.parts import answer_each_alone, answer_in_process
from spotline.replay.selector_run import run_selector
from spotline.replay.summary import (
    SPOTLINE,
    JobLife,
    PolicySummary,
    life_of,
    optimum_of,
    summarise,
    summarise_clairvoyant,
)

_NOWHERE = "can run only on reservations that are too small or end before it can be done"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """How a simulation runs; equal options give equal lives.

    `seed` varies which policies are drawn, `horizon_slots` is how far forecasts reach, `selector`
    how `spotline` behaves. Rates of decisions count the time that policies take, not that of
    forecasting, learning or the loop. Where `information` is withheld, every policy runs in the
    loop, against a cloud that refuses and takes back, and the clairvoyant is that of a job alone on
    its best offering.
    """

    contention: bool = False
    information: Information = Information.FULL
    seed: int = 0
    horizon_slots: int = 6
    selector: SelectorOptions = field(default_factory=SelectorOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationReport:
    """Every policy's numbers, the clairvoyant's, and the lives behind them by policy.

    `learner` is what `spotline` had learned in the end, None where it did not run.
    """

    jobs: int
    policies: Mapping[str, PolicySummary]
    clairvoyant: PolicySummary
    lives: Mapping[str, tuple[JobLife, ...]]
    learner: Learner | None = None

    def as_json(self) -> dict[str, object]:
        """The report as `spotline simulate --json` writes it."""
        return {
            "jobs": self.jobs,
            "policies": {name: summary.as_json() for name, summary in self.policies.items()},
            "clairvoyant": self.clairvoyant.as_json(),
        }


def simulate(
    market: Market,
    jobs: Sequence[Job],
    policies: Sequence[str],
    *,
    forecaster: str = DEFAULT_FORECASTER,
    options: SimulationOptions | None = None,
) -> SimulationReport:
    """Run every job under every policy, and the clairvoyant optimum.

    Forecasts are issued slot by slot as the service does, once for all policies.

    Parameters
    ----------
    policies
        Names of the registry, `spotline`, or `all` for the pool, the baselines and `spotline`.

    Raises
    ------
    ContractError
        There are no jobs, a policy or forecaster is unknown, or a job's life does not lie within
        the market (see `coverage`).
    """
    options = options or SimulationOptions()
    names = expand_names(policies)
    if not jobs:
        raise ContractError("jobs", "there must be at least one")
    jobs = [without_program(job) for job in jobs]
    for job in jobs:
        problem = coverage(market, job)
        if problem:
            raise ContractError(f"job {job.name or job.job_id}", problem)
    course = course_of(market, forecaster, options.horizon_slots, options.information)
    if options.information is not Information.FULL:
        return _withheld(course, jobs, names, options)
    if options.contention:
        return _shared(course, jobs, names, options)
    return _alone(course, jobs, names, options)


def expand_names(policies: Sequence[str]) -> tuple[str, ...]:
    """Policy names in the order asked for, without repeats; `all` is the pool and `spotline`.

    Raises
    ------
    ContractError
        None is named, or one is unknown.
    """
    names: list[str] = []
    for name in policies:
        if name == "all":
            names += [*(policy.policy_id for policy in POOL), SPOTLINE]
            continue
        if name != SPOTLINE:
            try:
                policy_named(name)
            except KeyError as error:
                raise ContractError("policy", f"{error.args[0]}, spotline or all") from error
        names.append(name)
    if not names:
        raise ContractError("policy", "name at least one, such as spotline,msu or all")
    return tuple(dict.fromkeys(names))


# --- every job alone --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A job where the selector would run it, and all it will be offered there."""

    job: Job
    program: JobProgram
    records: tuple[SlotRecord, ...]
    table: ValueTable | None


def _placed(course: MarketCourse, job: Job, selector: SelectorOptions) -> _Placed:
    market = course.market
    first = first_slot(market, job)
    offerings = {offering.offering_id: offering for offering in market.offerings}
    past = course.slots[max(0, first - selector.history_slots) : first]
    chosen = best_offering(job, offerings, course.slots[first], past)
    if chosen is None:
        raise ContractError(f"job {job.name or job.job_id}", _NOWHERE)
    program = program_of(
        job,
        chosen,
        offerings[chosen].instance_type,
        market.slot_s,
        course.slots[first].ts_event_ns,
        offerings[chosen].notice_lead_s,
    )
    records = course.offers[chosen][first : first + program.end_slots]
    law = _law_known(course, chosen, first)
    if law is None or not records:
        return _Placed(job=job, program=program, records=records, table=None)
    terms = TableTerms(
        program=program,
        law=law,
        on_demand_price=records[0].on_demand_price,
        on_demand_available=records[0].on_demand_available,
        even_cells=selector.even_cells,
    )
    counts = [record.spot_available for record in course.offers[chosen][: first + len(records)]]
    states = run_states(law.space, counts)[first:]
    # As in the services, the table is not ready yet when the first slot is decided.
    stated = [replace(r, run_state=int(s)) for r, s in zip(records[1:], states[1:], strict=True)]
    return _Placed(job=job, program=program, records=(records[0], *stated), table=table_of(terms))


def _law_known(course: MarketCourse, offering_id: str, first: int) -> MarketLaw | None:
    """The law of an offering that was learned last before a slot opened."""
    for slot in range(first - 1, -1, -1):
        for learned in course.issued[slot].laws if slot in course.issued else ():
            if learned.offering_id == offering_id:
                return learned.named.law
    return None


def _alone(
    course: MarketCourse, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
) -> SimulationReport:
    placed = [_placed(course, job, options.selector) for job in jobs]
    optima = [clairvoyant_optimum(each.program, each.records) for each in placed]
    fallback = policy_named(FALLBACK_POLICY_ID)
    named = {name: policy_named(name) for name in names if name != SPOTLINE}
    lives: dict[str, list[JobLife]] = {name: [] for name in names}
    decided = dict.fromkeys(names, 0)
    spent_s = dict.fromkeys(names, 0.0)
    # Job by job: policies that plan alike then share their window plans.
    for each in placed:
        for name, policy in named.items():
            began_s = perf_counter()
            result = replay_policy(each.program, each.records, policy, fallback, each.table)
            spent_s[name] += perf_counter() - began_s
            decided[name] += len(result.holdings)
            lives[name].append(life_of(each.job, name, result))
    learner = None
    if SPOTLINE in lives:
        selected = run_selector(
            course,
            jobs,
            SelectHandler(replace(options.selector, competing=False), digest=no_digest),
            answer_each_alone,
            options.seed,
        )
        lives[SPOTLINE] = selected.lives(jobs)
        decided[SPOTLINE] = selected.watched.decisions
        spent_s[SPOTLINE] = selected.deciding_s
        learner = selected.state.learner
        optima = [
            _better(optimum, selected.optimum(job.job_id))
            if selected.moved(job.job_id)
            else optimum
            for job, optimum in zip(jobs, optima, strict=True)
        ]
    best = optimum_of(optima)
    return SimulationReport(
        jobs=len(jobs),
        policies={
            name: summarise(lives[name], best, decisions_per_s=_rate(decided[name], spent_s[name]))
            for name in names
        },
        clairvoyant=summarise_clairvoyant(jobs, optima),
        lives={name: tuple(lives[name]) for name in names},
        learner=learner,
    )


def _better(optimum: Clairvoyant, other: Clairvoyant) -> Clairvoyant:
    return other if other.upper_utility_micro_usd > optimum.upper_utility_micro_usd else optimum


# --- all jobs together ------------------------------------------------------------------------


def _shared(
    course: MarketCourse, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
) -> SimulationReport:
    summaries: dict[str, PolicySummary] = {}
    clairvoyants: dict[str, PolicySummary] = {}
    lives: dict[str, tuple[JobLife, ...]] = {}
    learner = None
    for name in names:
        selected = run_rule(course, jobs, name, options.selector, options.seed)
        if name == SPOTLINE:
            learner = selected.state.learner
        optima = [selected.optimum(job.job_id) for job in jobs]
        lives[name] = tuple(selected.lives(jobs))
        clairvoyants[name] = summarise_clairvoyant(jobs, optima)
        summaries[name] = summarise(
            lives[name],
            optimum_of(optima),
            decisions_per_s=_rate(selected.watched.decisions, selected.deciding_s),
        )
    shown = SPOTLINE if SPOTLINE in clairvoyants else names[0]
    return SimulationReport(
        jobs=len(jobs),
        policies=summaries,
        clairvoyant=clairvoyants[shown],
        lives=lives,
        learner=learner,
    )


# --- jobs that are not told ------------------------------------------------------------------


def _withheld(
    course: MarketCourse, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
) -> SimulationReport:
    summaries: dict[str, PolicySummary] = {}
    lives: dict[str, tuple[JobLife, ...]] = {}
    optima = [_alone_optimum(course, job) for job in jobs]
    learner = None
    selector = replace(
        options.selector,
        competing=options.contention,
        # Jobs that are not told what there is stay where they are.
        moves=False,
        # In a market that moves in mid-slot, spot taken now may be gone before it has worked.
        spot_firm=options.information is not Information.DECIDE_FIRST,
    )
    for name in names:
        handler = SelectHandler(selector, digest=no_digest)
        if name != SPOTLINE:
            alone = replace(selector, rehearsals=0)
            handler = SelectHandler(alone, digest=no_digest, pool=(policy_named(name),))
        cloud = TellingCloud(course.real, options.information, sharing=options.contention)
        answer = answer_in_process if options.contention else answer_each_alone
        selected = run_selector(course, jobs, handler, answer, options.seed, cloud=cloud)
        if name == SPOTLINE:
            learner = selected.state.learner
        lives[name] = tuple(selected.lives(jobs))
        summaries[name] = summarise(
            lives[name],
            optimum_of(optima),
            decisions_per_s=_rate(selected.watched.decisions, selected.deciding_s),
        )
    return SimulationReport(
        jobs=len(jobs),
        policies=summaries,
        clairvoyant=summarise_clairvoyant(jobs, optima),
        lives=lives,
        learner=learner,
    )


def _alone_optimum(course: MarketCourse, job: Job) -> Clairvoyant:
    """The best a job could have had on any one offering, alone and knowing everything."""
    market = course.market
    first = first_slot(market, job)
    optima = []
    for offering in market.offerings:
        if job.throughput_on(offering.offering_id, offering.instance_type) is None:
            continue
        program = program_of(
            job,
            offering.offering_id,
            offering.instance_type,
            market.slot_s,
            course.slots[first].ts_event_ns,
            offering.notice_lead_s,
        )
        records = course.offers[offering.offering_id][first : first + program.end_slots]
        optima.append(clairvoyant_optimum(program, records))
    return max(optima, key=lambda optimum: optimum.upper_utility_micro_usd)


def _rate(decided: int, spent_s: float) -> float:
    return decided / spent_s if spent_s > 0 else 0.0
