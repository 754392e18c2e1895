"""The rest of a life, replayed from where a job stands, is the rest of the whole life."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotline.domain.jobs.progress import JobProgress
from spotline.domain.policies.compiled import Begun, replay_pool, replay_rest
from spotline.domain.policies.decision import after_slot, slot_cost_micro_usd
from spotline.domain.policies.registry import FALLBACK_POLICY_ID, policy_named
from tests.contract.test_policy_contract import lives, view_of
from tests.depth import examples

FALLBACK = policy_named(FALLBACK_POLICY_ID)
FIRST = Begun(elapsed_slots=0, state=JobProgress(), spent_micro_usd=0)


@given(
    life=lives(), name=st.sampled_from(["msu", "uniform_progress", "ahanp(0.5)", "ahap(3,2,0.6)"])
)
@settings(max_examples=examples(30), deadline=None)
def test_from_the_first_slot_it_is_the_whole_life(life, name) -> None:
    program, records = life
    policy = policy_named(name)

    (whole,) = replay_pool(program, records, [policy], FALLBACK)
    rest = replay_rest(program, [FIRST], [records, records], (policy, FALLBACK))

    assert rest.cost_micro_usd.tolist() == [[whole.cost_micro_usd] * 2]
    assert rest.value_micro_usd.tolist() == [[whole.value_micro_usd] * 2]
    assert rest.on_time.tolist() == [[whole.on_time] * 2]
    assert rest.finished_slot.tolist() == [[whole.finished_slot] * 2]


@given(life=lives(), data=st.data())
@settings(max_examples=examples(30), deadline=None)
def test_what_was_held_until_now_and_the_rest_make_up_a_life(life, data) -> None:
    """Of a policy without memory: it goes on as if it had never been asked where it stands."""
    program, records = life
    policy = policy_named("uniform_progress")
    (whole,) = replay_pool(program, records, [policy], FALLBACK)
    slots = data.draw(st.integers(0, len(whole.holdings) - 1))
    state, spent = JobProgress(), 0
    for slot in range(slots):
        view = replace(
            view_of(program, records[slot], slot=slot, state=state), spent_micro_usd=spent
        )
        if view.interrupted:
            view = replace(view, state=state.fallen())
        spent += slot_cost_micro_usd(view, whole.holdings[slot])
        state = after_slot(view, whole.holdings[slot])
    begun = Begun(elapsed_slots=slots, state=state, spent_micro_usd=spent)

    rest = replay_rest(program, [begun], [records[slots:]], (policy, FALLBACK))

    assert rest.cost_micro_usd[0, 0] == whole.cost_micro_usd
    assert rest.finished_slot[0, 0] == whole.finished_slot


@given(life=lives())
@settings(max_examples=examples(10), deadline=None)
def test_every_start_meets_every_future(life) -> None:
    program, records = life
    policy = policy_named("msu")
    none = [replace(record, spot_available=0) for record in records]
    far = replace(FIRST, state=JobProgress(progress_quanta=program.work_quanta // 2))

    both = replay_rest(program, [FIRST, far], [records, none], (policy, FALLBACK))

    for row, start in enumerate((FIRST, far)):
        for column, future in enumerate((records, none)):
            alone = replay_rest(program, [start], [future], (policy, FALLBACK))
            assert both.cost_micro_usd[row, column] == alone.cost_micro_usd[0, 0]
    assert both.cost_micro_usd.shape == (2, 2)


@given(life=lives())
@settings(max_examples=examples(5), deadline=None)
def test_starts_that_differ_in_time_and_short_futures_are_refused(life) -> None:
    program, records = life
    players = (policy_named("msu"), FALLBACK)

    with pytest.raises(ValueError, match="equally many slots"):
        replay_rest(program, [FIRST, replace(FIRST, elapsed_slots=1)], [records], players)
    with pytest.raises(ValueError, match=f"of {program.end_slots} at least"):
        replay_rest(program, [FIRST], [records[:-1]], players)
    over = replace(FIRST, elapsed_slots=program.end_slots)
    assert not np.any(replay_rest(program, [over], [()], players).on_time)
