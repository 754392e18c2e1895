"""A job's whole life under a policy, compiled: `replay.replay_policy` for pools and markets.

`Life` is the bundle that says how a job fared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from spotline.domain.jobs.accounting import Held, Standing, Terms, terms_at
from spotline.domain.jobs.offer import Offer, on_demand_to_hold, slot_cost
from spotline.domain.kernels import IntArray, kernel, part
from spotline.domain.policies import ahanp, ahap, msu, on_demand_only, sdp, uniform_progress
from spotline.domain.policies.ahap_plans import MOST_PLANS, Planner, forget
from spotline.domain.policies.params import Params
from spotline.domain.policies.settle import settle, settle_late
from spotline.domain.solvers.table_look import OpenTable, open_table

# Columns of a market, its rows are slots: what a slot offers lies together. See `Offer`.
SPOT_PRICE, ON_DEMAND_PRICE, SPOT, ON_DEMAND, RESERVE_SLOTS, RESCUE, FIRM, STEPS, RUN_STATE = range(
    9
)
MARKET_COLUMNS = 9

# What is kept of a slot: spot, on-demand and reason.
KEPT = 3

# Columns of where lives begin: the row of the market, then the standing, all 0 in a first slot.
FIRST, ELAPSED, PROGRESS, HELD_SPOT, HELD_ON_DEMAND, PENDING_S, SPENT, UNSAVED = range(8)
START_COLUMNS = 8


class Life(NamedTuple):
    """How a job fared; `finished` counts slots from 1, 0 where it did not finish."""

    utility: int
    cost: int
    value: int
    finished: int
    slots: int


# The kinds that `live` knows.
KINDS = (
    msu.KIND,
    on_demand_only.KIND,
    uniform_progress.KIND,
    ahanp.KIND,
    ahap.KIND,
    sdp.KIND,
)
# Those that look at the bundles of a planner or a table.
PLANNERS = (ahap.KIND, sdp.KIND)


@kernel
def replay_lives(
    job: tuple[IntArray, IntArray, IntArray, IntArray],
    market: IntArray,
    players: IntArray,
    planning: tuple[IntArray, IntArray, IntArray, IntArray],
    table: tuple[Any, ...],
    starts: IntArray,
    kept_slots: int,
) -> tuple[IntArray, IntArray]:
    """Run every policy from every start.

    Parameters
    ----------
    job
        `ProgramLayout.row`, `ProgramLayout.by_count`, `ProgramLayout.values` and the line of `line.line_of`.
    market
        Columns `SPOT_PRICE` and so on, a row for every slot.
    players
        `Params` by policy, one row each; the last is the fallback, which needs no forecast.
    planning
        The first four fields of `Planner`.
    table
        `ValueTable.arrays` of the table that `RUN_STATE` belongs to.
    starts
        Columns `FIRST` and so on, a row for every life: where in the market it goes on, from what.
    kept_slots
        How many slots of every life are kept.

    Returns
    -------
    lives
        Fields of `Life`, shape (starts, policies, 5).
    kept
        Spot, on-demand and reason, shape (starts, policies, kept_slots, 3).
    """
    terms = terms_at(job[0])
    planner = _planner(terms, players, planning, job[2])
    opened = open_table(table)
    policies = players.shape[0] - 1
    pair = np.empty((2, players.shape[1]), dtype=np.int64)
    pair[1] = players[policies]
    memory = np.empty((2, ahap.memory_width(players[:, 4].max())), dtype=np.int64)
    lives = np.empty((starts.shape[0], policies, 5), dtype=np.int64)
    kept = np.zeros((starts.shape[0], policies, kept_slots, KEPT), dtype=np.int64)
    for f in range(starts.shape[0]):
        forget(planner)
        for p in range(policies):
            # Nothing is remembered.
            memory[0, 0], memory[1, 0] = -1, -1
            for column in range(players.shape[1]):
                pair[0, column] = players[p, column]
            if players[p, 0] in PLANNERS:
                life = live(pair, job, planner, opened, starts[f], market, memory, kept[f, p])
            else:
                life = live(pair, job, None, None, starts[f], market, memory, kept[f, p])
            lives[f, p, 0] = life.utility
            lives[f, p, 1] = life.cost
            lives[f, p, 2] = life.value
            lives[f, p, 3] = life.finished
            lives[f, p, 4] = life.slots
    return lives, kept


@part
def params_at(row: IntArray) -> Params:
    """Read a row of `Params`."""
    return Params(row[0], row[1], row[2], row[3], row[4], row[5], row[6])


@part
def _planner(
    terms: Terms,
    players: IntArray,
    planning: tuple[IntArray, IntArray, IntArray, IntArray],
    values: IntArray,
) -> Planner:
    """Room for the plans of all policies of one life."""
    planners = players[:, 4].sum()
    starts = min(terms.deadline_slots, terms.end_slots) if planners else 0
    room = min(planners * starts, MOST_PLANS)
    predicted, prices, lines, lates = planning
    steps = predicted.shape[2]
    return Planner(
        predicted,
        prices,
        lines,
        lates,
        values,
        np.empty((starts, steps + 1, lines.shape[2] + 1), dtype=np.int64),
        np.empty((room, 5), dtype=np.int64),
        np.empty((room, steps + 1, 2), dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


@kernel
def live(
    pair: IntArray,
    job: tuple[IntArray, IntArray, IntArray, IntArray],
    planner: Planner | None,
    table: OpenTable | None,
    start: IntArray,
    market: IntArray,
    memory: IntArray,
    kept: IntArray,
) -> Life:
    """Live one life on from a start, under a policy and its fallback (`pair`).

    This is the one place that knows all policies, a line each. `memory` has a row for each of the
    two. numba counts the arrays of a bundle wherever it is taken apart or copied: here the bundles
    are handed on as they came, in the lines that need them. They are None, and those lines are
    not compiled, for policies that do without.
    """
    params, fallback, terms = params_at(pair[0]), params_at(pair[1]), terms_at(job[0])
    by_count, values, line = job[1], job[2], job[3]
    held = Held(start[HELD_SPOT], start[HELD_ON_DEMAND])
    progress, unsaved, pending_s = start[PROGRESS], start[UNSAVED], start[PENDING_S]
    spent, finished, slots = start[SPENT], 0, 0
    # The row of the market in which a life from its first slot would have begun.
    origin = start[FIRST] - start[ELAPSED]
    for elapsed in range(start[ELAPSED], min(terms.end_slots, market.shape[0] - origin)):
        offer = offer_in(market, origin + elapsed, terms.slot_s, held)
        broken = int(held.spot > offer.spot)
        if broken:
            progress, unsaved = progress - unsaved, 0
        standing = Standing(elapsed, progress, held, pending_s, spent, broken, unsaved)
        if elapsed >= terms.deadline_slots:
            settled = settle_late(terms, standing, offer, by_count, values)
        else:
            player, row = params, 0
            if params.needs_forecast and offer.steps < 0:
                # The plans of a policy that was not asked are stale: it starts them again.
                memory[0, 0] = -1
                player, row = fallback, 1
            kind = player.kind
            if kind == msu.KIND:
                wish = msu.choose(offer, by_count)
            elif kind == on_demand_only.KIND:
                wish = on_demand_only.choose(terms, memory, row, by_count)
            elif kind == uniform_progress.KIND:
                wish = uniform_progress.choose(terms, standing, offer, by_count, line)
            elif kind == ahanp.KIND:
                wish = ahanp.choose(player, standing, offer, memory, row, by_count, line)
            elif planner is None or table is None:
                wish = held
            elif kind == ahap.KIND:
                wish = ahap.choose(player, terms, standing, offer, memory[0], by_count, planner)
            else:
                wish = sdp.choose(
                    player, terms, standing, offer, by_count, planner.predicted, table
                )
            netted = bool(terms.hard or player.nets_soft_deadlines or offer.run_state < 0)
            settled = settle(terms, standing, offer, wish, netted, by_count)
        held = settled.after.held
        progress, unsaved = settled.after.progress, settled.after.unsaved
        pending_s = settled.after.pending_s
        spent += slot_cost(offer, held)
        if kept.shape[0]:
            kept[elapsed, 0] = held.spot
            kept[elapsed, 1] = held.on_demand
            kept[elapsed, 2] = settled.reason
        slots += 1
        if progress >= terms.work_quanta:
            finished = elapsed + 1
            break
    value = values[finished] if finished else 0
    return Life(value - spent, spent, value, finished, slots)


@part
def offer_in(market: IntArray, slot: int, slot_s: int, held: Held) -> Offer:
    """What a slot of a market offers to a job that holds this."""
    on_demand = on_demand_to_hold(
        market[slot, ON_DEMAND], held.on_demand, market[slot, RESERVE_SLOTS]
    )
    return Offer(
        market[slot, SPOT_PRICE],
        market[slot, ON_DEMAND_PRICE],
        market[slot, SPOT],
        on_demand,
        slot_s,
        market[slot, RESERVE_SLOTS],
        market[slot, RESCUE],
        market[slot, FIRM],
        slot,
        market[slot, STEPS],
        market[slot, RUN_STATE],
    )
