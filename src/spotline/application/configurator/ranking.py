"""Which configuration meets the deadline at the least expected cost, by the scheduler's own replay.

All curves are screened with a closed form first: at n instances the work takes a number of slots, of
which spot fills the share that it was there for until the deadline, and on-demand the rest. The
best of every place are then planned: a few policies of the pool, compiled, over the same sampled
futures for all. A configuration that runs with probability p is tried 1 / p times on average, so
its expected cost is what planning says, divided by p: an upper bound, as most failures are early.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spotline.application.configurator.candidates import Curve
from spotline.application.configurator.futures import Futures, futures_of
from spotline.application.configurator.places import Place
from spotline.application.configurator.throughput import throughput_of
from spotline.application.configurator.trials import CurveKey
from spotline.application.market_view import MarketView
from spotline.domain.jobs.job import DeadlineKind, Job, Throughput
from spotline.domain.jobs.program import SMALLEST_PROGRAM, JobProgram, compile_program
from spotline.domain.policies.compiled import MarketSeries, replay_many
from spotline.domain.policies.interface import Policy
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.units import PPM, S_PER_HOUR, WorkScale

FloatArray = npt.NDArray[np.float64]

# One policy of each kind that needs neither a forecast nor a value table: an option costs well
# under a millisecond. The job's own policy, drawn later, does no worse on average.
POLICY_IDS = ("on_demand_only", "msu", "uniform_progress", "ahanp(0.5)")

# A hard deadline must be met in at least this share of the futures, as in `planning`.
SURE_PPM = 990_000

# More counts are worth this share of the cost: a rate that turns out lower than predicted is made
# good by more instances, if the job may hold them.
ROOM_PPM = 30_000
# But a count on which an instance does less than this share of what it does at best is no room:
# safety nets buy the largest count, and would buy it at twice the price.
ROOM_EFFICIENCY = 0.5

# Options planned for one draft, the places taking turns, as the screen only estimates. Where the
# slots until the end are many, fewer are planned: an answer must not take longer than 20 ms.
_MOST_PLANNED = 8
_FEWEST_PLANNED = 4
_MOST_PER_PLACE = 3
_SLOTS_PLANNED = 1_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A curve up to its `size`-th count: one whole answer to what the draft leaves open."""

    curve: Curve
    size: int

    @property
    def counts(self) -> tuple[int, ...]:
        """The allowed counts, ascending."""
        return self.curve.counts[: self.size]

    @property
    def success_probability(self) -> float:
        """That of the least likely of its counts."""
        return min(point.prediction.success_probability for point in self.curve.points[: self.size])


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOption:
    """A candidate on the offering and with the policy that suit it best."""

    candidate: Candidate
    offering_id: str
    policy_id: str
    expected_cost_micro_usd: int
    expected_utility_micro_usd: int
    on_time_ppm: int
    sure: bool

    @property
    def rank(self) -> tuple[int, int, int, int, CurveKey, tuple[int, ...], str, str]:
        """Sort key, best first: sure ones by utility, then the likeliest; ties by id."""
        return (
            not self.sure,
            0 if self.sure else -self.on_time_ppm,
            -self.expected_utility_micro_usd,
            self.expected_cost_micro_usd,
            self.candidate.curve.key,
            self.candidate.counts,
            self.offering_id,
            self.policy_id,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screened:
    """A candidate on an offering with its estimated cost, micro-USD."""

    candidate: Candidate
    offering_id: str
    cost: float
    after: int

    @property
    def rank(self) -> tuple[float, int, CurveKey, int, str]:
        return (
            self.cost,
            self.after,
            self.candidate.curve.key,
            self.candidate.size,
            self.offering_id,
        )


# The throughput that a candidate's job would state where it is planned.
ThroughputOf = Callable[[Candidate], Throughput]


def candidates_of(curves: Sequence[Curve], *, whole: bool) -> list[Candidate]:
    """Every curve up to every count, or only the `whole` curves where the counts are stated."""
    return [
        Candidate(curve=curve, size=size)
        for curve in curves
        for size in range(len(curve.points) if whole else 1, len(curve.points) + 1)
    ]


def earliest_finish_ns(curves: Sequence[Curve], market: MarketView, job: Job) -> int:
    """When the fastest of all configurations is done on demand, ns since the epoch."""
    _, first_ns = market.first_slot(job)
    seconds = []
    for curve in curves:
        # As the job would state it: a line may lie a little below the fastest point.
        throughput = curve.place.stated or throughput_of(
            curve.place.key, {point.count: point.planned_tokens_per_hour for point in curve.points}
        )
        rate = max(throughput.rate_per_hour(count) for count in curve.counts)
        seconds.append(job.work.amount / rate * S_PER_HOUR + job.overheads.launch_s)
    return first_ns + math.ceil(min(seconds) / market.slot_s) * market.slot_ns


def rank_options(
    curves: Sequence[Curve],
    market: MarketView,
    job: Job,
    throughput_for: ThroughputOf,
    *,
    whole: bool,
) -> list[PlannedOption]:
    """Plan the most promising candidates and rank them, the chosen first; one entry per candidate.

    Parameters
    ----------
    curves
        What may be chosen.
    job
        The job with everything but counts and throughput: deadline, value, work, overheads.
    whole
        The counts are stated: no curve is cut short.

    Returns
    -------
    list
        Empty where on-demand instances alone could meet the deadline with none of them.
    """
    futures = _futures(curves, market, job)
    screened = _screen(curves, market, job, futures, whole=whole)
    if not screened:
        return []
    first_slot, first_ns = market.first_slot(job)
    outline = compile_program(
        job, job.throughputs[0], slot_s=market.slot_s, first_slot_start_ns=first_ns
    )
    programs: dict[Candidate, JobProgram] = {}
    best: dict[Candidate, PlannedOption] = {}
    policies = [policy_named(policy_id) for policy_id in POLICY_IDS]
    for estimate in _most_promising(screened, outline.end_slots):
        candidate = estimate.candidate
        if candidate not in programs:
            throughput = throughput_for(candidate)
            programs[candidate] = program_with(
                outline, job.work.amount, throughput, candidate.counts
            )
        option = _plan(
            candidate,
            programs[candidate],
            futures[estimate.offering_id],
            policies,
            waits=first_slot - market.next_slot,
        )
        known = best.get(candidate)
        if known is None or option.rank < known.rank:
            best[candidate] = option
    return _with_room(sorted(best.values(), key=lambda option: option.rank))


def _with_room(ranked: list[PlannedOption]) -> list[PlannedOption]:
    """Put the best curve's longest set of counts first that is hardly dearer than the best."""
    best = ranked[0]
    allowed = best.expected_cost_micro_usd * ROOM_PPM // PPM
    each = [point.planned_tokens_per_hour / point.count for point in best.candidate.curve.points]
    chosen = max(
        (
            option
            for option in ranked
            if option.candidate.curve is best.candidate.curve
            and (option is best or each[option.candidate.size - 1] >= ROOM_EFFICIENCY * max(each))
            and option.sure == best.sure
            and option.on_time_ppm >= best.on_time_ppm
            and option.expected_utility_micro_usd >= best.expected_utility_micro_usd - allowed
        ),
        key=lambda one: one.candidate.size,
    )
    return [chosen, *(option for option in ranked if option is not chosen)]


def program_with(
    outline: JobProgram, work: float, throughput: Throughput, counts: tuple[int, ...]
) -> JobProgram:
    """The program of a job that differs from `outline`'s in counts and throughput alone.

    As `compile_program`, without working out again what every slot is worth.
    """
    scale = WorkScale.for_amount(work)
    rates = [0] * (counts[-1] + 1)
    for count in counts:
        rates[count] = scale.rate_quanta_per_s(throughput.rate_per_hour(count))
    return replace(outline, rate_quanta_per_s=tuple(rates), allowed_counts=counts)


def _slots_to(market: MarketView, job: Job) -> tuple[int, int]:
    """Whole slots to the deadline and to the end, from the job's first."""
    _, first_ns = market.first_slot(job)
    return (
        max(0, (job.deadline.at_ns - first_ns) // market.slot_ns),
        max(0, (job.deadline.expires_ns - first_ns) // market.slot_ns),
    )


def _slots_needed(curve: Curve, market: MarketView, job: Job) -> FloatArray:
    """Slots the whole work takes after one launch, by count, shape (points,)."""
    rates = np.array([point.planned_tokens_per_hour for point in curve.points])
    busy_s = job.work.amount / rates * S_PER_HOUR + job.overheads.launch_s
    needed: FloatArray = busy_s / market.slot_s
    return needed


# --- screening --------------------------------------------------------------------------------


def _futures(curves: Sequence[Curve], market: MarketView, job: Job) -> dict[str, Futures]:
    waits = market.first_slot(job)[0] - market.next_slot
    slots = waits + max(1, _slots_to(market, job)[1])
    places: dict[str, Place] = {curve.place.key: curve.place for curve in curves}
    found: dict[str, Futures] = {}
    for key in sorted(places):
        for offering in places[key].offerings:
            futures = futures_of(
                market, offering.offering_id, slots=slots, most_spot=places[key].most_spot
            )
            if futures is not None:
                found[offering.offering_id] = futures
    return found


def _screen(
    curves: Sequence[Curve],
    market: MarketView,
    job: Job,
    futures: Mapping[str, Futures],
    *,
    whole: bool,
) -> list[_Screened]:
    deadline, end = _slots_to(market, job)
    hard = job.deadline.kind is DeadlineKind.HARD
    screened: list[_Screened] = []
    for curve in curves:
        needed = _slots_needed(curve, market, job)
        success = np.array([point.prediction.success_probability for point in curve.points])
        for offering in curve.place.offerings:
            one = futures.get(offering.offering_id)
            if one is None or deadline < 1:
                continue
            cost = _estimated_cost(curve, one, needed, deadline, market.slot_s) / success
            late = np.maximum(0.0, needed - deadline) / max(1, end - deadline)
            cost += job.value_micro_usd * late
            feasible = np.ceil(needed) <= (deadline if hard else end)
            if not feasible.any():
                continue
            cheapest = int(np.argmin(np.where(feasible, cost, np.inf)))
            last = len(curve.points) - 1
            sizes = [last] if whole else sorted({cheapest, min(cheapest + 1, last), last})
            screened.extend(
                _Screened(
                    candidate=Candidate(curve=curve, size=size + 1),
                    offering_id=offering.offering_id,
                    cost=float(cost[cheapest]),
                    after=position,
                )
                for position, size in enumerate(sizes)
            )
    return screened


def _estimated_cost(
    curve: Curve, futures: Futures, needed: FloatArray, deadline: int, slot_s: int
) -> FloatArray:
    """Micro-USD by count: spot while it is there, on-demand for what is missing at the deadline."""
    counts = np.array(curve.counts)
    at = min(deadline, futures.slots) - 1
    there = futures.share[np.minimum(counts, len(futures.share) - 1), at]
    there = np.where(counts < len(futures.share), there, 0.0)
    on_spot = np.minimum(1.0, there * deadline / needed)
    price = on_spot * futures.spot_price[at] + (1.0 - on_spot) * futures.on_demand_price
    cost: FloatArray = counts * needed * price * (slot_s / S_PER_HOUR)
    return cost


def _most_promising(screened: Sequence[_Screened], end_slots: int) -> list[_Screened]:
    """The best of every place, then the best of all, as many as may be planned."""
    most = max(_FEWEST_PLANNED, min(_MOST_PLANNED, _SLOTS_PLANNED // max(1, end_slots)))
    places = {option.candidate.curve.place.key for option in screened}
    share = max(1, min(_MOST_PER_PLACE, most // max(1, len(places))))
    taken = dict.fromkeys(places, 0)
    first: list[_Screened] = []
    others: list[_Screened] = []
    for option in sorted(screened, key=lambda one: one.rank):
        key = option.candidate.curve.place.key
        taken[key] += 1
        (first if taken[key] <= share else others).append(option)
    return first + others[: max(0, most - len(first))]


# --- planning ---------------------------------------------------------------------------------


def _plan(
    candidate: Candidate,
    program: JobProgram,
    futures: Futures,
    policies: Sequence[Policy],
    *,
    waits: int,
) -> PlannedOption:
    """The best policy for a candidate on one offering."""
    table = replay_many(
        program,
        futures.series,
        policies,
        futures.first_slots(waits),
        policy_named(FALLBACK_POLICY_ID),
    )
    paths = futures.paths
    costs = table.cost_micro_usd.sum(axis=0).tolist()
    values = table.value_micro_usd.sum(axis=0).tolist()
    on_time = table.on_time.sum(axis=0).tolist()
    success_ppm = max(1, round(candidate.success_probability * PPM))
    options = []
    for index, policy in enumerate(policies):
        cost = costs[index] * PPM // (paths * success_ppm)
        on_time_ppm = on_time[index] * PPM // paths
        options.append(
            PlannedOption(
                candidate=candidate,
                offering_id=futures.offering_id,
                policy_id=policy.policy_id,
                expected_cost_micro_usd=cost,
                expected_utility_micro_usd=values[index] // paths - cost,
                on_time_ppm=on_time_ppm,
                sure=not program.hard or on_time_ppm >= SURE_PPM,
            )
        )
    return min(options, key=lambda option: option.rank)


def warm_up_planning() -> None:
    """Compile the replay of the policies that options are planned with, or load it compiled."""
    ones = np.ones(1, dtype=np.int64)
    series = MarketSeries(
        spot_price=ones, on_demand_price=ones, spot_available=ones, on_demand_available=ones
    )
    policies = [policy_named(policy_id) for policy_id in POLICY_IDS]
    replay_many(SMALLEST_PROGRAM, series, policies, [0], policy_named(FALLBACK_POLICY_ID))
