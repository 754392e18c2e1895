"""Jobs that know less than the quotes say, or know it too early.

`censored`: how many spot instances there are is seen only by holding or asking for them. Until a
launch is refused or something is taken, plenty is assumed, as for a provider that counts nothing;
a refusal tells the count, and the slot is decided anew on it.

`decide-first`: a slot is decided on the quote and the forecast of the slot before. Then the market
moves: prices and counts are the new ones, and spot that is gone is lost at once. What is left of
the held set must be regrouped, and the slot is decided anew; spot that has appeared goes unused.
The safety net credits spot with nothing (`spot_firm` is false).

In both the policies' laws are those of the first half, fully counted; forecasts of `censored` are
of prices alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spotline.bench.quality.cells import (
    CLAIRVOYANT,
    SPOTLINE,
    Cell,
    Course,
    Density,
    serve,
)
from spotline.bench.quality.episodes import (
    BASE,
    IntArray,
    LawInForce,
    Replays,
    joined,
    program_of,
    replay_series,
    spaced_starts,
    table_for,
)
from spotline.bench.quality.families import Family
from spotline.bench.quality.statistics import bootstrap_points
from spotline.domain.jobs.program import JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.market.law import RunTracker, run_states
from spotline.domain.policies.compiled import MarketSeries, clairvoyant_many
from spotline.domain.policies.decision import SlotDecision, decide_slot, slot_cost_micro_usd
from spotline.domain.policies.interface import START, Memory, Outlook, Policy, PolicyView
from spotline.domain.policies.prediction import UNCOUNTED
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.solvers.value_table import ValueTable
from spotline.replay.clouds import Information

# Every slot is decided in Python here: a pool of the ways there are, not of all their settings.
SHORT_POOL = (
    "on_demand_only",
    "msu",
    "uniform_progress",
    *(f"ahanp(0.{tenths})" for tenths in range(3, 10)),
    "ahap(1,1,0.5)",
    "ahap(5,1,0.5)",
    "ahap(5,5,0.5)",
    "sdp",
    "hybrid(1)",
    "hybrid(2)",
    "hybrid(5)",
)
DEADLINE_SLOTS = 10
# Longer than any life of a job.
_BLOCK_SLOTS = 2 * DEADLINE_SLOTS
_BOOTSTRAP_SEED = 5


@dataclass(slots=True, kw_only=True)
class _Run:
    """One job under one policy, as it goes."""

    program: JobProgram
    policy: Policy
    fallback: Policy
    table: ValueTable
    firm: bool
    state: JobProgress
    memory: Memory = START
    fallback_memory: Memory = START
    cost: int = 0

    def view(
        self,
        elapsed: int,
        record: SlotRecord,
        *,
        spot_available: int,
        run_state: int,
        interrupted: bool,
    ) -> PolicyView:
        return PolicyView(
            program=self.program,
            elapsed_slots=elapsed,
            state=self.state,
            interrupted=interrupted,
            spot_price=record.spot_price,
            on_demand_price=record.on_demand_price,
            spot_available=spot_available,
            on_demand_available=record.on_demand_available,
            forecast=record.forecast,
            slot_left_s=self.program.slot_s,
            spent_micro_usd=self.cost,
            spot_firm=self.firm,
            outlook=Outlook(table=self.table, run_state=run_state),
        )

    def decide(self, view: PolicyView) -> SlotDecision:
        """Ask, without moving on: a slot may be decided twice."""
        if self.policy.needs_forecast and view.forecast is None:
            return decide_slot(self.fallback, view, self.fallback_memory)
        return decide_slot(self.policy, view, self.memory)

    def settle(self, view: PolicyView, decision: SlotDecision) -> None:
        """Hold what was decided for the slot, at the prices of `view`."""
        if self.policy.needs_forecast and view.forecast is None:
            self.fallback_memory, self.memory = decision.memory, START
        else:
            self.memory = decision.memory
        self.cost += slot_cost_micro_usd(view, decision.holding)
        self.state = advance(
            self.program,
            view.state,
            decision.holding,
            held_s=view.slot_left_s,
            interrupted=view.interrupted,
        )


def _censored(run: _Run, records: Sequence[SlotRecord], first: int, slots: int) -> int:
    """Run a job to its end; returns the slot it finished in, 0 where it did not."""
    tracker = RunTracker(space=run.table.terms.law.space)
    most = run.program.max_instances
    state = tracker.observe(most)
    seen = most
    for elapsed in range(slots):
        record = records[first + elapsed]
        actual = record.spot_available
        interrupted = run.state.holding.spot > actual
        if interrupted:
            seen = actual
        view = run.view(
            elapsed,
            record,
            spot_available=actual if interrupted else UNCOUNTED,
            run_state=state,
            interrupted=interrupted,
        )
        decision = run.decide(view)
        refused = decision.holding.spot > actual
        if refused:
            view = replace(view, spot_available=actual)
            decision = run.decide(view)
        if refused or interrupted:
            seen = actual
        elif decision.holding.spot:
            seen = most
        # Who neither holds nor asks keeps what it saw last.
        state = tracker.observe(seen)
        run.settle(view, decision)
        if run.state.progress_quanta >= run.program.work_quanta:
            return elapsed + 1
    return 0


def _decide_first(run: _Run, records: Sequence[SlotRecord], first: int, slots: int) -> int:
    """Run a job to its end; returns the slot it finished in, 0 where it did not."""
    for elapsed in range(slots):
        told, record = records[first + elapsed - 1], records[first + elapsed]
        view = run.view(
            elapsed,
            told,
            spot_available=told.spot_available,
            run_state=told.run_state,
            interrupted=run.state.holding.spot > told.spot_available,
        )
        decision = run.decide(view)
        moved = replace(view, spot_price=record.spot_price, on_demand_price=record.on_demand_price)
        if decision.holding.spot > record.spot_available:
            broken = advance(
                run.program,
                view.state,
                decision.holding,
                held_s=0,
                interrupted=view.interrupted,
            )
            moved = replace(
                moved, state=broken, interrupted=True, spot_available=record.spot_available
            )
            decision = run.decide(moved)
        run.settle(moved, decision)
        if run.state.progress_quanta >= run.program.work_quanta:
            return elapsed + 1
    return 0


_LOOPS: dict[Information, Callable[[_Run, Sequence[SlotRecord], int, int], int]] = {
    Information.CENSORED: _censored,
    Information.DECIDE_FIRST: _decide_first,
}


def _replay(
    index: int,
    information: Information,
    program: JobProgram,
    market: MarketSeries,
    law: LawInForce,
    starts: IntArray,
) -> Replays:
    policies = [policy_named(name) for name in SHORT_POOL]
    table = table_for(program, law.law, market)
    placed = replace(market, run_state=run_states(law.law.space, market.spot_available))
    records = placed.records(0, len(placed))
    utility = np.zeros((len(starts), len(policies)), dtype=np.int64)
    on_time = np.zeros(utility.shape, dtype=np.bool_)
    for row, first in enumerate(starts.tolist()):
        slots = min(program.end_slots, len(records) - first)
        for column, policy in enumerate(policies):
            run = _Run(
                program=program,
                policy=policy,
                fallback=policy_named(FALLBACK_POLICY_ID),
                table=table,
                firm=information is not Information.DECIDE_FIRST,
                state=JobProgress(),
            )
            finished = _LOOPS[information](run, records, first, slots)
            value = program.value_micro_usd[finished] if finished else 0
            utility[row, column] = value - run.cost
            on_time[row, column] = 0 < finished <= program.deadline_slots
    return Replays(
        series=np.full(len(starts), index, dtype=np.int64),
        start=starts,
        utility=utility,
        on_time=on_time,
        optimum=np.zeros(len(starts), dtype=np.int64),
    )


def run_information(
    family: Family, courses: Sequence[Course], information: Information, density: Density
) -> Cell:
    """Replay a short pool on a family in its base regime, with less information.

    For `censored` the courses must carry forecasts of prices alone. The optimum, and what a miss
    is, are those of full information.
    """

    def replays(index: int, program: JobProgram, law: LawInForce, starts: IntArray) -> Replays:
        return _replay(index, information, program, courses[index].market, law, starts)

    return _cell(family, courses, density, replays)


def run_counted(family: Family, courses: Sequence[Course], density: Density) -> Cell:
    """Replay the same short pool on the same jobs with full information, to compare."""
    policies = [policy_named(name) for name in SHORT_POOL]

    def replays(index: int, program: JobProgram, law: LawInForce, starts: IntArray) -> Replays:
        market = courses[index].market
        return replay_series(index, program, market, policies, (law,), starts, optimum=False)

    return _cell(family, courses, density, replays)


def points_behind(cell: Cell, counted: Cell) -> tuple[float, float, float]:
    """Points of the clairvoyant that the default earns beyond what it does where all is seen."""
    return bootstrap_points(
        cell.utility(SPOTLINE) - counted.utility(SPOTLINE),
        cell.utility(CLAIRVOYANT),
        cell.lines,
        block_slots=_BLOCK_SLOTS,
        seed=_BOOTSTRAP_SEED,
    )


def _cell(
    family: Family,
    courses: Sequence[Course],
    density: Density,
    replays: Callable[[int, JobProgram, LawInForce, IntArray], Replays],
) -> Cell:
    soft, hard, rehearsed = [], [], []
    for index, one in enumerate(courses):
        price = one.series.on_demand_price
        half, slots = one.series.half, one.series.slots
        loose, strict = (
            program_of(BASE, family.size, DEADLINE_SLOTS, price, hard=hard_deadline)
            for hard_deadline in (False, True)
        )
        starts = spaced_starts(half, slots - loose.end_slots + 1, density.reported)
        early = spaced_starts(half // 2, half - DEADLINE_SLOTS + 1, density.rehearsed)
        run = replays(index, loose, one.frozen[0], starts)
        best = clairvoyant_many(loose, one.market, starts).upper_utility_micro_usd
        soft.append(replace(run, optimum=best))
        hard.append(replays(index, strict, one.frozen[0], starts))
        rehearsed.append(replays(index, loose, one.rehearsing[0], early))
    jobs, before = joined(soft), joined(rehearsed)
    return Cell(
        family=family,
        regime=BASE,
        deadline_slots=DEADLINE_SLOTS,
        courses=tuple(courses),
        policy_ids=SHORT_POOL,
        soft=jobs,
        hard=joined(hard),
        rehearsed=before,
        served=serve(courses, SHORT_POOL, jobs, before, DEADLINE_SLOTS),
    )
