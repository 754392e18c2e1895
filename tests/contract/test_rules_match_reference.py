"""The compiled rules against the readable ones they came from: every choice, reason and memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.program import Holding, JobProgram
from spotline.domain.jobs.progress import JobProgress, advance, overhead_s
from spotline.domain.policies import lives
from spotline.domain.policies.compiled import params_of, replay_pool
from spotline.domain.policies.decision import after_slot, decide_slot, fit, is_safe
from spotline.domain.policies.interface import START, Outlook, Policy, PolicyView
from spotline.domain.policies.registry import POOL, policy_named
from spotline.domain.policies.replay import SlotRecord
from spotline.domain.solvers.value_table import ValueTable
from tests.contract.test_episode_matches_policies import SEEDS, life_of, table_of_life
from tests.depth import examples
from tests.reference import decision as reference
from tests.reference import progress as reference_progress
from tests.reference.registry import policy_named as reference_named
from tests.reference.replay import replay_policy as reference_replay

NAMES = (
    "on_demand_only",
    "msu",
    "uniform_progress",
    "ahanp(0.3)",
    "ahanp(0.9)",
    "ahap(1,1,0.3)",
    "ahap(3,2,0.6)",
    "ahap(5,5,0.9)",
    "sdp",
    "hybrid(2)",
)


def view_of(
    rng: np.random.Generator,
    program: JobProgram,
    record: SlotRecord,
    state: JobProgress,
    table: ValueTable | None,
) -> PolicyView:
    """One slot as a service may meet it, also one that has begun."""
    left_s = program.slot_s if rng.random() < 0.6 else int(rng.integers(1, program.slot_s + 1))
    known = table is not None and record.run_state >= 0
    interrupted = state.holding.spot > record.spot_available or bool(rng.random() < 0.1)
    state = state.fallen() if interrupted else state
    return PolicyView(
        program=program,
        elapsed_slots=0,
        state=state,
        interrupted=interrupted,
        spot_price=record.spot_price,
        on_demand_price=record.on_demand_price,
        spot_available=record.spot_available,
        on_demand_available=record.on_demand_available,
        forecast=record.forecast,
        slot_left_s=left_s,
        spot_firm=bool(rng.random() < 0.7),
        outlook=Outlook(table=table, run_state=record.run_state) if known and table else None,
        reserve_slots=record.reserve_slots,
        rescue_instances=record.rescue_instances,
    )


def compare_decisions(name: str, seed: int) -> None:
    program, records = life_of(seed)
    rng = np.random.default_rng(seed + 2)
    table = None
    if records and policy_named(name).uses_table:
        table, records = table_of_life(rng, program, records)
    policy, expected_policy = policy_named(name), reference_named(name)
    state, memory, spent = JobProgress(), START, 0
    for slot, record in enumerate(records):
        view = replace(
            view_of(rng, program, record, state, table), elapsed_slots=slot, spent_micro_usd=spent
        )
        if policy.needs_forecast and view.forecast is None:
            memory = START
            continue

        decision = decide_slot(policy, view, memory)
        expected = reference.decide_slot(expected_policy, view, memory)

        assert decision.holding == expected.holding
        assert decision.reason is expected.reason
        assert decision.memory == expected.memory
        assert all(type(number) is int for number in decision.memory)
        assert after_slot(view, decision.holding) == reference.after_slot(view, expected.holding)
        if slot < program.deadline_slots:
            for holding in (decision.holding, Holding(spot=1), Holding(on_demand=1)):
                if holding.instances <= program.max_instances:
                    assert is_safe(view, holding) == reference.is_safe(view, holding)
        wish = Holding(spot=int(rng.integers(0, 9)), on_demand=int(rng.integers(0, 9)))
        assert fit(view, wish) == reference.fit(view, wish)
        spent += reference.slot_cost_micro_usd(view, decision.holding)
        memory = decision.memory
        # Now and then a job is not where its policy expected it.
        taken = decision.holding if rng.random() < 0.9 else Holding()
        state = after_slot(view, taken)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
# A job that is done, with nothing to lose, and a loss that costs all of the deadline's slot.
@example(seed=100247)
def test_a_slot_is_decided_as_the_reference_decides_it(name: str, seed: int) -> None:
    compare_decisions(name, seed)


@settings(max_examples=examples(45), deadline=None)
@given(seed=SEEDS, firm=st.booleans())
def test_a_pool_is_replayed_as_the_reference_replays_it(seed: int, firm: bool) -> None:
    program, records = life_of(seed)
    if not records:
        return
    table, records = table_of_life(np.random.default_rng(seed + 1), program, records)
    policies: list[Policy] = [policy_named(name) for name in NAMES]

    results = replay_pool(program, records, policies, policy_named("msu"), table, spot_firm=firm)

    for name, result in zip(NAMES, results, strict=True):
        expected = reference_replay(
            program, records, reference_named(name), reference_named("msu"), table, spot_firm=firm
        )
        assert result == expected, name


def test_the_registry_and_the_dispatch_of_lives_know_the_same_policies() -> None:
    params = [params_of(policy) for policy in POOL]
    kinds = {each.kind for each in params if each is not None}

    assert None not in params
    assert kinds == set(lives.KINDS)
    assert len(lives.KINDS) == len(set(lives.KINDS))
    assert set(lives.PLANNERS) == {
        each.kind
        for policy, each in zip(POOL, params, strict=True)
        if each is not None and (policy.forecast_slots or policy.uses_table)
    }


@settings(max_examples=examples(200), deadline=None)
@given(seed=SEEDS)
def test_progress_and_overheads_are_those_of_the_reference(seed: int) -> None:
    program, _ = life_of(seed)
    rng = np.random.default_rng(seed)
    most = program.max_instances
    held, wanted = (
        Holding(spot=spot, on_demand=int(rng.integers(0, most + 1 - spot)))
        for spot in rng.integers(0, most + 1, 2).tolist()
    )
    interrupted = bool(rng.random() < 0.3)
    state = JobProgress(
        progress_quanta=int(rng.integers(0, program.work_quanta + 1)),
        holding=held,
        pending_overhead_s=int(rng.choice([0, 0, 30, 400])),
    )
    state = replace(state, unsaved_quanta=int(rng.integers(0, state.progress_quanta + 1)))
    held_s = int(rng.integers(0, 2 * program.slot_s))

    assert overhead_s(program, held, wanted, interrupted=interrupted) == (
        reference_progress.overhead_s(program, held, wanted, interrupted=interrupted)
    )
    assert advance(program, state, wanted, held_s=held_s, interrupted=interrupted) == (
        reference_progress.advance(program, state, wanted, held_s=held_s, interrupted=interrupted)
    )
