"""What spot will be worth to a crowd: futures of counts and arrivals, each solved as a fluid."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.fluid import FluidWork, Supply, marginal_worths
from spotline.domain.jobs.job import Job
from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.counts_ahead import counts_ahead, spread_chances
from spotline.domain.market.law import FloatArray, IntArray
from spotline.domain.market.offering import Quote
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.remembered import BySelf
from spotline.domain.units import S_PER_HOUR

# Futures that worths are the mean of. Of 6 prices went to and fro too much (ADR 0092).
FUTURES = 16
# Periods of a future, and slots whose worths are averaged: the rest of a day of half-hour slots, and half a day.
PERIODS = 36
MEAN_SLOTS = 24
# Slots of a period, at most: where most deadlines are farther away than all periods, they are cut off.
MOST_SLOTS = 4
# What is due after the last period is done by then but for what this share of its largest count does later.
LATER_SHARE = 0.6
# Work is counted in quarters of what an instance does in a slot.
UNITS = 4


def worths_ahead(state: SelectorState) -> dict[str, int] | None:
    """What an instance of spot is worth beyond its price in the slots to come, micro-USD per hour.

    By offering, as a mean over futures and slots, each slot weighted by its spot. None where no
    offering has a count. Where one job runs alone, only those that may come are counted: what it needs itself
    its value table knows.
    """
    market = _Market.of(state)
    if not market.quotes:
        return None
    running = [run for run in state.running() if run.first_slot >= 0]
    work = [found for run in running if (found := _work_left(state, run)) is not None]
    if len(running) < 2:
        work = []
    arrivals = state.arrivals or Arrivals()
    rng = _rng(state.slot)
    period = _period_of(work, arrivals.longest)
    slots = period * PERIODS
    spot = market.futures(state, rng, slots)
    total, weight = np.zeros(spot.shape[2]), np.zeros(spot.shape[2])
    near = max(1, MEAN_SLOTS // period)
    for future in spot:
        coming = arrivals.drawn(state.slot, slots, rng)
        flowing = [
            cut
            for each in (*work, *coming)
            if (cut := _cut(market.within(each), period)) is not None
        ]
        supply = market.supply(future.reshape(PERIODS, period, -1).sum(axis=1), period)
        worths = marginal_worths(flowing, supply)[1 : near + 1]
        there = supply.spot[1 : near + 1]
        total += (worths * there).sum(axis=0)
        weight += there.sum(axis=0)
    mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    per_hour = np.rint(mean * UNITS * market.speeds * S_PER_HOUR / market.slot_s).astype(np.int64)
    return dict(zip(market.offering_ids, per_hour.tolist(), strict=True))


def note_arrival(state: SelectorState, run: JobRun) -> None:
    """Take a job that was admitted in this slot, where prices count on those to come."""
    if state.arrivals is not None:
        work = _work_left(state, run)
        if work is not None:
            state.arrivals.note(state.slot, work)


def _work_left(state: SelectorState, run: JobRun) -> FluidWork | None:
    """What is left of a running job before its deadline; None where that has passed."""
    program = run.compiled
    left = program.work_quanta - run.state.progress_quanta
    elapsed = run.elapsed_slots(state.slot)
    if left <= 0 or elapsed >= program.deadline_slots:
        return None
    launch_s = 0 if run.state.holding.instances else program.launch_s
    first_s = max(run.state.pending_overhead_s, launch_s)
    return _work(run.job, program, run.offering_id, _types_of(state), left, first_s, elapsed)


def _work(
    job: Job,
    program: JobProgram,
    home: str,
    market: Mapping[str, str],
    quanta: int,
    first_s: int,
    elapsed: int,
) -> FluidWork:
    speeds = _speeds_of(job, market)
    most = program.max_instances
    rate = program.rate_quanta_per_s[most] / most
    # At home it goes on at the home's share of the greatest speed.
    busy = quanta / (rate * program.slot_s) * speeds.get(home, 1.0)
    idle = first_s / program.slot_s * most
    return FluidWork(
        begins=0,
        due=max(1, program.deadline_slots - elapsed),
        most=most * UNITS,
        amount=int(np.ceil((busy + idle) * UNITS - 1e-9)),
        where=tuple(sorted(speeds)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Market:
    """Offerings of which a count is known, and that no reservation covers, in order of their ids.

    `speeds` are shares of the greatest that the jobs of the market have, by offering.
    """

    slot_s: int
    quotes: tuple[Quote, ...]
    speeds: FloatArray

    @classmethod
    def of(cls, state: SelectorState) -> _Market:
        quotes = tuple(
            sorted(
                (
                    quoted.quote
                    for quoted in state.current.quotes
                    if quoted.quote.spot_available.known
                    and state.offerings[quoted.quote.offering_id].reservation is None
                ),
                key=lambda quote: quote.offering_id,
            )
        )
        return cls(
            slot_s=state.current.slot_s,
            quotes=quotes,
            speeds=_mean_speeds(state, [quote.offering_id for quote in quotes]),
        )

    @property
    def offering_ids(self) -> tuple[str, ...]:
        """Their ids."""
        return tuple(quote.offering_id for quote in self.quotes)

    def futures(self, state: SelectorState, rng: np.random.Generator, slots: int) -> IntArray:
        """Spot that may come, in instances, shape (futures, slots, offerings)."""
        found = np.empty((FUTURES, slots, len(self.quotes)), dtype=np.int64)
        for column, quote in enumerate(self.quotes):
            chances = spread_chances(rng, FUTURES, slots)
            count, named = quote.spot_available.instances, state.laws.get(quote.offering_id)
            if named is None:
                found[:, :, column] = count
                continue
            run_state = state.run_state(quote.offering_id, named.law.space)
            found[:, :, column] = counts_ahead(named.law, run_state, count, chances)
        return found

    def within(self, work: FluidWork) -> FluidWork:
        """The work as far as offerings of the market do it."""
        here = set(self.offering_ids)
        return work._replace(where=tuple(name for name in work.where if name in here))

    def supply(self, spot: IntArray, period: int) -> Supply:
        """What there is in a future with so much spot, shape (periods, offerings)."""
        scale = self.speeds * UNITS
        hours = self.slot_s / S_PER_HOUR
        on_demand = [quote.on_demand_available for quote in self.quotes]
        return Supply(
            offering_ids=self.offering_ids,
            spot=np.rint(spot * scale).astype(np.int64),
            on_demand=np.rint(
                np.array([count.instances if count.known else UNCOUNTED for count in on_demand])
                * scale
                * period
            ).astype(np.int64),
            spot_price=self._per_unit([quote.spot_price_micro_usd for quote in self.quotes], hours),
            on_demand_price=self._per_unit(
                [quote.on_demand_price_micro_usd for quote in self.quotes], hours
            ),
        )

    def _per_unit(self, prices: Sequence[int], hours: float) -> IntArray:
        found: IntArray = np.rint(np.array(prices) * hours / (self.speeds * UNITS)).astype(np.int64)
        return found


def _types_of(state: SelectorState) -> Mapping[str, str]:
    return {name: offering.instance_type for name, offering in state.offerings.items()}


def _mean_speeds(state: SelectorState, offering_ids: Sequence[str]) -> FloatArray:
    """How fast running jobs are at offerings, as shares of each one's greatest speed, in the mean.

    Jobs that differ in where they are fast are taken for one kind of work.
    """
    market = _types_of(state)
    total = np.zeros(len(offering_ids))
    jobs = np.zeros(len(offering_ids))
    for run in state.running():
        speeds = _speeds_of(run.job, market)
        for at, name in enumerate(offering_ids):
            if name in speeds:
                total[at] += speeds[name]
                jobs[at] += 1
    mean: FloatArray = np.divide(total, jobs, out=np.ones_like(total), where=jobs > 0)
    return mean


def _speeds_of(job: Job, market: Mapping[str, str]) -> Mapping[str, float]:
    """What a job's largest count does at each offering where it can run, as a share of the most it does."""
    known = _speeds.of(job)
    if known.market != market:
        known.market = dict(market)
        known.shares = _shares(job, market)
    return known.shares


def _shares(job: Job, market: Mapping[str, str]) -> dict[str, float]:
    rates = {}
    for name, instance_type in market.items():
        throughput = job.throughput_on(name, instance_type)
        if throughput is not None:
            rates[name] = throughput.rate_per_hour(job.max_instances)
    most = max(rates.values(), default=0.0)
    return {name: rate / most for name, rate in rates.items() if rate > 0}


class _Speeds:
    """The speeds of one job, for as long as the market has the same offerings."""

    def __init__(self, job: Job) -> None:
        self.market: Mapping[str, str] = {}
        self.shares: Mapping[str, float] = {}


_speeds = BySelf(_Speeds, 4_096)


def _cut(work: FluidWork, period: int) -> FluidWork | None:
    """Work in periods of so many slots, as far as futures go; None where none of it is left there."""
    begins, due = -(-work.begins // period), max(1, work.due // period)
    if not work.where or begins >= PERIODS:
        return None
    due = max(due, begins + 1)
    beyond = max(0, due - PERIODS)
    done_later = int(beyond * period * work.most * LATER_SHARE)
    return work._replace(
        begins=begins,
        due=min(due, PERIODS),
        most=work.most * period,
        amount=max(0, work.amount - done_later),
    )


def _period_of(work: Sequence[FluidWork], longest: int) -> int:
    """Slots of a period: as few as hold the last deadline within all periods."""
    last = max([longest, *(each.due for each in work)])
    return max(1, min(MOST_SLOTS, -(-last // PERIODS)))


def _rng(slot: int) -> np.random.Generator:
    digest = hashlib.sha256(f"worths ahead\x1f{slot}".encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:8], "big")))
