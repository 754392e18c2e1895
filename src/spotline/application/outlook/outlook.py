"""What is expected of a job: its life, lived through in sampled futures by what really decides it.

A new job draws its policy from the selector's weights, which a rehearsal on the recent market may
still move, and begins where the selector would place it; a job under way has both, and goes on from
what it has done, spent and holds. Other jobs that are served before it keep what they hold for as
long as their work then takes. Equal states and jobs give equal outlooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.application.allocation.tasks import program_of
from spotline.application.outlook.fleets import FleetLimits, FleetLives, live_together
from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.futures import MarketFutures, sample_futures
from spotline.application.outlook.lives import (
    Beginning,
    FutureCourse,
    FutureLife,
    live_alone,
)
from spotline.application.outlook.places import Taken, future_places
from spotline.application.outlook.summing import LivesAhead, summed_up
from spotline.application.selector.home_prospects import HomeProspects
from spotline.application.selector.job_run import JobRun, RunPhase
from spotline.application.selector.job_table import JobTable
from spotline.application.selector.learning import rehearse
from spotline.application.selector.loads import loads_of
from spotline.application.selector.offering_choice import (
    RECENT_SLOTS,
    best_offering,
    other_offerings,
)
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.rescuing import RescueRoom
from spotline.application.selector.state import SelectorState
from spotline.domain.events.market import SlotOpened
from spotline.domain.forecasting.law_book import LawBook
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.outlook import JobOutlook
from spotline.domain.jobs.program import JobProgram
from spotline.domain.ledger.billing import OfferingPrice
from spotline.domain.limits.judgement import planned_budget_micro_usd
from spotline.domain.market.learning_rules import OF_ONE_LAW
from spotline.domain.policies.interface import Policy
from spotline.domain.selection.rules import weights_ppb
from spotline.domain.units import NS_PER_S

# Numbers of futures that divide a million, so that shares of them add up; most first.
_FUTURES = (100, 80, 64, 50, 40)
# About this many slots are lived through for an outlook: about a second.
_MOST_SLOTS = 3_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ahead:
    """A job with all that its futures begin with; a future's beginning is that of its index."""

    course: FutureCourse
    begins: tuple[Beginning, ...]
    first_slot_start_ns: int


class OutlookAbandonedError(Exception):
    """Nobody wants the outlook any more that is being worked out."""


def job_outlook(
    known: SelectorSnapshot,
    job: Job,
    *,
    market: MarketFutures | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> JobOutlook | None:
    """Say what is expected of a job from the slot after the latest on.

    Parameters
    ----------
    known
        What the selector knows, the latest slot decided. A job that runs in it goes on from there,
        any other is taken to be handed over now.
    market
        Futures to run it in, of at least the slots it may take; None samples them.
    wanted
        Asked before each future, so that a process that ends need not wait for them all.

    Returns
    -------
    JobOutlook
        None where nothing can be said: the job is over, or nothing it can run on is quoted.

    Raises
    ------
    OutlookAbandonedError
        It is `wanted` no more.
    """
    lives = lives_of(known, job, market=market, wanted=wanted)
    return None if lives is None else summed_up(known.state.slot + 1, lives)


def lives_of(
    known: SelectorSnapshot,
    job: Job,
    *,
    market: MarketFutures | None = None,
    wanted: Callable[[], bool] = lambda: True,
) -> LivesAhead | None:
    """What `job_outlook` sums up; the i-th life is that in the i-th future."""
    state = known.state
    if market is None:
        run = state.runs.get(job.job_id)
        slots = slots_ahead(state, job if run is None else run.job)
        market = market_futures(state, slots=slots, futures=futures_for(slots))
    ahead = _ahead_of(known, job, market)
    if ahead is None:
        return None
    lives = []
    for i, begins in enumerate(ahead.begins):
        if not wanted():
            raise OutlookAbandonedError(job.job_id)
        lives.append(live_alone(ahead.course, begins, i))
    return LivesAhead(
        lives=tuple(lives),
        first_slot_start_ns=ahead.first_slot_start_ns,
        slot_ns=state.current.slot_s * NS_PER_S,
        elapsed_slots=ahead.begins[0].elapsed_slots,
    )


def fleets_of(
    known: SelectorSnapshot, jobs: Sequence[Job], limits: FleetLimits, market: MarketFutures
) -> list[FleetLives] | None:
    """How several jobs fare together in every future; None where nothing can be said of one."""
    aheads = []
    for job in jobs:
        ahead = _ahead_of(known, job, market)
        if ahead is None:
            return None
        aheads.append(ahead)
    slot_s = known.state.current.slot_s
    return [
        live_together(
            [FutureLife(ahead.course, ahead.begins[i], i) for ahead in aheads],
            limits,
            market.slots,
            slot_s,
        )
        for i in range(market.futures)
    ]


def _ahead_of(known: SelectorSnapshot, job: Job, market: MarketFutures) -> _Ahead | None:
    run = known.state.runs.get(job.job_id)
    if run is not None and run.phase is RunPhase.CLOSED:
        return None
    if run is not None and run.phase is RunPhase.RUNNING:
        return _going_on(known.state, run, known.options, market)
    return _arriving(known, job, market)


def slots_ahead(state: SelectorState, job: Job) -> int:
    """Slots from the next one on until the job is worth nothing, at least 1."""
    opened = state.current
    slot_ns = opened.slot_s * NS_PER_S
    return max(1, (job.deadline.expires_ns - opened.ts_event_ns - slot_ns) // slot_ns)


def futures_for(slots: int) -> int:
    """How many futures of so many slots are lived through."""
    return next((n for n in _FUTURES if n * slots <= _MOST_SLOTS), _FUTURES[-1])


def market_futures(state: SelectorState, *, slots: int, futures: int) -> MarketFutures:
    """The market's futures as `job_outlook` samples them, the same for all jobs of a slot."""
    history = [*(opened for opened, _ in state.history), state.current]
    laws = {offering_id: named.law for offering_id, named in state.laws.items()}
    if any(sq.quote.offering_id not in laws for sq in state.current.quotes):
        # The forecaster says its first law only after a few slots.
        book = LawBook(learning=OF_ONE_LAW)
        for opened in history:
            book.observe(opened)
        laws = {**book.learn(), **laws}
    return sample_futures(history, laws, futures=futures, slots=slots, seed=f"outlook:{state.slot}")


# --- a job under way --------------------------------------------------------------------------


def _going_on(
    state: SelectorState, run: JobRun, options: SelectorOptions, market: MarketFutures
) -> _Ahead:
    opened = state.current
    quotes = {sq.quote.offering_id: sq.quote for sq in opened.quotes}
    quote = quotes[run.offering_id]
    price = OfferingPrice(
        offering_id=run.offering_id,
        spot_micro_usd=quote.spot_price_micro_usd,
        on_demand_micro_usd=quote.on_demand_price_micro_usd,
    )
    # What was decided for the open slot is held to its end.
    progress, slot_cost = run.ended_at(price, opened.slot_s)
    tables = {name: table for name, table in run.tables.items() if not table.stale}
    names = sorted({run.offering_id, *tables} & set(market.offerings))
    programs = {name: state.program_of(run.job, name) for name in names}
    begins = Beginning(
        home=run.offering_id,
        policy_id=run.policy_id,
        first_slot_start_ns=run.first_slot_start_ns,
        tabled=tuple(name for name in tables if name in programs),
        elapsed_slots=run.elapsed_slots(state.slot) + 1,
        state=progress,
        memory=run.memory,
        spent_micro_usd=run.spent_micro_usd + slot_cost,
        egress_micro_usd=run.egress_micro_usd,
        launched=run.launched,
        tables_from=0,
    )
    job = run.planned(run.job)
    taken = _taken(state, job, run.slack_slots(state.slot), options, market.slots)
    places = future_places(state, job, programs, market, tables, taken)
    course = FutureCourse(
        state=state,
        job=job,
        places=places,
        options=options,
        next_slot_start_ns=opened.ts_event_ns + opened.slot_s * NS_PER_S,
    )
    return _Ahead(
        course=course,
        begins=(begins,) * market.futures,
        first_slot_start_ns=run.first_slot_start_ns,
    )


# --- a job that is handed over now ------------------------------------------------------------


def _arriving(known: SelectorSnapshot, job: Job, market: MarketFutures) -> _Ahead | None:
    state, options, pool = known.state, known.options, known.pool
    opened = state.current
    if options.limits:
        job = replace(job, budget_micro_usd=planned_budget_micro_usd(job))
    slot_ns = opened.slot_s * NS_PER_S
    next_ns = opened.ts_event_ns + slot_ns
    waits = max(0, -(-(job.start_ns - next_ns) // slot_ns))
    if waits >= market.slots:
        return None
    first_ns = next_ns + waits * slot_ns
    arrives = _at_arrival(state, first_ns, waits)
    programs = _programs(arrives, job, market, first_ns)
    if not programs:
        return None
    homes = _homes(arrives, job, options, market, waits)
    if not any(homes):
        return None
    tabled = {home: _tabled(arrives, job, home, options) for home in sorted(set(homes) - {""})}
    tables = _tables(arrives, programs, {name for names in tabled.values() for name in names})
    likeliest = max(sorted(tabled), key=homes.count)
    weights = _mixture(arrives, job, likeliest, options, pool)
    drawn = _policies(weights, pool, market.futures, f"policies:{state.slot}")
    program = programs[likeliest]
    needed = program.slots_on_demand(program.work_quanta, program.launch_s)
    taken = _taken(state, job, program.deadline_slots - needed, options, market.slots)
    course = FutureCourse(
        state=state,
        job=job,
        places=future_places(state, job, programs, market, tables, taken),
        options=options,
        next_slot_start_ns=next_ns,
        waits=waits,
    )
    begins = tuple(
        Beginning(
            home=home or likeliest,
            policy_id=policy_id,
            first_slot_start_ns=first_ns,
            tabled=tuple(name for name in tabled[home or likeliest] if name in tables),
        )
        for home, policy_id in zip(homes, drawn, strict=True)
    )
    return _Ahead(course=course, begins=begins, first_slot_start_ns=first_ns)


def _at_arrival(state: SelectorState, first_ns: int, waits: int) -> SelectorState:
    """What the selector will know as the job's first slot opens, if the quotes stay."""
    opened = state.current
    forecast = state.forecast if state.forecast_used else None
    return replace(
        state,
        slot=state.slot + 1 + waits,
        opened=replace(opened, slot=state.slot + 1 + waits, ts_event_ns=first_ns),
        history=[*state.history, (opened, forecast)],
    )


def _programs(
    arrives: SelectorState, job: Job, market: MarketFutures, first_ns: int
) -> dict[str, JobProgram]:
    programs = {}
    for offering_id in sorted(market.offerings):
        offering = arrives.offerings.get(offering_id)
        if offering is None or not job.throughput_on(offering_id, offering.instance_type):
            continue
        programs[offering_id] = program_of(
            job,
            offering_id,
            offering.instance_type,
            arrives.current.slot_s,
            first_ns,
            arrives.lead_s(job, offering_id),
        )
    return programs


def _homes(
    arrives: SelectorState,
    job: Job,
    options: SelectorOptions,
    market: MarketFutures,
    waits: int,
) -> list[str]:
    """Where the selector would place the job in each future, empty where nowhere."""
    taken = loads_of(arrives, arrives.running(), options)
    full = _full_for(arrives, job, options)
    past = [opened for opened, _ in arrives.history[-RECENT_SLOTS:]]
    prospects = HomeProspects.of(arrives, options)
    homes = []
    for future in range(market.futures):
        ahead = [
            _opened_in(arrives.current, market, future, slot)
            for slot in range(max(0, waits - RECENT_SLOTS), waits + 1)
        ]
        recent = [*past, *ahead[:-1]][-RECENT_SLOTS:]
        then = None if prospects is None else prospects.behind(arrives.counts, ahead)
        home = best_offering(job, arrives.offerings, ahead[-1], recent, taken, full, then)
        homes.append(home or "")
    return homes


def _full_for(arrives: SelectorState, job: Job, options: SelectorOptions) -> frozenset[str]:
    """Where others may need all on-demand in stock, so that the selector would not place the job."""
    room = RescueRoom.of(arrives, arrives.running(), options)
    return room.full_for(arrives, JobRun(job=job))


def _opened_in(like: SlotOpened, market: MarketFutures, future: int, slot: int) -> SlotOpened:
    """A slot of a future as it would open."""
    quotes = []
    for slot_quote in like.quotes:
        of = market.offerings[slot_quote.quote.offering_id]
        quote = slot_quote.quote
        available = quote.spot_available
        if available.known:
            available = replace(available, instances=int(of.spot[future, slot]))
        quotes.append(
            replace(
                slot_quote,
                quote=replace(
                    quote,
                    spot_price_micro_usd=int(of.spot_price[future, slot]),
                    spot_available=available,
                ),
            )
        )
    return replace(like, quotes=tuple(quotes))


def _tabled(
    arrives: SelectorState, job: Job, home: str, options: SelectorOptions
) -> tuple[str, ...]:
    """The offerings of which the job gets a value table, its home first."""
    if home not in arrives.laws:
        return ()
    if not options.moves:
        return (home,)
    past = [opened for opened, _ in arrives.history]
    taken = loads_of(arrives, arrives.running(), options)
    full = _full_for(arrives, job, options)
    others = other_offerings(
        job,
        home,
        arrives.offerings,
        arrives.current,
        past,
        taken,
        full=full,
        prospects=HomeProspects.of(arrives, options),
    )
    return (home, *others)


def _tables(
    arrives: SelectorState, programs: Mapping[str, JobProgram], names: set[str]
) -> dict[str, JobTable]:
    tables = {}
    for name in sorted(names & set(programs)):
        named, program = arrives.laws.get(name), programs[name]
        if named is None or program.deadline_slots < 1:
            continue
        spec = arrives.table_spec(named, name, program)
        tables[name] = JobTable(spec=spec, named=named, slot=arrives.slot, ready_slot=arrives.slot)
    return tables


def _mixture(
    arrives: SelectorState,
    job: Job,
    home: str,
    options: SelectorOptions,
    pool: Sequence[Policy],
) -> Sequence[int]:
    """The weights (ppb) the job will draw its policy from: the rehearsal of its arrival is in."""
    learner = arrives.learner.copy()
    rehearse(pool, options, arrives, learner, job, home)
    return weights_ppb(learner.weights())


def _policies(weights: Sequence[int], pool: Sequence[Policy], futures: int, seed: str) -> list[str]:
    """A policy for each future: as often as its weight says, to within one, in mixed order."""
    edges = np.cumsum(np.array(weights, dtype=np.float64))
    at = (np.arange(futures) + 0.5) / futures * edges[-1]
    drawn = np.minimum(np.searchsorted(edges, at, side="right"), len(pool) - 1)
    # Every so many-th future: a fixed order that goes with nothing in how futures were drawn.
    step = next(n for n in (7, 11, 13) if futures % n)
    order = [(index * step + len(seed)) % futures for index in range(futures)]
    return [pool[int(drawn[index])].policy_id for index in order]


# --- what others hold -------------------------------------------------------------------------


def _taken(
    state: SelectorState, job: Job, slack_slots: int, options: SelectorOptions, slots: int
) -> dict[str, Taken]:
    """What jobs that are served before this one keep of every offering, for as long as they run."""
    taken: dict[str, Taken] = {}
    for run in state.running() if options.competing else ():
        key = (run.slack_slots(state.slot), run.job.job_id)
        if run.job.job_id == job.job_id or key > (slack_slots, job.job_id):
            continue
        held = run.target
        if not held.instances:
            continue
        program = run.compiled
        left = program.work_quanta - run.state.progress_quanta
        lasts = program.slots_on_demand(left, 0, instances=held.instances)
        lasts = min(slots, max(0, lasts - 1), program.end_slots)
        known = taken.setdefault(
            run.offering_id,
            Taken(spot=np.zeros(slots, dtype=np.int64), on_demand=np.zeros(slots, dtype=np.int64)),
        )
        known.spot[:lasts] += held.spot
        known.on_demand[:lasts] += held.on_demand
    return taken
