"""The joint bound: never below a schedule that can be had, and exact where nothing is shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.migration import (
    NOT_PLACED,
    MigrationCost,
    PlacedHolding,
    PlacedProgress,
    advance_placed,
    equal_migrations,
    move_cost_micro_usd,
)
from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum
from spotline.domain.solvers.joint_bound import bound_at, joint_bound
from spotline.domain.solvers.moving_job import MovingJob, PerBundle, SharedCapacity
from spotline.domain.units import cost_micro_usd
from tests.depth import examples

SLOT_S = 1800
SLOTS = 4
OFFERINGS = 2
PLENTY = 100
MIGRATE_S = 900
FEE = 20_000


def _program(
    busy_slots: int,
    value: int,
    *,
    counts: tuple[int, ...] = (1,),
    launch_s: int = 600,
    deadline_slots: int = SLOTS,
) -> JobProgram:
    """A job; with an earlier deadline a soft one, whose worth falls from there to the last slot."""
    rates = [0] * (counts[-1] + 1)
    for count in counts:
        rates[count] = count
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=busy_slots * SLOT_S // 2 * counts[-1],
        rate_quanta_per_s=tuple(rates),
        allowed_counts=counts,
        launch_s=launch_s,
        grow_s=launch_s,
        shrink_s=300,
        interrupted_s=900,
        deadline_slots=deadline_slots,
        end_slots=SLOTS,
        hard=deadline_slots == SLOTS,
        value_micro_usd=tuple(
            value
            * min(1 + SLOTS - used, 1 + SLOTS - deadline_slots)
            // (1 + SLOTS - deadline_slots)
            for used in range(SLOTS + 1)
        ),
    )


def _job(name: str, program: JobProgram, first_slot: int = 0) -> MovingJob:
    return MovingJob(
        job_id=name,
        programs=(program,) * OFFERINGS,
        first_slot=first_slot,
        migrate_s=MIGRATE_S,
        fee_micro_usd=FEE,
    )


def _market(
    spot: Sequence[Sequence[int]], price: Sequence[Sequence[int]], stock: int = PLENTY
) -> SharedCapacity:
    shape = (SLOTS, OFFERINGS)
    return SharedCapacity(
        spot_price=np.array(price, dtype=np.int64).reshape(shape),
        on_demand_price=np.full(shape, 3_000_000, dtype=np.int64),
        spot=np.array(spot, dtype=np.int64).reshape(shape),
        on_demand=np.full(shape, stock, dtype=np.int64),
    )


grids = st.lists(
    st.lists(st.integers(0, 2), min_size=OFFERINGS, max_size=OFFERINGS),
    min_size=SLOTS,
    max_size=SLOTS,
)
prices = st.lists(
    st.lists(st.integers(400_000, 3_500_000), min_size=OFFERINGS, max_size=OFFERINGS),
    min_size=SLOTS,
    max_size=SLOTS,
)


def _programs(deadlines: st.SearchStrategy[int]) -> st.SearchStrategy[JobProgram]:
    return st.builds(
        _program,
        busy_slots=st.integers(1, 6),
        value=st.integers(500_000, 9_000_000),
        launch_s=st.sampled_from([300, 600, 2700]),
        deadline_slots=deadlines,
    )


gangs = st.builds(
    _program,
    busy_slots=st.integers(1, 6),
    value=st.integers(1_000_000, 18_000_000),
    counts=st.just((2,)),
)
programs = _programs(st.just(SLOTS))
soft_too = _programs(st.integers(1, SLOTS))


# --- every schedule there is --------------------------------------------------------------------


def _schedules(job: MovingJob, market: SharedCapacity) -> tuple[np.ndarray, np.ndarray]:
    """Worth, and use of (spot, on-demand) by slot and offering, of every schedule of one job."""
    program = job.programs[0]
    assert program is not None
    choices = [NOT_PLACED] + [
        PlacedHolding(offering=offering, holding=holding)
        for offering in range(OFFERINGS)
        for count in program.allowed_counts
        for holding in (Holding(spot=n, on_demand=count - n) for n in range(count + 1))
    ]
    table = equal_migrations(OFFERINGS, MigrationCost(overhead_s=MIGRATE_S, cost_micro_usd=FEE))
    worth, used = [], []

    def extend(state: PlacedProgress, paid: int, use: np.ndarray, slot: int) -> None:
        """Go on from a state in every way, by the accounting of jobs that move."""
        if state.progress_quanta >= program.work_quanta:
            worth.append(program.value_micro_usd[slot] - paid)
            used.append(use.ravel())
            return
        if slot == SLOTS:
            worth.append(-paid)
            used.append(use.ravel())
            return
        lost = state.holding.spot > market.spot[slot, state.home]
        for held in choices:
            # Nobody holds more than is there.
            if held.holding.spot > market.spot[slot, held.offering]:
                continue
            after = advance_placed(
                (program,) * OFFERINGS,
                table,
                state,
                held,
                held_s=SLOT_S,
                interrupted=bool(lost and state.holding.spot > 0),
            )
            cost = move_cost_micro_usd(table, state, held)
            cost += _cost_micro_usd(held, slot, market)
            then = use.copy()
            then[0, slot, held.offering] += held.holding.spot
            then[1, slot, held.offering] += held.holding.on_demand
            extend(after, paid + cost, then, slot + 1)

    extend(PlacedProgress(), 0, np.zeros((2, SLOTS, OFFERINGS), dtype=np.int64), 0)
    return np.array(worth), np.array(used)


def _cost_micro_usd(held: PlacedHolding, slot: int, market: SharedCapacity) -> int:
    spot, on_demand = market.spot_price, market.on_demand_price
    return cost_micro_usd(
        int(spot[slot, held.offering]), held.holding.spot, SLOT_S
    ) + cost_micro_usd(int(on_demand[slot, held.offering]), held.holding.on_demand, SLOT_S)


def _best_pair(jobs: Sequence[MovingJob], market: SharedCapacity) -> int:
    """The best joint schedule of two jobs, by looking at every pair."""
    (worth_a, used_a), (worth_b, used_b) = (_schedules(job, market) for job in jobs)
    limits = np.concatenate([market.spot.ravel(), market.on_demand.ravel()])
    best = 0
    for worth, used in zip(worth_a, used_a, strict=True):
        fits = (used_b <= limits - used).all(axis=1)
        if fits.any():
            best = max(best, int(worth + worth_b[fits].max()))
    return best


@settings(max_examples=examples(10, fewest=3), deadline=None)
@given(
    grid=grids, price=prices, first=soft_too, second=soft_too, stock=st.sampled_from([1, PLENTY])
)
def test_no_schedule_of_two_jobs_earns_more(
    grid: list[list[int]],
    price: list[list[int]],
    first: JobProgram,
    second: JobProgram,
    stock: int,
) -> None:
    market = _market(grid, price, stock)
    jobs = [_job("a", first), _job("b", second)]
    bound = joint_bound(jobs, market)
    best = _best_pair(jobs, market)
    assert best <= bound.upper_micro_usd <= bound.alone_micro_usd
    assert bound.attained_micro_usd <= bound.upper_micro_usd


@settings(max_examples=examples(40, fewest=10), deadline=None)
@given(
    grid=st.lists(
        st.lists(st.sampled_from([0, 2, 3]), min_size=OFFERINGS, max_size=OFFERINGS),
        min_size=SLOTS,
        max_size=SLOTS,
    ),
    price=prices,
    first=gangs,
    second=st.one_of(gangs, programs),
    stock=st.sampled_from([1, 3]),
)
def test_no_schedule_of_gangs_earns_more(
    grid: list[list[int]], price: list[list[int]], first: JobProgram, second: JobProgram, stock: int
) -> None:
    market = _market(grid, price, stock)
    jobs = [_job("a", first), _job("b", second)]
    assert _best_pair(jobs, market) <= joint_bound(jobs, market).upper_micro_usd


def test_half_a_gang_is_worth_nothing() -> None:
    # Three instances of spot for two gangs of two, on-demand above what either is worth.
    market = _market([[3, 0]] * SLOTS, [[1_000_000, 1_000_000]] * SLOTS)
    program = _program(5, 6_000_000, counts=(2,))
    jobs = [_job("a", program), _job("b", program)]
    best = _best_pair(jobs, market)
    assert best == 6_000_000 - 3 * 2 * 500_000
    # By instances alone each could have half of what it lacks: a fourth more than one can earn.
    assert best <= joint_bound(jobs, market).upper_micro_usd < best + best // 10


def test_a_job_that_is_late_may_run_on_spot() -> None:
    # There is none until the soft deadline has passed, and on-demand costs more than it saves.
    market = _market([[0, 0], [0, 0], [1, 0], [1, 0]], [[800_000, 800_000]] * SLOTS)
    job = _job("a", _program(2, 3_000_000, deadline_slots=2))
    assert joint_bound([job], market).upper_micro_usd == _schedules(job, market)[0].max() > 0


def test_two_jobs_that_want_one_spot_instance_are_bounded_by_what_they_can_share() -> None:
    # One spot instance on one offering, on-demand above what either job is worth.
    market = _market([[1, 0]] * SLOTS, [[1_000_000, 1_000_000]] * SLOTS)
    program = _program(5, 3_500_000)
    jobs = [_job("a", program), _job("b", program)]
    bound = joint_bound(jobs, market, passes=60)
    best = _best_pair(jobs, market)
    assert best == 3_500_000 - 3 * 500_000
    assert bound.alone_micro_usd == 2 * best
    # Integer programs have a gap; prices must close most of what sharing costs.
    assert best <= bound.upper_micro_usd < best + best // 10
    assert bound.attained_micro_usd == best
    assert bound.prices.spot.any()


# --- nothing shared -----------------------------------------------------------------------------


@settings(max_examples=examples(25), deadline=None)
@given(grid=grids, price=prices, program=programs)
def test_on_one_offering_a_job_earns_its_clairvoyant_optimum(
    grid: list[list[int]], price: list[list[int]], program: JobProgram
) -> None:
    market = _market(grid, price)
    job = MovingJob(
        job_id="a", programs=(program, None), first_slot=0, migrate_s=0, fee_micro_usd=0
    )
    records = [
        SlotRecord(
            spot_price=int(market.spot_price[slot, 0]),
            on_demand_price=int(market.on_demand_price[slot, 0]),
            spot_available=int(market.spot[slot, 0]),
            on_demand_available=PLENTY,
            forecast=None,
        )
        for slot in range(SLOTS)
    ]
    bound = joint_bound([job], market)
    assert bound.exact
    assert bound.upper_micro_usd == clairvoyant_optimum(program, records).upper_utility_micro_usd


@settings(max_examples=examples(15), deadline=None)
@given(price=prices, chosen=st.lists(programs, min_size=1, max_size=4))
def test_with_ample_capacity_the_bound_is_the_sum_of_single_optima(
    price: list[list[int]], chosen: list[JobProgram]
) -> None:
    market = _market([[PLENTY] * OFFERINGS] * SLOTS, price)
    jobs = [_job(f"j{number}", program) for number, program in enumerate(chosen)]
    bound = joint_bound(jobs, market)
    alone = [joint_bound([job], market).upper_micro_usd for job in jobs]
    assert bound.upper_micro_usd == bound.attained_micro_usd == sum(alone)
    assert list(bound.job_micro_usd) == alone
    assert not bound.prices.spot.any()


@settings(max_examples=examples(15), deadline=None)
@given(
    grid=grids,
    price=prices,
    chosen=st.lists(programs, min_size=1, max_size=3),
    extra=st.integers(0, 400_000),
)
def test_more_capacity_never_lowers_the_bound_at_equal_prices(
    grid: list[list[int]], price: list[list[int]], chosen: list[JobProgram], extra: int
) -> None:
    less, more = _market(grid, price), _market([[n + 1 for n in row] for row in grid], price)
    jobs = [_job(f"j{number}", program) for number, program in enumerate(chosen)]
    dear = PerBundle.none(less, np.array([1, 2]))
    dear.spot[:] = extra
    assert bound_at(jobs, less, dear) <= bound_at(jobs, more, dear)


# --- moves, grids, bad input --------------------------------------------------------------------


def test_a_job_follows_spot_where_moving_pays_and_not_where_the_fee_is_too_high() -> None:
    # Spot is on the first offering in two slots, then on the second.
    market = _market([[1, 0], [1, 0], [0, 1], [0, 1]], [[400_000, 400_000]] * SLOTS)
    program = _program(5, 9_000_000)
    cheap, dear = (
        _job("a", program),
        MovingJob(
            job_id="a",
            programs=(program,) * OFFERINGS,
            first_slot=0,
            migrate_s=MIGRATE_S,
            fee_micro_usd=5_000_000,
        ),
    )
    assert joint_bound([cheap], market).upper_micro_usd == 9_000_000 - 4 * 200_000 - FEE
    assert joint_bound([dear], market).upper_micro_usd < 9_000_000 - 4 * 200_000 - FEE


def test_a_coarse_grid_bounds_the_exact_one() -> None:
    market = _market([[2, 1]] * SLOTS, [[900_000, 700_000]] * SLOTS)
    jobs = [_job("a", _program(5, 4_000_000, counts=(1, 2)))]
    exact, coarse = joint_bound(jobs, market), joint_bound(jobs, market, cell_limit=3)
    assert exact.exact
    assert not coarse.exact
    assert coarse.upper_micro_usd >= exact.upper_micro_usd
    assert coarse.attained_micro_usd == 0


def test_stock_that_changes_is_not_shared() -> None:
    # What is held stays when the stock falls, so jobs may together hold more than there is.
    market = _market([[0, 0]] * SLOTS, [[900_000, 900_000]] * SLOTS)
    market.on_demand[:] = [[2, 0], [1, 0], [1, 0], [1, 0]]
    program = _program(4, 9_000_000)
    bound = joint_bound([_job("a", program), _job("b", program)], market)
    assert bound.upper_micro_usd == bound.alone_micro_usd > 0


def test_no_jobs_earn_nothing() -> None:
    bound = joint_bound([], _market([[1, 1]] * SLOTS, [[1, 1]] * SLOTS))
    assert (bound.upper_micro_usd, bound.attained_micro_usd) == (0, 0)


def test_bad_input_says_what_is_wrong() -> None:
    market = _market([[1, 1]] * SLOTS, [[1, 1]] * SLOTS)
    program = _program(2, 1_000_000)
    with pytest.raises(ValueError, match="programs of a must hold 2, held 1"):
        joint_bound([MovingJob(job_id="a", programs=(program,), first_slot=0, migrate_s=0)], market)
    with pytest.raises(ValueError, match="must lie within the market"):
        joint_bound([_job("a", program, first_slot=1)], market)
    wrong = PerBundle.none(market, np.array([1]))
    wrong.spot[:] = -1
    with pytest.raises(ValueError, match=r"prices.spot must be >= 0"):
        bound_at([], market, wrong)
