"""Several offerings for one job: the accounting of moves, and the exact programs."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    NOWHERE,
    MigrationCost,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    equal_migrations,
    move_cost_micro_usd,
    placement_overhead_s,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance
from spotline.domain.solvers.configurations import all_configurations
from spotline.domain.solvers.coupled_jobs import Unsolved
from spotline.domain.solvers.multi_window import solve_multi_window
from spotline.domain.solvers.multi_window_layout import OfferingWindow
from spotline.domain.solvers.placed_schedules import (
    execute_placed,
    is_interrupted,
    placement_cost_micro_usd,
)
from spotline.domain.solvers.window import ProgressValue, Rounding, WindowMarket, solve_window
from tests.depth import examples
from tests.reference.multi_integer_program import solve_multi_window_cp
from tests.reference.placed_clairvoyant import clairvoyant_over_offerings

SLOT_S = 60


def program_of(
    *,
    counts: tuple[int, ...] = (1, 2),
    overheads: tuple[int, int, int, int] = (6, 6, 3, 9),
    rate: int = 1,
    work: int = 300,
    deadline: int = 4,
    end: int = 4,
    value: int = 1_000_000,
) -> JobProgram:
    launch_s, grow_s, shrink_s, interrupted_s = overheads
    values = [value] * (deadline + 1)
    values += [value * (end - slot) // (end - deadline) for slot in range(deadline + 1, end + 1)]
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=work,
        rate_quanta_per_s=tuple(rate * n if n in counts else 0 for n in range(counts[-1] + 1)),
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


def market_of(spot_price, available, *, on_demand: int = 300_000, stock: int = 10) -> WindowMarket:
    slots = len(spot_price)
    return WindowMarket(
        spot_price=np.array(spot_price, dtype=np.int64),
        on_demand_price=np.full(slots, on_demand, dtype=np.int64),
        spot_available=np.array(available, dtype=np.int64),
        on_demand_available=np.full(slots, stock, dtype=np.int64),
    )


def configs_of(programs):
    return [all_configurations(one, most_spot=one.max_instances) for one in programs]


def offerings_of(programs, configs, markets):
    return [
        OfferingWindow(program=program, configs=sets, market=market)
        for program, sets, market in zip(programs, configs, markets, strict=True)
    ]


def brute_force(programs, markets, migrations, start) -> int:
    """Try every schedule with the accounting of `jobs.migration`."""
    first = programs[0]
    options = [NOT_PLACED] + [
        PlacedHolding(offering=k, holding=Holding(spot=s, on_demand=n - s))
        for k, one in enumerate(programs)
        for n in one.allowed_counts
        for s in range(n + 1)
    ]

    @cache
    def best(slot: int, state: PlacedProgress) -> int:
        if slot == len(markets[0]):
            return 0
        outcomes = []
        for option in options:
            if option.offering != NOWHERE:
                market, one = markets[option.offering], programs[option.offering]
                if option.holding.spot > market.spot_available[slot]:
                    continue
                if option.holding.on_demand > market.on_demand_available[slot]:
                    continue
                rescue = Holding(on_demand=one.max_instances)
                if slot >= first.deadline_slots and option.holding != rescue:
                    continue
            broken = is_interrupted(markets, state, slot)
            cost = placement_cost_micro_usd(programs, markets, option, slot)
            cost += move_cost_micro_usd(migrations, state, option)
            after = advance_placed(
                programs, migrations, state, option, held_s=SLOT_S, interrupted=broken
            )
            if after.progress_quanta >= first.work_quanta:
                outcomes.append(first.value_micro_usd[slot + 1] - cost)
            else:
                outcomes.append(best(slot + 1, after) - cost)
        return max(outcomes)

    return best(0, start)


@st.composite
def cases(draw):
    offerings = draw(st.integers(1, 3))
    deadline = draw(st.integers(1, 3))
    end = deadline + draw(st.integers(0, 1))
    work = draw(st.integers(20, 130 * deadline))
    value = draw(st.integers(0, 60_000))
    programs, markets = [], []
    for _ in range(offerings):
        shrink = draw(st.integers(0, 10)) * 3
        grow = shrink + draw(st.integers(0, 20)) * 3
        launch = draw(st.integers(0, 30)) * 3
        interrupted = grow + draw(st.integers(0, 10)) * 3
        programs.append(
            program_of(
                counts=draw(st.sampled_from([(1,), (1, 2), (2,)])),
                overheads=(launch, grow, shrink, interrupted),
                rate=draw(st.integers(1, 2)),
                work=work,
                deadline=deadline,
                end=end,
                value=value,
            )
        )
        prices = draw(st.lists(st.integers(10_000, 400_000), min_size=end, max_size=end))
        available = draw(st.lists(st.integers(0, 2), min_size=end, max_size=end))
        markets.append(market_of(prices, available, stock=draw(st.integers(0, 2))))
    migrations = tuple(
        tuple(
            MigrationCost(
                overhead_s=draw(st.integers(0, 40)) * 3, cost_micro_usd=draw(st.integers(0, 3000))
            )
            for _ in programs
        )
        for _ in programs
    )
    home = draw(st.integers(-1, offerings - 1))
    held = Holding()
    if home != NOWHERE:
        held = draw(st.sampled_from([Holding(), Holding(spot=1), Holding(spot=1, on_demand=1)]))
        held = held if held.instances <= programs[home].max_instances else Holding()
    pending = draw(st.sampled_from([0, 15, 90])) if held.instances else 0
    start = PlacedProgress(home=home, holding=held, pending_overhead_s=pending)
    return programs, markets, migrations, start


@settings(max_examples=examples(150), deadline=None)
@given(cases())
def test_the_program_equals_brute_force_and_executing_its_plan_earns_it(case) -> None:
    programs, markets, migrations, start = case

    plan = solve_multi_window(
        offerings_of(programs, configs_of(programs), markets),
        migrations,
        start,
        elapsed_slots=0,
        end_value=None,
    )

    assert plan.exact
    assert plan.utility_micro_usd == brute_force(programs, markets, migrations, start)
    earned = execute_placed(programs, markets, migrations, start, plan.placements)
    assert earned.utility_micro_usd == plan.utility_micro_usd


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.integers(3, 12))
def test_a_coarse_grid_brackets_the_optimum(case, cell_limit) -> None:
    programs, markets, migrations, start = case

    def utility(**options) -> int:
        return solve_multi_window(
            offerings_of(programs, configs_of(programs), markets),
            migrations,
            start,
            elapsed_slots=0,
            end_value=None,
            **options,
        ).utility_micro_usd

    low, exact = utility(cell_limit=cell_limit), utility()

    assert low <= exact <= utility(cell_limit=cell_limit, rounding=Rounding.UP)


@pytest.mark.parametrize("seed", range(12))
def test_dynamic_and_integer_program_find_the_same_optimum(seed) -> None:
    rng = np.random.default_rng(seed)
    end = int(rng.integers(2, 5))
    work, value = int(rng.integers(60, 240)), int(rng.integers(10_000, 60_000))
    programs = [
        program_of(
            overheads=tuple(int(s) * 3 for s in np.sort(rng.integers(0, 27, 4))[[2, 1, 0, 3]]),
            rate=int(rng.integers(1, 3)),
            work=work,
            deadline=end - 1,
            end=end,
            value=value,
        )
        for _ in range(2)
    ]
    markets = [
        market_of(rng.integers(10_000, 400_000, end), rng.integers(0, 3, end)) for _ in range(2)
    ]
    migrations = equal_migrations(
        2, MigrationCost(overhead_s=int(rng.integers(0, 30)) * 3, cost_micro_usd=500)
    )
    start = PlacedProgress(home=0, holding=Holding(spot=1), pending_overhead_s=75)
    configs = configs_of(programs)

    exact = solve_multi_window(
        offerings_of(programs, configs, markets),
        migrations,
        start,
        elapsed_slots=0,
        end_value=None,
    )
    plan = solve_multi_window_cp(programs, configs, markets, migrations, start, elapsed_slots=0)

    assert not isinstance(plan, Unsolved)
    assert plan.utility_micro_usd == exact.utility_micro_usd


@settings(max_examples=examples(60), deadline=None)
@given(cases(), st.booleans())
def test_one_offering_is_the_window_program(case, with_line) -> None:
    programs, markets, _, start = case
    program, market = programs[0], markets[0]
    configs = all_configurations(program, most_spot=2)
    held = start.holding if start.holding.instances <= program.max_instances else Holding()
    pending = start.pending_overhead_s if held.instances else 0
    line = ProgressValue(
        target_quanta=program.work_quanta // 2,
        # Nothing undone is worth more than being done in the last slot.
        at_target_micro_usd=program.value_micro_usd[program.end_slots] - 40 * program.work_quanta,
        below_micro_usd_per_giga=10**11,
        above_micro_usd_per_giga=4 * 10**10,
    )
    end_value = line if with_line else None

    single = solve_window(
        program,
        configs,
        market,
        JobProgress(holding=held, pending_overhead_s=pending),
        elapsed_slots=0,
        end_value=end_value,
    )
    multi = solve_multi_window(
        offerings_of([program], [configs], [market]),
        equal_migrations(1, MigrationCost(overhead_s=0)),
        PlacedProgress(home=0, holding=held, pending_overhead_s=pending),
        elapsed_slots=0,
        end_value=end_value,
    )

    assert multi.utility_micro_usd == single.utility_micro_usd


# --- the accounting of moves ------------------------------------------------------------------

TABLE = equal_migrations(2, MigrationCost(overhead_s=30, cost_micro_usd=700))


def test_on_one_offering_the_accounting_is_that_of_progress() -> None:
    program = program_of()
    held = Holding(spot=2)

    placed = advance_placed(
        [program],
        equal_migrations(1, MigrationCost(overhead_s=0)),
        PlacedProgress(home=0, holding=held, pending_overhead_s=80),
        PlacedHolding(offering=0, holding=Holding(spot=1)),
        held_s=SLOT_S,
        interrupted=True,
    )
    plain = advance(
        program,
        JobProgress(holding=held, pending_overhead_s=80),
        Holding(spot=1),
        held_s=SLOT_S,
        interrupted=True,
    )

    assert placed.progress_quanta == plain.progress_quanta
    assert placed.pending_overhead_s == plain.pending_overhead_s


@pytest.mark.parametrize(
    ("migrate_s", "launch_s", "interrupted", "expected_s"),
    [(30, 6, False, 30), (30, 45, False, 45), (30, 6, True, 50), (70, 6, True, 70)],
)
def test_a_move_costs_the_longest_of_what_it_needs(
    migrate_s, launch_s, interrupted, expected_s
) -> None:
    programs = [program_of(overheads=(6, 6, 3, 50)), program_of(overheads=(launch_s, 6, 3, 9))]
    table = equal_migrations(2, MigrationCost(overhead_s=migrate_s))
    state = PlacedProgress(home=0, holding=Holding(spot=2))

    overhead_s = placement_overhead_s(
        programs,
        table,
        state,
        PlacedHolding(offering=1, holding=Holding(spot=1)),
        interrupted=interrupted,
    )

    assert overhead_s == expected_s


def test_the_checkpoint_stays_where_a_paused_job_ran_last() -> None:
    programs = [program_of(), program_of()]
    paused = advance_placed(
        programs,
        TABLE,
        PlacedProgress(home=0, holding=Holding(spot=2), progress_quanta=60),
        NOT_PLACED,
        held_s=SLOT_S,
    )

    elsewhere = PlacedHolding(offering=1, holding=Holding(spot=1))
    back = PlacedHolding(offering=0, holding=Holding(spot=1))

    assert paused == PlacedProgress(home=0, progress_quanta=60)
    assert move_cost_micro_usd(TABLE, paused, elsewhere) == 700
    assert placement_overhead_s(programs, TABLE, paused, elsewhere) == 30
    assert move_cost_micro_usd(TABLE, paused, back) == 0
    assert placement_overhead_s(programs, TABLE, paused, back) == programs[0].launch_s


def test_a_first_launch_is_no_migration_anywhere() -> None:
    programs = [program_of(), program_of()]
    there = PlacedHolding(offering=1, holding=Holding(spot=1))

    assert move_cost_micro_usd(TABLE, PlacedProgress(), there) == 0
    assert placement_overhead_s(programs, TABLE, PlacedProgress(), there) == programs[1].launch_s


def test_the_clairvoyant_moves_where_that_pays_and_not_where_it_does_not() -> None:
    programs = [program_of(counts=(2,), work=600, deadline=6, end=6)] * 2
    markets = [
        market_of([10_000] * 6, [2, 2, 0, 0, 0, 0]),
        market_of([10_000] * 6, [0, 0, 2, 2, 2, 2]),
    ]

    def best(cost_micro_usd: int):
        table = equal_migrations(2, MigrationCost(overhead_s=9, cost_micro_usd=cost_micro_usd))
        return clairvoyant_over_offerings(programs, markets, table).result

    assert [p.offering for p in best(100).placements] == [0, 0, 1, 1, 1, 1]
    assert best(100).egress_micro_usd == 100
    assert len({p.offering for p in best(900_000).placements} - {NOWHERE}) == 1


def test_a_hundred_slots_of_nine_zones_are_solved_exactly() -> None:
    rng = np.random.default_rng(4)
    program = replace(
        program_of(counts=(1,), work=60 * 60, deadline=100, end=100), value_micro_usd=(10**6,) * 101
    )
    markets = [
        market_of(rng.integers(10_000, 90_000, 100), rng.integers(0, 2, 100)) for _ in range(9)
    ]

    answer = clairvoyant_over_offerings(
        [program] * 9, markets, equal_migrations(9, MigrationCost(overhead_s=12))
    )

    assert answer.exact
    assert answer.upper_utility_micro_usd == answer.result.utility_micro_usd
    assert answer.result.on_time


def test_programs_of_different_jobs_are_refused() -> None:
    programs = [program_of(), program_of(work=200)]

    with pytest.raises(ValueError, match="programs of one job must have one work_quanta"):
        clairvoyant_over_offerings(programs, [market_of([1], [1])] * 2, TABLE)


def test_executing_more_than_there_is_is_refused() -> None:
    placement = PlacedHolding(offering=0, holding=Holding(spot=2))

    with pytest.raises(ValueError, match=r"placements\[0\] must be <= 1 spot"):
        execute_placed([program_of()], [market_of([1], [1])], TABLE, PlacedProgress(), [placement])
