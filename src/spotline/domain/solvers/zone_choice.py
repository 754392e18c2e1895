"""What a job among zones should do in a tick: values of each choice on a table and a belief.

The table knows zones by how they usually are; the belief knows what this job has seen of each. The
next tick is looked at with the belief, what follows with the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spotline.domain.beliefs.zone_beliefs import ZoneBeliefs
from spotline.domain.solvers.zone_table import ZoneTable

FloatArray = npt.NDArray[np.float64]
Costs = npt.NDArray[np.float32]

_NEVER = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneView:
    """Where a job stands in a tick: the tick, its slack, and the prices of the tick.

    `source` is the region of the checkpoint, -1 where there is none.
    """

    tick: int
    slack_s: int
    source: int
    spot_usd: FloatArray


@dataclass(frozen=True, slots=True)
class NextTick:
    """What a belief says of the next tick, all of a job's zones being as they were just seen.

    `chances` (zones,) to be up, `dists` (zones, laws * buckets) of law and age if so, and the two
    outage ages of the table between which the chance that any is up lies: the lower and the share
    of the upper one.
    """

    chances: FloatArray
    dists: FloatArray
    age: int
    age_share: float


def next_tick(table: ZoneTable, beliefs: ZoneBeliefs, source: int) -> NextTick:
    """Let a tick pass in a copy of a belief; `source` is the region of the checkpoint."""
    later = beliefs.copy()
    later.advance()
    chances = later.up_chances()
    rate = 1.0 - float(np.prod(1.0 - chances))
    rates = table.outage_rates[source]
    age = int(np.searchsorted(-rates, -rate, side="right")) - 1
    if age < 0:
        return NextTick(chances, later.when_up(), 0, 0.0)
    if age >= len(rates) - 1:
        return NextTick(chances, later.when_up(), len(rates) - 2, 1.0)
    share = (rates[age] - rate) / (rates[age] - rates[age + 1])
    return NextTick(chances, later.when_up(), age, float(share))


def launch_usd(table: ZoneTable, view: ZoneView, zone: int, dist: FloatArray) -> float:
    """Expected cost of a launch in a zone that is up, by law and age of its run; huge if unsafe."""
    job = table.job
    region = job.region_of[zone]
    to_s = view.slack_s - job.overhead_s[view.source, region]
    if to_s < job.floor_s:
        return _NEVER
    return float(job.egress_usd[view.source, region]) + held_usd(
        table, view, zone, dist, slack_s=int(to_s)
    )


def held_usd(
    table: ZoneTable, view: ZoneView, zone: int, dist: FloatArray, *, slack_s: int
) -> float:
    """Expected cost to go of spot that is held, `slack_s` less the overhead that is left."""
    job = table.job
    low, share = table.place(slack_s)
    rows = table.held[view.tick, zone]
    value = float((1.0 - share) * (dist @ rows[:, low]) + share * (dist @ rows[:, low + 1]))
    if job.left_s(view.tick, slack_s) <= job.tick_s:
        return value
    return value + float(view.spot_usd[zone] - job.spot_usd[zone])


def idle_usd(table: ZoneTable, view: ZoneView, later: NextTick) -> float:
    """Expected cost of holding nothing for this tick."""
    job = table.job
    to_s = view.slack_s - job.tick_s
    if to_s < job.floor_s:
        region = int(job.on_demand_usd.argmin())
        return job.bought_usd(view.tick, view.slack_s, region, overhead_s=job.restart_s)
    return _after(table, view, later, table.idle[:, view.source], slack_s=to_s, source=view.source)


def bought_usd(
    table: ZoneTable, view: ZoneView, later: NextTick, region: int, *, overhead_s: int
) -> float:
    """Expected cost of on-demand in a region for this tick, `overhead_s` of a launch being left."""
    job = table.job
    to_s = view.slack_s - overhead_s
    if to_s < job.floor_s:
        return job.bought_usd(view.tick, view.slack_s, region, overhead_s=overhead_s)
    if job.left_s(view.tick, view.slack_s) <= job.tick_s - overhead_s:
        return 0.0
    rest = _after(table, view, later, table.bought[:, region], slack_s=to_s, source=region)
    return float(job.on_demand_usd[region]) + rest


def _after(
    table: ZoneTable,
    view: ZoneView,
    later: NextTick,
    rows: Costs,
    *,
    slack_s: int,
    source: int,
) -> float:
    """Expected cost to go from the next tick, in which any zone that is up may be launched."""
    low, share = table.place(slack_s)
    cells = rows[view.tick + 1, later.age : later.age + 2, low : low + 2]
    by_age = (1.0 - share) * cells[:, 0] + share * cells[:, 1]
    value = float((1.0 - later.age_share) * by_age[0] + later.age_share * by_age[1])
    ahead = ZoneView(tick=view.tick + 1, slack_s=slack_s, source=source, spot_usd=view.spot_usd)
    costs = [launch_usd(table, ahead, zone, dist) for zone, dist in enumerate(later.dists)]
    for zone in sorted(range(len(costs)), key=lambda z: (-costs[z], z)):
        if costs[zone] < value:
            value += float(later.chances[zone]) * (costs[zone] - value)
    return value
