"""What a job among zones should do in a tick: the cost of each choice on a table and a belief.

The table knows zones by how they usually are; the belief knows what this job has seen of each. The
next tick is looked at with the belief, what follows with the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs
from spotline.domain.solvers.zone_table import ZoneTable

FloatArray = npt.NDArray[np.float64]
Costs = npt.NDArray[np.float32]

IDLE: Final = "idle"
SPOT: Final = "spot"
ON_DEMAND: Final = "on_demand"

_NEVER = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """Where a job stands in a tick.

    Attributes
    ----------
    tick, slack_s
        Ticks since the start; seconds to the deadline beyond the work left.
    kind, zone, source
        What is held: `idle`, `spot` in a zone (else -1) or `on_demand`; the region of the
        checkpoint and of what is held, -1 where there is none yet.
    overhead_left_s
        Seconds until what is held works.
    spot_usd
        Price of this tick, shape (zones,).
    """

    tick: int
    slack_s: int
    kind: str
    zone: int
    source: int
    overhead_left_s: int
    spot_usd: FloatArray


@dataclass(frozen=True, slots=True)
class ZoneAction:
    """A choice without a launch of spot: what is held then, on-demand in which region, the cost."""

    cost_usd: float
    kind: str
    region: int


@dataclass(frozen=True, slots=True)
class _NextTick:
    """What a belief says of the next tick.

    `chances` (zones,) to be up, `dists` (zones, laws * buckets) of law and age if so, and the two
    outage ages of the table between which the chance that any is up lies: the lower and the share
    of the upper one.
    """

    chances: FloatArray
    dists: FloatArray
    age: int
    age_share: float


def launch_costs(table: ZoneTable, view: ZoneView, dists: FloatArray) -> FloatArray:
    """Expected cost to the end of a launch in each zone if it is up, shape (zones,), USD.

    `dists` is of law and age, shape (zones, laws * buckets). Huge where a launch could make the job
    late.
    """
    job = table.job
    zones = np.arange(len(job.region_of))
    to_s = view.slack_s - job.overhead_s[view.source, job.region_of]
    grid = table.grid_s
    low = np.clip(np.searchsorted(grid, to_s, side="right") - 1, 0, len(grid) - 2)
    share = np.clip((to_s - grid[low]) / (grid[low + 1] - grid[low]), 0.0, 1.0)
    rows = table.held[view.tick]
    lower = np.einsum("zs,zs->z", rows[zones, :, low], dists)
    upper = np.einsum("zs,zs->z", rows[zones, :, low + 1], dists)
    # The table takes the first prices to last; the tick's own are known.
    dearer = view.spot_usd - job.spot_usd
    egress = job.egress_usd[view.source, job.region_of]
    costs: FloatArray = (1.0 - share) * lower + share * upper + dearer + egress
    costs[to_s < job.floor_s] = _NEVER
    return costs


def best_without_launch(table: ZoneTable, view: ZoneView, beliefs: ZoneBeliefs) -> ZoneAction:
    """Cheapest of keeping what is held, idling, and buying on-demand; ties keep what is held."""
    later = _next_tick(table, beliefs, view.source)
    choices = []
    if view.kind == SPOT:
        choices.append(ZoneAction(held_cost(table, view, beliefs), SPOT, view.source))
    elif view.kind == ON_DEMAND:
        cost = _bought(table, view, later, view.source, overhead_s=view.overhead_left_s)
        choices.append(ZoneAction(cost, ON_DEMAND, view.source))
    choices.append(ZoneAction(_idle(table, view, later), IDLE, view.source))
    if view.kind != ON_DEMAND:
        region = _region_to_buy(table, view, later)
        overhead_s = int(table.job.overhead_s[view.source, region])
        cost = _bought(table, view, later, region, overhead_s=overhead_s)
        cost += float(table.job.egress_usd[view.source, region])
        choices.append(ZoneAction(cost, ON_DEMAND, region))
    return min(choices, key=lambda choice: choice.cost_usd)


def held_cost(table: ZoneTable, view: ZoneView, beliefs: ZoneBeliefs) -> float:
    """Expected cost to the end of keeping the spot that is held."""
    job = table.job
    slack_s = view.slack_s - view.overhead_left_s
    low, share = table.place(slack_s)
    rows = table.held[view.tick, view.zone]
    dist = beliefs.when_up()[view.zone]
    value = float((1.0 - share) * (dist @ rows[:, low]) + share * (dist @ rows[:, low + 1]))
    if job.left_s(view.tick, slack_s) <= job.tick_s:
        return value
    return value + float(view.spot_usd[view.zone] - job.spot_usd[view.zone])


def is_worth_launching(
    table: ZoneTable, view: ZoneView, beliefs: ZoneBeliefs, zone: int, cost_usd: float
) -> bool:
    """Whether a launch at that cost is better than all else, given that the zone is up.

    A launch is had only where the zone is up; a job that knows it to be up can also wait.
    """
    if view.kind == SPOT and cost_usd >= held_cost(table, view, beliefs):
        return False
    return cost_usd < best_without_launch(table, view, _seen(beliefs, zone, up=True)).cost_usd


def probe_gain(table: ZoneTable, view: ZoneView, beliefs: ZoneBeliefs, zone: int) -> float:
    """Expected saving from knowing now whether a zone is up, USD, before the price of a probe.

    The job launches nothing in this tick; what it learns serves from the next tick on. It is asked
    of a job that holds no spot: one that does tries other zones for nothing once it is lost.
    """
    chance = float(beliefs.up_chances()[zone])
    known = chance * best_without_launch(table, view, _seen(beliefs, zone, up=True)).cost_usd
    known += (1.0 - chance) * best_without_launch(
        table, view, _seen(beliefs, zone, up=False)
    ).cost_usd
    return best_without_launch(table, view, beliefs).cost_usd - known


def _seen(beliefs: ZoneBeliefs, zone: int, *, up: bool) -> ZoneBeliefs:
    seen = beliefs.copy()
    seen.observe(zone, up=up)
    return seen


def _next_tick(table: ZoneTable, beliefs: ZoneBeliefs, source: int) -> _NextTick:
    later = beliefs.copy()
    later.advance()
    chances = later.up_chances()
    rate = 1.0 - float(np.prod(1.0 - chances))
    rates = table.outage_rates[source]
    age = int(np.searchsorted(-rates, -rate, side="right")) - 1
    if age < 0:
        return _NextTick(chances, later.when_up(), 0, 0.0)
    if age >= len(rates) - 1:
        return _NextTick(chances, later.when_up(), len(rates) - 2, 1.0)
    share = (rates[age] - rate) / (rates[age] - rates[age + 1])
    return _NextTick(chances, later.when_up(), age, float(share))


def _idle(table: ZoneTable, view: ZoneView, later: _NextTick) -> float:
    """Expected cost of holding nothing for this tick."""
    job = table.job
    to_s = view.slack_s - job.tick_s
    if to_s < job.floor_s:
        region = int(job.on_demand_usd.argmin())
        return job.bought_usd(view.tick, view.slack_s, region, overhead_s=job.restart_s)
    rest = _after(table, view, later, table.idle[:, view.source], to_s, view.source)
    return job.wait_usd + rest


def _bought(
    table: ZoneTable, view: ZoneView, later: _NextTick, region: int, *, overhead_s: int
) -> float:
    """Expected cost of on-demand for this tick, `overhead_s` of a launch being left."""
    job = table.job
    to_s = view.slack_s - overhead_s
    if to_s < job.floor_s:
        return job.bought_usd(view.tick, view.slack_s, region, overhead_s=overhead_s)
    if job.left_s(view.tick, view.slack_s) <= job.tick_s - overhead_s:
        return 0.0
    rest = _after(table, view, later, table.bought[:, region], to_s, region)
    return float(job.on_demand_usd[region]) + rest


def _region_to_buy(table: ZoneTable, view: ZoneView, later: _NextTick) -> int:
    """Region whose on-demand is cheapest to the end by the table alone; the first of several."""
    job = table.job
    costs = []
    for region in range(len(job.on_demand_usd)):
        overhead_s = int(job.overhead_s[view.source, region])
        to_s = view.slack_s - overhead_s
        if to_s < job.floor_s:
            cost = job.bought_usd(view.tick, view.slack_s, region, overhead_s=overhead_s)
        else:
            low, share = table.place(to_s)
            row = table.bought[view.tick, region, later.age]
            cost = float((1.0 - share) * row[low] + share * row[low + 1])
        costs.append(cost + float(job.egress_usd[view.source, region]))
    return costs.index(min(costs))


def _after(
    table: ZoneTable, view: ZoneView, later: _NextTick, rows: Costs, slack_s: int, source: int
) -> float:
    """Expected cost to go from the next tick, in which any zone that is up may be launched."""
    low, share = table.place(slack_s)
    cells = rows[view.tick + 1, later.age : later.age + 2, low : low + 2]
    by_age = (1.0 - share) * cells[:, 0] + share * cells[:, 1]
    value = float((1.0 - later.age_share) * by_age[0] + later.age_share * by_age[1])
    ahead = replace(view, tick=view.tick + 1, slack_s=slack_s, source=source)
    costs = launch_costs(table, ahead, later.dists)
    for zone in np.argsort(-costs, kind="stable"):
        if costs[zone] < value:
            value += float(later.chances[zone]) * (float(costs[zone]) - value)
    return value
