"""The compiled replay against its definition: every number, holding and reason is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.program import JobProgram
from spotline.domain.market.law import choose_space, learn_law, run_states
from spotline.domain.policies.ahanp import Ahanp
from spotline.domain.policies.ahap import Ahap
from spotline.domain.policies.compiled import (
    ForecastSeries,
    MarketSeries,
    clairvoyant_many,
    has_kernel,
    replay_many,
    replay_pool,
)
from spotline.domain.policies.interface import Choice, Memory, Policy, PolicyView, WindowForecast
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, POOL, policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy
from spotline.domain.policies.sdp import HYBRIDS, SDP
from spotline.domain.solvers.table_terms import TableTerms
from spotline.domain.solvers.value_table import ValueTable, build_table
from tests.depth import examples

THRESHOLDS: tuple[Policy, ...] = (
    policy_named("on_demand_only"),
    policy_named("msu"),
    policy_named("uniform_progress"),
    Ahanp(300_000),
    Ahanp(900_000),
)
PLANNERS: tuple[Policy, ...] = (
    Ahap(1, 1, 300_000),
    Ahap(3, 2, 600_000),
    Ahap(5, 1, 900_000),
    Ahap(4, 4, 300_000),
)
FALLBACKS = (*THRESHOLDS[:3], Ahanp(500_000))


# Cases are drawn by seed: drawing their hundreds of numbers one by one takes most of the time.
SEEDS = st.integers(0, 2**32 - 1)


def program_of(rng: np.random.Generator) -> JobProgram:
    slot_s = int(rng.choice([60, 1800]))
    counts = [(1,), (1, 2, 3, 4), (4,), (2, 4), (1, 3, 8), (2, 3, 5, 6)][rng.integers(6)]
    per_instance = int(rng.choice([1, 7, 20_000_000]))
    curve = rng.choice(["linear", "bent", "any"])
    rates = [0] * (counts[-1] + 1)
    for n in counts:
        bent = 1 + (n * 3) // 4 if curve == "bent" else n
        rates[n] = per_instance * (int(rng.integers(1, 10)) if curve == "any" else bent)
    parts = np.array([0, 3, 6, 12, 12, 60, 66, 150]) * slot_s // 60
    overheads = sorted(int(part) for part in rng.choice(parts, 3))
    deadline = int(rng.integers(0, 10))
    end = deadline + int(rng.integers(0, 5))
    full = max(rates) * slot_s
    work = int(rng.integers(1, max(2, full * deadline)))
    value = int(rng.choice([0, 400_000, 20_000_000, 2_000_000_000]))
    values = [value] * (deadline + 1)
    values += [value * (end - slot) // (end - deadline) for slot in range(deadline + 1, end + 1)]
    return JobProgram(
        slot_s=slot_s,
        work_quanta=work,
        rate_quanta_per_s=tuple(rates),
        allowed_counts=counts,
        launch_s=int(rng.choice(parts)),
        shrink_s=overheads[0],
        grow_s=overheads[1],
        interrupted_s=overheads[2],
        deadline_slots=deadline,
        end_slots=end,
        hard=deadline == end,
        value_micro_usd=tuple(values),
        budget_micro_usd=int(rng.choice([0, 0, 0, 300_000, 5_000_000])),
        # Not only where work can be lost: what nobody loses decides otherwise.
        lost_s=int(rng.choice([0, *parts])),
    )


def life_of(seed: int) -> tuple[JobProgram, list[SlotRecord]]:
    rng = np.random.default_rng(seed)
    program = program_of(rng)
    kind = rng.choice(["cheap", "cheap", "any", "level"])
    most = program.max_instances
    counts = [0, 0, 1, 2, 3, most, 16]
    on_demand_price = int(rng.integers(1, 4_000_000))
    # On-demand that is never short, short now and then, or in stock by spells.
    stocks = [[10**6], [10**6, 10**6, 10**6, 0, 2], [0, 2, most - 1, most]][rng.integers(3)]
    stock = int(rng.choice(stocks))
    reserve = int(rng.choice([0, 0, 1, 3]))
    rescue = int(rng.choice([0, 0, 1, 2, most, 16]))
    records = []
    for _ in range(max(0, program.end_slots + int(rng.integers(-1, 2)))):
        if kind == "any":
            on_demand_price = int(rng.integers(1, 4_000_000))
            reserve = int(rng.choice([0, 1, 2]))
        if rng.random() < 0.5:
            stock = int(rng.choice(stocks))
        top = 4_000_000 if kind == "any" else on_demand_price
        steps = int(rng.choice([0, 2, 5, 6]))
        forecast = WindowForecast(
            spot_price=tuple(rng.integers(0, 4_000_000, steps).tolist()),
            spot_available=tuple(rng.choice(counts, steps).tolist()),
        )
        records.append(
            SlotRecord(
                spot_price=on_demand_price if kind == "level" else int(rng.integers(0, top + 1)),
                on_demand_price=on_demand_price,
                spot_available=int(rng.choice(counts)),
                on_demand_available=stock,
                forecast=forecast if rng.random() < 0.75 else None,
                reserve_slots=reserve,
                rescue_instances=rescue,
            )
        )
    return program, records


def series_of(records: Sequence[SlotRecord]) -> MarketSeries:
    steps = max((len(r.forecast.spot_price) for r in records if r.forecast), default=0)
    reaches = np.array([len(r.forecast.spot_price) if r.forecast else -1 for r in records])
    prices = np.full((len(records), steps), -7)
    counts = np.full((len(records), steps), -7)
    for slot, record in enumerate(records):
        if record.forecast is not None:
            prices[slot, : reaches[slot]] = record.forecast.spot_price
            counts[slot, : reaches[slot]] = record.forecast.spot_available
    return MarketSeries(
        spot_price=np.array([r.spot_price for r in records], dtype=np.int64),
        on_demand_price=np.array([r.on_demand_price for r in records], dtype=np.int64),
        spot_available=np.array([r.spot_available for r in records], dtype=np.int64),
        on_demand_available=np.array([r.on_demand_available for r in records], dtype=np.int64),
        forecast=ForecastSeries(steps=reaches, spot_price=prices, spot_available=counts),
        run_state=np.array([r.run_state for r in records], dtype=np.int64),
        reserve_slots=np.array([r.reserve_slots for r in records], dtype=np.int64),
        rescue_instances=np.array([r.rescue_instances for r in records], dtype=np.int64),
    )


def market_of(slots: int, *, seed: int) -> list[SlotRecord]:
    rng = np.random.default_rng(seed)
    records = []
    up = True
    for _ in range(slots):
        up = up if rng.random() < 0.8 else not up
        count = 16 if up else int(rng.integers(0, 3))
        records.append(
            SlotRecord(
                spot_price=int(rng.integers(850, 1000)) * 1000,
                on_demand_price=3_060_000,
                spot_available=count,
                on_demand_available=10**6,
                forecast=WindowForecast(
                    spot_price=(918_000,) * 5, spot_available=(count, count, 9, 16, 0)
                ),
            )
        )
    return records


def paper_program(deadline: int = 10) -> JobProgram:
    end = deadline * 3 // 2
    values = [183_600_000] * (deadline + 1)
    values += [values[0] * (end - k) // (end - deadline) for k in range(deadline + 1, end + 1)]
    return JobProgram(
        slot_s=1800,
        work_quanta=80 * 1800,
        rate_quanta_per_s=tuple(range(13)),
        allowed_counts=tuple(range(1, 13)),
        launch_s=180,
        grow_s=180,
        shrink_s=90,
        interrupted_s=180,
        deadline_slots=deadline,
        end_slots=end,
        hard=False,
        value_micro_usd=tuple(values),
    )


def check(seed: int, policies: Sequence[Policy], fallback: Policy, *, firm: bool) -> None:
    program, records = life_of(seed)

    results = replay_pool(program, records, policies, fallback, spot_firm=firm)

    for policy, result in zip(policies, results, strict=True):
        assert result == replay_policy(program, records, policy, fallback, spot_firm=firm), policy


@settings(max_examples=examples(150), deadline=None)
@given(seed=SEEDS, fallback=st.sampled_from(FALLBACKS), firm=st.booleans())
def test_thresholds_replay_as_defined(seed: int, fallback: Policy, firm: bool) -> None:
    check(seed, THRESHOLDS, fallback, firm=firm)


@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, fallback=st.sampled_from(FALLBACKS), firm=st.booleans())
def test_planners_replay_as_defined(seed: int, fallback: Policy, firm: bool) -> None:
    check(seed, PLANNERS, fallback, firm=firm)


def table_of_life(
    rng: np.random.Generator, program: JobProgram, records: Sequence[SlotRecord]
) -> tuple[ValueTable, list[SlotRecord]]:
    """A table of a law learned from the life itself, and where the life is in that law."""
    counts = np.array([r.spot_available for r in records], dtype=np.int64)
    shares = np.array([r.spot_price * 10**6 // r.on_demand_price for r in records], dtype=np.int64)
    space = choose_space(
        counts, np.minimum(shares, 2 * 10**6), most_instances=program.max_instances
    )
    taken = int(rng.choice([0, 0, 2]))
    terms = TableTerms(
        program=program,
        law=learn_law(counts, shares, space),
        on_demand_price=records[0].on_demand_price,
        on_demand_available=int(rng.choice([10**6, 2])),
        taken=taken,
        reserve_slots=records[0].reserve_slots,
    )
    states = run_states(space, counts + taken)
    states[rng.random(states.size) < 0.1] = -1
    placed = [replace(r, run_state=int(k)) for r, k in zip(records, states, strict=True)]
    return build_table(terms), placed


@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS, firm=st.booleans())
def test_value_to_go_replays_as_defined(seed: int, firm: bool) -> None:
    program, records = life_of(seed)
    rng = np.random.default_rng(seed + 1)
    if not records:
        return
    table, records = table_of_life(rng, program, records)
    policies = (SDP, *HYBRIDS, policy_named("uniform_progress"), PLANNERS[1])
    fallback = policy_named("msu")

    results = replay_pool(program, records, policies, fallback, table, spot_firm=firm)
    many = replay_many(program, series_of(records), policies, [0], fallback, table, spot_firm=firm)

    for column, (policy, result) in enumerate(zip(policies, results, strict=True)):
        one = replay_policy(program, records, policy, fallback, table, spot_firm=firm)
        assert result == one, policy
        assert many.utility_micro_usd[0, column] == one.utility_micro_usd, policy


def test_the_table_of_another_grid_is_not_compiled_into_a_replay() -> None:
    program = paper_program()
    records = market_of(program.end_slots, seed=8)
    table, records = table_of_life(np.random.default_rng(8), paper_program(deadline=12), records)
    fallback = policy_named("msu")

    (result,) = replay_pool(program, records, (SDP,), fallback, table)

    assert result == replay_policy(program, records, SDP, fallback, table)


def test_the_whole_pool_replays_as_defined() -> None:
    program = paper_program()
    records = market_of(program.end_slots, seed=3)
    fallback = policy_named(FALLBACK_POLICY_ID)

    results = replay_pool(program, records, POOL, fallback)

    # One without is replayed as it is defined, hundreds of times slower.
    assert [policy.policy_id for policy in POOL if not has_kernel(policy)] == []
    for policy, result in zip(POOL, results, strict=True):
        assert result == replay_policy(program, records, policy, fallback), policy


def test_money_and_work_beyond_what_64_bits_multiply_to() -> None:
    """A large job in fine quanta: products of its work and prices need more than 64 bits."""
    fine = paper_program(deadline=40)
    scale = 10**9
    program = JobProgram(
        **{name: getattr(fine, name) for name in fine.__slots__}
        | {
            "work_quanta": 1000 * 1800 * scale * 4,
            "rate_quanta_per_s": tuple(n * 5 * scale for n in range(13)),
            "value_micro_usd": tuple(v * 10**6 for v in fine.value_micro_usd),
        }
    )
    dear = [
        SlotRecord(
            spot_price=r.spot_price * 1000,
            on_demand_price=r.on_demand_price * 1000,
            spot_available=r.spot_available,
            on_demand_available=r.on_demand_available,
            forecast=r.forecast,
        )
        for r in market_of(program.end_slots, seed=5)
    ]
    fallback = policy_named(FALLBACK_POLICY_ID)
    policies = (*THRESHOLDS, *PLANNERS[:2])

    results = replay_pool(program, dear, policies, fallback)

    for policy, result in zip(policies, results, strict=True):
        assert result == replay_policy(program, dear, policy, fallback), policy


def test_many_starts_replay_as_each_alone() -> None:
    program = paper_program()
    records = market_of(60, seed=4)
    fallback = policy_named(FALLBACK_POLICY_ID)
    policies = (*THRESHOLDS, Ahap(3, 2, 500_000))
    starts = [0, 17, 17, 44, 55, 59]

    table = replay_many(program, series_of(records), policies, starts, fallback)

    for row, first in enumerate(starts):
        for column, policy in enumerate(policies):
            one = replay_policy(program, records[first:], policy, fallback)
            assert table.utility_micro_usd[row, column] == one.utility_micro_usd
            assert table.cost_micro_usd[row, column] == one.cost_micro_usd
            assert table.value_micro_usd[row, column] == one.value_micro_usd
            assert table.finished_slot[row, column] == one.finished_slot
            assert table.on_time[row, column] == one.on_time
            assert table.decisions[row, column] == len(one.holdings)


class Waiter:
    """A policy without a compiled form."""

    policy_id = "waiter"
    needs_forecast = False
    nets_soft_deadlines = True
    forecast_slots = 0
    uses_table = False

    def choose(self, view: PolicyView, memory: Memory) -> Choice:
        return policy_named("msu").choose(view, memory)


def test_policies_without_a_kernel_are_replayed_slot_by_slot() -> None:
    program = paper_program()
    records = market_of(40, seed=6)
    fallback = policy_named(FALLBACK_POLICY_ID)
    policies: tuple[Policy, ...] = (Waiter(), policy_named("msu"))

    own, compiled = replay_pool(program, records, policies, fallback)
    table = replay_many(program, series_of(records), policies, [0, 9], fallback)

    assert not has_kernel(policies[0])
    assert own == compiled
    assert table.utility_micro_usd[:, 0].tolist() == table.utility_micro_usd[:, 1].tolist()


def test_the_clairvoyant_of_many_starts_is_that_of_each() -> None:
    program = paper_program()
    records = market_of(40, seed=7)

    table = clairvoyant_many(program, series_of(records), [0, 20, 35])

    for row, first in enumerate((0, 20, 35)):
        one = clairvoyant_optimum(program, records[first : first + program.end_slots])
        assert table.utility_micro_usd[row] == one.result.utility_micro_usd
        assert table.upper_utility_micro_usd[row] == one.upper_utility_micro_usd
        assert table.on_time[row] == one.result.on_time


def test_a_start_outside_the_series_is_refused() -> None:
    series = series_of(market_of(5, seed=1))

    with pytest.raises(ValueError, match="first slots must be >= 0 and < 5"):
        replay_many(paper_program(), series, THRESHOLDS, [5], policy_named("msu"))
