"""On-demand that may be out of stock: how long it is, and that the safety net allows for it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.market.law import MarketLaw, StateSpace, quantised_rows, run_states
from spotline.domain.market.stock import launchable_count, reserve_slots
from spotline.domain.policies.decision import is_safe, on_demand_to_hold
from spotline.domain.policies.interface import PolicyView, WindowForecast
from spotline.domain.policies.registry import policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable, build_table
from tests.depth import examples

POLICIES = ("msu", "uniform_progress", "ahanp(0.5)", "ahap(3,2,0.6)", "sdp", "hybrid(2)")
PLENTY = 1_000_000
PRICE = 3_000_000
SLOT_S = 1800
SEEDS = st.integers(0, 2**32 - 1)

LAW = MarketLaw(
    space=StateSpace(level_starts=(0, 4), age_starts=(1,), price_centres_ppm=(300_000,)),
    level_counts=(0, 4),
    run_ppb=quantised_rows(np.array([[0.7, 0.3], [0.2, 0.8]])),
    price_ppb=quantised_rows(np.ones((1, 1))),
)


def program_of(*, work_slots: int, deadline: int) -> JobProgram:
    return JobProgram(
        slot_s=SLOT_S,
        work_quanta=4 * SLOT_S * work_slots,
        rate_quanta_per_s=(0, 0, 2, 0, 4),
        allowed_counts=(2, 4),
        launch_s=240,
        grow_s=180,
        shrink_s=90,
        interrupted_s=270,
        deadline_slots=deadline,
        end_slots=deadline,
        hard=True,
        value_micro_usd=(60_000_000,) * (deadline + 1),
    )


@cache
def table_of(work_slots: int, deadline: int, reserve: int) -> ValueTable:
    return build_table(
        TableTerms(
            program=program_of(work_slots=work_slots, deadline=deadline),
            law=LAW,
            on_demand_price=PRICE,
            on_demand_available=PLENTY,
            reserve_slots=reserve,
        )
    )


def stock_of(rng: np.random.Generator, slots: int, *, longest: int) -> list[int]:
    """On-demand that comes and goes; no outage is longer than `longest`."""
    stock: list[int] = []
    out = bool(rng.integers(2)) and longest > 0
    while len(stock) < slots:
        lasts = int(rng.integers(1, longest + 1 if out else 6))
        stock += [int(rng.choice([0, 2, 3])) if out else PLENTY for _ in range(lasts)]
        out = not out and longest > 0
    return stock[:slots]


def records_of(
    rng: np.random.Generator, stock: list[int], *, reserve: int, rescue: int = 0
) -> list[SlotRecord]:
    spot = [int(n) for n in rng.choice([0, 0, 2, 4, 4], len(stock))]
    states = run_states(LAW.space, spot)
    return [
        SlotRecord(
            spot_price=int(rng.integers(300_000, 1_500_000)),
            on_demand_price=PRICE,
            spot_available=spot[slot],
            on_demand_available=stock[slot],
            forecast=WindowForecast(
                spot_price=(900_000,) * 3,
                spot_available=tuple(int(n) for n in rng.choice([0, 2, 4], 3)),
            ),
            run_state=int(states[slot]),
            reserve_slots=reserve,
            rescue_instances=rescue,
        )
        for slot in range(len(stock))
    ]


@pytest.mark.parametrize("policy_id", POLICIES)
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, firm=st.booleans())
def test_a_hard_deadline_is_met_where_no_outage_outlasts_the_reserve(
    policy_id: str, seed: int, firm: bool
) -> None:
    rng = np.random.default_rng(seed)
    reserve = int(rng.integers(1, 5))
    work = int(rng.integers(1, 5))
    stock = stock_of(rng, 30, longest=reserve)
    # On-demand is there at once, or there is time to wait for it.
    waits = 0 if stock[0] == PLENTY else reserve
    needed = program_of(work_slots=work, deadline=1).slots_on_demand(4 * SLOT_S * work, 270)
    deadline = needed + waits + int(rng.integers(0, 8))
    program = program_of(work_slots=work, deadline=deadline)
    records = records_of(rng, stock, reserve=reserve)
    table = table_of(work, deadline, reserve)

    result = replay_policy(
        program, records, policy_named(policy_id), policy_named("msu"), table, spot_firm=firm
    )

    assert result.on_time, (stock[:deadline], result.holdings)
    best = clairvoyant_optimum(program, records)
    assert result.utility_micro_usd <= best.upper_utility_micro_usd
    assert best.result.utility_micro_usd <= best.upper_utility_micro_usd


@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_a_stock_that_never_allows_the_largest_count_rescues_with_what_it_has(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reserve = int(rng.integers(0, 4))
    stock = [min(3, n) if n == PLENTY else 0 for n in stock_of(rng, 40, longest=reserve)]
    work = int(rng.integers(1, 5))
    waits = 0 if stock[0] else reserve
    needed = program_of(work_slots=work, deadline=1).slots_on_demand(
        4 * SLOT_S * work, 270, instances=2
    )
    program = program_of(work_slots=work, deadline=needed + waits + int(rng.integers(0, 6)))
    rescue = launchable_count(stock, program.allowed_counts)
    records = records_of(rng, stock, reserve=reserve, rescue=rescue)

    result = replay_policy(program, records, policy_named("msu"), policy_named("msu"))

    assert rescue == 2
    assert result.on_time


def test_what_is_held_needs_no_reserve_and_what_must_be_launched_does() -> None:
    program = program_of(work_slots=4, deadline=6)
    view = PolicyView(
        program=program,
        elapsed_slots=0,
        state=JobProgress(),
        interrupted=False,
        spot_price=900_000,
        on_demand_price=PRICE,
        spot_available=4,
        on_demand_available=PLENTY,
        forecast=None,
        slot_left_s=SLOT_S,
        reserve_slots=2,
    )

    assert is_safe(view, Holding(on_demand=4))
    assert not is_safe(view, Holding(spot=4))
    assert is_safe(replace(view, reserve_slots=0), Holding(spot=4))


def test_what_is_held_outlasts_the_stock_only_where_stock_can_run_out() -> None:
    held = Holding(on_demand=4)

    assert on_demand_to_hold(0, held, reserve_slots=1) == 4
    assert on_demand_to_hold(0, held, reserve_slots=0) == 0


def test_a_table_with_a_reserve_keeps_a_hard_job_further_from_its_deadline() -> None:
    near, far = table_of(2, 8, 0), table_of(2, 8, 3)

    # With spot there, half the work left and four slots to go after this one.
    waiting = (3, 1, 0, 0, 0, near.after.shape[-1] // 2)

    assert far.after[waiting] < near.after[waiting]


@pytest.mark.parametrize(
    ("stock", "needed", "reserve"),
    [
        ([], 4, 0),
        ([PLENTY] * 5, 4, 0),
        ([9, 0, 0, 9], 4, 2),
        ([3, 3, 9, 0, 9], 4, 2),
        ([9, 0, 9, 0, 0, 0], 4, 3),
        ([9] + [0, 9] * 40 + [0] * 7 + [9], 4, 1),
        ([9] + [0, 9] * 10 + [0] * 7 + [9], 4, 7),
    ],
)
def test_the_reserve_is_a_high_quantile_of_past_outages(
    stock: list[int], needed: int, reserve: int
) -> None:
    assert reserve_slots(stock, needed) == reserve


@given(stock=st.lists(st.integers(0, 6), max_size=60), needed=st.integers(1, 6))
def test_the_reserve_covers_nearly_all_outages_and_the_one_that_lasts(
    stock: list[int], needed: int
) -> None:
    reserve = reserve_slots(stock, needed)
    marks = "".join("x" if n < needed else " " for n in stock)
    outages = [len(run) for run in marks.split()]
    over = outages[:-1] if marks.endswith("x") else outages

    assert reserve <= max(outages, default=0)
    assert sum(length > reserve for length in over) <= len(over) * 0.05
    assert not marks.endswith("x") or reserve >= outages[-1]


@pytest.mark.parametrize(
    ("stock", "count"), [([], 4), ([0, 3, 0], 2), ([0, 0], 0), ([1, PLENTY], 4)]
)
def test_the_launchable_count_is_what_was_ever_in_stock(stock: list[int], count: int) -> None:
    assert launchable_count(stock, (2, 4)) == count
