"""Quote jobs when they arrive, run them as Spotline does, and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.application.allocation.on_demand_quote import on_demand_quote_micro_usd
from spotline.application.allocator.planning import DEFAULT_POLICY_IDS
from spotline.application.allocator.policy_options import policy_options
from spotline.application.market_view import MarketView
from spotline.application.outlook.following import SelectorSnapshot
from spotline.application.outlook.outlook import job_outlook
from spotline.application.selector.handler import SelectHandler
from spotline.application.selector.options import SelectorOptions
from spotline.application.selector.state import SelectorState
from spotline.bench.quote.worlds import World
from spotline.domain.events.lifecycle import JobOutcome
from spotline.domain.forecasting.registry import DEFAULT_FORECASTER
from spotline.domain.jobs.job import DeadlineKind, Job
from spotline.domain.market.market import UNKNOWN, Market
from spotline.domain.policies.registry import POOL
from spotline.domain.units import NS_PER_S, PPM, S_PER_HOUR
from spotline.replay.clouds import Information
from spotline.replay.course import course_of, first_slot
from spotline.replay.jobs import generated_jobs
from spotline.replay.parts import answer_each_alone
from spotline.replay.selector_run import run_selector

# A naive quote: what on-demand costs, give or take this share.
_NAIVE_SPREAD = 0.25
_HORIZON_SLOTS = 6

# Every so many-th job is tight: its largest count needs this share of the time to the deadline on
# demand, launches not counted, and it is worth this many times what that costs.
_TIGHT_EVERY = 3
_TIGHT = (0.7, 0.98)
_TIGHT_VALUE = (0.3, 1.1)
_TIGHT_STREAM = 9

# The best of several policies takes longest to find: it is quoted for every so many-th job.
_ONE_POLICY_EVERY = 3

METHODS = ("outlook", "one policy", "on demand")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteSaid:
    """What a method said of a job; money in micro-USD, finish in ns (0: never), None: not said."""

    p10: int
    p50: int
    p90: int
    on_time: float
    finish_p10_ns: int | None = None
    finish_p90_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A job, what every method said of it, and what came."""

    job_id: str
    hard: bool
    slots_known: int
    said: Mapping[str, QuoteSaid]
    cost: int
    on_time: bool
    finish_ns: int


def quote_world(
    world: World, jobs: int, seed: int, *, part: tuple[float, float], tell: Callable[[str], None]
) -> tuple[Quoted, ...]:
    """Quote and run jobs that arrive at random times of a part of the market (shares of it)."""
    market = world.market
    tell(f"{world.name}: {market.slots} slots, {len(market.offerings)} offerings, forecasting")
    course = course_of(market, DEFAULT_FORECASTER, _HORIZON_SLOTS, Information.FULL)
    drawn = quoted_jobs(market, jobs, seed, part)
    options = SelectorOptions(competing=False, even_cells=True)
    arriving: dict[int, list[Job]] = {}
    for job in drawn:
        arriving.setdefault(first_slot(market, job) - 1, []).append(job)
    said: dict[str, dict[str, QuoteSaid]] = {}
    known: dict[str, int] = {}

    def settled(state: SelectorState) -> None:
        for job in arriving.get(state.slot, ()):
            slow_too = len(said) % _ONE_POLICY_EVERY == 0
            said[job.job_id] = _all_said(state, job, options, one_policy=slow_too)
            known[job.job_id] = state.slot + 1
            if len(said) % 20 == 0:
                tell(f"{world.name}: {len(said)} of {jobs} jobs quoted")

    handler = SelectHandler(options, digest=lambda request: "")
    ran = run_selector(course, drawn, handler, answer_each_alone, seed, settled=settled)
    found = []
    for job in drawn:
        closed = ran.watched.closed[job.job_id]
        done = closed.outcome in (JobOutcome.COMPLETED, JobOutcome.COMPLETED_LATE)
        ends_ns = market.start_ns + (closed.slot + 1) * market.slot_s * NS_PER_S
        if job.job_id not in said:
            continue
        found.append(
            Quoted(
                job_id=job.job_id,
                hard=job.deadline.kind.value == "hard",
                slots_known=known[job.job_id],
                said=said[job.job_id],
                cost=closed.cost_micro_usd,
                on_time=closed.outcome is JobOutcome.COMPLETED,
                finish_ns=ends_ns if done else 0,
            )
        )
    return tuple(found)


def quoted_jobs(market: Market, jobs: int, seed: int, part: tuple[float, float]) -> tuple[Job, ...]:
    """Jobs as `generated_jobs` draws them, that begin within a part of the market's slots."""
    first, end = int(part[0] * market.slots), int(part[1] * market.slots)
    cut = market.between(first, end)
    most = int(cut.spot_available[cut.spot_provenance != UNKNOWN].max(initial=1))
    drawn = generated_jobs(cut, jobs, seed)
    # No larger than what spot of this market can ever carry.
    fit = [_no_larger(job, most) for job in drawn]
    rng = np.random.Generator(np.random.PCG64([seed, _TIGHT_STREAM]))
    return tuple(
        _tightened(job, market, rng) if index % _TIGHT_EVERY == 0 else job
        for index, job in enumerate(fit)
    )


def _tightened(job: Job, market: Market, rng: np.random.Generator) -> Job:
    """The job with a soft deadline that on-demand alone just meets or misses, worth little more.

    Whether such a job is on time is open: it has nothing to fall back on.
    """
    deadline = job.deadline
    hours = (deadline.at_ns - job.start_ns) / NS_PER_S / S_PER_HOUR
    rate = job.throughputs[0].rate_per_hour(job.max_instances)
    work = hours * rate * float(rng.uniform(*_TIGHT))
    on_demand = int(np.median(market.on_demand_price_micro_usd)) * job.max_instances * hours
    soft = replace(
        deadline,
        kind=DeadlineKind.SOFT,
        expires_ns=deadline.at_ns + (deadline.at_ns - job.start_ns) // 2,
    )
    if soft.expires_ns > market.start_ns + market.slots * market.slot_s * NS_PER_S:
        return job
    return replace(
        job,
        deadline=soft,
        work=replace(job.work, amount=round(work, 6)),
        value_micro_usd=int(on_demand * float(rng.uniform(*_TIGHT_VALUE))),
    )


def _no_larger(job: Job, most: int) -> Job:
    if job.max_instances <= most:
        return job
    share = most / job.max_instances
    return replace(
        job,
        allowed_counts=tuple(range(1, most + 1)),
        work=replace(job.work, amount=max(0.1, round(job.work.amount * share, 6))),
        value_micro_usd=max(10_000, int(job.value_micro_usd * share)),
    )


def _all_said(
    state: SelectorState, job: Job, options: SelectorOptions, *, one_policy: bool
) -> dict[str, QuoteSaid]:
    view = _view(state)
    said = {}
    outlook = job_outlook(SelectorSnapshot(state=state, options=options, pool=POOL), job)
    if outlook is not None:
        said["outlook"] = QuoteSaid(
            p10=outlook.cost_p10_micro_usd,
            p50=outlook.cost_p50_micro_usd,
            p90=outlook.cost_p90_micro_usd,
            on_time=outlook.on_time_probability_ppm / PPM,
            finish_p10_ns=outlook.finish_p10_ns,
            finish_p90_ns=outlook.finish_p90_ns,
        )
    if one_policy:
        best = policy_options(job, view, DEFAULT_POLICY_IDS)[0]
        said["one policy"] = QuoteSaid(
            p10=best.cost_p10_micro_usd,
            p50=best.expected_cost_micro_usd,
            p90=best.cost_p90_micro_usd,
            on_time=best.on_time_probability_ppm / PPM,
        )
    quote = on_demand_quote_micro_usd(view, job)
    if quote:
        said["on demand"] = QuoteSaid(
            p10=int(quote * (1 - _NAIVE_SPREAD)),
            p50=quote,
            p90=int(quote * (1 + _NAIVE_SPREAD)),
            on_time=1.0,
        )
    return said


def _view(state: SelectorState) -> MarketView:
    opened = state.current
    return MarketView(
        offerings=tuple(state.offerings[name] for name in sorted(state.offerings)),
        slot_s=opened.slot_s,
        next_slot=state.slot + 1,
        next_slot_start_ns=opened.ts_event_ns + opened.slot_s * NS_PER_S,
        quotes=opened.quotes,
        forecast=state.forecast,
        history=(*(slot for slot, _ in state.history), opened)[-192:],
    )


# --- scoring ----------------------------------------------------------------------------------


def scored(quoted: Sequence[Quoted], method: str) -> dict[str, float | int | None]:
    """How what a method said compares with what came.

    `within` is the share of costs within p10..p90, `below` and `above` those outside, `width` the
    mean of p90 - p10 over that of p50 (a soft job may be expected to cost nothing), `bias` that of
    the cost over it, less 1, `brier` the mean squared error of P(on time), `brier_rate` that of
    always saying the share that was on time; `finish_within` is the share of finishes in p10..p90.
    """
    rows = [(each, each.said[method]) for each in quoted if method in each.said]
    if not rows:
        return {"jobs": 0}
    on_time = np.array([each.on_time for each, _ in rows], dtype=np.float64)
    probability = np.array([said.on_time for _, said in rows])
    finishes = [_finish_within(each, said) for each, said in rows]
    timed = [within for within in finishes if within is not None]
    rate = float(on_time.mean())
    medians = max(1, sum(said.p50 for _, said in rows))
    return {
        "jobs": len(rows),
        "within": _share([said.p10 <= each.cost <= said.p90 for each, said in rows]),
        "below": _share([each.cost < said.p10 for each, said in rows]),
        "above": _share([each.cost > said.p90 for each, said in rows]),
        "width": sum(said.p90 - said.p10 for _, said in rows) / medians,
        "bias": sum(each.cost for each, _ in rows) / medians - 1.0,
        "said_on_time": float(probability.mean()),
        "on_time": rate,
        "brier": float(((probability - on_time) ** 2).mean()),
        "brier_rate": rate * (1.0 - rate),
        "finish_within": _share(timed) if timed else None,
    }


def reliability(quoted: Sequence[Quoted], method: str) -> list[dict[str, float | int]]:
    """By decile of what was said of being on time: jobs, the mean of it, and the share that was."""
    rows = [(each.said[method].on_time, each.on_time) for each in quoted if method in each.said]
    found = []
    for decile in range(10):
        here = [row for row in rows if min(9, int(row[0] * 10)) == decile]
        if here:
            found.append(
                {
                    "decile": decile + 1,
                    "jobs": len(here),
                    "said": sum(said for said, _ in here) / len(here),
                    "came": sum(came for _, came in here) / len(here),
                }
            )
    return found


def _finish_within(each: Quoted, said: QuoteSaid) -> bool | None:
    if said.finish_p10_ns is None or said.finish_p90_ns is None:
        return None
    never = 1 << 62
    return (
        (said.finish_p10_ns or never) <= (each.finish_ns or never) <= (said.finish_p90_ns or never)
    )


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)
