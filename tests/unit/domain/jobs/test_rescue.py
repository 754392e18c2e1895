"""Room in a stock of on-demand for the rescues of hard deadlines."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spotline.domain.jobs.program import SMALLEST_PROGRAM
from spotline.domain.jobs.rescue import Rescue, RescueClaims, is_at_stake, rescue_of

HARD = replace(SMALLEST_PROGRAM, hard=True)
SLOT_WORK = HARD.rate_quanta_per_s[HARD.max_instances] * HARD.slot_s
RESCUES = st.builds(
    lambda first, length, instances: Rescue(first, first + length, instances),
    st.integers(0, 12),
    st.integers(1, 6),
    st.integers(1, 8),
)


@given(
    RESCUES, st.lists(st.tuples(st.sampled_from("abc"), RESCUES), max_size=6), st.integers(0, 40)
)
def test_there_is_room_where_no_slot_of_the_rescue_needs_more_than_the_stock(
    rescue: Rescue, claimed: list[tuple[str, Rescue]], stock: int
) -> None:
    claims = RescueClaims(0)
    for job_id, other in claimed:
        claims.add(job_id, other)

    # What a job itself may need, here or elsewhere, does not stand in its own way.
    others = [other for job_id, other in claimed if job_id != "a"]
    needed = [
        rescue.instances
        + sum(other.instances for other in others if other.first_slot <= at < other.end_slot)
        for at in range(rescue.first_slot, rescue.end_slot)
    ]
    assert claims.has_room("a", rescue, stock) == (max(needed) <= stock)


def test_rescues_far_away_are_kept_beside_near_ones() -> None:
    claims = RescueClaims(7)
    claims.add("near", Rescue(7, 9, 3))
    claims.add("far", Rescue(300, 400, 5))

    assert claims.has_room("a", Rescue(8, 350, 2), 7)
    assert not claims.has_room("a", Rescue(8, 350, 3), 7)
    assert claims.has_room("a", Rescue(500, 900, 7), 7)


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 10))
def test_work_that_is_done_lets_a_rescue_begin_no_sooner(left: int, slots: int, done: int) -> None:
    before = rescue_of(HARD, 5, slots, left * SLOT_WORK)
    after = rescue_of(HARD, 5, slots, max(1, left - done) * SLOT_WORK)

    assert before is not None
    assert after is not None
    assert after.first_slot >= before.first_slot
    assert after.end_slot == before.end_slot == 5 + slots


def test_a_rescue_leaves_a_slot_more_than_work_and_overhead_need() -> None:
    program = replace(HARD, launch_s=10, interrupted_s=20)

    found = rescue_of(program, 0, 10, 3 * SLOT_WORK)

    # Three slots of work and 20 s are four slots.
    assert found == Rescue(5, 10, program.max_instances)


def test_work_that_is_done_needs_no_rescue_and_a_soft_deadline_the_same_as_a_hard_one() -> None:
    assert rescue_of(HARD, 0, 10, 0) is None
    soft = replace(HARD, hard=False)
    assert rescue_of(soft, 0, 10, SLOT_WORK) == rescue_of(HARD, 0, 10, SLOT_WORK) is not None


def test_only_a_hard_deadline_with_little_slack_is_at_stake() -> None:
    assert is_at_stake(HARD, 2)
    assert not is_at_stake(HARD, 3)
    assert not is_at_stake(replace(HARD, hard=False), 0)
