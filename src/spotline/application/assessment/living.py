"""How a job would have fared in every future: by Spotline's plan, and by plain recovery.

Money is counted in millionths of what all of the job costs on demand, so that one life says the
same of a large and a small gang. What is lived is the step of the ladder that the job's work is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from spotline.application.assessment.assumptions import Assumptions
from spotline.application.assessment.availability import (
    AssumedSpot,
    planning_law,
    run_state_of,
)
from spotline.application.assessment.prices import CELL_S, CellCalendar
from spotline.application.assessment.standing_in import AssessedJob, WorkGrid
from spotline.domain.jobs.program import JobProgram
from spotline.domain.policies.compiled import MarketSeries, replay_many
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.sdp import SDP
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable, build_table
from spotline.domain.units import PPM, S_PER_HOUR

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# A second on demand costs a million: every cost of whole seconds is then a whole number.
_ON_DEMAND = PPM * S_PER_HOUR
# More than any way to finish costs: a job with a hard deadline is worth finishing.
_WORTH = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlannedLives:
    """Lives by Spotline's plan, shape (futures,): cost over that on demand, and whether in time."""

    ratio: FloatArray
    on_time: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlainLives:
    """Lives with plain recovery, shape (futures,): cost over that on demand; `took` over the work.

    Where spot was not there long enough until the calendar ends, `took` is infinite, and what was
    left to do is charged on demand.
    """

    ratio: FloatArray
    took: FloatArray


def program_of_gang(grid: WorkGrid, slack_ppm: int, assumptions: Assumptions) -> JobProgram:
    """The job as one unit, with a hard deadline.

    The work on the bill has one start in it: what is left of it is progress. Deadlines round down.
    """
    deadline = grid.slots * slack_ppm // PPM
    launch_s = launch_of(grid, assumptions)
    return JobProgram(
        slot_s=grid.slot_s,
        work_quanta=grid.work_s - launch_s,
        rate_quanta_per_s=(0, 1),
        allowed_counts=(1,),
        launch_s=launch_s,
        grow_s=launch_s,
        shrink_s=0,
        interrupted_s=launch_s,
        lost_s=assumptions.lost_s,
        deadline_slots=deadline,
        end_slots=deadline,
        hard=True,
        value_micro_usd=(_WORTH * PPM * grid.slot_s * deadline,) * (deadline + 1),
    )


def launch_of(grid: WorkGrid, assumptions: Assumptions) -> int:
    """Seconds that a start takes; of a job that is shorter than two, half of it."""
    return min(assumptions.launch_s, grid.work_s // 2)


def tables_for(
    jobs: Sequence[AssessedJob], slack_ppm: int, assumptions: Assumptions
) -> Iterator[tuple[int, ValueTable]]:
    """The index of every job with its table, those that share one together: one is held at a time."""

    def key(index: int) -> tuple[WorkGrid, AssumedSpot, int]:
        job = jobs[index]
        return job.grid, job.assumed, job.planned_ppm

    for (grid, assumed, price_ppm), members in groupby(sorted(range(len(jobs)), key=key), key):
        table = build_table(
            TableTerms(
                program=program_of_gang(grid, slack_ppm, assumptions),
                law=planning_law(assumed, grid.slot_s, price_ppm),
                on_demand_price=_ON_DEMAND,
                on_demand_available=UNCOUNTED,
            )
        )
        for index in members:
            yield index, table


def planned_lives(
    job: AssessedJob, table: ValueTable, paths: BoolArray, calendar: CellCalendar
) -> PlannedLives:
    """Live the program of `table` on the job's prices and on every path, shape (futures, cells)."""
    program = table.terms.program
    slots = program.deadline_slots
    opens = job.job.begin_s + np.arange(slots, dtype=np.int64) * program.slot_s
    cells = calendar.cell_of(opens)
    there = paths[:, cells]
    futures = len(there)
    spot_price = job.prices.ratio_ppm[cells] * S_PER_HOUR
    series = MarketSeries(
        spot_price=np.tile(spot_price, futures),
        on_demand_price=np.full(futures * slots, _ON_DEMAND, dtype=np.int64),
        spot_available=there.astype(np.int64).ravel(),
        on_demand_available=np.full(futures * slots, UNCOUNTED, dtype=np.int64),
        run_state=run_state_of(there, program.slot_s).ravel(),
    )
    starts = np.arange(futures, dtype=np.int64) * slots
    lived = replay_many(program, series, (SDP,), starts, policy_named(FALLBACK_POLICY_ID), table)
    return PlannedLives(
        ratio=lived.cost_micro_usd[:, 0] / (PPM * job.grid.work_s), on_time=lived.on_time[:, 0]
    )


def plain_lives(
    job: AssessedJob, paths: BoolArray, calendar: CellCalendar, assumptions: Assumptions
) -> PlainLives:
    """Take spot whenever it is there, from the begin on, and nothing else; deadlines do not count."""
    ratio = np.zeros(len(paths))
    took = np.zeros(len(paths))
    first = int(calendar.cell_of(job.job.begin_s))
    # What spot costs from the calendar's begin to each cell, in millionths of a second on demand.
    until = np.append(0, np.cumsum(job.prices.ratio_ppm * CELL_S))
    begin_s = job.job.begin_s - calendar.begin_s
    for future, path in enumerate(paths):
        runs = _runs(path, first, begin_s)
        cost, end_s = _plain_life(job, runs, until, assumptions)
        ratio[future] = cost / (PPM * job.grid.work_s)
        took[future] = (end_s - begin_s) / job.grid.work_s
    return PlainLives(ratio=ratio, took=took)


def _runs(path: BoolArray, first: int, begin_s: int) -> Iterator[tuple[int, int]]:
    """From when to when spot is there, seconds after the calendar's begin, from a time on."""
    edges = np.flatnonzero(path[first + 1 :] != path[first:-1]) + first + 1
    bounds = [max(begin_s, first * CELL_S), *(edges * CELL_S).tolist(), len(path) * CELL_S]
    skipped = 0 if path[first] else 1
    return zip(bounds[skipped:-1:2], bounds[skipped + 1 :: 2], strict=False)


def _plain_life(
    job: AssessedJob,
    runs: Iterator[tuple[int, int]],
    until: IntArray,
    assumptions: Assumptions,
) -> tuple[int, float]:
    """Cost in millionths of seconds on demand, and when it was done, infinite for never."""
    launch_s = launch_of(job.grid, assumptions)
    left_s = job.grid.work_s - launch_s
    cost = 0
    for begin_s, end_s in runs:
        done_s = begin_s + launch_s + left_s
        if done_s <= end_s:
            return cost + _spent(until, begin_s, done_s), float(done_s)
        cost += _spent(until, begin_s, end_s)
        made_s = max(0, end_s - begin_s - launch_s)
        left_s -= made_s - min(made_s, assumptions.lost_s)
    return cost + (left_s + launch_s) * PPM, float("inf")


def _spent(until: IntArray, begin_s: int, end_s: int) -> int:
    """What spot costs between two times, seconds after the calendar's begin."""

    def upto(at_s: int) -> int:
        cell, rest_s = divmod(at_s, CELL_S)
        if cell >= len(until) - 1:
            return int(until[-1])
        return int(until[cell]) + int(until[cell + 1] - until[cell]) * rest_s // CELL_S

    return upto(end_s) - upto(begin_s)
