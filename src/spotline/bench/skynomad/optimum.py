"""The least cost of a job that knows the future: an exact program on the ticks of a window.

The state is the tick, the slack on the lattice of tick and restart, and what runs. A launch jumps
over its overhead: work stands still until then, so ending it earlier is never cheaper than idling,
but for one tick that takes the checkpoint to another region. The safety net does not bind it, only
the deadline, so no policy is ever below it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from spotline.bench.skynomad.world import AlignedZones, IntArray, Moves, UpArray, ZoneTerms

_NEVER = 1 << 60


class _Window(NamedTuple):
    """A window's arrays: availability and prices, the region of each zone, the cost of moves."""

    up: UpArray
    spot: IntArray
    on_demand: IntArray
    region_of: IntArray
    egress: IntArray
    overhead_s: IntArray


class _Job(NamedTuple):
    """Seconds of the first slack, of a tick, of a lattice step; the deadline in ticks."""

    slack_s: int
    tick_s: int
    step_s: int
    deadline: int


def optimum_micro_usd(market: AlignedZones, moves: Moves, terms: ZoneTerms, start: int) -> int:
    """Least cost of a job whose first tick is `start` of the market, micro-USD.

    Raises
    ------
    ValueError
        The market ends before the deadline.
    """
    end = start + terms.deadline_ticks
    if end > market.ticks:
        raise ValueError(f"the window must end by tick {market.ticks}, ends at {end}")
    window = _Window(
        market.up[start:end],
        market.spot_micro_usd[start:end],
        market.on_demand_micro_usd,
        market.region_of,
        moves.egress_micro_usd,
        moves.extra_s + terms.restart_s,
    )
    job = _Job(terms.slack_s, terms.tick_s, terms.lattice_s, terms.deadline_ticks)
    return int(_least(window, job))


@numba.njit(cache=True, nogil=True)
def _least(window: _Window, job: _Job) -> int:
    zones, regions = window.region_of.size, window.on_demand.size
    cells = job.slack_s // job.step_s + 1
    layers = -(-int(np.max(window.overhead_s)) // job.tick_s) + 2
    # Per layer of ticks: idle by region (the last nowhere), then what runs: spot by zone and
    # on-demand by region.
    idle = np.zeros((layers, regions + 1, cells), dtype=np.int64)
    runs = np.zeros((layers, zones + regions, cells), dtype=np.int64)
    step = job.tick_s // job.step_s
    for at in range(job.deadline - 1, -1, -1):
        here, after = at % layers, (at + 1) % layers
        # No more slack is gone by a tick than time has passed.
        reach = min(cells, at * step + 1)
        first_left_s = (job.deadline - at) * job.tick_s - job.slack_s
        done = _cells_within(first_left_s, 0, job.step_s, reach)
        for source in range(regions + 1):
            best = idle[here, source]
            for cell in range(done, reach):
                best[cell] = idle[after, source, cell + step] if cell + step < cells else _NEVER
            for kind in range(zones + regions):
                if kind >= zones or window.up[at, kind]:
                    _launch(window, job, idle, runs, (at, source, kind, reach))
            best[:done] = 0
        ends = _cells_within(first_left_s, job.tick_s, job.step_s, reach)
        for kind in range(zones + regions):
            region = window.region_of[kind] if kind < zones else kind - zones
            held = runs[here, kind]
            held[:reach] = idle[here, region, :reach]
            if kind >= zones or window.up[at, kind]:
                price = window.spot[at, kind] if kind < zones else window.on_demand[region]
                held[:ends] = 0
                for cell in range(ends, reach):
                    held[cell] = min(held[cell], price + runs[after, kind, cell])
    return int(idle[0, regions, 0])


@numba.njit(cache=True, nogil=True)
def _cells_within(first_left_s: int, most_s: int, step_s: int, reach: int) -> int:
    """How many cells, from the first, have at most `most_s` of work left."""
    if first_left_s > most_s:
        return 0
    return min(reach, (most_s - first_left_s) // step_s + 1)


@numba.njit(cache=True, nogil=True)
def _launch(
    window: _Window,
    job: _Job,
    idle: IntArray,
    runs: IntArray,
    what: tuple[int, int, int, int],
) -> None:
    """Lower the values of idling to those of a launch; `what` is tick, source, kind and reach.

    A kind below the number of zones is spot there, above it on-demand in a region.
    """
    at, source, kind, reach = what
    zones, layers, cells = window.region_of.size, idle.shape[0], idle.shape[2]
    is_spot = kind < zones
    region = window.region_of[kind] if is_spot else kind - zones
    overhead_s = window.overhead_s[source, region]
    first_left_s = (job.deadline - at) * job.tick_s - job.slack_s
    step = job.tick_s // job.step_s
    best = idle[at % layers, source]
    paid = window.egress[source, region]
    ticks = -(-overhead_s // job.tick_s)
    for passed in range(1, ticks + 1):
        # Tick `at + passed - 1` runs.
        if at + passed > job.deadline:
            return
        finished = 0
        if passed == ticks:
            credit_s = ticks * job.tick_s - overhead_s
            finished = _cells_within(first_left_s, credit_s, job.step_s, reach)
            for cell in range(finished):
                best[cell] = min(best[cell], paid)
        if at + passed == job.deadline:
            return
        paid += window.spot[at + passed - 1, kind] if is_spot else window.on_demand[region]
        lost = is_spot and not window.up[at + passed, kind]
        layer = (at + passed) % layers
        down = overhead_s // job.step_s if passed == ticks else passed * step
        if lost or passed == 1 or passed == ticks:
            to = idle[layer, region] if lost or passed < ticks else runs[layer, kind]
            for cell in range(finished, min(reach, cells - down)):
                best[cell] = min(best[cell], paid + to[cell + down])
        if lost:
            return
