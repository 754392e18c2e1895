"""The value table of a job of one instance that may run in any of several zones.

Expected cost to go by backward induction over ticks, slack and what is held. Of the zone that is
held all is told apart that its laws do; of the others only how likely they have spot. A job sees
whether a zone has spot by trying to launch there, which is free where it has none, so whoever holds
nothing, or something dearer than another zone would be, knows that zone to be down, and each tick
it comes back with the chance of a zone that has been down for as long.

The value of a zone's launch counts the whole overhead at once; an interruption during it so costs a
little too much.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs, ZoneLaws
from spotline.domain.kernels import kernel

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Costs = npt.NDArray[np.float32]

# Ticks for which all zones have been down from which an outage counts as older.
OUTAGE_STARTS = (1, 4, 12, 40, 120)
_MIDDLE = 1
# Slack is told apart by about so many seconds up to so many, then by ticks, then ever less finely.
_FINE_S, _FINE_TO_S, _TICKS_TO_S, _GROWTH = 120, 7200, 18000, 1.04
_NEVER = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneJob:
    """A job of one instance among zones, and what things cost.

    Attributes
    ----------
    work_s, restart_s, tick_s
        Seconds of work, of a launch, of a tick.
    deadline_ticks
        Ticks until the deadline, which is hard: below a restart and a tick of slack on-demand is
        bought to the end.
    region_of
        Region of each zone.
    spot_usd, on_demand_usd
        Price of a tick, shapes (zones,) and (regions,).
    egress_usd, overhead_s
        What a launch costs and takes from the region of the checkpoint to another, shape
        (regions + 1, regions); the last row where there is no checkpoint yet.
    wait_usd
        What an idle tick is taken to cost: slack also insures against what the laws do not know,
        zones that go down together and outages longer than any seen.
    """

    work_s: int
    deadline_ticks: int
    tick_s: int
    restart_s: int
    region_of: IntArray
    spot_usd: FloatArray
    on_demand_usd: FloatArray
    egress_usd: FloatArray
    overhead_s: IntArray
    wait_usd: float = 0.0

    @property
    def slack_s(self) -> int:
        """Seconds to the deadline beyond the work."""
        return self.deadline_ticks * self.tick_s - self.work_s

    @property
    def floor_s(self) -> int:
        """Least slack at which anything is left to decide."""
        return self.restart_s + self.tick_s

    def left_s(self, tick: int, slack_s: float) -> float:
        """Seconds of work left at a tick with so much slack."""
        return (self.deadline_ticks - tick) * self.tick_s - slack_s

    def bought_usd(self, tick: int, slack_s: float, region: int, *, overhead_s: int) -> float:
        """Cost of on-demand to the end; the tick that ends the work is free."""
        ticks = -(-(self.left_s(tick, slack_s) + overhead_s) // self.tick_s)
        return float(max(0.0, ticks - 1) * self.on_demand_usd[region])


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneTable:
    """Expected cost to go, USD, at a tick that has been looked at.

    Attributes
    ----------
    grid_s
        Slack, seconds, ascending, shape (grid,).
    held
        A zone that is held and past its overhead, by law and age of its run, shape (ticks + 1,
        zones, laws * buckets, grid).
    idle
        Nothing is held and no zone is up, by region of the checkpoint and age of the outage, shape
        (ticks + 1, regions + 1, ages, grid).
    bought
        The same with on-demand held, shape (ticks + 1, regions, ages, grid).
    outage_rates
        Chance that some zone is up in the next tick, by region of the checkpoint and age of the
        outage, shape (regions + 1, ages).
    """

    job: ZoneJob
    laws: ZoneLaws
    grid_s: FloatArray
    held: Costs
    idle: Costs
    bought: Costs
    outage_rates: FloatArray

    @property
    def size_bytes(self) -> int:
        """Size of the values."""
        return int(self.held.nbytes + self.idle.nbytes + self.bought.nbytes)

    def place(self, slack_s: float) -> tuple[int, float]:
        """Grid cell at or below a slack within the grid, and the share of the one above."""
        grid = self.grid_s
        low = min(max(int(np.searchsorted(grid, slack_s, side="right")) - 1, 0), len(grid) - 2)
        share = (slack_s - grid[low]) / (grid[low + 1] - grid[low])
        return low, min(max(float(share), 0.0), 1.0)


def slack_grid_s(job: ZoneJob) -> FloatArray:
    """Slack that a table tells apart, finest where little is left."""
    fine = job.tick_s / max(1, round(job.tick_s / _FINE_S))
    at, step = float(job.floor_s), fine
    grid = [at]
    while at < job.slack_s:
        if at >= job.floor_s + _TICKS_TO_S:
            step *= _GROWTH
        elif at >= job.floor_s + _FINE_TO_S:
            step = float(job.tick_s)
        at += step
        grid.append(at)
    if len(grid) < 2:
        grid.append(at + step)
    return np.array(grid)


def build_zone_table(job: ZoneJob, laws: ZoneLaws) -> ZoneTable:
    """Solve a job's whole life by backward induction.

    Raises
    ------
    ValueError
        Zones of the job and of the laws differ in number.
    """
    if len(job.region_of) != laws.zones:
        raise ValueError(
            f"laws must be of the job's {len(job.region_of)} zones, are of {laws.zones}"
        )
    grid = slack_grid_s(job)
    buckets = laws.buckets
    transitions = laws.transitions[:, buckets:, buckets:]
    ends = np.stack([law.ends[1] for law in laws.laws]).ravel()
    stays = np.array([matrix.diagonal() for matrix in transitions]).ravel()
    seen = ZoneBeliefs.before(laws)
    rates = _recovery_rates(job, laws)
    held, idle, bought = _solve(
        np.array((job.work_s, job.deadline_ticks, job.tick_s, job.restart_s), dtype=np.int64),
        grid,
        (
            job.region_of,
            job.spot_usd,
            job.on_demand_usd,
            job.egress_usd,
            job.overhead_s,
            job.wait_usd,
        ),
        (ends, stays, seen.when_up(), _fresh(laws), seen.up_chances()),
        rates,
        np.diff(np.array(OUTAGE_STARTS, dtype=np.float64)),
    )
    return ZoneTable(
        job=job,
        laws=laws,
        grid_s=grid,
        held=held,
        idle=idle,
        bought=bought,
        outage_rates=1.0 - np.prod(1.0 - rates, axis=1),
    )


def _fresh(laws: ZoneLaws) -> FloatArray:
    """Law and age of a zone that has just come up, shape (zones, laws * buckets)."""
    buckets = laws.buckets
    ends = np.stack([law.ends[0] for law in laws.laws])
    flows = (laws.prior[:, :, :buckets] * ends[np.newaxis]).sum(axis=2)
    fresh = np.zeros((laws.zones, len(laws.laws), buckets))
    fresh[:, :, 0] = flows / flows.sum(axis=1, keepdims=True)
    return fresh.reshape(laws.zones, -1)


def _recovery_rates(job: ZoneJob, laws: ZoneLaws) -> FloatArray:
    """Chance that a zone comes up in the next tick, shape (regions + 1, zones, ages).

    By region of the checkpoint, where a zone was lost when the outage began: it comes back sooner
    than one that had been down before, for how long nobody knows.
    """
    old, new = ZoneBeliefs.before(laws), ZoneBeliefs.before(laws)
    for zone in range(laws.zones):
        new.observe(zone, up=True)
    new.advance()
    # Each age is represented by its geometric middle; the last by its start.
    pairs = itertools.pairwise(OUTAGE_STARTS)
    at = [*(round((a * b) ** 0.5) for a, b in pairs), OUTAGE_STARTS[-1]]
    by_age = np.zeros((2, laws.zones, len(at)))
    for tick in range(1, at[-1] + 1):
        for beliefs in (old, new):
            for zone in range(laws.zones):
                beliefs.observe(zone, up=False)
            beliefs.advance()
        if tick in at:
            age = at.index(tick)
            by_age[0, :, age], by_age[1, :, age] = old.up_chances(), new.up_chances()
    regions = len(job.on_demand_usd)
    rates = np.repeat(by_age[:1], regions + 1, axis=0)
    for region in range(regions):
        near = np.flatnonzero(job.region_of == region)
        rates[region, near] += (by_age[1, near] - by_age[0, near]) / len(near)
    return rates


@kernel
def _solve(
    terms: IntArray,
    grid: FloatArray,
    market: tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, float],
    law: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    rates: FloatArray,
    widths: FloatArray,
) -> tuple[Costs, Costs, Costs]:
    """Backward induction; see `ZoneTable` for the shapes."""
    region_of, _, on_demand, _, _, _ = market
    deadline, tick_s = terms[1], terms[2]
    zones, states, regions = region_of.size, law[0].size, on_demand.size
    cells, ages = grid.size, widths.size + 1
    held = np.zeros((deadline + 1, zones, states, cells), dtype=np.float32)
    idle = np.zeros((deadline + 1, regions + 1, ages, cells), dtype=np.float32)
    bought = np.zeros((deadline + 1, regions, ages, cells), dtype=np.float32)
    launches = np.zeros((2, regions + 1, zones, cells))
    lost = np.zeros((zones, cells))
    orders = np.zeros((2, regions + 1, cells, zones), dtype=np.int64)
    after = np.zeros((regions + 1, ages, cells))
    for at in range(deadline - 1, -1, -1):
        _launch_values(terms, grid, market, law, held[at + 1], at + 1, launches, orders)
        _lost_values(region_of, law[4], idle[at + 1], launches[1], orders[1], lost)
        # On-demand, then idling (which may buy), then spot (which may do either).
        _look_again(bought[at + 1], launches[0], orders[0], rates, widths, after)
        for region in range(regions):
            for age in range(ages):
                for cell in range(cells):
                    left_s = (deadline - at) * tick_s - grid[cell]
                    if left_s > tick_s:
                        cost = on_demand[region] + after[region, age, cell]
                        bought[at, region, age, cell] = cost
        _look_again(idle[at + 1], launches[0], orders[0], rates, widths, after)
        _idle_values(terms, grid, market, after, at, bought[at], idle[at])
        for region in range(regions):
            for age in range(ages):
                for cell in range(cells):
                    bought[at, region, age, cell] = min(
                        bought[at, region, age, cell], idle[at, region, age, cell]
                    )
        _held_values(
            terms,
            grid,
            market,
            law,
            (held[at + 1], idle[at]),
            (at, lost),
            (launches[0], orders[0], rates[-1]),
            held[at],
        )
    return held, idle, bought


@kernel
def _interpolated(values: Costs, grid: FloatArray, slack_s: float) -> float:
    """Value at a slack at or above the grid's first."""
    low, high = 0, grid.size - 1
    if slack_s >= grid[high]:
        return float(values[high])
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] <= slack_s:
            low = middle
        else:
            high = middle
    share = (slack_s - grid[low]) / (grid[high] - grid[low])
    return float((1.0 - share) * values[low] + share * values[high])


@kernel
def _launch_values(
    terms: IntArray,
    grid: FloatArray,
    market: tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, float],
    law: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    held: Costs,
    at: int,
    launches: FloatArray,
    orders: IntArray,
) -> None:
    """Cost of launching in a zone that has just come up, and in one that is up, by source.

    `orders` has the zones by falling cost.
    """
    region_of, _, _, egress, overhead_s, _ = market
    zones, cells = region_of.size, grid.size
    mean = np.zeros(cells, dtype=np.float32)
    for kind in range(2):
        weights = law[3] if kind == 0 else law[2]
        for zone in range(zones):
            mean[:] = 0.0
            for state in range(weights.shape[1]):
                weight = np.float32(weights[zone, state])
                if weight > 0.0:
                    for cell in range(cells):
                        mean[cell] += weight * held[zone, state, cell]
            region = region_of[zone]
            for source in range(egress.shape[0]):
                for cell in range(cells):
                    to_s = grid[cell] - overhead_s[source, region]
                    cost = _NEVER
                    if to_s >= grid[0]:
                        cost = egress[source, region] + _interpolated(mean, grid, to_s)
                    launches[kind, source, zone, cell] = cost
        for source in range(egress.shape[0]):
            for cell in range(cells):
                order = orders[kind, source, cell]
                for zone in range(zones):
                    place = zone
                    cost = launches[kind, source, zone, cell]
                    while place > 0 and launches[kind, source, order[place - 1], cell] < cost:
                        order[place] = order[place - 1]
                        place -= 1
                    order[place] = zone


@kernel
def _lost_values(
    region_of: IntArray,
    chances: FloatArray,
    idle: Costs,
    launches: FloatArray,
    orders: IntArray,
    lost: FloatArray,
) -> None:
    """Cost to go of a job whose zone was just interrupted, before it has tried the others."""
    for zone in range(region_of.size):
        source = region_of[zone]
        for cell in range(lost.shape[1]):
            value = float(idle[source, 0, cell])
            for other in orders[source, cell]:
                cost = launches[source, other, cell]
                if other != zone and cost < value:
                    value += chances[other] * (cost - value)
            lost[zone, cell] = value


@kernel
def _look_again(
    values: Costs,
    launches: FloatArray,
    orders: IntArray,
    rates: FloatArray,
    widths: FloatArray,
    after: FloatArray,
) -> None:
    """Expected cost to go a tick after all zones were down, by source, age and slack."""
    ages = values.shape[1]
    for source in range(values.shape[0]):
        for age in range(ages):
            older = 1.0 / widths[age] if age + 1 < ages else 0.0
            for cell in range(values.shape[2]):
                value = float(values[source, age, cell])
                if older > 0.0:
                    value += older * (values[source, age + 1, cell] - value)
                for zone in orders[source, cell]:
                    cost = launches[source, zone, cell]
                    if cost < value:
                        value += rates[source, zone, age] * (cost - value)
                after[source, age, cell] = value


@kernel
def _idle_values(
    terms: IntArray,
    grid: FloatArray,
    market: tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, float],
    after: FloatArray,
    at: int,
    bought: Costs,
    idle: Costs,
) -> None:
    """Cost to go where no zone is up: idle for a tick, or buy on-demand."""
    _, _, on_demand, egress, overhead_s, wait = market
    deadline, tick_s, restart_s = terms[1], terms[2], terms[3]
    cheapest = on_demand.min()
    row = np.zeros(grid.size, dtype=np.float32)
    for source in range(idle.shape[0]):
        for age in range(idle.shape[1]):
            row[:] = after[source, age]
            for cell in range(grid.size):
                left_s = (deadline - at) * tick_s - grid[cell]
                if left_s <= 0.0:
                    idle[source, age, cell] = 0.0
                    continue
                to_s = grid[cell] - tick_s
                if to_s >= grid[0]:
                    best = wait + _interpolated(row, grid, to_s)
                else:
                    best = max(0.0, np.ceil((left_s + restart_s) / tick_s) - 1.0) * cheapest
                for region in range(on_demand.size):
                    charged_s = overhead_s[source, region]
                    to_s = grid[cell] - charged_s
                    cost = egress[source, region]
                    if to_s >= grid[0]:
                        cost += _interpolated(bought[region, age], grid, to_s)
                    else:
                        ticks = np.ceil((left_s + charged_s) / tick_s) - 1.0
                        cost += max(0.0, ticks) * on_demand[region]
                    best = min(best, cost)
                idle[source, age, cell] = best


@kernel
def _held_values(
    terms: IntArray,
    grid: FloatArray,
    market: tuple[IntArray, FloatArray, FloatArray, FloatArray, IntArray, float],
    law: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    known: tuple[Costs, Costs],
    tick: tuple[int, FloatArray],
    choices: tuple[FloatArray, IntArray, FloatArray],
    held: Costs,
) -> None:
    """Cost to go of each zone that is held: stay for a tick, or end it."""
    region_of, spot = market[0], market[1]
    ends, stays = law[0], law[1]
    later, idle = known
    at, lost = tick
    launches, orders, rates = choices
    cells = grid.size
    for zone in range(region_of.size):
        source = region_of[zone]
        for state in range(ends.size):
            older = 1.0 - ends[state] - stays[state]
            for cell in range(cells):
                left_s = (terms[1] - at) * terms[2] - grid[cell]
                if left_s <= terms[2]:
                    held[zone, state, cell] = 0.0
                    continue
                value = stays[state] * later[zone, state, cell]
                if older > 1e-9:
                    value += older * later[zone, state + 1, cell]
                value /= 1.0 - ends[state]
                for other in orders[source, cell]:
                    cost = launches[source, other, cell]
                    if other != zone and cost < value:
                        value += rates[other, _MIDDLE] * (cost - value)
                value = spot[zone] + (1.0 - ends[state]) * value + ends[state] * lost[zone, cell]
                held[zone, state, cell] = min(value, idle[source, _MIDDLE, cell])
