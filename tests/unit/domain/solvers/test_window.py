"""The window program against brute force and an integer program."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.window import Rounding, WindowMarket, solve_window
from spotline.domain.units import cost_micro_usd
from tests.depth import examples


def program_of(
    *,
    counts: tuple[int, ...] = (1, 2),
    slot_s: int = 60,
    overheads: tuple[int, int, int, int] = (6, 6, 3, 9),
    work: int = 300,
    deadline: int = 4,
    end: int = 4,
    value: int = 1_000_000,
) -> JobProgram:
    launch_s, grow_s, shrink_s, interrupted_s = overheads
    rates = tuple(n if n in counts else 0 for n in range(counts[-1] + 1))
    values = [value] * (deadline + 1)
    for slot in range(deadline + 1, end + 1):
        values.append(value * (end - slot) // (end - deadline))
    return JobProgram(
        slot_s=slot_s,
        work_quanta=work,
        rate_quanta_per_s=rates,
        allowed_counts=counts,
        launch_s=launch_s,
        grow_s=grow_s,
        shrink_s=shrink_s,
        interrupted_s=max(interrupted_s, grow_s),
        deadline_slots=deadline,
        end_slots=end,
        hard=deadline == end,
        value_micro_usd=tuple(values),
    )


def brute_force(program: JobProgram, market: WindowMarket, start: JobProgress) -> int:
    """Try every schedule with the accounting the services use."""
    most = program.max_instances
    options = [
        Holding(spot=s, on_demand=n - s) for n in (0, *program.allowed_counts) for s in range(n + 1)
    ]

    @cache
    def best(slot: int, state: JobProgress) -> int:
        if slot == len(market):
            return 0
        outcomes = []
        for option in options:
            if option.spot > market.spot_available[slot]:
                continue
            if option.on_demand > market.on_demand_available[slot]:
                continue
            late = slot >= program.deadline_slots
            if late and option not in (Holding(), Holding(on_demand=most)):
                continue
            broken = state.holding.spot > market.spot_available[slot]
            after = advance(program, state, option, held_s=program.slot_s, interrupted=broken)
            cost = cost_micro_usd(int(market.spot_price[slot]), option.spot, program.slot_s)
            cost += cost_micro_usd(
                int(market.on_demand_price[slot]), option.on_demand, program.slot_s
            )
            if after.progress_quanta >= program.work_quanta:
                outcomes.append(program.value_micro_usd[slot + 1] - cost)
            else:
                outcomes.append(best(slot + 1, after) - cost)
        return max(outcomes)

    return best(0, start)


def market_of(spot_price, available, *, on_demand: int = 300_000) -> WindowMarket:
    slots = len(spot_price)
    return WindowMarket(
        spot_price=np.array(spot_price, dtype=np.int64),
        on_demand_price=np.full(slots, on_demand, dtype=np.int64),
        spot_available=np.array(available, dtype=np.int64),
        on_demand_available=np.full(slots, 10**6, dtype=np.int64),
    )


@st.composite
def cases(draw):
    slot_s = 60
    counts = draw(st.sampled_from([(1,), (1, 2), (2,), (1, 3), (1, 2, 3)]))
    shrink = draw(st.integers(0, 10)) * 3
    grow = shrink + draw(st.integers(0, 30)) * 3
    launch = draw(st.integers(0, 30)) * 3
    interrupted = grow + draw(st.integers(0, 10)) * 3
    deadline = draw(st.integers(1, 3))
    end = deadline + draw(st.integers(0, 2))
    program = program_of(
        counts=counts,
        slot_s=slot_s,
        overheads=(launch, grow, shrink, interrupted),
        work=draw(st.integers(20, 60 * counts[-1] * deadline)),
        deadline=deadline,
        end=end,
        value=draw(st.integers(0, 60_000)),
    )
    prices = draw(st.lists(st.integers(10_000, 400_000), min_size=end, max_size=end))
    available = draw(st.lists(st.integers(0, 3), min_size=end, max_size=end))
    held = draw(st.sampled_from([Holding(), Holding(spot=1), Holding(on_demand=2)]))
    if held.instances > counts[-1]:
        held = Holding()
    pending = draw(st.sampled_from([0, 15, 90])) if held.instances else 0
    start = JobProgress(progress_quanta=0, holding=held, pending_overhead_s=pending)
    return program, market_of(prices, available), start


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_window_program_equals_brute_force(case) -> None:
    program, market, start = case
    configs = all_configurations(program, most_spot=program.max_instances)

    plan = solve_window(program, configs, market, start, elapsed_slots=0, end_value=None)

    assert plan.exact
    assert plan.utility_micro_usd == brute_force(program, market, start)


@settings(max_examples=examples(100), deadline=None)
@given(cases())
def test_a_plan_earns_what_it_promises(case) -> None:
    program, market, start = case
    configs = all_configurations(program, most_spot=program.max_instances)
    plan = solve_window(program, configs, market, start, elapsed_slots=0, end_value=None)

    earned, state = 0, start
    for slot, holding in enumerate(plan.holdings):
        if state.progress_quanta >= program.work_quanta:
            break
        broken = state.holding.spot > market.spot_available[slot]
        state = advance(program, state, holding, held_s=program.slot_s, interrupted=broken)
        earned -= cost_micro_usd(int(market.spot_price[slot]), holding.spot, program.slot_s)
        earned -= cost_micro_usd(
            int(market.on_demand_price[slot]), holding.on_demand, program.slot_s
        )
        if state.progress_quanta >= program.work_quanta:
            earned += program.value_micro_usd[slot + 1]

    assert earned == plan.utility_micro_usd


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.integers(3, 12))
def test_a_coarse_grid_brackets_the_optimum(case, cell_limit) -> None:
    program, market, start = case
    configs = all_configurations(program, most_spot=program.max_instances)
    exact = solve_window(program, configs, market, start, elapsed_slots=0, end_value=None)

    low = solve_window(
        program, configs, market, start, elapsed_slots=0, end_value=None, cell_limit=cell_limit
    )
    high = solve_window(
        program,
        configs,
        market,
        start,
        elapsed_slots=0,
        end_value=None,
        cell_limit=cell_limit,
        rounding=Rounding.UP,
    )

    assert low.utility_micro_usd <= exact.utility_micro_usd <= high.utility_micro_usd


def test_a_finished_job_needs_nothing() -> None:
    program = program_of()
    configs = all_configurations(program, most_spot=2)
    done = JobProgress(progress_quanta=program.work_quanta)

    plan = solve_window(
        program, configs, market_of([1], [2]), done, elapsed_slots=0, end_value=None
    )

    assert plan.holdings == (Holding(),)


@pytest.mark.parametrize("available", [0, 2])
def test_holding_on_demand_can_beat_a_swap_to_spot(available: int) -> None:
    """With an overhead as long as the slot, cheap spot is not worth leaving on-demand for."""
    program = program_of(counts=(2,), overheads=(60, 60, 60, 60), work=240, deadline=2, end=2)
    configs = all_configurations(program, most_spot=2)
    start = JobProgress(holding=Holding(on_demand=2))

    plan = solve_window(
        program,
        configs,
        market_of([1, 1], [available, available]),
        start,
        elapsed_slots=0,
        end_value=None,
    )

    assert plan.holdings == (Holding(on_demand=2),) * 2
