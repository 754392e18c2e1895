"""What spot will be worth to a crowd: futures of counts and arrivals, each solved as a fluid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from spotline.application.selector.job_run import JobRun
from spotline.application.selector.state import SelectorState
from spotline.domain.crowd.arrivals import Arrivals
from spotline.domain.crowd.fluid import MOST_PRICE_MICRO_USD, FluidWork, Supply, marginal_worths
from spotline.domain.drawn import generator
from spotline.domain.jobs.job import Job, Throughput
from spotline.domain.market.counts_ahead import counts_ahead, spread_chances
from spotline.domain.market.law import FloatArray, IntArray
from spotline.domain.market.offering import Quote
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.units import S_PER_HOUR

# Futures that worths are the mean of.
FUTURES = 16
# Periods of a future: the rest of a day of half-hour slots, where each is one slot.
PERIODS = 36
# Slots to come whose worths are averaged: half a day of them.
AHEAD_SLOTS = 24
# Slots of a period, at most: deadlines that are farther away than all periods then are cut off.
MOST_SLOTS = 4
# What is due after the last period is done by then, but for what this share of its largest count does later.
LATER_SHARE = 0.6
# Work is counted in quarters of what an instance does in a slot.
UNITS = 4
# A job's work is taken for no more than so many units: beyond all that it could do before it is due.
_MOST_WORK = 10**9


def worths_ahead(state: SelectorState, arrivals: Arrivals) -> dict[str, int] | None:
    """What an instance of spot is worth beyond its price in the slots to come, micro-USD per hour.

    By offering, as a mean over futures and slots, each slot weighted by its spot. None where no
    offering has a count. Where one job runs alone, only those that may come are counted, like the `arrivals` of
    late: what it needs itself its value table knows.
    """
    speeds = _Speeds.of(state)
    market = _Market.of(state, speeds)
    if not market.quotes:
        return None
    running = [run for run in state.running() if run.first_slot >= 0]
    left = [found for run in running if (found := _work_left(state, run, speeds)) is not None]
    if len(running) < 2:
        left = []
    rng = generator("worths ahead", state.slot)
    period = _period_of(left, arrivals.longest)
    spot = market.futures(state, rng, period * PERIODS)
    flowing = market.within(left, period)
    total, weight = np.zeros(spot.shape[2]), np.zeros(spot.shape[2])
    near = max(1, AHEAD_SLOTS // period)
    for future in spot:
        coming = arrivals.drawn(state.slot, period * PERIODS, rng)
        supply = market.supply(future.reshape(PERIODS, period, -1).sum(axis=1), period)
        worths = marginal_worths([*flowing, *market.within(coming, period)], supply)
        there = supply.spot[1 : near + 1]
        total += (worths[1 : near + 1] * there).sum(axis=0)
        weight += there.sum(axis=0)
    mean = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    per_hour = np.rint(mean * UNITS * market.speeds * S_PER_HOUR / market.slot_s).astype(np.int64)
    return dict(zip(market.offering_ids, per_hour.tolist(), strict=True))


def note_arrival(state: SelectorState, run: JobRun) -> None:
    """Take a job that was admitted in this slot, where prices count on those to come."""
    if state.arrivals is None:
        return
    work = _work_left(state, run, _Speeds.of(state))
    if work is not None:
        state.arrivals.note(state.slot, work)


@dataclass(slots=True, kw_only=True)
class _Speeds:
    """How fast jobs are where they can run, each as a share of the most that its largest count does.

    `market` is the instance type of each offering, by id.
    """

    market: Mapping[str, str]
    _found: dict[tuple[tuple[str, ...], tuple[Throughput, ...], int], Mapping[str, float]] = field(
        default_factory=dict
    )

    @classmethod
    def of(cls, state: SelectorState) -> _Speeds:
        """On the offerings of a market."""
        return cls(
            market={name: offering.instance_type for name, offering in state.offerings.items()}
        )

    def shares(self, job: Job) -> Mapping[str, float]:
        """The job's shares, by offering; jobs of like rates have the same."""
        key = job.offerings, job.throughputs, job.max_instances
        found = self._found.get(key)
        if found is None:
            rates = {}
            for name, instance_type in self.market.items():
                throughput = job.throughput_on(name, instance_type)
                if throughput is not None:
                    rates[name] = throughput.rate_per_hour(job.max_instances)
            most = max(rates.values(), default=0.0)
            found = {name: rate / most for name, rate in rates.items() if rate > 0}
            self._found[key] = found
        return found

    def means(self, jobs: Sequence[Job], offering_ids: Sequence[str]) -> FloatArray:
        """The mean share of jobs at each offering, shape (offerings,); 1 where none can run.

        Jobs that differ in where they are fast are taken for one kind of work.
        """
        total, known = np.zeros(len(offering_ids)), np.zeros(len(offering_ids))
        for job in jobs:
            shares = self.shares(job)
            for at, name in enumerate(offering_ids):
                if name in shares:
                    total[at] += shares[name]
                    known[at] += 1
        mean: FloatArray = np.divide(total, known, out=np.ones_like(total), where=known > 0)
        return mean


def _work_left(state: SelectorState, run: JobRun, speeds: _Speeds) -> FluidWork | None:
    """What is left of a running job before its deadline; None where that has passed."""
    program = run.compiled
    left = program.work_quanta - run.state.progress_quanta
    elapsed = run.elapsed_slots(state.slot)
    if left <= 0 or elapsed >= program.deadline_slots:
        return None
    shares = speeds.shares(run.job)
    most = program.max_instances
    rate = program.rate_quanta_per_s[most] / most
    launch_s = 0 if run.state.holding.instances else program.launch_s
    idle = max(run.state.pending_overhead_s, launch_s) / program.slot_s * most
    # At home it goes on at the home's share of the greatest speed.
    busy = left / (rate * program.slot_s) * shares.get(run.offering_id, 1.0)
    return FluidWork(
        begins=0,
        due=max(1, program.deadline_slots - elapsed),
        most=most * UNITS,
        amount=min(_MOST_WORK, int(np.ceil((busy + idle) * UNITS - 1e-9))),
        where=tuple(sorted(shares)),
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
    def of(cls, state: SelectorState, speeds: _Speeds) -> _Market:
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
            speeds=speeds.means(
                [run.job for run in state.running()], [quote.offering_id for quote in quotes]
            ),
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

    def within(self, works: Sequence[FluidWork], period: int) -> list[FluidWork]:
        """Works as far as offerings of the market do them, in periods of so many slots."""
        here = set(self.offering_ids)
        found = []
        for work in works:
            where = tuple(name for name in work.where if name in here)
            cut = _cut(work, period) if where else None
            if cut is not None:
                found.append(cut._replace(where=where))
        return found

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
        per_unit = np.rint(np.array(prices) * hours / (self.speeds * UNITS))
        found: IntArray = np.minimum(per_unit, MOST_PRICE_MICRO_USD).astype(np.int64)
        return found


def _cut(work: FluidWork, period: int) -> FluidWork | None:
    """Work in periods of so many slots, as far as futures go; None where it begins beyond."""
    begins, due = -(-work.begins // period), max(1, work.due // period)
    if begins >= PERIODS:
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
