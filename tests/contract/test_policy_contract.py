"""What every registered policy promises, whatever the market does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.answer import DecisionReason
from spotline.domain.policies.compiled import replay_pool
from spotline.domain.policies.decision import after_slot, decide_slot, fit
from spotline.domain.policies.interface import START, Policy, PolicyView, WindowForecast
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, PAPER_POOL, POOL, policy_named
from spotline.domain.policies.replay import SlotRecord, clairvoyant_optimum, replay_policy
from tests.depth import examples

FAMILIES = [
    [policy for policy in POOL if type(policy) is family]
    for family in dict.fromkeys(type(policy) for policy in POOL)
]
# Both ends of each family's parameters and what is between: the rest differs in numbers only.
REPRESENTATIVES = [
    policy for of in FAMILIES for policy in dict.fromkeys((of[0], of[len(of) // 2], of[-1]))
]
ON_DEMAND_PRICE = 3_000_000


def program_of(*, counts: tuple[int, ...], work_slots: int, deadline: int, end: int) -> JobProgram:
    rates = tuple(n if n in counts else 0 for n in range(counts[-1] + 1))
    value = 40_000_000
    values = [value] * (deadline + 1)
    values += [value * (end - slot) // (end - deadline) for slot in range(deadline + 1, end + 1)]
    return JobProgram(
        slot_s=1800,
        work_quanta=counts[-1] * 1800 * work_slots,
        rate_quanta_per_s=rates,
        allowed_counts=counts,
        launch_s=180,
        grow_s=180,
        shrink_s=90,
        interrupted_s=270,
        deadline_slots=deadline,
        end_slots=end,
        hard=deadline == end,
        value_micro_usd=tuple(values),
    )


@st.composite
def lives(draw: st.DrawFn) -> tuple[JobProgram, list[SlotRecord]]:
    counts = draw(st.sampled_from([(1,), (1, 2, 3, 4), (4,), (2, 4)]))
    work_slots = draw(st.integers(1, 4))
    deadline = work_slots + draw(st.integers(1, 4))
    end = deadline + draw(st.sampled_from([0, 2, 4]))
    records = []
    for _ in range(end):
        price = draw(st.integers(300_000, 3_500_000))
        count = draw(st.sampled_from([0, 0, 1, 3, 4, 16]))
        predicted = draw(st.lists(st.sampled_from([0, 2, 4, 16]), min_size=5, max_size=5))
        prices = draw(st.lists(st.integers(1, 4_000_000), min_size=5, max_size=5))
        forecast = WindowForecast(spot_price=tuple(prices), spot_available=tuple(predicted))
        records.append(
            SlotRecord(
                spot_price=price,
                on_demand_price=ON_DEMAND_PRICE,
                spot_available=count,
                on_demand_available=1_000_000,
                forecast=draw(st.sampled_from([forecast, forecast, None])),
            )
        )
    return program_of(counts=counts, work_slots=work_slots, deadline=deadline, end=end), records


def view_of(
    program: JobProgram, record: SlotRecord, *, slot: int, state: JobProgress
) -> PolicyView:
    return PolicyView(
        program=program,
        elapsed_slots=slot,
        state=state,
        interrupted=state.holding.spot > record.spot_available,
        spot_price=record.spot_price,
        on_demand_price=record.on_demand_price,
        spot_available=record.spot_available,
        on_demand_available=record.on_demand_available,
        forecast=record.forecast
        or WindowForecast(spot_price=(1_000_000,) * 5, spot_available=(4,) * 5),
        slot_left_s=program.slot_s,
    )


def check_same_view_same_choice(policy: Policy, life: tuple[JobProgram, list[SlotRecord]]) -> None:
    program, records = life
    view = view_of(program, records[0], slot=0, state=JobProgress())

    assert policy.choose(view, START) == policy.choose(view, START)


def check_holdings_are_available_and_allowed(
    policy: Policy, life: tuple[JobProgram, list[SlotRecord]]
) -> None:
    program, records = life
    state, memory = JobProgress(), START
    for slot, record in enumerate(records):
        view = view_of(program, record, slot=slot, state=state)
        decision = decide_slot(policy, view, memory)
        assert decision.holding.spot <= record.spot_available
        assert decision.holding.instances in (0, *program.allowed_counts)
        state, memory = after_slot(view, decision.holding), decision.memory


def check_hard_deadlines_are_met(policy: Policy, life: tuple[JobProgram, list[SlotRecord]]) -> None:
    program, records = life
    if not program.hard:
        return
    needed = program.slots_on_demand(program.work_quanta, program.launch_s)
    result = replay_policy(program, records, policy, policy_named(FALLBACK_POLICY_ID))

    assert result.on_time or needed > program.deadline_slots


def check_nobody_beats_the_clairvoyant(
    policy: Policy, life: tuple[JobProgram, list[SlotRecord]]
) -> None:
    program, records = life
    best = clairvoyant_optimum(program, records)
    result = replay_policy(program, records, policy, policy_named(FALLBACK_POLICY_ID))

    assert result.utility_micro_usd <= best.upper_utility_micro_usd
    assert best.result.utility_micro_usd <= best.upper_utility_micro_usd


CHECKS: list[Callable[[Policy, tuple[JobProgram, list[SlotRecord]]], None]] = [
    check_same_view_same_choice,
    check_holdings_are_available_and_allowed,
    check_hard_deadlines_are_met,
    check_nobody_beats_the_clairvoyant,
]


@pytest.mark.parametrize("policy", REPRESENTATIVES, ids=lambda p: p.policy_id)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@settings(max_examples=examples(45), deadline=None)
@given(life=lives())
def test_policy_keeps_the_contract(
    policy: Policy,
    check: Callable[[Policy, tuple[JobProgram, list[SlotRecord]]], None],
    life: tuple[JobProgram, list[SlotRecord]],
) -> None:
    check(policy, life)


def test_the_pool_begins_with_the_papers_and_names_each_policy_once() -> None:
    names = [policy.policy_id for policy in POOL]

    assert len(names) == len(set(names))
    assert POOL[: len(PAPER_POOL)] == PAPER_POOL
    assert sum(name.startswith("ahap(") for name in names[: len(PAPER_POOL)]) == 105
    assert sum(name.startswith("ahanp(") for name in names[: len(PAPER_POOL)]) == 7


def test_an_unknown_policy_is_named_with_what_was_expected() -> None:
    with pytest.raises(KeyError, match="expected one of on_demand_only, msu"):
        policy_named("ahap")


def test_the_budget_is_never_exceeded() -> None:
    program = program_of(counts=(4,), work_slots=2, deadline=6, end=6)
    broke = JobProgram(**{**_fields(program), "budget_micro_usd": 1_000_000})
    record = SlotRecord(
        spot_price=900_000,
        on_demand_price=ON_DEMAND_PRICE,
        spot_available=4,
        on_demand_available=9,
        forecast=None,
    )
    view = view_of(broke, record, slot=0, state=JobProgress())

    decision = decide_slot(policy_named("msu"), view, START)

    assert decision.reason is DecisionReason.BUDGET
    assert decision.holding.instances == 0


def test_a_wish_beyond_stock_is_cut_to_an_allowed_count() -> None:
    program = program_of(counts=(2, 4), work_slots=2, deadline=6, end=6)
    record = SlotRecord(
        spot_price=900_000,
        on_demand_price=ON_DEMAND_PRICE,
        spot_available=3,
        on_demand_available=0,
        forecast=None,
    )
    view = view_of(program, record, slot=0, state=JobProgress())

    assert fit(view, Holding(spot=4)) == Holding(spot=2)


def _fields(program: JobProgram) -> dict[str, object]:
    return {name: getattr(program, name) for name in program.__slots__}


@pytest.mark.parametrize("policy", REPRESENTATIVES, ids=lambda policy: policy.policy_id)
@settings(max_examples=examples(24), deadline=None)
@given(lives(), st.integers(0, 5))
def test_a_reservation_is_used_whole_and_costs_nothing(policy, life, instances):
    program, records = life
    free = [
        replace(record, on_demand_price=0, spot_price=1, spot_available=0) for record in records
    ]
    free = [replace(record, on_demand_available=instances) for record in free]

    result = replay_policy(program, free, policy, policy_named(FALLBACK_POLICY_ID))

    fits = [count for count in program.allowed_counts if count <= instances]
    assert result.cost_micro_usd == 0
    assert {holding.on_demand for holding in result.holdings} == {max(fits, default=0)}
    assert result == replay_pool(program, free, [policy], policy_named(FALLBACK_POLICY_ID))[0]
