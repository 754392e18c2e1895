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

from spotline.application.allocation.allocate import forecast_of, program_of
from spotline.application.allocator.handler import JobsHandler
from spotline.application.forecaster.handler import ForecastHandler
from spotline.application.market_ingest.handler import IngestHandler, IngestOptions
from spotline.application.selector.handler import ALLOCATE_CALL, SelectHandler
from spotline.application.selector.offering_choice import best_offering
from spotline.application.selector.state import SelectorOptions, SelectorState
from spotline.application.spec import Call, Context
from spotline.contracts.errors import ContractError
from spotline.domain.events.event import Event
from spotline.domain.events.forecast import ForecastIssued
from spotline.domain.events.law import MarketLawLearned
from spotline.domain.events.lifecycle import JobOutcome, JobSubmitted
from spotline.domain.events.market import MarketOpened, SlotOpened
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER, forecaster_factory
from spotline.domain.forecasting.trust import ForecastTrust
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import MarketLaw, run_states
from spotline.domain.market.market import Market
from spotline.domain.policies.contention import ResidualCapacity
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import (
    Clairvoyant,
    SlotRecord,
    clairvoyant_optimum,
    replay_policy,
)
from spotline.domain.selection.learner import Learner
from spotline.domain.solvers.value_table import TableTerms, ValueTable, table_of
from spotline.domain.units import NS_PER_S, utc_iso
from spotline.replay.clouds import Information, TellingCloud, told
from spotline.replay.host import Answer, LocalHost
from spotline.replay.parts import (
    ExactCloud,
    Issued,
    KnownForecasts,
    WatchedSelector,
    answer_each_alone,
    answer_in_process,
)
from spotline.replay.summary import (
    SPOTLINE,
    JobLife,
    PolicySummary,
    life_of,
    optimum_of,
    summarise,
    summarise_clairvoyant,
)


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
            "policies": {name: one.as_json() for name, one in self.policies.items()},
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
    for job in jobs:
        problem = coverage(market, job)
        if problem:
            raise ContractError(f"job {job.name or job.job_id}", problem)
    course = _course(market, forecaster, options.horizon_slots, options.information)
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


def coverage(market: Market, job: Job) -> str:
    """Say why a job's life does not lie within the market, empty where it does."""
    first = _first_slot(market, job)
    slot_ns = market.slot_s * NS_PER_S
    first_ns = market.start_ns + first * slot_ns
    if job.deadline.expires_ns - first_ns < slot_ns:
        return (
            f"ends {utc_iso(job.deadline.expires_ns)}, less than a slot after the first it could "
            f"have ({utc_iso(first_ns)})"
        )
    end_ns = market.start_ns + market.slots * slot_ns
    if job.deadline.expires_ns > end_ns:
        return (
            f"ends {utc_iso(job.deadline.expires_ns)}, after the market ({utc_iso(end_ns)}): "
            "give it an earlier deadline, or a longer market"
        )
    if not any(job.throughput_on(o.offering_id, o.instance_type) for o in market.offerings):
        known = ", ".join(sorted({o.instance_type for o in market.offerings}))
        return f"can run on no offering of the market, whose instance types are {known}"
    return ""


def slots_of(market: Market) -> tuple[SlotOpened, ...]:
    """Every slot of a market as its clock opens it."""
    clock = IngestHandler(market, IngestOptions())
    slots = []
    for slot in range(market.slots):
        slots += [one for one in clock.slot_events(slot) if isinstance(one, SlotOpened)]
    return tuple(slots)


def issue_forecasts(
    slots: Sequence[SlotOpened], forecaster: str, horizon_slots: int
) -> dict[int, Issued]:
    """What the forecaster service says in every slot, knowing that slot and those before it.

    Raises
    ------
    ContractError
        No forecaster has this name.
    """
    try:
        factory = forecaster_factory(forecaster)
    except ValueError as error:
        raise ContractError("forecaster", str(error)) from error
    handler = ForecastHandler(factory, horizon_slots=horizon_slots)
    state = handler.initial()
    issued = {}
    for opened in slots:
        ctx = Context(
            seq=opened.slot + 1, now_ns=opened.ts_event_ns, event_id="", correlation_id=""
        )
        handler.evolve(state, opened)
        events = handler.decide(state, opened, ctx).events
        for event in events:
            handler.evolve(state, event)
        for event in events:
            if isinstance(event, ForecastIssued):
                laws = tuple(one for one in events if isinstance(one, MarketLawLearned))
                issued[event.slot] = Issued(forecast=event, laws=laws)
    return issued


# --- what all policies share ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """The market as it goes: slots, forecasts, and what a job alone is offered, by offering.

    `slots` are as they are told, `real` as they are; offers are real.
    """

    market: Market
    slots: tuple[SlotOpened, ...]
    real: Mapping[int, SlotOpened]
    issued: Mapping[int, Issued]
    offers: Mapping[str, tuple[SlotRecord, ...]]


def _course(
    market: Market, forecaster: str, horizon_slots: int, information: Information
) -> _Course:
    real = slots_of(market)
    slots = tuple(told(opened, information) for opened in real)
    said = issue_forecasts(slots, forecaster, horizon_slots)
    offers: dict[str, list[SlotRecord]] = {o.offering_id: [] for o in market.offerings}
    trust = ForecastTrust()
    for opened, shown in zip(real, slots, strict=True):
        trust.note_slot(shown)
        issued = said[opened.slot].forecast
        trust.note_forecast(issued)
        believed = trust.moderated(issued) if trust.trusted else None
        residual = ResidualCapacity(opened.quotes)
        for slot_quote in opened.quotes:
            quote = slot_quote.quote
            offers[quote.offering_id].append(
                SlotRecord(
                    spot_price=quote.spot_price_micro_usd,
                    on_demand_price=quote.on_demand_price_micro_usd,
                    spot_available=residual.spot(quote.offering_id),
                    on_demand_available=residual.on_demand(quote.offering_id),
                    forecast=forecast_of(believed, quote),
                )
            )
    return _Course(
        market=market,
        slots=slots,
        real={opened.slot: opened for opened in real},
        issued=said,
        offers={offering_id: tuple(records) for offering_id, records in offers.items()},
    )


def _first_slot(market: Market, job: Job) -> int:
    return max(0, -(-(job.start_ns - market.start_ns) // (market.slot_s * NS_PER_S)))


# --- every job alone --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A job where the selector would run it, and all it will be offered there."""

    job: Job
    program: JobProgram
    records: tuple[SlotRecord, ...]
    table: ValueTable | None


def _placed(course: _Course, job: Job, history_slots: int) -> _Placed:
    market = course.market
    first = _first_slot(market, job)
    offerings = {offering.offering_id: offering for offering in market.offerings}
    past = course.slots[max(0, first - history_slots) : first]
    chosen = best_offering(job, offerings, course.slots[first], past)
    if chosen is None:
        raise ContractError(f"job {job.name or job.job_id}", coverage(market, job))
    program = program_of(
        job,
        chosen,
        offerings[chosen].instance_type,
        market.slot_s,
        course.slots[first].ts_event_ns,
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
    )
    counts = [record.spot_available for record in course.offers[chosen][: first + len(records)]]
    states = run_states(law.space, counts)[first:]
    # As in the services, the table is not ready yet when the first slot is decided.
    stated = [replace(r, run_state=int(s)) for r, s in zip(records[1:], states[1:], strict=True)]
    return _Placed(job=job, program=program, records=(records[0], *stated), table=table_of(terms))


def _law_known(course: _Course, offering_id: str, first: int) -> MarketLaw | None:
    """The law of an offering that was learned last before a slot opened."""
    for slot in range(first - 1, -1, -1):
        for learned in course.issued[slot].laws if slot in course.issued else ():
            if learned.offering_id == offering_id:
                return learned.named.law
    return None


def _alone(
    course: _Course, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
) -> SimulationReport:
    placed = [_placed(course, job, options.selector.history_slots) for job in jobs]
    optima = [clairvoyant_optimum(one.program, one.records) for one in placed]
    fallback = policy_named(FALLBACK_POLICY_ID)
    named = {name: policy_named(name) for name in names if name != SPOTLINE}
    lives: dict[str, list[JobLife]] = {name: [] for name in names}
    decided = dict.fromkeys(names, 0)
    spent_s = dict.fromkeys(names, 0.0)
    # Job by job: policies that plan alike then share their window plans.
    for one in placed:
        for name, policy in named.items():
            began_s = perf_counter()
            result = replay_policy(one.program, one.records, policy, fallback, one.table)
            spent_s[name] += perf_counter() - began_s
            decided[name] += len(result.holdings)
            lives[name].append(life_of(one.job, name, result))
    learner = None
    if SPOTLINE in lives:
        selected = _select(
            course,
            jobs,
            SelectHandler(replace(options.selector, competing=False), digest=_no_digest),
            answer_each_alone,
            options.seed,
        )
        lives[SPOTLINE] = selected.lives(jobs)
        decided[SPOTLINE] = selected.watched.decisions
        spent_s[SPOTLINE] = selected.deciding_s
        learner = selected.state.learner
        optima = [
            _better(one, selected.optimum(job.job_id)) if selected.moved(job.job_id) else one
            for job, one in zip(jobs, optima, strict=True)
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


def _better(one: Clairvoyant, other: Clairvoyant) -> Clairvoyant:
    return other if other.upper_utility_micro_usd > one.upper_utility_micro_usd else one


# --- all jobs together ------------------------------------------------------------------------


def _shared(
    course: _Course, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
) -> SimulationReport:
    summaries: dict[str, PolicySummary] = {}
    clairvoyants: dict[str, PolicySummary] = {}
    lives: dict[str, tuple[JobLife, ...]] = {}
    learner = None
    for name in names:
        if name == SPOTLINE:
            handler = SelectHandler(options.selector, digest=_no_digest)
        else:
            # A pool of one: nothing to choose, the same order and accounting.
            alone = replace(options.selector, rehearsals=0, moves=False)
            handler = SelectHandler(alone, digest=_no_digest, pool=(policy_named(name),))
        selected = _select(course, jobs, handler, answer_in_process, options.seed)
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
    course: _Course, jobs: Sequence[Job], names: Sequence[str], options: SimulationOptions
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
        handler = SelectHandler(selector, digest=_no_digest)
        if name != SPOTLINE:
            alone = replace(selector, rehearsals=0)
            handler = SelectHandler(alone, digest=_no_digest, pool=(policy_named(name),))
        cloud = TellingCloud(course.real, options.information, sharing=options.contention)
        answer = answer_in_process if options.contention else answer_each_alone
        selected = _select(course, jobs, handler, answer, options.seed, cloud=cloud)
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


def _alone_optimum(course: _Course, job: Job) -> Clairvoyant:
    """The best a job could have had on any one offering, alone and knowing everything."""
    market = course.market
    first = _first_slot(market, job)
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
        )
        records = course.offers[offering.offering_id][first : first + program.end_slots]
        optima.append(clairvoyant_optimum(program, records))
    return max(optima, key=lambda one: one.upper_utility_micro_usd)


# --- the selector in the loop -----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selected:
    """A run of the selector over the whole market."""

    watched: WatchedSelector
    state: SelectorState
    deciding_s: float

    def lives(self, jobs: Sequence[Job]) -> list[JobLife]:
        lives = []
        for job in jobs:
            closed = self.watched.closed[job.job_id]
            lives.append(
                JobLife(
                    job_id=job.job_id,
                    policy_id=closed.policy_id,
                    cost_micro_usd=closed.cost_micro_usd,
                    value_micro_usd=closed.value_micro_usd,
                    most_value_micro_usd=job.value_micro_usd,
                    on_time=closed.outcome is JobOutcome.COMPLETED,
                    moves=self.state.runs[job.job_id].moves,
                )
            )
        return lives

    def moved(self, job_id: str) -> bool:
        run = self.state.runs[job_id]
        return run.moves > 0 or run.offering_id != run.first_offering_id

    def optimum(self, job_id: str) -> Clairvoyant:
        """The best there was on what the job was offered where it was, moving being free."""
        run = self.state.runs[job_id]
        program = run.compiled
        if run.mixed:
            # A bound for a job that ran at several rates: the best of them all the time.
            homes = [self.state.program_of(run.job, home) for home in self.watched.tables[job_id]]
            rates = zip(*(home.rate_quanta_per_s for home in homes), strict=True)
            program = replace(program, rate_quanta_per_s=tuple(max(at) for at in rates))
        return clairvoyant_optimum(
            program, padded(program, self.watched.offered_to(self.state, job_id))
        )


def padded(program: JobProgram, records: Sequence[SlotRecord]) -> tuple[SlotRecord, ...]:
    """What was offered, carried on to the job's end as the selector's feedback does.

    After the deadline only on-demand runs, so no spot is offered, and its price is taken to stay.
    """
    short = program.end_slots - len(records)
    if short <= 0 or not records:
        return tuple(records)
    return (*records, *[replace(records[-1], spot_available=0)] * short)


def _select(
    course: _Course,
    jobs: Sequence[Job],
    handler: SelectHandler,
    answer: Answer,
    seed: int,
    *,
    cloud: ExactCloud | TellingCloud | None = None,
) -> _Selected:
    market = course.market
    watched = WatchedSelector(handler)
    deciding_s = 0.0

    def timed(call: Call) -> Sequence[Event]:
        nonlocal deciding_s
        began_s = perf_counter()
        answers = answer(call)
        deciding_s += perf_counter() - began_s
        return answers

    host = LocalHost(
        [KnownForecasts(course.issued), watched, JobsHandler(), cloud or ExactCloud()],
        answers={ALLOCATE_CALL: timed},
        run=f"simulate:{seed}",
    )
    opened = MarketOpened(
        offerings=market.offerings,
        slot_s=market.slot_s,
        first_slot_start_ns=market.start_ns,
        source=market.source,
    )
    host.publish(opened, source="market_ingest")
    for job in jobs:
        host.publish(JobSubmitted(job=job, ts_event_ns=market.start_ns), source="allocator")
    for slot in course.slots:
        host.publish(slot, source="market_ingest")
    # One opening more settles the last slot and closes whoever ended in it.
    host.publish(_closing(course.slots[-1]), source="market_ingest")
    return _Selected(watched=watched, state=host.state_of("selector"), deciding_s=deciding_s)


def _closing(last: SlotOpened) -> SlotOpened:
    return replace(last, slot=last.slot + 1, ts_event_ns=last.ts_event_ns + last.slot_s * NS_PER_S)


def _no_digest(request: object) -> str:
    """Nobody compares digests where requests are answered in process."""
    return ""


def _rate(decided: int, spent_s: float) -> float:
    return decided / spent_s if spent_s > 0 else 0.0
